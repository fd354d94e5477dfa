"""Transaction: creates and updates in one Bundle, of which all are stored or none.

Entries may refer to each other by `fullUrl`. Creates are carried out before updates, as FHIR says.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from fhir_service.interactions.batch import Request
from fhir_service.interactions.create import Create
from fhir_service.interactions.update import Update
from fhir_service.interface.outcomes import BUSINESS_RULE, INVALID, FhirError

Shown = dict[str, Any]


class Links(NamedTuple):
    """The new ids of a transaction's entries (empty for an update), and the reference that each `fullUrl` means."""

    ids: list[str]
    places: dict[str, str]

    def refer(self, entry: Shown) -> None:
        """Replace the references in an entry's resource that name another entry."""
        left = [entry.get("resource")]
        while left:
            part = left.pop()
            if isinstance(part, dict):
                named = part.get("reference")
                if isinstance(named, str) and named in self.places:
                    part["reference"] = self.places[named]
                left += part.values()
            elif isinstance(part, list):
                left += part


def entry_links(entries: Iterable[Shown | FhirError], new_id: Callable[[], str]) -> Links:
    """Give an id to each entry that creates.

    Raises:
        FhirError: two entries have the same `fullUrl`.
    """
    links = Links([], {})
    for index, entry in enumerate(entries):
        if isinstance(entry, FhirError):
            links.ids.append("")
            continue
        request, name = entry["request"], entry.get("fullUrl")
        links.ids.append(new_id() if request.get("method") == "POST" else "")
        if name is None:
            continue
        if name in links.places:
            why = "another entry has the same fullUrl"
            raise FhirError(INVALID, why, f"Bundle.entry[{index}].fullUrl")
        url = request.get("url")
        links.places[name] = f"{url}/{links.ids[-1]}" if links.ids[-1] else str(url)
    return links


def in_order(requests: list[Request]) -> list[int]:
    """Return the indexes of a transaction's entries in the order in which they are carried out.

    Raises:
        FhirError: an entry cannot be understood, is neither a create nor an update, or changes what another changes.
    """
    changed = set[tuple[str, str]]()
    for index, one in enumerate(requests):
        if isinstance(one, FhirError):
            raise refusal_of_entry(one, index)
        if not isinstance(one, Create | Update):
            raise refusal_of_entry(FhirError(BUSINESS_RULE, "a transaction may hold creates and updates only"), index)
        if isinstance(one, Update):
            if (key := (one.resource.name, one.id)) in changed:
                raise refusal_of_entry(FhirError(INVALID, "another entry changes the same resource"), index)
            changed.add(key)
    return sorted(range(len(requests)), key=lambda index: not isinstance(requests[index], Create))


def refusal_of_entry(error: FhirError, index: int) -> FhirError:
    """Return the error of one entry as that of the transaction. It names the index of the entry."""
    place = f"Bundle.entry[{index}]"
    if error.expression:
        _, dot, within = error.expression.partition(".")
        place += f".resource{dot}{within}"
    return FhirError(error.outcome, error.diagnostics, place, error.text, error.headers)
