"""The parts of a target's CapabilityStatement that an import needs."""

from typing import Any, NamedTuple


class Capabilities(NamedTuple):
    """The capabilities of a target, by its `/metadata`. `store_id`, `url` and `software` are None where absent."""

    batch: bool = False
    conditional: frozenset[str] = frozenset()
    validates: frozenset[str] = frozenset()
    store_id: str | None = None
    url: str | None = None
    software: str | None = None

    def safe_batches(self, resource_type: str) -> bool:
        """True if creates may go in bundles and be sent again: batch and conditional create are both offered."""
        return self.batch and resource_type in self.conditional


def capabilities_of(statement: dict[str, Any]) -> Capabilities:
    """Return the capabilities that a CapabilityStatement shows."""
    rest = next(iter(_objects(statement.get("rest"))), {})
    about, software = _object(statement.get("implementation")), _object(statement.get("software"))
    named = _text(about.get("description")) or ""
    return Capabilities(
        batch=any(interaction.get("code") == "batch" for interaction in _objects(rest.get("interaction"))),
        conditional=frozenset(
            str(resource.get("type"))
            for resource in _objects(rest.get("resource"))
            if resource.get("conditionalCreate") is True
        ),
        validates=frozenset(
            str(resource.get("type"))
            for resource in _objects(rest.get("resource"))
            if any(operation.get("name") == "validate" for operation in _objects(resource.get("operation")))
        ),
        store_id=named if named.startswith("urn:uuid:") else None,
        url=_text(about.get("url")),
        software=_text(software.get("version")),
    )


def _objects(value: Any) -> list[dict[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
