"""The load stage: accepted records through the ledger to the target, each in exactly one known state at the end.

Its parts are in `loading/`: how rows travel is in `sending.py` (bundles) and `lanes.py` (one request a row); what is
known of them is in `book.py`.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from zlib import crc32

from pipelines.client.capabilities import Capabilities
from pipelines.client.client import FhirClient
from pipelines.client.pace import Circuit
from pipelines.home.collecting import seldom
from pipelines.home.progress import Progress
from pipelines.ledger.doubts import forget_sightings
from pipelines.ledger.lease import Lease, LeaseLost
from pipelines.ledger.ledger import Ledger
from pipelines.loading.book import Book
from pipelines.loading.lanes import send_by_lanes
from pipelines.loading.loaded import Batch, Loaded
from pipelines.loading.policies import take_back_superseded
from pipelines.loading.posting import post
from pipelines.loading.sending import BundleSender, Identity, Result, Row, Sent
from pipelines.loading.shared_notes import Sender, SharedNotes
from pipelines.loading.why import Why

ROWS_A_BUNDLE = 500
LINES = 4
"""How many bundles are under way at once: the target reads some while it stores others, and can store two as one."""
CHARACTERS_A_BUNDLE = 8_000_000
READERS = 8
LATE_SECONDS = 2.0
"""After which a request without an answer is looked for once more, before its run ends."""

Round = list[tuple[int, list[Row]]]
"""Bundles that are intended together, each with its line."""

__all__ = ["Batch", "Book", "Loaded", "dealt", "load"]


def load(
    batch: Batch, client: FhirClient, capabilities: Capabilities, ledger: Ledger, lease: Lease, progress: Progress
) -> Loaded:
    """Sends what `accepted.parquet` holds and the ledger does not know as done. Raises `LedgerError`."""
    safe = capabilities.safe_batches(batch.feed.resource)
    book = Book(batch, client, ledger, lease, progress, safe)
    book.notes = SharedNotes.of(batch, client, ledger)
    book.note_answers()
    book.note_skipped()
    book.settle_doubts_before()
    with seldom():
        (_send_bundles if safe else _send_singly)(book, client, Why(client, capabilities, book.resource))
    take_back_superseded(book)
    book.close_answered(book.answers.done())
    return book.loaded


def _send_singly(book: Book, client: FhirClient, why: Why) -> None:
    """The bare interface: what is in doubt from before, the rows, what has come in doubt, and the lanes it held up."""
    circuit, send = Circuit(), why.posting(partial(post, confirm=book.confirm))
    send = book.notes.posting(send) if book.notes else send
    while True:
        unusable = send_by_lanes(book, client, book.batch.pace.at_once, circuit, send)
        book.loaded.unusable = unusable or book.loaded.unusable
        if book.loaded.unusable or not book.loaded.counts["in_doubt"]:
            break
        if not book.settle_doubts_again():
            client.patience.wait(LATE_SECONDS)
            if not book.settle_doubts_again():
                break
    forget_sightings(book.ledger, book.batch.target, book.resource)


def _send_bundles(book: Book, client: FhirClient, why: Why) -> None:
    """A bundle under way on each line, while the next round is encoded and intended."""
    with ThreadPoolExecutor(LINES, "bundle") as lines, ThreadPoolExecutor(READERS, "read back") as readers:
        sender: Sender = BundleSender(client, Identity(book.source, book.resource), readers.map, why.whole)
        sender = book.notes.sending(sender, readers.map) if book.notes else sender
        _Lines(book, lambda rows: lines.submit(sender.send, rows)).carry(rounds(dealt(book.rows_to_send())))


class _Lines:
    """under_way: by line, the rows of a bundle and what comes of them. waiting: bundles intended, and not sent yet.

    done: results that are not written down yet, which they are with the intents of the next round, in one commit.
    """

    def __init__(self, book: Book, send: Callable[[list[Row]], Future[Sent]]) -> None:
        self.book, self.send = book, send
        self.under_way: dict[int, tuple[list[Row], Future[Sent]]] = {}
        self.waiting: deque[list[Row]] = deque()
        self.done: list[tuple[Row, Result]] = []

    def carry(self, rounds: Iterable[Round]) -> None:
        """Sends all bundles, as long as the target can be used."""
        try:
            for bundles in rounds:
                self._write_down([row for _, bundle in bundles for row in bundle])
                self.waiting.extend(bundle for _, bundle in bundles)
                for line, bundle in bundles:
                    self._end(line)
                    if self.book.loaded.unusable:
                        return
                    self._begin(line, bundle)
        finally:
            for line in list(self.under_way):
                self._end(line)
            self.book.write_down([], self.done)
            self.book.hold_back(row for bundle in self.waiting for row in bundle)

    def _write_down(self, intended: list[Row]) -> None:
        try:
            self.book.write_down(intended, self.done)
        except LeaseLost:
            self.done = []  # what is sure of them is written
            raise
        self.done = []

    def _begin(self, line: int, bundle: list[Row]) -> None:
        self.waiting.popleft()
        going = [row for row in bundle if row.lane not in self.book.stopped]
        if len(going) < len(bundle):
            self.book.hold_back(row for row in bundle if row.lane in self.book.stopped)
        if going:
            self.under_way[line] = (going, self.send(going))

    def _end(self, line: int) -> None:
        """Waits for the bundle of a line. A lane with a row in doubt stops at once."""
        rows, sending = self.under_way.pop(line, ((), None))
        if sending:
            sent = sending.result()
            self.done += [(row, sent.results[at]) for at, row in enumerate(rows)]
            self.book.stopped.update(rows[at].lane for at, result in sent.results.items() if result.state == "in_doubt")
            self.book.loaded.unusable = self.book.loaded.unusable or sent.unusable


def rounds(dealing: Iterable[tuple[int, list[Row]]]) -> Iterator[Round]:
    """The same bundles, some at a time: of each line one at most."""
    together: Round = []
    for line, bundle in dealing:
        if any(line == other for other, _ in together):
            yield together
            together = []
        together.append((line, bundle))
    if together:
        yield together


def dealt(rows: Iterable[Row]) -> Iterator[tuple[int, list[Row]]]:
    """Rows in bundles, bounded in number and in size, with the line on which each travels: a lane keeps to its line."""
    waiting: list[list[Row]] = [[] for _ in range(LINES)]
    sizes = [0] * LINES
    for row in rows:
        line = crc32(row.lane.encode()) % LINES
        if len(waiting[line]) == ROWS_A_BUNDLE or sizes[line] + len(row.body) > CHARACTERS_A_BUNDLE:
            if waiting[line]:
                yield line, waiting[line]
            waiting[line], sizes[line] = [], 0
        waiting[line].append(row)
        sizes[line] += len(row.body)
    yield from ((line, bundle) for line, bundle in enumerate(waiting) if bundle)
