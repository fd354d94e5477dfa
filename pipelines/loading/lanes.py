"""Sending rows to a target with the bare interface: one POST a row, lanes side by side, one after another within one.

An outcome that is not known stays so: the row is in doubt, its lane stops, nothing is sent again by itself. Before the
first row of a patient, what the patient has there is noted: it tells later what a request in doubt can have made.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import islice
from queue import SimpleQueue
from typing import Any, NamedTuple, Protocol

from pipelines.client.client import FhirClient
from pipelines.client.pace import AT_ONCE, Circuit
from pipelines.client.replies import TargetUnusable
from pipelines.ledger.lease import LeaseLost
from pipelines.ledger.rows import Sighting
from pipelines.loading.answered import Result
from pipelines.loading.lookup import BY_ITSELF
from pipelines.loading.posting import Post, post
from pipelines.loading.sending import Posted, Row
from pipelines.loading.turns import Turns

ROWS_AHEAD = 2_000
SPARE = 8
"""Rows that are intended before a request is free for them: no request waits for a commit, and rows share commits.

A kill leaves them in doubt, as it does rows under way. Types whose doubts need a person therefore have none.
"""


class Book(Protocol):
    """The parts of the load's book that lanes need."""

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


def send_by_lanes(
    book: Book,
    rows: Iterator[Row],
    client: FhirClient,
    at_once: int = AT_ONCE,
    circuit: Circuit | None = None,
    send: Post | None = None,
    looks: bool = True,
) -> str | None:
    """Send rows, each by `send`, with a look at their patients before; return why it ended early, else None."""
    with (
        ThreadPoolExecutor(at_once, "lane") as pool,
        ThreadPoolExecutor(at_once, "look") as looking,
        ThreadPoolExecutor(1, "book") as keeping,
        ThreadPoolExecutor(1, "deal") as dealing,
    ):
        dealing.submit(bool).result()  # its one thread is there, whatever is interrupted from here on
        came: Came = SimpleQueue()
        requests = _Requests(partial(send or post, client, book.resource), book.confirm, pool, at_once, circuit, came)
        return _Lanes(book, client, requests, _Pages(book, rows, keeping, came), looking, came, looks).run(dealing)


class _Answer(NamedTuple):
    """An outcome of a row, or what went wrong with it; neither where it could not be sent."""

    row: Row | None = None
    posted: Posted | BaseException | None = None


Came = SimpleQueue[Future[Any] | _Answer]
"""Answers, and what is done at the book, for the thread that deals rows out."""


class _Requests:
    """Requests under way. A worker that has an answer takes the next intended row itself: it waits for no dealing.

    intended: rows whose intents are committed. busy: how many are under way. unusable: why the target cannot be used.
    failed: the error that ends the sending. `_lock` guards all of these, and the circuit.
    """

    def __init__(
        self,
        send: Callable[[Row], Posted],
        confirm: Callable[[], None],
        pool: ThreadPoolExecutor,
        at_once: int,
        circuit: Circuit | None,
        came: Came,
    ) -> None:
        self._send, self._confirm, self._pool, self._came = send, confirm, pool, came
        self.at_once, self.circuit = at_once, circuit or Circuit()
        self.intended: deque[Row] = deque()
        self.busy = 0
        self.unusable: str | None = None
        self.failed: BaseException | None = None
        self._lock = threading.Lock()

    def fail(self, error: BaseException) -> None:
        self.failed = self.failed or error

    @property
    def ending(self) -> bool:
        return bool(self.unusable or self.failed)

    @property
    def may_begin(self) -> bool:
        return not self.ending and not self.circuit.open

    def free(self) -> int:
        """Return how many requests more may be under way."""
        if not self.may_begin:
            return 0
        return max(0, (1 if self.circuit.trying else self.at_once) - self.busy)

    def are_under_way(self) -> bool:
        """True if an answer is to come."""
        with self._lock:
            return bool(self.busy or (self.intended and self.free()))

    def call(self) -> None:
        """Call as many workers as may send what is intended."""
        with self._lock:
            called = min(len(self.intended), self.free())
        for _ in range(called):
            self._pool.submit(self._work)

    def _work(self) -> None:
        """In a thread of its own: send intended rows, one after another, as long as that may be."""
        with self._lock:
            row = self._take()
            if self.failed:
                self._came.put(_Answer())  # the caller may wait for what is not taken any more
        while row and self._is_still_ours(row):
            try:
                posted: Posted | BaseException = self._send(row)
            except BaseException as error:  # noqa: BLE001 - it is raised where answers are taken
                posted = error
            row = self._note(row, posted)

    def _take(self) -> Row | None:
        """Return the next row to be sent, if one may be. The caller holds the lock."""
        row = self.intended.popleft() if self.intended and self.free() else None
        self.busy += bool(row)
        return row

    def _is_still_ours(self, row: Row) -> bool:
        """True if this loader has the target: since the row's commit so much time may have passed that it lost it."""
        try:
            self._confirm()
        except BaseException as error:  # noqa: BLE001 - it is raised where the sending ends
            with self._lock:
                self.intended.appendleft(row)
                self.fail(error)
                self.busy -= 1
                self._came.put(_Answer())
            return False
        return True

    def _note(self, row: Row, posted: Posted | BaseException) -> Row | None:
        """Note what an answer says of the target; return the row to be sent next in its place, if any."""
        with self._lock:
            if isinstance(posted, Posted):
                self.unusable = self.unusable or posted.unusable
                self.circuit.note(posted.result.state != "in_doubt")
            else:
                self.fail(posted)
            self.busy -= 1
            self._came.put(_Answer(row, posted))
            return self._take()


class _Pages:
    """The book, read and written by one thread while requests are under way, a page a commit.

    done: results that are not written yet, which they are with the intents of the next rows. sightings: noted, and
    written with the first rows after them. page: what is being written.
    """

    def __init__(self, book: Book, rows: Iterator[Row], keeping: ThreadPoolExecutor, came: Came) -> None:
        self._book, self._keeping, self._came = book, keeping, came
        self._rows: Iterator[Row] | None = rows
        self.reading: Future[list[Row]] | None = None
        self.writing: Future[None] | None = None
        self.done: list[tuple[Row, Result]] = []
        self.sightings: list[Sighting] = []
        self._page: tuple[list[Row], list[tuple[Row, Result]], list[Sighting]] = ([], [], [])

    def read(self, most: int) -> None:
        """Have rows read ahead, at most so many."""
        if self._rows and not self.reading and most > 0:
            self.reading = self._keeping.submit(_some, self._rows, most)
            self.reading.add_done_callback(self._came.put)

    def take_read(self) -> list[Row]:
        """Return the rows that were read. Raises what the reading raised."""
        reading, self.reading = self.reading, None
        rows = reading.result() if reading else []
        if not rows:
            self._rows = None
        return rows

    def write(self, rows: list[Row]) -> None:
        """Have rows intended, and what is done written, in one commit."""
        if rows or self.done:
            self._page, self.done = (rows, self.done, self.sightings if rows else []), []
            self.sightings = [] if rows else self.sightings
            self.writing = self._keeping.submit(self._book.write_down, *self._page)
            self.writing.add_done_callback(self._came.put)

    def take_written(self) -> list[Row]:
        """Return the rows whose intents are committed. Raises what the writing raised; what is not written stays."""
        writing, self.writing = self.writing, None
        intended, results, _ = self._page
        try:
            if writing:
                writing.result()
        except LeaseLost:
            raise  # what is sure of the results is written
        except BaseException:
            self.done = [*results, *self.done]
            raise
        return intended

    def conclude(self) -> None:
        """Write what is done. Called again it does what it could not."""
        try:
            self._book.write_down([], self.done)
        except LeaseLost:
            self.done = []  # what is sure of them is written
            raise
        self.done = []


class _Lanes:
    """Deals rows out: what was read to its turn, whose turn it is to the book, what is intended to the requests.

    looks: patients that are being looked at, by the row that asked. spare: how many rows are intended ahead.
    """

    def __init__(
        self,
        book: Book,
        client: FhirClient,
        requests: _Requests,
        pages: _Pages,
        looking: ThreadPoolExecutor,
        came: Came,
        looks: bool,
    ) -> None:
        self._book, self._client, self._requests, self._pages = book, client, requests, pages
        self._looking, self._came = looking, came
        self._turns = Turns(book.stopped, book.noted, looks)
        self._looks: dict[Future[Any], Row] = {}
        self._spare = SPARE if book.resource in BY_ITSELF else 0

    def run(self, dealing: ThreadPoolExecutor) -> str | None:
        """Deal in another thread: Ctrl-C comes between any two steps of this one, and would lose what it has taken."""
        try:
            while dealing.submit(self._deal).result() and self._ask_whether_it_is_back():
                pass
            dealing.submit(self._conclude).result()
        except BaseException as error:
            self._requests.fail(error)  # nothing more is sent
            dealing.submit(self._conclude).result()
            raise
        return self._requests.unusable

    def _deal(self) -> bool:
        """Send as long as anything is to be waited for; return True if the target is to be asked whether it is back."""
        while self._go_on():
            self._finish()
        return self._requests.circuit.open and not self._requests.ending

    def _conclude(self) -> None:
        """Wait for what is under way, write it, and take back what was intended and not sent, unless that is another's
        now. Called again it does what it could not. Raises what failed.
        """
        requests = self._requests
        while self._at_work:
            self._finish()
        self._pages.conclude()
        if not isinstance(requests.failed, LeaseLost):
            self._book.hold_back(requests.intended)
        requests.intended.clear()
        if requests.failed:
            raise requests.failed

    def _go_on(self) -> bool:
        """Send what may go now, have the book read and written; return True if anything is to be waited for."""
        self._requests.call()
        if self._requests.may_begin:
            self._pages.read(ROWS_AHEAD - self._turns.count)
            self._look()
        self._write()
        return self._at_work

    @property
    def _at_work(self) -> bool:
        """True if anything is to be waited for, or has come and is to be taken."""
        at_book = self._pages.reading or self._pages.writing
        return bool(self._requests.are_under_way() or self._looks or at_book or not self._came.empty())

    def _write(self) -> None:
        """Have the next rows intended, and results written, some at a time."""
        requests = self._requests
        enough = requests.may_begin and len(requests.intended) > self._spare // 2
        if not (self._pages.writing or requests.failed or enough):
            self._pages.write(self._next_rows())

    def _next_rows(self) -> list[Row]:
        """Return rows whose turn it is, with the moment of their attempt."""
        requests = self._requests
        if not requests.may_begin:
            return []
        spare = 0 if requests.circuit.trying else self._spare
        rows = self._turns.take(requests.free() + spare - len(requests.intended))
        return [row if row.intended else row._replace(first_attempt_at=self._book.moment()) for row in rows]

    def _look(self) -> None:
        """Ask what the patients of rows have at the target, as far as requests are free."""
        for _ in range(min(len(self._turns.to_look), self._requests.at_once - len(self._looks))):
            row = self._turns.to_look.popleft()
            look = self._looking.submit(self._book.look, row)
            self._looks[look] = row
            look.add_done_callback(self._came.put)

    def _ask_whether_it_is_back(self) -> bool:
        """After failures in a row: wait until the target answers reads, then send one row at a time."""
        requests = self._requests
        if requests.circuit.given_up:
            requests.unusable = "the target could not be used: no clear answer, again and again"
            return False
        try:
            self._client.wait_until_it_answers(self._book.resource)
        except TargetUnusable as error:
            requests.unusable = str(error)
            return False
        requests.circuit.half_open()
        return True

    # -- what has come

    def _finish(self) -> None:
        """Take what has come of requests and of the book."""
        if not self._at_work:
            return
        came, more = self._came.get(), True
        while more:
            try:
                self._take(came)
            except BaseException as error:  # noqa: BLE001 - it ends the sending, and is raised at its end
                self._requests.fail(error)
            if more := not self._came.empty():
                came = self._came.get()

    def _take(self, came: "Future[Any] | _Answer") -> None:
        if isinstance(came, _Answer):
            self._answered(came)
        elif came is self._pages.writing:
            self._has_written()
        elif came is self._pages.reading:
            self._has_read()
        else:
            self._looked(came)

    def _answered(self, answer: _Answer) -> None:
        """Keep a result. A lane with a row in doubt stops."""
        row, posted = answer
        if row is None or not isinstance(posted, Posted):
            return
        self._pages.done.append((row, posted.result))
        if posted.result.state == "in_doubt":
            self._book.stopped.add(row.lane)
        self._turns.end(row)

    def _has_read(self) -> None:
        self._turns.add(self._pages.take_read())

    def _has_written(self) -> None:
        self._requests.intended.extend(self._pages.take_written())

    def _looked(self, look: "Future[Sighting]") -> None:
        patient = self._looks.pop(look).patient_id or ""
        self._pages.sightings.append(look.result())
        self._turns.note(patient)


def _some(rows: Iterator[Row], most: int) -> list[Row]:
    return list(islice(rows, most))
