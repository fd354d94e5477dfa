"""Sending rows to a target with the bare interface: one POST a row, lanes side by side, one after another within one.

An outcome that is not known stays so: the row is in doubt, its lane stops, nothing is sent again by itself. Before the
first row of a patient, what the patient has there is noted: it tells later what a request in doubt can have made.
"""

import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from queue import SimpleQueue
from typing import Any, NamedTuple, Protocol, TypeVar

from pipelines.client.client import FhirClient
from pipelines.client.pace import AT_ONCE, Circuit
from pipelines.client.replies import TargetUnusable
from pipelines.ledger.lease import LeaseLost
from pipelines.ledger.rows import Sighting
from pipelines.loading.lookup import BY_ITSELF
from pipelines.loading.posting import Post, post
from pipelines.loading.sending import Posted, Result, Row

ROWS_AHEAD = 2_000
SPARE = 8
"""How many rows are intended before a request is free for them, so that none waits for a commit, and several share one.

After a kill they are in doubt, as those under way are: there is none where a person would have to settle that.
"""
T = TypeVar("T")


class Book(Protocol):
    """What lanes need of the load's book."""

    resource: str
    stopped: set[str]
    noted: set[str]

    def moment(self) -> str: ...
    def look(self, row: Row) -> Sighting: ...
    def write_down(
        self, intended: Sequence[Row], results: Sequence[tuple[Row, Result]], sightings: Sequence[Sighting] = ()
    ) -> None: ...
    def hold_back(self, rows: Iterable[Row]) -> None: ...
    def confirm(self) -> None: ...


class Page(NamedTuple):
    """What is written of the book in one commit, as its `write_down` takes it."""

    intended: list[Row]
    results: list[tuple[Row, Result]]
    sightings: list[Sighting]


def send_by_lanes(
    book: Book,
    rows: Iterator[Row],
    client: FhirClient,
    at_once: int = AT_ONCE,
    circuit: Circuit | None = None,
    send: Post | None = None,
) -> str | None:
    """Send rows, each by `send`; return the sentence that ended it early, else None."""
    with (
        ThreadPoolExecutor(at_once, "lane") as pool,
        ThreadPoolExecutor(at_once, "look") as looking,
        ThreadPoolExecutor(1, "book") as keeping,
        ThreadPoolExecutor(1, "deal") as dealing,
    ):
        dealing.submit(bool).result()  # its one thread is there, whatever is interrupted from here on
        lanes = _Lanes(book, rows, client, pool, looking, keeping, at_once, circuit or Circuit(), send or post)
        return lanes.run(dealing)


class _Answer(NamedTuple):
    """What came of a row, or what went wrong with it; neither where it could not be sent."""

    row: Row | None = None
    posted: Posted | BaseException | None = None


class _Lanes:
    """ready: rows whose turn it is. intended: those that wait for a request to be free, their intents committed. Who
    has had the answer to one row takes the next of them by itself, so that no request waits for who deals them out:
    `lock` is for what both change, which is `intended`, `busy` (how many send), `circuit`, `unusable` and `failed`.

    queues: for each lane at work, the rows behind its first.
    waiting: by patient, rows whose turn it is once the patient's resources are noted. done: results that are not
    written down yet, which they are with the intents of the next rows, in one commit.
    keeping: the one thread that reads and writes the book while requests are under way, so that none waits for a commit
    but those that it is for. reading, writing: what it is at; page: what it writes. failed: why it could not.
    came: answers, and what is done at the book, for who deals rows out to take.
    """

    def __init__(
        self,
        book: Book,
        rows: Iterator[Row],
        client: FhirClient,
        pool: ThreadPoolExecutor,
        looking: ThreadPoolExecutor,
        keeping: ThreadPoolExecutor,
        at_once: int,
        circuit: Circuit,
        send: Post,
    ) -> None:
        self.book, self.client = book, client
        self.pool, self.looking, self.keeping = pool, looking, keeping
        self.at_once, self.circuit, self.send = at_once, circuit, send
        self.rows: Iterator[Row] | None = rows
        self.spare = SPARE if book.resource in BY_ITSELF else 0
        self.ready: deque[Row] = deque()
        self.intended: deque[Row] = deque()
        self.waiting: dict[str, list[Row]] = {}
        self.to_look: deque[Row] = deque()
        self.queues: dict[str, deque[Row]] = {}
        self.ahead = 0
        self.lock = threading.Lock()
        self.busy = 0
        self.came: SimpleQueue[Future[Any] | _Answer] = SimpleQueue()
        self.looks: dict[Future[Sighting], Row] = {}
        self.reading: Future[list[Row]] | None = None
        self.writing: Future[None] | None = None
        self.page = Page([], [], [])
        self.sightings: list[Sighting] = []
        self.done: list[tuple[Row, Result]] = []
        self.unusable: str | None = None
        self.failed: BaseException | None = None

    def run(self, dealing: ThreadPoolExecutor) -> str | None:
        """Another thread deals: Ctrl-C comes between any two steps of this one, where what was just taken were lost."""
        try:
            while dealing.submit(self._deal).result() and self._ask_whether_it_is_back():
                pass
            dealing.submit(self._conclude).result()
        except BaseException as error:
            self.failed = self.failed or error  # nothing more is sent
            dealing.submit(self._conclude).result()
            raise
        return self.unusable

    def _deal(self) -> bool:
        """Send as long as anything is to be waited for; whether the target is to be asked whether it is back."""
        while self._go_on():
            self._finish()
        return self.circuit.open and not self._ending

    def _conclude(self) -> None:
        """Wait for what is under way, write down what came, and take back what was intended and not sent, unless
        that is another's by now. Called again it does what it could not, and tells what failed.
        """
        while self._at_work:
            self._finish()
        try:
            self.book.write_down([], self.done)
        except LeaseLost:
            self.done = []  # what is sure of them is written
            raise
        self.done = []
        if not isinstance(self.failed, LeaseLost):
            self.book.hold_back(self.intended)
        self.intended.clear()
        if self.failed:
            raise self.failed

    def _go_on(self) -> bool:
        """Send what may go now, and let the book be read and written; return True if anything is to be waited for."""
        self._send()
        if self._may_begin():
            self._read()
            self._look()
        self._write()
        return self._at_work

    @property
    def _at_work(self) -> bool:
        """True if anything is to be waited for, or has come and is to be taken."""
        with self.lock:
            called = self.intended and self._free()
            return bool(self.busy or called or self.looks or self.reading or self.writing or not self.came.empty())

    @property
    def _ending(self) -> bool:
        return bool(self.unusable or self.failed)

    def _may_begin(self) -> bool:
        return not self._ending and not self.circuit.open

    def _send(self) -> None:
        """Calls for as many threads as may send what is intended; each takes its rows by itself."""
        with self.lock:
            called = min(len(self.intended), self._free())
        for _ in range(called):
            self.pool.submit(self._carry)

    def _free(self) -> int:
        """How many requests more may be under way."""
        if not self._may_begin():
            return 0
        return max(0, (1 if self.circuit.trying else self.at_once) - self.busy)

    def _carry(self) -> None:
        """In a thread of its own: sends what is intended, one row after another, as long as that may be."""
        with self.lock:
            row = self._take()
            if self.failed:
                self.came.put(_Answer())  # who called may wait for what is not taken any more
        while row and self._has_still(row):
            try:
                posted: Posted | BaseException = self.send(self.client, self.book.resource, row)
            except BaseException as error:  # noqa: BLE001 - it is raised where answers are taken
                posted = error
            row = self._note(row, posted)

    def _take(self) -> Row | None:
        """The next row to be sent, if one may be. For who holds the lock."""
        row = self.intended.popleft() if self.intended and self._free() else None
        self.busy += bool(row)
        return row

    def _has_still(self, row: Row) -> bool:
        """True if this loader has the target: since the row's commit so much time may have passed that it lost it."""
        try:
            self.book.confirm()
        except BaseException as error:  # noqa: BLE001 - it is raised where the sending ends
            with self.lock:
                self.intended.appendleft(row)
                self.failed = self.failed or error
                self.busy -= 1
                self.came.put(_Answer())
            return False
        return True

    def _note(self, row: Row, posted: Posted | BaseException) -> Row | None:
        """What an answer says of the target; gives the row to be sent next in its place, if any."""
        with self.lock:
            if isinstance(posted, Posted):
                self.unusable = self.unusable or posted.unusable
                self.circuit.note(posted.result.state != "in_doubt")
            else:
                self.failed = self.failed or posted
            self.busy -= 1
            self.came.put(_Answer(row, posted))
            return self._take()

    # -- the book

    def _read(self) -> None:
        """Has rows read ahead."""
        if self.rows and not self.reading and self.ahead < ROWS_AHEAD:
            self.reading = self._told(self.keeping.submit(_some, self.rows, ROWS_AHEAD - self.ahead))

    def _write(self) -> None:
        """Has the next rows intended, and what came of others written down, some at a time."""
        if self.writing or self.failed or (self._may_begin() and len(self.intended) > self.spare // 2):
            return
        rows = self._next_rows()
        if rows or self.done:
            self.page = Page(rows, self.done, self.sightings if rows else [])
            self.sightings = [] if rows else self.sightings
            self.done = []
            self.writing = self._told(self.keeping.submit(self.book.write_down, *self.page))

    def _told(self, future: "Future[T]") -> "Future[T]":
        """The same, that comes when it is done."""
        future.add_done_callback(self.came.put)
        return future

    def _next_rows(self) -> list[Row]:
        """Rows whose turn it is, with the moment of their attempt."""
        if not self._may_begin():
            return []
        room = self._free() + (0 if self.circuit.trying else self.spare) - len(self.intended)
        rows = [self.ready.popleft() for _ in range(max(0, min(len(self.ready), room)))]
        return [row if row.intended else row._replace(first_attempt_at=self.book.moment()) for row in rows]

    def _has_read(self, reading: "Future[list[Row]]") -> None:
        self.reading = None
        if error := reading.exception():
            self.failed = self.failed or error
            return
        rows = reading.result()
        if not rows:
            self.rows = None
        for row in rows:
            if row.lane in self.book.stopped:
                continue
            self.ahead += 1
            if row.lane in self.queues:
                self.queues[row.lane].append(row)
            else:
                self.queues[row.lane] = deque()
                self._its_turn(row)

    def _has_written(self, writing: "Future[None]") -> None:
        self.writing = None
        if error := writing.exception():
            self.failed = self.failed or error
            self.done = self.done if isinstance(error, LeaseLost) else [*self.page.results, *self.done]
            return
        self.intended.extend(self.page.intended)

    # -- the target

    def _ask_whether_it_is_back(self) -> bool:
        """After failures in a row: waits until the target answers reads, then sends one row at a time."""
        if self.circuit.given_up:
            self.unusable = "the target could not be used: no clear answer, again and again"
            return False
        try:
            self.client.wait_until_it_answers(self.book.resource)
        except TargetUnusable as error:
            self.unusable = str(error)
            return False
        self.circuit.half_open()
        return True

    def _look(self) -> None:
        """Ask what the patients of rows have there, as far as requests are free."""
        for _ in range(min(len(self.to_look), self.at_once - len(self.looks))):
            row = self.to_look.popleft()
            self.looks[self._told(self.looking.submit(self.book.look, row))] = row

    def _its_turn(self, row: Row) -> None:
        patient = row.patient_id
        if patient is None or patient in self.book.noted:
            self.ready.append(row)
        elif patient in self.waiting:
            self.waiting[patient].append(row)
        else:
            self.waiting[patient] = [row]
            self.to_look.append(row)

    def _finish(self) -> None:
        """Take what has come of requests and of the book, and let the next of their lanes go."""
        if not self._at_work:
            return
        came, more = self.came.get(), True
        while more:
            if isinstance(came, _Answer):
                self._answered(came)
            elif came is self.writing:
                self._has_written(came)
            elif came is self.reading:
                self._has_read(came)
            else:
                self._looked(came)
            if more := not self.came.empty():
                came = self.came.get()

    def _answered(self, answer: "_Answer") -> None:
        """A lane with a row in doubt stops."""
        row, posted = answer
        if row is None or not isinstance(posted, Posted):
            return
        self.done.append((row, posted.result))
        if posted.result.state == "in_doubt":
            self.book.stopped.add(row.lane)
        self.ahead -= 1
        self._next(row.lane)

    def _looked(self, look: "Future[Sighting]") -> None:
        patient = self.looks.pop(look).patient_id or ""
        if error := look.exception():
            self.failed = self.failed or error
            return
        self.sightings.append(look.result())
        self.book.noted.add(patient)
        self.ready.extend(self.waiting.pop(patient))

    def _next(self, lane: str) -> None:
        queue = self.queues.pop(lane)
        if lane in self.book.stopped:
            self.ahead -= len(queue)
        elif queue:
            self._its_turn(queue.popleft())
            self.queues[lane] = queue


def _some(rows: Iterator[Row], most: int) -> list[Row]:
    return list(islice(rows, most))
