"""What a target says of itself in its CapabilityStatement, as far as an import asks."""

from typing import Any, NamedTuple


class Capabilities(NamedTuple):
    """What a target says of itself in `/metadata`. `store_id`, `url` and `software` are None where it shows none."""

    batch: bool = False
    conditional: frozenset[str] = frozenset()
    store_id: str | None = None
    url: str | None = None
    software: str | None = None

    def safe_batches(self, resource_type: str) -> bool:
        """Whether creates may go in bundles and be sent again: batch and conditional create are both offered."""
        return self.batch and resource_type in self.conditional


def capabilities_of(statement: dict[str, Any]) -> Capabilities:
    """What a CapabilityStatement says."""
    rest: dict[str, Any] = next(iter(statement.get("rest") or ()), {})
    about = statement.get("implementation") or {}
    named = str(about.get("description") or "")
    return Capabilities(
        batch=any(interaction.get("code") == "batch" for interaction in rest.get("interaction", ())),
        conditional=frozenset(r["type"] for r in rest.get("resource", ()) if r.get("conditionalCreate") is True),
        store_id=named if named.startswith("urn:uuid:") else None,
        url=about.get("url"),
        software=(statement.get("software") or {}).get("version"),
    )
