"""A page of a search or of a history, and the parameters that select it."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from fhir_service.interactions.conditions import bad
from fhir_service.interface.vocabulary import Resource
from fhir_service.store.bodies import StoredVersion
from fhir_service.store.snapshots import NewestSeen, Snapshot

Pairs = Sequence[tuple[str, str]]
_MOST_OFFSET = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Page:
    """The resources or versions of a page, with markers, and the values for its links.

    Args:
        path: what was asked, below the base URL.
        sent: the filters as sent.
        total: how many there are on all pages.
        end: the offset of the page behind this one.
        snapshot: is carried by the links, so that other pages show the same state of the store.
    """

    path: str
    sent: Pairs
    count: int
    offset: int
    total: int
    end: int
    found: Sequence[StoredVersion]
    snapshot: Snapshot | NewestSeen | None = None

    @property
    def patients(self) -> tuple[str, ...]:
        """Return the ids of the patients on the page."""
        return tuple(dict.fromkeys(patient for one in self.found for patient in one.patients))


def paging(resource: Resource, pairs: Pairs, count: int, most: int) -> tuple[int, int]:
    """Return `_count` and `_offset` of a request that has no other parameters. Raises the 400 of bad ones."""
    control: dict[str, str] = {}
    for name, value in pairs:
        if name not in ("_count", "_offset"):
            raise bad(name, f"the parameter is not known in a history of {resource.name}")
        put_once(control, name, value)
    return min(whole_number(control, "_count", count), most), whole_number(control, "_offset", 0)


def put_once(control: dict[str, str], name: str, value: str) -> None:
    """Add a parameter. Raises the 400 of one that was given before."""
    if name in control:
        raise bad(name, "the parameter is given twice")
    control[name] = value


def whole_number(control: dict[str, str], name: str, default: int) -> int:
    """Return the number of a parameter. Raises the 400 of any other text."""
    text = control.get(name)
    if text is None:
        return default
    if not re.fullmatch(r"\d+", text, re.ASCII):
        raise bad(name, "a number from 0 on is expected")
    # The beginning of a longer number is above the most already.
    return min(int(text.lstrip("0")[:11] or "0"), _MOST_OFFSET)
