"""Rows in bundles: several under way at once, dealt over lines so that no lane is under way on two of them."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

from pipelines.client.profiles import ROWS_A_BUNDLE
from pipelines.ledger.lease import LeaseLost
from pipelines.loading.answered import Result
from pipelines.loading.book import Book
from pipelines.loading.row import Row
from pipelines.loading.sending import BundleSender, Send, Sent
from pipelines.loading.why import Why

LINES = 4
"""Bundles under way at once: the target reads some while it stores others, and can store two as one."""
CHARACTERS_A_BUNDLE = 8_000_000
READERS = 8

Round = list[tuple[int, list[Row]]]
"""Bundles that are intended together, each with its line. All of one begin before any of the next."""


def send_bundles(book: Book, rows: Iterator[Row], why: Why) -> None:
    """A bundle under way on each line, while the next round is encoded and intended."""
    at_once, most = max(1, LINES // book.load.batch.workers), book.load.client.profile.rows_a_bundle or ROWS_A_BUNDLE
    with ThreadPoolExecutor(at_once, "bundle") as lines, ThreadPoolExecutor(READERS, "read back") as readers:
        send: Send = BundleSender(book.load.client, book.load.identity, book.step, why.whole, readers.map).send
        send = book.notes.sending(send, readers.map) if book.notes else send
        UnderWay(book, lambda bundle: lines.submit(send, bundle)).carry(rounds(dealt(rows, at_once, most)))


class UnderWay:
    """Bundles under way, one on each line.

    under_way: by line, a bundle and its future. waiting: by line, bundles that are intended and not sent. done: results
    that are not written yet; they are written in one commit with the intents of the next round.
    """

    def __init__(self, book: Book, send: Callable[[list[Row]], Future[Sent]]) -> None:
        self.book, self.send = book, send
        self.under_way: dict[int, tuple[list[Row], Future[Sent]]] = {}
        self.waiting: dict[int, list[Row]] = {}
        self.done: list[tuple[Row, Result]] = []

    def carry(self, rounds: Iterable[Round]) -> None:
        """Send all bundles, as long as the target can be used."""
        try:
            for bundles in rounds:
                self._write_down([row for _, bundle in bundles for row in bundle])
                self.waiting.update(bundles)
                while self.waiting:
                    line = self._first_free()
                    self._end(line)
                    if self.book.loaded.unusable:
                        return
                    self._begin(line, self.waiting.pop(line))
        finally:
            for line in list(self.under_way):
                self._end(line)
            self.book.write_down([], self.done)
            self.book.hold_back(row for bundle in self.waiting.values() for row in bundle)

    def _write_down(self, intended: list[Row]) -> None:
        try:
            self.book.write_down(intended, self.done)
        except LeaseLost:
            self.done = []  # what is sure of them is written
            raise
        self.done = []

    def _first_free(self) -> int:
        """Wait for a line that a bundle waits for: the first one whose bundle has ended."""
        futures = {line: self.under_way[line][1] for line in self.waiting if line in self.under_way}
        if idle := set(self.waiting).difference(futures):
            return min(idle)
        ended, _ = wait(futures.values(), return_when=FIRST_COMPLETED)
        return next(line for line, future in futures.items() if future in ended)

    def _begin(self, line: int, bundle: list[Row]) -> None:
        going = [row for row in bundle if row.lane not in self.book.stopped]
        if len(going) < len(bundle):
            self.book.hold_back(row for row in bundle if row.lane in self.book.stopped)
        if going:
            self.under_way[line] = (going, self.send(going))

    def _end(self, line: int) -> None:
        """Wait for the bundle of a line. A lane with a row in doubt stops at once."""
        rows, sending = self.under_way.pop(line, ((), None))
        if sending:
            sent = sending.result()
            self.done += [(row, sent.results[at]) for at, row in enumerate(rows)]
            self.book.stopped.update(rows[at].lane for at, result in sent.results.items() if result.state == "in_doubt")
            self.book.loaded.unusable = self.book.loaded.unusable or sent.unusable


def rounds(dealing: Iterable[tuple[int, list[Row]]]) -> Iterator[Round]:
    """Group bundles into rounds, with at most one bundle of each line."""
    together: Round = []
    for line, bundle in dealing:
        if any(line == other for other, _ in together):
            yield together
            together = []
        together.append((line, bundle))
    if together:
        yield together


def dealt(rows: Iterable[Row], lines: int = LINES, most: int | None = None) -> Iterator[tuple[int, list[Row]]]:
    """Rows in bundles, bounded in number and in size, with the line on which each travels."""
    waiting: list[list[Row]] = [[] for _ in range(lines)]
    sizes, lanes = [0] * lines, _LinesOfLanes(lines)
    for row in rows:
        line = lanes.line(row.lane)
        if len(waiting[line]) == (most or ROWS_A_BUNDLE) or sizes[line] + len(row.body) > CHARACTERS_A_BUNDLE:
            if waiting[line]:
                yield line, waiting[line]
                lanes.dealt(line, waiting[line])
            waiting[line], sizes[line] = [], 0
        waiting[line].append(row)
        sizes[line] += len(row.body)
        lanes.add(row.lane, line)
    yield from ((line, bundle) for line, bundle in enumerate(waiting) if bundle)


class _LinesOfLanes:
    """The line of each lane that rows may be under way of; any other goes to the line that had the fewest rows.

    A line begins a bundle once its last one has ended, and no round before the one before it has begun. So what was in
    neither of the two bundles that a line was dealt last, nor is in the one that it gets next, has ended whenever a
    bundle begins that is dealt from now on: these lanes are free.
    """

    def __init__(self, lines: int) -> None:
        self._line_of: dict[str, int] = {}
        self._rows = [0] * lines
        self._last: list[tuple[set[str], set[str]]] = [(set(), set())] * lines

    def line(self, lane: str) -> int:
        kept = self._line_of.get(lane)
        return self._rows.index(min(self._rows)) if kept is None else kept

    def add(self, lane: str, line: int) -> None:
        self._line_of[lane] = line
        self._rows[line] += 1

    def dealt(self, line: int, bundle: Iterable[Row]) -> None:
        older, last = self._last[line]
        lanes = {row.lane for row in bundle}
        for lane in older - last - lanes:
            del self._line_of[lane]
        self._last[line] = (last, lanes)
