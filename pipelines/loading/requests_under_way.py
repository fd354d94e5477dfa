"""Send rows to a target: intents before each request, outcomes after it, several requests at once.

Only the thread that calls reads rows, writes the book and changes its state; other threads send. An unknown outcome
stays unknown: the row is in doubt, its lane stops, and nothing is sent again without a look-up. If a target is asked
by content, a patient's resources there are noted before the patient's first row. They show later which resource a
request in doubt can have made. An interrupt ends the sending as an error does: requests under way are waited for.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from threading import Condition
from typing import Any, Generic, TypeVar

from pipelines.client.pace import CircuitBreaker
from pipelines.client.threads import A_WHILE
from pipelines.ledger.lease import LeaseLost
from pipelines.ledger.rows import Sighting
from pipelines.loading.book import Book
from pipelines.loading.interrupts import Interrupts
from pipelines.loading.lookup import PatientLookups
from pipelines.loading.lookup_before_sending import SEARCHES_AHEAD, Ask, AskedRows, RowsAhead
from pipelines.loading.row import AcceptedRow, RowResult
from pipelines.loading.sending import Send, SentResults
from pipelines.loading.sending_lines import LaneLines, NotedPatients, Unit

MOST_LEFT_OUT = 1_000
"""Rows of stopped lanes that are read before new results are written."""
WRITES_AT_THE_END = 2
"""Attempts at the last write: one that fails may succeed a moment later."""
LINES_A_ROW = 8
"""Lines for each row under way, if rows are sent one by one, so that a slow row holds few others up."""


Asked = TypeVar("Asked")
Came = Callable[[], object]
"""Work for the dealing thread that follows from an answer."""


class Queue(Generic[Asked]):
    """Requests of one kind.

    ask: sends a request in a thread and returns a function, which is called at once under the lock and returns the
    work that is left. most: returns how many requests may be under way now. waiting: requests that no thread has
    taken. under_way: how many threads have a request.
    """

    def __init__(self, ask: Callable[[Asked], Callable[[], Came | None]], most: Callable[[], int]) -> None:
        self.ask, self.most = ask, most
        self.waiting: deque[Asked] = deque()
        self.under_way = 0

    @property
    def free(self) -> int:
        """The number of requests that may begin now."""
        return max(0, min(len(self.waiting), self.most() - self.under_way))


class Requests:
    """Waiting requests, requests under way and their answers, and the error that ends them.

    `changed` guards all of this, and all that `ask` and `most` share. A thread takes its request itself, so a request
    that no thread has taken was not sent. It counts the request out in the step that stores the answer, so nobody
    waits for an answer that is there.
    """

    def __init__(self) -> None:
        self.changed = Condition()
        self.failed: BaseException | None = None
        self._came: list[Came] = []
        self._queues: dict[Queue[Any], Executor] = {}

    def open(self, queue: Queue[Any], threads: Executor) -> None:
        """Let these threads send the requests of a queue."""
        self._queues[queue] = threads

    def put(self, queue: Queue[Asked], asked: Iterable[Asked]) -> None:
        with self.changed:
            queue.waiting.extend(asked)

    def fail(self, error: BaseException) -> None:
        """End the sending; the first error is its reason. It takes no lock, since Ctrl-C may come within it."""
        self.failed = self.failed or error

    def take(self, wait: bool) -> list[Came]:
        """Let requests begin; return the work that their answers have left.

        wait: wait until there is some. It returns nothing if no request is under way or can begin.
        """
        with self.changed:
            for queue, threads in self._queues.items():
                for _ in range(queue.free):
                    threads.submit(self._work, queue)
            if wait:
                while not self.changed.wait_for(self._has_come_or_nothing_will, A_WHILE):
                    pass  # Python handles a signal between waits, so a signal just before a wait does not end it
            came, self._came = self._came, []
        return came

    def _has_come_or_nothing_will(self) -> bool:
        return bool(self._came) or not any(each.under_way or each.free for each in self._queues)

    def _work(self, queue: Queue[Any]) -> None:
        """Send a request in a thread, then the next that waits, without a wait for the dealing thread between them."""
        while asked := self._taken(queue):
            try:
                note = queue.ask(asked)
            except BaseException as error:  # noqa: BLE001 - raised where the sending ends
                note = partial(self.fail, error)
            with self.changed:
                queue.under_way -= 1
                try:
                    if came := note():
                        self._came.append(came)
                except BaseException as error:  # noqa: BLE001 - raised where the sending ends
                    self.fail(error)
                self.changed.notify_all()

    def _taken(self, queue: Queue[Asked]) -> Asked | None:
        with self.changed:
            if not queue.free:
                self.changed.notify_all()  # wakes a thread that waits for requests that are no longer taken
                return None
            queue.under_way += 1
            return queue.waiting.popleft()


class UnderWay:
    """Units under way to the target, at most `at_once`, and `spare` more units whose intents are written.

    No request waits for a commit as long as there is a spare unit, and units share commits. A kill leaves the rows of
    all these units in doubt. looks: look-ups of patients before their rows are sent; None if rows have identifiers.
    ask: asks for rows before they are sent; None if they need not be asked for.

    done: results that are not written yet; the commit of the next intents writes them. unusable: why the target cannot
    be used, for the sending threads; the dealing thread tells the book.
    """

    def __init__(
        self,
        book: Book,
        send: Send,
        at_once: int,
        spare: int,
        most: int,
        circuit: CircuitBreaker,
        looks: PatientLookups | None = None,
        ask: Ask | None = None,
    ) -> None:
        self._book, self._send, self._circuit = book, send, circuit
        book.is_ending = lambda: self._is_ending
        self._at_once, self._spare, self._most = at_once, spare, most
        number = at_once + spare if most > 1 else LINES_A_ROW * at_once
        abreast = at_once if most > 1 else number
        self._patients = NotedPatients(looks.noted if looks else None)
        self._lines = LaneLines(number, abreast, most, book.stopped, self._patients)
        self._requests = Requests()
        self._interrupts = Interrupts(book.load.client.patience, self._requests.fail)
        self._units = Queue[Unit](self._ask, self._most_under_way)
        self._looks = Queue[AcceptedRow](partial(self._look, looks.look), self._most_before) if looks else None
        self._searches = Queue[AskedRows](partial(self._search, ask), self._most_before) if ask else None
        self._done: list[tuple[AcceptedRow, RowResult]] = []
        self._sightings: list[Sighting] = []
        self._unusable: str | None = None

    def carry(self, rows: Iterator[AcceptedRow]) -> None:
        """Send rows while the target can be used. Raises the error that ended it, after all results are written."""
        with (
            self._interrupts,
            ThreadPoolExecutor(self._at_once, "send") as sending,
            ThreadPoolExecutor(self._at_once, "look") as looking,
        ):
            self._requests.open(self._units, sending)
            if self._looks:
                self._requests.open(self._looks, looking)
            if self._searches:
                self._requests.open(self._searches, looking)
            ahead = RowsAhead(rows, min(SEARCHES_AHEAD, self._at_once) if self._searches else 0)
            while self._deal(ahead) and self._is_back():
                pass
            self._conclude()
        if self._requests.failed:
            raise self._requests.failed

    def _deal(self, rows: RowsAhead) -> bool:
        """Send while there is something to send; return True if the load must then wait until the target answers
        again.

        Answers are taken before anything is waited for, so that no request idles behind a slow one.
        """
        try:
            going_on = True
            while going_on:
                reads_on = self._may_begin and self._read(rows)
                self._write(not reads_on)
                has_come, are_left = self._take(wait=not reads_on), not (rows.are_given and self._lines.are_empty)
                going_on = reads_on or has_come or (self._may_begin and are_left)
        except BaseException as error:  # noqa: BLE001 - ends the sending, and is raised at its end
            self._requests.fail(error)
        return self._circuit.open and not self._is_ending

    def _conclude(self) -> None:
        """Wait for requests under way, write their results, and take back intents that were not sent."""
        while self._take():
            pass
        for _ in range(WRITES_AT_THE_END):
            try:
                self._write_last()
            except BaseException as error:  # noqa: BLE001 - raised at the end of the sending
                self._requests.fail(error)
            else:
                break
        self._patients.forget(each.patient_id for each in self._sightings)

    def _write_last(self) -> None:
        """Write the last results, and take back units that no thread has taken. This needs the lease."""
        self._write_down([])
        self._book.hold_back(row for unit in self._units.waiting for row in unit)
        self._units.waiting.clear()

    @property
    def _is_ending(self) -> bool:
        return bool(self._requests.failed or self._unusable or self._book.loaded.unusable)

    @property
    def _may_begin(self) -> bool:
        return not self._is_ending and not self._circuit.open

    def _most_under_way(self) -> int:
        return min(self._most_before(), 1 if self._circuit.trying else self._at_once)

    def _most_before(self) -> int:
        return self._at_once if self._may_begin else 0

    def _is_back(self) -> bool:
        """After failures in a row, wait until the target answers reads; then one unit is sent at a time."""
        load = self._book.load
        try:
            with self._interrupts.raised():
                if self._requests.failed:
                    return False
                why = load.client.wait_until_it_answers(load.resource, self._circuit.given_up)
        except BaseException as error:  # noqa: BLE001 - raised at the end of the sending
            self._requests.fail(error)
            return False
        self._book.loaded.unusable = why
        self._circuit.half_open()
        return not why

    # -- by the thread that deals

    def _read(self, rows: RowsAhead) -> bool:
        """Read rows ahead, and queue the look-ups for them. Return True if many rows of stopped lanes were skipped, so
        that reading should continue first.
        """
        left_out = 0
        while self._lines.want_rows and left_out < MOST_LEFT_OUT and not self._requests.failed:
            if not (row := rows.next()):
                break
            left_out += not self._lines.add(row)
        if self._searches:
            self._requests.put(self._searches, rows.taken_to_ask())
        if self._looks:
            self._requests.put(self._looks, self._patients.taken_to_look())
        return left_out == MOST_LEFT_OUT

    def _write(self, begins: bool) -> None:
        """Write results with the intents of the next units, once half of the spare units are under way."""
        with self._requests.changed:
            in_hand = self._units.under_way + len(self._units.waiting)
            most = 1 if self._circuit.trying else self._at_once + self._spare
            begins = begins and self._may_begin
        if begins and in_hand > self._at_once + self._spare // 2:
            return
        units = self._next_units(most - in_hand) if begins else []
        self._write_down([row for unit in units for row in unit])
        self._requests.put(self._units, units)

    def _next_units(self, most: int) -> list[Unit]:
        """Return the next units. If rows are sent one by one, which takes long, each gets the moment of its attempt."""
        units, moment = self._lines.take(most), self._book.moment()
        if self._most > 1:
            return units
        return [[row if row.intended else row._replace(first_attempt_at=moment) for row in unit] for unit in units]

    def _write_down(self, intended: Unit) -> None:
        sightings = self._sightings if intended else []
        try:
            self._book.write_down(intended, self._done, sightings)
        except LeaseLost:
            self._done = []  # the certain ones are written
            raise
        self._done = []
        self._sightings = [] if intended else self._sightings

    def _take(self, wait: bool = True) -> bool:
        """Wait for answers, and do the work that they leave; return True if there was any."""
        came = self._requests.take(wait)
        for each in came:
            try:
                each()
            except BaseException as error:  # noqa: BLE001 - ends the sending, and is raised at its end
                self._requests.fail(error)
        return bool(came)

    def _looked(self, sighting: Sighting) -> None:
        self._patients.note(sighting.patient_id)
        self._sightings.append(sighting)

    def _answered(self, unit: Unit, sent: SentResults) -> None:
        """Keep results. A lane with a row in doubt stops; no other unit under way has rows of that lane."""
        results = [(row, sent.results[at]) for at, row in enumerate(unit)]
        self._done += results
        self._book.stopped.update(row.lane for row, result in results if result.state == "in_doubt")
        self._book.loaded.unusable = self._book.loaded.unusable or sent.unusable
        self._lines.end(unit)

    # -- by the threads that send

    def _ask(self, unit: Unit) -> Callable[[], Came | None]:
        """Send a unit if this loader still holds the target. Much time may have passed since the unit's commit."""
        try:
            self._book.confirm()
        except BaseException as error:  # noqa: BLE001 - raised where the sending ends
            return partial(self._put_back, unit, error)
        return partial(self._note, unit, self._send(unit))

    def _put_back(self, unit: Unit, error: BaseException) -> None:
        self._units.waiting.appendleft(unit)
        self._requests.fail(error)

    def _note(self, unit: Unit, sent: SentResults) -> Came:
        """Note what an answer says about the target."""
        self._unusable = self._unusable or sent.unusable
        self._circuit.note(all(result.state != "in_doubt" for result in sent.results.values()))
        return partial(self._answered, unit, sent)

    def _look(self, look: Callable[[AcceptedRow], Sighting], row: AcceptedRow) -> Callable[[], Came]:
        sighting = look(row)
        return lambda: partial(self._looked, sighting)

    def _search(self, ask: Ask, piece: AskedRows) -> Callable[[], Came]:
        rows = ask(piece.rows)
        return lambda: partial(piece.take, rows)
