"""Transaction: creates and updates in one Bundle, of which all are stored or none.

Entries may refer to each other by `fullUrl`. Creates are carried out before updates, as FHIR says.
"""

from collections.abc import Callable
from typing import Any

from fhir_service.interactions.batch import Request
from fhir_service.interactions.create import Create
from fhir_service.interactions.update import Update
from fhir_service.interface.outcomes import BUSINESS_RULE, INVALID, FhirError

Shown = dict[str, Any]


def link(entries: list[Shown], new_id: Callable[[], str]) -> list[str]:
    """Give an id to each entry that creates, and put it where another entry refers to it by `fullUrl`.

    Returns:
        The ids of the entries, empty for those that create nothing.

    Raises:
        FhirError: two entries have the same `fullUrl`.
    """
    ids, places = [], dict[str, str]()
    for index, entry in enumerate(entries):
        request, name = entry["request"], entry.get("fullUrl")
        ids.append(new_id() if request.get("method") == "POST" else "")
        if not isinstance(name, str) or not name:
            continue
        if name in places:
            why = "another entry has the same fullUrl"
            raise FhirError(INVALID, why, f"Bundle.entry[{index}].fullUrl")
        url = request.get("url")
        places[name] = f"{url}/{ids[-1]}" if ids[-1] else str(url)
    for entry in entries:
        _refer(entry.get("resource"), places)
    return ids


def _refer(resource: Any, places: dict[str, str]) -> None:
    """Replace the references in a resource that name a place."""
    left = [resource]
    while left:
        part = left.pop()
        if isinstance(part, dict):
            named = part.get("reference")
            if isinstance(named, str) and named in places:
                part["reference"] = places[named]
            left += part.values()
        elif isinstance(part, list):
            left += part


def in_order(requests: list[Request]) -> list[int]:
    """Return the places of a transaction's entries in the order in which they are carried out.

    Raises:
        FhirError: an entry cannot be understood, is neither a create nor an update, or changes what another changes.
    """
    changed = set[tuple[str, str]]()
    for index, one in enumerate(requests):
        if isinstance(one, FhirError):
            raise placed(one, index)
        if not isinstance(one, Create | Update):
            raise placed(FhirError(BUSINESS_RULE, "a transaction holds creates and updates only"), index)
        if isinstance(one, Update):
            if (key := (one.resource.name, one.id)) in changed:
                raise placed(FhirError(INVALID, "another entry changes the same resource"), index)
            changed.add(key)
    return sorted(range(len(requests)), key=lambda index: not isinstance(requests[index], Create))


def placed(error: FhirError, index: int) -> FhirError:
    """Return the refusal of a transaction for one entry's sake: it names the entry's place."""
    place = f"Bundle.entry[{index}]"
    if error.expression:
        _, dot, within = error.expression.partition(".")
        place += f".resource{dot}{within}"
    return FhirError(error.outcome, error.diagnostics, place, error.text, error.headers)
