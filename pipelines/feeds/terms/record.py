"""The types that all kinds of record share: the declaration of a kind, and what its builder takes and returns."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from fhir_service.interface.site import Site
from pipelines.feeds.terms.columns import Column, ValueFault
from pipelines.feeds.terms.numbers import PLAIN, NumberFormat

Values = dict[str, Any]


class RecordFault(NamedTuple):
    """A fault of one record: the place in the body, the column of the feed, and the row of the record."""

    fault: ValueFault
    element: str
    column: str
    row: int | None = None


class BuiltRecord(NamedTuple):
    """A record as the interface takes it, with the values that the ledger keeps.

    * body: the FHIR resource, with numbers as Decimal.
    * lane: records of one lane are sent one after another.
    * at: microseconds since 1970 in UTC.
    * cents: the amount of a payment.
    * places: the origin of each item of the body, in the form of `RecordFault.column`.
    * rows: for a record of several rows, by item (or note), the row of each of its answers.
    """

    body: dict[str, Any]
    patient_id: str | None
    lane: str
    at: int | None = None
    cents: int | None = None
    faults: tuple[RecordFault, ...] = ()
    places: tuple[str, ...] = ()
    rows: tuple[Sequence[int], ...] = ()


class BuilderContext(NamedTuple):
    """The context of a builder.

    words: texts in a body as the interface has them, each with the target's text for it.
    """

    site: Site
    questionnaires: Any
    numbers: NumberFormat = PLAIN
    words: Mapping[str, str] = {}


@dataclass(frozen=True)
class RecordKind:
    """A kind of record: one module in `feeds/kinds`.

    * build: makes the body of a record from the mapped values of its rows (several only for a grouped kind).
    * whole: returns the values of a FHIR resource: `resource` itself, and `at` (microseconds) if that orders the
      sending.
    * sort: the column whose times order the sending.
    * grouped: True if rows that share a key form one record.
    * member: the element that each of these rows adds to.
    * put_together: makes the body of the first row's values and the members that the rows make, one each; None if rows
      do not make members one by one.
    * until_sent: the text of a member that a body has while it is checked, and that is replaced when it is sent.
    """

    name: str
    resource: str
    key: str
    columns: tuple[Column, ...]
    build: Callable[[str | None, Sequence[Values], BuilderContext], BuiltRecord]
    sort: str | None = None
    grouped: bool = False
    member: str | None = None
    whole: Callable[[dict[str, Any]], Values] = lambda resource: {"resource": resource}
    put_together: Callable[[str | None, Values, Sequence[dict[str, Any]], BuilderContext], BuiltRecord] | None = None
    until_sent: str = ""
    by_name: dict[str, Column] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.by_name.update({column.name: column for column in self.columns})


def id_of(reference: Any) -> str | None:
    """Return `p1` for `{"reference": "Patient/p1"}`; None if the reference has no such id."""
    found = reference.get("reference") if isinstance(reference, dict) else None
    return found.partition("/")[2] or None if isinstance(found, str) else None


def refer(target: str) -> dict[str, str]:
    return {"reference": target}
