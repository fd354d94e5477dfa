"""The load stage: accepted records through the ledger to the target, each in exactly one known state at the end.

How rows travel is in `sending.py` (bundles) and `lanes.py` (one request a row); what is known of them is in `book.py`.
"""

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from zlib import crc32

from pipelines.book import Book
from pipelines.capabilities import Capabilities
from pipelines.client import FhirClient
from pipelines.lanes import post, send_by_lanes
from pipelines.lease import Lease
from pipelines.ledger import Ledger
from pipelines.ledger_doubts import forget_sightings
from pipelines.loaded import Batch, Loaded
from pipelines.pace import Circuit
from pipelines.policies import take_back_superseded
from pipelines.progress import Progress
from pipelines.sending import BundleSender, Identity, Row, Sent
from pipelines.shared_notes import Sender, SharedNotes

ROWS_A_BUNDLE = 500
LINES = 4
"""How many bundles are under way at once: the target reads some while it stores others, and can store two as one."""
CHARACTERS_A_BUNDLE = 8_000_000
READERS = 8
LATE_SECONDS = 2.0
"""After which a request without an answer is looked for once more, before its run ends."""

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
    if safe:
        _send_bundles(book, client)
    else:
        _send_singly(book, client)
    take_back_superseded(book)
    book.close_answered(book.answers.done())
    return book.loaded


def _send_singly(book: Book, client: FhirClient) -> None:
    """The bare interface: what is in doubt from before, the rows, what has come in doubt, and the lanes it held up."""
    book.settle_doubts()
    circuit, send = Circuit(), book.notes.posting(post) if book.notes else post
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


def _send_bundles(book: Book, client: FhirClient) -> None:
    """A bundle under way on each line, while the next is encoded and intended and the one before is written down."""
    with ThreadPoolExecutor(LINES, "bundle") as lines, ThreadPoolExecutor(READERS, "read back") as readers:
        sender: Sender = BundleSender(client, Identity(book.source, book.resource), readers.map)
        sender = book.notes.sending(sender, readers.map) if book.notes else sender
        under_way: dict[int, tuple[list[Row], Future[Sent]]] = {}
        intended: list[Row] = []
        try:
            for line, bundle in dealt(book.rows_to_send()):
                book.intend(bundle)
                intended = bundle
                before, sent = _ended(under_way.pop(line, None))
                stopped = book.stopped | _lanes_in_doubt(before, sent)
                if not sent.unusable:
                    going = [row for row in bundle if row.lane not in stopped]
                    under_way[line] = (going, lines.submit(sender.send, going))
                    intended = [row for row in bundle if row.lane in stopped]
                _settle(book, before, sent)
                book.hold_back(intended)
                intended = []
                if sent.unusable:
                    return
        finally:
            for rows, future in under_way.values():
                _settle(book, rows, future.result())
            book.hold_back(intended)


def _ended(bundle: tuple[list[Row], Future[Sent]] | None) -> tuple[list[Row], Sent]:
    """The rows of a bundle that was under way, and what came of them."""
    return (bundle[0], bundle[1].result()) if bundle else ([], Sent())


def _settle(book: Book, rows: Sequence[Row], sent: Sent) -> None:
    book.loaded.unusable = book.loaded.unusable or sent.unusable
    book.settle([(row, sent.results[at]) for at, row in enumerate(rows)])


def _lanes_in_doubt(rows: Sequence[Row], sent: Sent) -> set[str]:
    return {rows[at].lane for at, result in sent.results.items() if result.state == "in_doubt"}


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
