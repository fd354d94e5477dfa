"""Sending rows to a target with the bare interface: one POST a row, lanes side by side, one after another within one.

An outcome that is not known stays so: the row is in doubt, its lane stops, and nothing is sent again by itself.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from itertools import islice
from typing import NamedTuple, Protocol

from pipelines.client import FhirClient, NotDone, NotSent, Refused, Reply, Unknown
from pipelines.sending import TOO_LARGE, Result, Row, dated

AT_ONCE = 8
ROWS_AHEAD = 2_000


class Book(Protocol):
    """What lanes need of the load's book."""

    resource: str
    stopped: set[str]

    def rows_to_send(self) -> Iterator[Row]: ...
    def intend(self, rows: Sequence[Row]) -> None: ...
    def settle(self, results: Sequence[tuple[Row, Result]]) -> None: ...


class Posted(NamedTuple):
    """The result of one row, and why nothing more can be sent, if so."""

    result: Result
    unusable: str | None = None


def send_by_lanes(book: Book, client: FhirClient, at_once: int = AT_ONCE) -> str | None:
    """Sends the book's rows; gives the sentence that ended it early, else None."""
    with ThreadPoolExecutor(at_once, "lane") as pool:
        return _Lanes(book, client, pool, at_once).run()


class _Lanes:
    """ready: rows whose turn it is. queues: for each lane at work, the rows behind its first."""

    def __init__(self, book: Book, client: FhirClient, pool: ThreadPoolExecutor, at_once: int) -> None:
        self.book, self.client, self.pool, self.at_once = book, client, pool, at_once
        self.rows = book.rows_to_send()
        self.ready: deque[Row] = deque()
        self.queues: dict[str, deque[Row]] = {}
        self.ahead = 0
        self.under_way: dict[Future[Posted], Row] = {}
        self.unusable: str | None = None

    def run(self) -> str | None:
        try:
            while self._start() or self.under_way:
                self._finish()
        finally:
            while self.under_way:
                self._finish()
        return self.unusable

    def _start(self) -> bool:
        """Sends what may go now; whether anything went."""
        if self.unusable:
            return False
        self._look_ahead()
        rows = [self.ready.popleft() for _ in range(min(len(self.ready), self.at_once - len(self.under_way)))]
        self.book.intend(rows)
        for row in rows:
            self.under_way[self.pool.submit(post, self.client, self.book.resource, row)] = row
        return bool(rows)

    def _look_ahead(self) -> None:
        for row in islice(self.rows, ROWS_AHEAD - self.ahead):
            if row.lane in self.book.stopped:
                continue
            self.ahead += 1
            if row.lane in self.queues:
                self.queues[row.lane].append(row)
            else:
                self.queues[row.lane] = deque()
                self.ready.append(row)

    def _finish(self) -> None:
        """Writes down what has come of requests, and lets the next of their lanes go."""
        done = wait(self.under_way, return_when=FIRST_COMPLETED).done
        settled = [(self.under_way.pop(future), future.result()) for future in done]
        self.book.settle([(row, posted.result) for row, posted in settled])
        for row, posted in settled:
            self.unusable = self.unusable or posted.unusable
            self.ahead -= 1
            self._next(row.lane)

    def _next(self, lane: str) -> None:
        queue = self.queues.pop(lane)
        if lane in self.book.stopped:
            self.ahead -= len(queue)
        elif queue:
            self.ready.append(queue.popleft())
            self.queues[lane] = queue


def post(client: FhirClient, resource_type: str, row: Row) -> Posted:
    """One row, tried again with pauses only while it is sure that nothing was done."""
    pauses, tries, body = client.patience.pauses(), 0, dated(resource_type, row).encode()
    while True:
        tries, asked = tries + 1, None
        try:
            return Posted(_made(client.create(resource_type, body)))
        except Refused as error:
            return Posted(_refused(error.reply))
        except Unknown:
            return Posted(Result("in_doubt"))
        except NotSent as error:
            problem = f"no connection ({error})"
        except NotDone as error:
            if error.reply.status == TOO_LARGE:
                return Posted(_refused(error.reply))
            problem, asked = f"HTTP {error.reply.status}", error.reply.retry_after
        pause = next(pauses, None)
        if pause is None:
            return Posted(Result("planned"), f"the target could not be used: {problem}, {tries} times")
        client.patience.wait(pause, asked)


def _made(reply: Reply) -> Result:
    return Result("created", reply.resource_id, reply.status)


def _refused(reply: Reply) -> Result:
    return Result("refused", None, reply.status, reply.outcome)
