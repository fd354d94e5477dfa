"""The parts of a target's CapabilityStatement that an import needs."""

from collections.abc import Callable
from typing import Any, NamedTuple

from pipelines.client.shapes import as_object, as_text, objects_in, texts_in


class Capabilities(NamedTuple):
    """The capabilities of a target, from its `/metadata`. `store_id`, `url`, `name` and `software` are None if absent.

    conditional, identified, searched, validates: the types with conditional create, search by identifier, search by
    `_id`, and `$validate`. dated: the types with a search by the time of the last change. puts: the types that a PUT
    creates under its own id, or may create, since HAPI does so without saying it. includes: what searches include,
    such as `DiagnosticReport:result`. enforced: the types whose references the target checks itself.
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
    dated: frozenset[str] = frozenset()
    puts: frozenset[str] = frozenset()
    includes: frozenset[str] = frozenset()
    enforced: frozenset[str] = frozenset()

    @property
    def beyond_interface(self) -> bool:
        """True for a server with functions beyond the interface."""
        return bool(self.batch or self.transaction or self.conditional or self.identified)

    def shows_names(self, target: str, resource_type: str) -> bool:
        """True if resources made at the target with this name have their records' identifiers, and can be found by
        them.

        A target that was known by its address, and shows an id now, got its records without identifiers.
        """
        return resource_type in self.identified and self.store_id in (None, target)


def capabilities_of(statement: dict[str, Any]) -> Capabilities:
    """Return the capabilities in a CapabilityStatement."""
    # Some statements also have a part for the server as a client.
    rest = next((each for each in objects_in(statement.get("rest")) if each.get("mode") != "client"), {})
    about, software = as_object(statement.get("implementation")), as_object(statement.get("software"))
    named = as_text(about.get("description")) or ""
    offered = _codes(rest)
    resources, everywhere = objects_in(rest.get("resource")), _params(rest)

    def types(has: Callable[[dict[str, Any]], bool]) -> frozenset[str]:
        return frozenset(str(resource.get("type")) for resource in resources if has(resource))

    return Capabilities(
        batch="batch" in offered,
        conditional=types(lambda resource: resource.get("conditionalCreate") is True),
        validates=types(
            lambda resource: any(each.get("name") == "validate" for each in objects_in(resource.get("operation")))
        ),
        store_id=named if named.startswith("urn:uuid:") else None,
        url=as_text(about.get("url")),
        software=as_text(software.get("version")),
        transaction="transaction" in offered,
        identified=types(lambda resource: "identifier" in _params(resource)),
        searched=types(lambda resource: "_id" in _params(resource)),
        name=as_text(software.get("name")),
        dated=types(lambda resource: "_lastUpdated" in everywhere | _params(resource)),
        puts=types(lambda resource: resource.get("updateCreate", "update" in _codes(resource)) is True),
        includes=frozenset(name for each in resources for name in texts_in(each.get("searchInclude"))),
        enforced=types(lambda resource: "enforced" in texts_in(resource.get("referencePolicy"))),
    )


def _codes(part: dict[str, Any]) -> frozenset[str]:
    """Return the interactions that a part of a statement declares."""
    return frozenset(texts_in([each.get("code") for each in objects_in(part.get("interaction"))]))


def _params(part: dict[str, Any]) -> frozenset[str]:
    """Return the names of the search parameters that a part of a statement declares."""
    return frozenset(texts_in([each.get("name") for each in objects_in(part.get("searchParam"))]))
