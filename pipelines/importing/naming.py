"""Names of reference data, and the search for the target's resources with these names.

The condition of a create asks for a name too. A server that ignores it would create everything anew at each load.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

from pipelines.client.client import PAGE, FhirClient
from pipelines.client.identifiers import VALUES_A_SEARCH, identifiers_in, search_token, search_value
from pipelines.client.replies import RequestRefused, resources_of

Body = dict[str, Any]


def _name(body: Body) -> tuple[str, str] | None:
    """Return system and value of the first identifier with a value. An empty system is no other system's."""
    first = next((each for each in identifiers_in(body) if each.get("value")), None)
    return (str(first.get("system") or ""), str(first["value"])) if first else None


def condition_of(body: Body) -> str | None:
    """Return the search that finds a resource again: by its first identifier with a value, else by its canonical
    address and version. Return None if it has neither.
    """
    if name := _name(body):
        return f"identifier={search_token(*name)}"
    return "&".join(f"{name}={search_value(value)}" for name, value in _address(body)) or None


def _address(body: Body) -> list[tuple[str, str]]:
    named = [(name, body[name]) for name in ("url", "version") if isinstance(body.get(name), str)]
    return named if isinstance(body.get("url"), str) else []


def id_as_name(body: Body, system: str) -> Body:
    """Return a body with its id, if it has one, as a further identifier of a system."""
    if not isinstance(body.get("id"), str):
        return body
    return body | {"identifier": [*identifiers_in(body), {"system": system, "value": body["id"]}]}


def is_another(found: Body, body: Body) -> bool:
    """True if two resources share no identifier, and have different ones of one system."""
    here, there = (
        {
            (str(each["system"]), str(each["value"]))
            for each in identifiers_in(of)
            if each.get("system") and each.get("value")
        }
        for of in (body, found)
    )
    return here.isdisjoint(there) and not {system for system, _ in here}.isdisjoint(system for system, _ in there)


class NamedAtTarget:
    """The target's resources by name. identified: types that, by its statement, can be searched by identifier."""

    def __init__(self, client: FhirClient, identified: Iterable[str]) -> None:
        self._client, self._identified = client, set(identified)

    def ids(self, kind: str, bodies: Iterable[Body]) -> dict[str, list[str]]:
        """Return, by condition, the ids of the target's resources with a name of these. Raises as a search does,
        except `RequestRefused`.

        Return none of a type if the target refuses the search, or shows resources that were not asked for.
        """
        values: dict[str, set[str]] = defaultdict(set)
        addresses = set[str]()
        for body in bodies:
            if name := _name(body):
                values[name[0]].add(name[1])
            elif condition := condition_of(body):
                addresses.add(condition)
        found: dict[str, dict[str, None]] = defaultdict(dict)
        for each in self._found(kind, values, addresses):
            for condition in _conditions(each):
                found[condition][str(each["id"])] = None
        return {condition: list(ids) for condition, ids in found.items()}

    def _found(self, kind: str, values: dict[str, set[str]], addresses: set[str]) -> Iterator[Body]:
        try:
            if values and self._searches(kind):
                for system, some in values.items():
                    asked = sorted(some)
                    for at in range(0, len(asked), VALUES_A_SEARCH):
                        for page in self._client.named(kind, system, asked[at : at + VALUES_A_SEARCH]):
                            yield from resources_of(page, kind)
            for condition in sorted(addresses):
                yield from resources_of(self._client.get(f"/{kind}?_count={PAGE}&{condition}"), kind)
        except RequestRefused:
            self._identified.discard(kind)

    def _searches(self, kind: str) -> bool:
        if kind in self._identified and not self._client.finds_nobody(kind):
            self._identified.discard(kind)
        return kind in self._identified


def _conditions(body: Body) -> Iterator[str]:
    """Yield all conditions that find a resource."""
    for each in identifiers_in(body):
        if each.get("value"):
            yield f"identifier={search_token(str(each.get('system') or ''), str(each['value']))}"
    if (condition := condition_of({name: body.get(name) for name in ("url", "version")})) is not None:
        yield condition
