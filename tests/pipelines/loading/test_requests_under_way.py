"""Rows under way: which rows get an intent before a request is free, and what happens to unsent intents."""

import faulthandler
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType, SimpleNamespace
from typing import Any

import pytest

from pipelines.client import pace
from pipelines.client.identifiers import VALUES_A_SEARCH
from pipelines.client.pace import CircuitBreaker, RetryPauses
from pipelines.client.replies import NotSent
from pipelines.client.steps import BARE
from pipelines.client.threads import A_WHILE
from pipelines.ledger.lease import LeaseLost
from pipelines.ledger.rows import Sighting
from pipelines.ledger.states import UNDECIDED
from pipelines.ledger.tables import LedgerError
from pipelines.loading.posting import post
from pipelines.loading.requests_under_way import LINES_A_ROW, MOST_LEFT_OUT, UnderWay
from pipelines.loading.row import AcceptedRow, RowResult
from pipelines.loading.sending import Send, SentResults
from pipelines.loading.sending_loop import SPARE, spare_of

AT_ONCE = 2


def row(number: int) -> AcceptedRow:
    return AcceptedRow(number, 1, f"k{number}", f"lane {number}", "hash", None, None, None, "{}", "")


class Book:
    """A ledger in memory, as the load sees it. lost_at: the write at which another loader has the lease."""

    def __init__(self, resource: str, rows: int, lost_at: int | None = None) -> None:
        self.rows, self.lost_at = rows, lost_at
        client = SimpleNamespace(wait_until_it_answers=lambda *_: None, patience=RetryPauses())
        self.load, self.loaded = SimpleNamespace(resource=resource, client=client), SimpleNamespace(unusable=None)
        self.lost = False
        self.is_ending: Callable[[], bool] = bool
        self.stopped: set[str] = set()
        self.writes: list[list[str]] = []
        self.came: dict[str, str] = {}
        self.held: list[str] = []

    def rows_to_send(self) -> Iterator[AcceptedRow]:
        return map(row, range(self.rows))

    def moment(self) -> str:
        return ""

    def write_down(
        self,
        intended: Sequence[AcceptedRow],
        results: Sequence[tuple[AcceptedRow, RowResult]],
        sightings: Sequence[Sighting] = (),
    ) -> None:
        self.lost = self.lost or bool(intended and len(self.writes) == self.lost_at)
        facts = {row.key: result.state for row, result in results if result.state not in UNDECIDED}
        if self.lost and (intended or len(facts) < len(results)):
            self.came |= facts
            raise LeaseLost
        self.writes.append([row.key for row in intended])
        self.came.update((row.key, result.state) for row, result in results)

    def confirm(self) -> None:
        if self.lost:
            raise LeaseLost

    def hold_back(self, rows: Iterable[AcceptedRow]) -> None:
        held = [row.key for row in rows]
        if held and self.lost:
            raise LeaseLost
        self.held += held

    @property
    def intended(self) -> list[str]:
        return [key for write in self.writes for key in write]


class Target:
    """A target that answers no request before `go`, then all alike. It calls `first` before it answers."""

    def __init__(self, answer: SentResults, first: Callable[[], None] = lambda: None) -> None:
        self.go, self.answer, self.first = threading.Event(), answer, first
        self.sent: list[str] = []

    def __call__(self, unit: Sequence[AcceptedRow]) -> SentResults:
        self.sent += [row.key for row in unit]
        self.go.wait()
        self.first()
        return self.answer


def sent(book: Any, target: Send, looks: Any = None) -> str | None:
    """Send the rows of a book, two at once. Return why the sending ended early."""
    spare = spare_of(BARE, book.load.resource, AT_ONCE)
    UnderWay(book, target, AT_ONCE, spare, 1, CircuitBreaker(), looks).carry(book.rows_to_send())
    ended: str | None = book.loaded.unusable
    return ended


MADE = SentResults({0: RowResult("created", "r", 201)})
AWAY = SentResults({0: RowResult("planned")}, "the target could not be used")


@pytest.mark.parametrize(
    ("resource", "ahead"), [("Task", SPARE), ("QuestionnaireResponse", SPARE), ("PaymentNotice", 0)]
)
def test_some_rows_are_intended_ahead_but_no_payment(resource: str, ahead: int) -> None:
    """LEDGER-01: after a kill no payment that was never sent is in doubt: a person would have to settle it."""
    book, target = Book(resource, 20), Target(MADE)
    target.go.set()
    assert sent(book, target) is None
    assert len(book.writes[0]) == AT_ONCE + ahead
    assert sorted(book.intended) == sorted(target.sent) == sorted(book.came)
    assert not book.held


def test_intents_that_were_never_sent_are_taken_back_when_the_target_is_away() -> None:
    """LEDGER-01"""
    book, target = Book("Task", 20), Target(AWAY)
    target.go.set()
    assert sent(book, target) == AWAY.unusable
    assert book.held
    assert sorted(book.held + target.sent) == sorted(book.intended)
    assert sorted(book.came) == sorted(target.sent)


def test_intents_are_withdrawn_if_the_ledger_fails_before_their_request() -> None:
    """LEDGER-01: otherwise their rows would be in doubt."""
    book, target, asked = Book("Task", 20), Target(MADE), iter([True, False])

    def confirm() -> None:
        if not next(asked, True):
            raise LedgerError("the ledger does not answer")

    book.confirm = confirm  # type: ignore[method-assign]
    target.go.set()
    with pytest.raises(LedgerError):
        sent(book, target)
    assert sorted(book.held + target.sent) == sorted(book.intended)


def test_a_loader_that_lost_the_lease_leaves_its_intents_to_the_new_owner() -> None:
    """LEDGER-10: the other loader may have sent it."""
    book, target = Book("Task", 20, lost_at=1), Target(MADE)
    target.go.set()
    with pytest.raises(LeaseLost):
        sent(book, target)
    assert not book.held
    assert sorted(book.came) == sorted(target.sent)


@pytest.mark.parametrize(("answer", "facts"), [(MADE, AT_ONCE), (AWAY, 0)])
def test_a_loader_that_was_silent_too_long_sends_no_rows_that_it_intended_ahead(
    answer: SentResults, facts: int
) -> None:
    """LEDGER-10: the process was suspended while requests were under way. Another loader has settled the rest."""
    book = Book("Task", 20)
    under_way = threading.Barrier(AT_ONCE)

    def lose() -> None:
        under_way.wait(60)
        book.lost = True

    target = Target(answer, first=lose)
    target.go.set()
    with pytest.raises(LeaseLost):
        sent(book, target)
    assert len(target.sent) == AT_ONCE
    assert len(book.intended) == AT_ONCE + SPARE
    assert not book.held
    assert len(book.came) == facts


def test_no_row_that_is_intended_waits_for_the_commit_of_others() -> None:
    """LEDGER-01: the second commit lasts until the rows that were intended ahead are under way."""
    reached = threading.Event()

    class SlowBook(Book):
        def write_down(self, intended: Sequence[AcceptedRow], *rest: Any) -> None:
            if self.writes:
                assert reached.wait(60)
            super().write_down(intended, *rest)

    book, target = SlowBook("Task", 20), Target(MADE)
    target.first = lambda: reached.set() if len(target.sent) == AT_ONCE + SPARE else None
    target.go.set()
    assert sent(book, target) is None
    assert sorted(book.intended) == sorted(target.sent) == sorted(book.came)


def test_no_row_that_is_intended_waits_for_the_thread_that_deals_rows_out() -> None:
    """A sender that has an answer takes the next row itself: here the dealing thread is blocked meanwhile."""
    reached = threading.Event()

    class BusyBook(Book):
        def moment(self) -> str:
            assert not self.writes or reached.wait(60)
            return ""

    book, target = BusyBook("Task", 20), Target(MADE)
    target.first = lambda: reached.set() if len(target.sent) == AT_ONCE + SPARE else None
    target.go.set()
    assert sent(book, target) is None
    assert sorted(book.intended) == sorted(target.sent) == sorted(book.came)


OURS = ("/pipelines/loading/", "/threading.py", "/concurrent/futures/")


@contextmanager
def interrupted_at(step: int) -> Iterator[list[int]]:
    """Interrupt this thread at its n-th step in the modules that deal rows out. Yield the number of steps so far."""
    steps = [0]

    def trace(frame: FrameType, event: str, _: object) -> Any:
        if not any(part in frame.f_code.co_filename for part in OURS):
            return None
        if event in ("line", "return"):
            steps[0] += 1
            if steps[0] == step:
                signal.raise_signal(signal.SIGINT)
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield steps
    finally:
        sys.settrace(before)


ROWS, IN_DOUBT = 30, range(10, 16)
"""As many failures in a row as make the load ask whether the target is back."""


def interrupted(step: int) -> int:
    """Send rows with an interrupt at a step. Return the number of steps."""
    book, sent_ones = Book("Task", ROWS), list[str]()

    def target(unit: Sequence[AcceptedRow]) -> SentResults:
        [row] = unit
        sent_ones.append(row.key)
        return SentResults({0: RowResult("in_doubt")}) if row.line in IN_DOUBT else MADE

    faulthandler.dump_traceback_later(60, exit=True)
    with suppress(KeyboardInterrupt), interrupted_at(step) as steps:
        sent(book, target)
        step = 0
    faulthandler.cancel_dump_traceback_later()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler, "as it was before"
    assert sorted(book.held + sent_ones) == sorted(book.intended), step
    assert sorted(book.came) == sorted(sent_ones), step
    assert step or len(book.came) == ROWS
    return steps[0]


@pytest.mark.parametrize("share", [pytest.param(0.02, id="a few"), pytest.param(1, id="all", marks=pytest.mark.long)])
def test_an_interrupt_between_any_two_steps_loses_nothing(share: float) -> None:
    """LEDGER-01: requests under way are waited for, outcomes are written, and other intents are taken back."""
    steps = interrupted(0)
    for step in random.Random(1).sample(range(1, steps + 1), int(share * steps)):
        interrupted(step)


def test_an_interrupt_ends_the_pause_before_another_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    """A target may ask for a pause of minutes. The row was surely not sent.

    The sending thread gets the signal, which does not end the wait of the dealing thread; nor does a signal just before
    that wait.
    """
    book, slept = Book("Task", 1), list[float]()

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)
        until = time.monotonic() + 60
        while not book.load.client.patience.is_over:
            assert time.monotonic() < until

    def create(*_: object) -> Any:
        raise NotSent("busy", retry_after=300)

    monkeypatch.setattr(pace, "time", SimpleNamespace(sleep=sleep))
    book.load.client = SimpleNamespace(patience=RetryPauses(), create=create)
    with pytest.raises(KeyboardInterrupt):
        sent(book, lambda unit: SentResults({0: post(book.load.client, "Task", unit[0]).result}))
    assert slept == [A_WHILE]
    assert book.came == {"k0": "planned"}


def test_an_interrupt_while_the_target_is_asked_whether_it_is_back_ends_the_asking() -> None:
    """The asking may last many minutes."""
    book, awoken = Book("Task", ROWS), list[bool]()

    def ask(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(5)
        awoken.append(True)

    book.load.client.wait_until_it_answers = ask
    doubtful = SentResults({0: RowResult("in_doubt")})
    under_way = UnderWay(book, lambda _: doubtful, AT_ONCE, 0, 1, CircuitBreaker())  # type: ignore[arg-type]
    with pytest.raises(KeyboardInterrupt):
        under_way.carry(book.rows_to_send())
    assert not awoken


def test_an_interrupt_while_rows_are_read_ends_the_reading() -> None:
    """The interrupt is noticed although no row comes out: the target has all rows of the file already."""

    class Reading(Book):
        def rows_to_send(self) -> Iterator[AcceptedRow]:
            yield row(1)
            os.kill(os.getpid(), signal.SIGINT)
            until = time.monotonic() + 60
            while not self.is_ending():
                assert time.monotonic() < until

    with pytest.raises(KeyboardInterrupt):
        sent(Reading("Task", 1), Target(MADE))


def test_outcomes_are_written_however_many_rows_of_a_stopped_lane_are_read() -> None:
    """LEDGER-01: a kill during the reading leaves only rows under way in doubt, and no answered rows."""
    target, first, written = Target(MADE), 4 * LINES_A_ROW * AT_ONCE, list[int]()

    class Reading(Book):
        def rows_to_send(self) -> Iterator[AcceptedRow]:
            self.stopped.add("stopped")
            yield from map(row, range(first))
            for number in range(4_000):
                if number == 500:
                    until = time.monotonic() + 60
                    while len(target.sent) < AT_ONCE + SPARE:
                        assert time.monotonic() < until
                yield row(first + number)._replace(lane="stopped")
            written.append(len(self.came))

    book = Reading("Task", 0)
    target.go.set()
    assert sent(book, target) is None
    assert written[0] > 0
    assert len(book.came) == first


def test_outcomes_are_written_while_a_search_for_other_rows_is_slow() -> None:
    """LEDGER-05, LEDGER-10: a kill during the search leaves no answered row in doubt."""
    book, target = Book("PaymentNotice", 2 * VALUES_A_SEARCH), Target(MADE)
    target.go.set()

    def ask(rows: Sequence[AcceptedRow]) -> list[AcceptedRow]:
        until = time.monotonic() + 60
        while rows[0].line and len(book.came) < VALUES_A_SEARCH:
            assert time.monotonic() < until
        return list(rows)

    UnderWay(book, target, AT_ONCE, 0, 1, CircuitBreaker(), ask=ask).carry(book.rows_to_send())  # type: ignore[arg-type]
    assert len(book.came) == 2 * VALUES_A_SEARCH


def test_whether_the_target_is_back_is_asked_when_nothing_is_under_way() -> None:
    """LEDGER-01: here the target goes away between two steps of the thread that reads rows of a stopped lane."""
    circuit, opens, ends, at_once = CircuitBreaker(1), threading.Event(), threading.Event(), 3
    under_way, asked = set[int](), list[set[int]]()

    class Reading(Book):
        def rows_to_send(self) -> Iterator[AcceptedRow]:
            yield from map(row, range(self.rows))
            self.stopped.add("stopped")
            yield from (row(number)._replace(lane="stopped") for number in range(2 * MOST_LEFT_OUT))

    class Held(UnderWay):
        def _take(self, wait: bool = True) -> bool:
            came = super()._take(wait)
            if not (wait or came or opens.is_set()):
                until = time.monotonic() + 60
                while under_way != {1, 2}:
                    assert time.monotonic() < until
                opens.set()
                while not circuit.open:
                    assert time.monotonic() < until
                threading.Timer(0.05, ends.set).start()
            return came

    def send(unit: Sequence[AcceptedRow]) -> SentResults:
        [one] = unit
        under_way.add(one.line)
        assert one.line not in (1, 2) or (opens, ends)[one.line - 1].wait(60)
        under_way.discard(one.line)
        return SentResults({0: RowResult("in_doubt")}) if one.line == 1 else MADE

    book = Reading("PaymentNotice", LINES_A_ROW * at_once)
    book.load.client.wait_until_it_answers = lambda *_: asked.append({*under_way})
    Held(book, send, at_once, 0, 1, circuit).carry(book.rows_to_send())  # type: ignore[arg-type]
    assert opens.is_set()
    assert asked == []
    assert len(book.came) == book.rows


def test_a_patient_whose_sighting_was_not_written_is_looked_at_once_more() -> None:
    """LEDGER-05: all rows of a load share the look-ups, although they are sent in several passes."""

    class Looks:
        def __init__(self) -> None:
            self.noted: set[str] = set()

        def look(self, one: AcceptedRow) -> Sighting:
            return Sighting(one.patient_id or "", "now", None, None)

    class AwayBook(Book):
        def rows_to_send(self) -> Iterator[AcceptedRow]:
            yield row(0)
            yield row(1)._replace(patient_id="p1")

        def write_down(self, intended: Sequence[AcceptedRow], *rest: Any) -> None:
            if any(one.patient_id for one in intended):
                raise OSError("no room")
            super().write_down(intended, *rest)

    book, looks, target = AwayBook("Task", 2), Looks(), Target(MADE)
    target.go.set()
    with pytest.raises(OSError, match="no room"):
        sent(book, target, looks)
    assert looks.noted == set()


def test_looks_that_fail_end_the_sending_and_lose_nothing() -> None:
    """LEDGER-01: several fail at once, as the cause is often the same for all."""

    class BlindBook(Book):
        def rows_to_send(self) -> Iterator[AcceptedRow]:
            return (row(n)._replace(patient_id=f"p{n}" if n >= AT_ONCE else None) for n in range(self.rows))

    class Blind:
        def __init__(self) -> None:
            self.noted: set[str] = set()

        def look(self, row: AcceptedRow) -> Sighting:
            reached.wait(60)
            raise ValueError(row.key)

    reached = threading.Event()
    book, target = BlindBook("Task", 20), Target(MADE, first=reached.set)
    target.go.set()
    with pytest.raises(ValueError, match="k"):
        sent(book, target, Blind())
    assert sorted(book.held + target.sent) == sorted(book.intended)
    assert target.sent
    assert sorted(book.came) == sorted(target.sent)


def test_a_fault_of_ours_ends_the_sending_and_is_raised() -> None:
    """LEDGER-01: intents that were not sent are taken back. The next run settles rows that were under way."""

    def fault() -> None:
        if len(target.sent) > AT_ONCE:
            raise KeyError

    book, target = Book("Task", 20), Target(MADE)
    target.first = fault
    target.go.set()
    with pytest.raises(KeyError):
        sent(book, target)
    assert len(target.sent) <= 2 * AT_ONCE + 1
    assert sorted(book.held + target.sent) == sorted(book.intended)
    assert set(book.came) < set(target.sent)


def test_the_intents_of_many_rows_share_a_commit() -> None:
    """LEDGER-01: new rows are intended when half of the intended ones are under way, not after each answer."""
    rows = 40 * SPARE
    book, target = Book("Task", rows), Target(MADE)
    target.go.set()
    assert sent(book, target) is None
    assert len(book.came) == rows
    intending = [write for write in book.writes if write]
    assert all(len(write) >= SPARE // 2 for write in intending[:-1])


def test_a_book_that_cannot_be_written_ends_the_sending_with_its_reason() -> None:
    """LEDGER-01: no more rows are sent. Outcomes that came meanwhile are kept for the next attempt to write them."""

    class FullBook(Book):
        def write_down(self, intended: Sequence[AcceptedRow], *rest: Any) -> None:
            if intended and self.writes:
                raise OSError("no room")
            super().write_down(intended, *rest)

    book, target = FullBook("Task", 20), Target(MADE)
    target.go.set()
    with pytest.raises(OSError, match="no room"):
        sent(book, target)
    assert sorted(book.came) == sorted(target.sent)
    assert sorted(book.held + target.sent) == sorted(book.intended)


def test_a_loader_that_was_silent_too_long_does_not_repeat_a_request() -> None:
    """LEDGER-10: during the pause between two attempts another loader may have sent the row."""

    class Busy:
        patience = RetryPauses(sleep=lambda _: None)
        tries = 0

        def create(self, *_: object) -> Any:
            self.tries += 1
            raise NotSent("no connection")

    def confirm() -> None:
        raise LeaseLost("another loader took over")

    target = Busy()
    posted = post(target, "Task", row(1), confirm)  # type: ignore[arg-type]
    assert (target.tries, posted.result.state, posted.unusable) == (1, "in_doubt", "another loader took over")
