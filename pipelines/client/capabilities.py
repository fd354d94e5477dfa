"""The parts of a target's CapabilityStatement that an import needs."""

from typing import Any, NamedTuple


class Capabilities(NamedTuple):
    """The capabilities of a target, by its `/metadata`. `store_id`, `url`, `name` and `software` are None where absent.

    conditional, identified, searched, validates: the types with conditional create, search by identifier, search by
    `_id`, and `$validate`.
    """

    batch: bool = False
    conditional: frozenset[str] = frozenset()
    validates: frozenset[str] = frozenset()
    store_id: str | None = None
    url: str | None = None
    software: str | None = None
    transaction: bool = False
    identified: frozenset[str] = frozenset()
    name: str | None = None
    searched: frozenset[str] = frozenset()


def capabilities_of(statement: dict[str, Any]) -> Capabilities:
    """Return the capabilities that a CapabilityStatement shows."""
    rest = next(iter(_objects(statement.get("rest"))), {})
    about, software = _object(statement.get("implementation")), _object(statement.get("software"))
    named = _text(about.get("description")) or ""
    offered = {interaction.get("code") for interaction in _objects(rest.get("interaction"))}
    return Capabilities(
        batch="batch" in offered,
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
        transaction="transaction" in offered,
        identified=_with_param(rest, "identifier"),
        searched=_with_param(rest, "_id"),
        name=_text(software.get("name")),
    )


def _with_param(rest: dict[str, Any], name: str) -> frozenset[str]:
    """Return the types with a search parameter of this name."""
    return frozenset(
        str(resource.get("type"))
        for resource in _objects(rest.get("resource"))
        if any(param.get("name") == name for param in _objects(resource.get("searchParam")))
    )


def _objects(value: Any) -> list[dict[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
