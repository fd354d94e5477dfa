"""Rows under way under random schedules, by seed: whatever comes when, the sending ends, and each row as one thing."""

import faulthandler
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from pipelines.client.pace import CircuitBreaker, RetryPauses
from pipelines.client.steps import BARE, BATCH
from pipelines.ledger.lease import LeaseLost
from pipelines.ledger.rows import Sighting
from pipelines.ledger.states import UNDECIDED
from pipelines.loading.lookup_before_sending import SEARCHES_AHEAD
from pipelines.loading.requests_under_way import UnderWay
from pipelines.loading.row import AcceptedRow, PostResult, RowResult
from pipelines.loading.sending import SentResults
from pipelines.loading.sending_loop import spare_of

SEEDS = 400
LONGEST_SECONDS = 60.0


class Fault(Exception):
    """A fault of ours, anywhere."""


class World:
    """Book, client and target of one load. Which of them fail, how often and how slowly is the seed's.

    known: what the target said of a row. wrong: what must never be, as far as it shows while rows are sent.
    """

    def __init__(self, seed: int) -> None:
        self.dice = dice = random.Random(seed)
        self.lock, self.own = threading.Lock(), threading.local()
        self.resource = dice.choice(["Task", "PaymentNotice", "QuestionnaireResponse"])
        self.at_once, self.circuit = (
            dice.choice([1, 2, 3, 8]),
            CircuitBreaker(dice.choice([1, 3, 5]), dice.choice([0, 1, 3])),
        )
        self.most, self.step = dice.choice([(1, BARE), (1, BARE), (2, BATCH), (5, BATCH)])
        self.load = SimpleNamespace(resource=self.resource, client=self)
        self.loaded, self.patience = SimpleNamespace(unusable=None), RetryPauses()
        lanes, patients = dice.choice([1, 2, 5, 50]), dice.choice([0, 1, 3, 20])
        self.rows = [self._row(number, lanes, patients) for number in range(dice.choice([0, 1, 3, 10, 40, 120]))]
        often = {"refused": 0.2, "away": 0.03, "send": 0.03, "confirm": 0.03}
        often |= {
            "ask": 0.1,
            "found": 0.3,
            "unsent": 0.1,
            "write": 0.05,
            "look": 0.1,
            "read": 0.1,
            "lose": 0.06,
            "still away": 0.3,
        }
        likely = dice.choice([0.1, 0.35])
        self.often = {what: share for what, share in often.items() if dice.random() < likely}
        self.often["doubt"] = dice.choice([0, 0, 0.02, 0.2, 0.8])
        self.asks = dice.random() < 0.3
        self.slow = dice.choice([0, 0, 0.0003, 0.002])
        self.stopped: set[str] = set()
        self.noted: set[str] = set()
        self.intents: Counter[str] = Counter()
        self.sent: Counter[str] = Counter()
        self.under_way: Counter[str] = Counter()
        self.requests = self.busy = self.searches = 0
        self.last: dict[str, int] = {}
        self.known: dict[str, RowResult] = {}
        self.written: dict[str, RowResult] = {}
        self.held: set[str] = set()
        self.doubted: set[str] = set()
        self.lost, self.not_written = False, 0
        self.sent_before_ending: int | None = None
        self.wrong: list[str] = []

    def _row(self, number: int, lanes: int, patients: int) -> AcceptedRow:
        lane = f"lane {self.dice.randrange(lanes)}"
        patient = f"p{self.dice.randrange(patients)}" if patients else None
        before = self.dice.random() < 0.1
        return AcceptedRow(number, 1, f"k{number}", lane, "hash", patient, None, None, "{}", "", intended=before)

    def happens(self, what: str) -> bool:
        with self.lock:
            return what in self.often and self.dice.random() < self.often[what]

    def pause(self) -> None:
        with self.lock:
            share = self.dice.random()
        if self.slow and share < 0.5:
            time.sleep(self.slow * share)

    def may_fail(self, what: str) -> None:
        if self.happens(what):
            raise Fault(what)

    def listen(self, way: Any) -> None:
        """Count the requests that begin after the sending was told to end."""
        fail, note = way._requests.fail, way._note

        def failed(error: BaseException) -> None:
            fail(error)
            self.ending()

        def noted(unit: Sequence[AcceptedRow], sent: SentResults) -> Any:
            came = note(unit, sent)
            if sent.unusable:
                self.ending()
            return came

        way._requests.fail, way._note = failed, noted

    def ending(self) -> None:
        with self.lock:
            if self.sent_before_ending is None:
                self.sent_before_ending = self.requests

    def has_still(self) -> None:
        if self.happens("lose"):
            self.lost = True
        if self.lost:
            raise LeaseLost

    def never(self, wrong: bool, what: str) -> None:
        if wrong:
            self.wrong.append(what)

    # -- the book

    def rows_to_send(self) -> Iterator[AcceptedRow]:
        for row in self.rows:
            self.may_fail("read")
            yield row

    def moment(self) -> str:
        return "now"

    def look(self, row: AcceptedRow) -> Sighting:
        self.pause()
        self.may_fail("look")
        return Sighting(row.patient_id or "", "now", None, None)

    def confirm(self) -> None:
        self.pause()
        self.has_still()
        self.may_fail("confirm")
        self.own.confirmed = True

    def write_down(
        self,
        intended: Sequence[AcceptedRow],
        results: Sequence[tuple[AcceptedRow, RowResult]],
        _: Sequence[Sighting] = (),
    ) -> None:
        if not intended and not results:
            return
        self.pause()
        try:
            self.has_still()
        except LeaseLost:
            self._note([(row, result) for row, result in results if result.state not in UNDECIDED])
            raise
        if self.happens("write"):
            self.not_written += 1
            raise Fault("write")
        spare = spare_of(self.step, self.resource, self.at_once)
        most = 1 if self.circuit.trying else self.at_once + spare
        self.never(len(intended) > most * self.most, "too many intended")
        with self.lock:
            self.intents.update(row.key for row in intended)
        self._note(results)
        self.pause()

    def _note(self, results: Sequence[tuple[AcceptedRow, RowResult]]) -> None:
        for row, result in results:
            self.never(row.key in self.written, "a result written twice")
            self.never(self.known.get(row.key) != result, "a result that the target never gave")
            self.written[row.key] = result

    def hold_back(self, rows: Iterable[AcceptedRow]) -> None:
        held = [row.key for row in rows]
        if held and self.lost:
            raise LeaseLost
        self.held.update(held)

    # -- the target

    def wait_until_it_answers(self, _: str, given_up: bool) -> str | None:
        if given_up:
            return "given up"
        self.pause()
        self.never(bool(self.under_way), "asked whether it is back while rows are under way")
        return "away" if self.happens("still away") else None

    def ask(self, rows: Sequence[AcceptedRow]) -> list[AcceptedRow]:
        self.pause()
        self.may_fail("ask")
        with self.lock:
            self.searches += 1
            self.never(self.searches > min(SEARCHES_AHEAD, self.at_once), "too many searches at once")
        self.pause()
        with self.lock:
            self.searches -= 1
        found = [PostResult(RowResult("adopted", f"r-{row.key}")) if self.happens("found") else None for row in rows]
        return [row._replace(found=each) for row, each in zip(rows, found, strict=True)]

    def send(self, unit: Sequence[AcceptedRow]) -> SentResults:
        lanes = {row.lane for row in unit}
        with self.lock:
            self.never(not getattr(self.own, "confirmed", False), "sent by one who has not asked for the lease")
            self.own.confirmed = False
            self.sent.update(row.key for row in unit)
            self.requests += 1
            self.under_way.update(lanes)
            self.never(len(unit) > self.most, "too many together")
            self.never(any(self.intents[row.key] != 1 for row in unit), "sent without one intent")
            self.never(any(self.sent[row.key] > 1 for row in unit), "sent twice")
            self.never(any(self.under_way[lane] > 1 for lane in lanes), "two of a lane at once")
            self.never(not lanes.isdisjoint(self.doubted), "sent behind a row in doubt")
            for row in unit:
                self.never(self.last.get(row.lane, -1) > row.line, "sent before a row that comes first")
                self.last[row.lane] = row.line
            self.busy += 1
            self.never(self.busy > (1 if self.circuit.trying else self.at_once), "too many at once")
        try:
            self.pause()
            self.may_fail("send")
            sent = SentResults({at: self._answer(row) for at, row in enumerate(unit)}, self._away())
            self.known |= {row.key: sent.results[at] for at, row in enumerate(unit)}
            self.doubted |= {unit[at].lane for at, result in sent.results.items() if result.state == "in_doubt"}
            return sent
        finally:
            with self.lock:
                self.busy -= 1
                self.under_way -= Counter(lanes)

    def _away(self) -> str | None:
        return "away" if self.happens("away") else None

    def _answer(self, row: AcceptedRow) -> RowResult:
        if row.found:
            return row.found.result
        if self.happens("doubt"):
            return RowResult("in_doubt")
        if self.happens("unsent"):
            return RowResult("in_doubt" if row.intended else "planned")
        if self.happens("refused"):
            return RowResult("refused", None, 422, {})
        return RowResult("created", f"r-{row.key}", 201)


def ended(world: World) -> BaseException | str | None:
    """How the sending of a world ended; a process whose sending does not end is ended, and says where it stood."""
    faulthandler.dump_traceback_later(LONGEST_SECONDS, exit=True)
    try:
        it: Any = world
        looks = it if world.step == BARE else None
        spare = spare_of(world.step, world.resource, world.at_once)
        ask = world.ask if world.asks else None
        way = UnderWay(it, world.send, world.at_once, spare, world.most, world.circuit, looks, ask)
        world.listen(way)
        way.carry(world.rows_to_send())
    except (Fault, LeaseLost) as error:
        return error
    finally:
        faulthandler.cancel_dump_traceback_later()
    why: str | None = world.loaded.unusable
    return why


def check_rows(world: World, end: BaseException | str | None) -> None:
    """Each row that was intended has one result, or was held back, or its outcome is not known.

    What one write failed to note the last one does; where that fails too, it is for the next run to settle.
    """
    for key in world.intents:
        assert not (key in world.held and (key in world.written or world.sent[key]))
        unsettled = key not in world.written and key not in world.held
        fact = key in world.known and world.known[key].state not in UNDECIDED
        unknown = key in world.sent and key not in world.known
        assert not unsettled or world.not_written > 1 or unknown or (world.lost and not fact)
    if end is None:
        assert {row.key for row in world.rows if row.lane not in world.stopped} <= world.written.keys()


@pytest.fixture
def hasty() -> Iterator[None]:
    """Threads take turns so often that what may come between two steps does come."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("seeds", [100, pytest.param(SEEDS, marks=pytest.mark.long)])
def test_under_any_schedule_each_row_has_exactly_one_outcome(seeds: int) -> None:
    """LEDGER-01, LEDGER-05, LEDGER-10"""
    ends: Counter[str] = Counter()
    for seed in range(seeds):
        world = World(seed)
        end = ended(world)
        ends[type(end).__name__] += 1
        assert (seed, world.wrong) == (seed, [])
        check_rows(world, end)
        before = world.sent_before_ending
        assert before is None or world.requests - before <= world.at_once
    assert ends.keys() == {"NoneType", "str", "Fault", "LeaseLost"}
