"""The second decision about rows that a doubt held up: each payment is sent once, and none above its balance."""

from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import pytest

from pipelines.loading import balances, intake
from pipelines.loading.intake import Intake
from pipelines.loading.judging import JudgedRow
from pipelines.loading.row import AcceptedRow
from pipelines.loading.unchanged import LeftOfPage

PAID, WAITS, BEHIND = (
    AcceptedRow(number, 1, key, "p1", "h", "p1", None, cents, "{}", "2026-03-01T12:00:00Z")
    for number, (key, cents) in enumerate([("k1", 8000), ("k2", 5000), ("k3", 1000)], 2)
)
CLAIM = {
    "resourceType": "Claim",
    "id": "c",
    "status": "active",
    "patient": {"reference": "Patient/p1"},
    "total": {"value": 100},
}

ENTRIES = {"Claim": [{"resource": CLAIM}], "PaymentNotice": []}


class Adopted(NamedTuple):
    """A row whose resource was found."""

    row: AcceptedRow
    state: str
    resource_id: None


KNOWN = {"k1": SimpleNamespace(state="unchanged")}


class Judge:
    """A judge that sends every unknown row."""

    def __init__(self, *_: object) -> None: ...

    def judge(self, rows: Sequence[AcceptedRow], known: dict[str, Any]) -> list[JudgedRow]:
        return [
            JudgedRow(row, known.get(row.key), known[row.key].state if row.key in known else "sent") for row in rows
        ]


class Book:
    """A book of the keys of rows that are set aside."""

    def __init__(self) -> None:
        self.known = dict[str, Any]()
        batch = SimpleNamespace(balances=True, target="t", folder=Path("batch"), part=None)
        self.load = SimpleNamespace(
            batch=batch,
            resource="PaymentNotice",
            of=("t", "till", "PaymentNotice"),
            client=SimpleNamespace(
                pages=lambda kind, *_, **__: iter([{"resourceType": "Bundle", "entry": ENTRIES[kind]}])
            ),
            identity=SimpleNamespace(system="till"),
            references=SimpleNamespace(reasons=lambda _: {}),
            ledger=SimpleNamespace(now=str, known=lambda *_: self.known),
            progress=SimpleNamespace(advance=lambda _: None),
        )
        self.answers = None
        self.step = SimpleNamespace(repeats=False)
        self.loaded = SimpleNamespace(unusable=None, move=lambda *_: None)
        self.stopped, self.refused = set[str](), set[str]()
        self.when_answered: Callable[[AcceptedRow, bool], None] = lambda *_: None
        self.is_ending: Callable[[], bool] = bool

    def adopted(self, row: AcceptedRow, _: str) -> None:
        self.when_answered(row, False)

    def write_known(self, _: object, aside: Sequence[tuple[AcceptedRow, object]], decided: object = ()) -> None:
        self.refused |= {row.key for row, _ in aside}


@pytest.fixture
def book(monkeypatch: pytest.MonkeyPatch) -> Book:
    """A file for a patient who owes 100 dollars: 80, then 50, and 10 in another page."""
    monkeypatch.setattr(balances, "payments_made", lambda *_: [])
    monkeypatch.setattr(intake, "RowJudge", Judge)
    monkeypatch.setattr(intake, "HeldLanes", lambda *_: [])
    monkeypatch.setattr(intake, "accepted_pages", lambda *_: iter([[PAID, WAITS], [BEHIND]]))
    monkeypatch.setattr(intake, "as_rows", lambda page, _: page)
    monkeypatch.setattr(Intake, "_left", lambda _, page: LeftOfPage(page, {row.key for row in page}))
    return Book()


def looked(book: Book) -> Intake:
    """An intake that found the first payment, which was in doubt, at the target."""
    found = Intake(cast(Any, book))
    adopted = SimpleNamespace(adopted=[Adopted(PAID, "adopted", None)], left=[], resend=[])
    found.settle_doubts = lambda *_: adopted  # type: ignore[method-assign,assignment]
    return found


def test_a_payment_that_waited_goes_once_though_its_page_comes_after(book: Book) -> None:
    """LEDGER-05, PAY-CREATE-04"""
    rows = looked(book)
    assert list(rows.rows_to_send()) == [PAID]
    assert not rows.has_payments_again()
    assert rows.settle_doubts_again()
    book.known = KNOWN
    sent = list(rows.rows_to_send())
    while rows.has_payments_again():
        sent += rows.rows_to_send()
    assert (sent, book.refused) == ([BEHIND], {"k2"})


def test_payments_that_another_process_judged_are_held_against_the_balance(
    book: Book, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LEDGER-05, PAY-CREATE-04: what waited in a worker is not known here."""
    monkeypatch.setattr(balances, "payments_made", lambda *_: [("p1", "r1", 8000)])
    book.known = KNOWN
    rows = looked(book)
    assert rows.settle_doubts_again()
    assert (list(rows.rows_to_send()), book.refused) == ([BEHIND], {"k2"})
