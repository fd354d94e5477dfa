"""The load stage: accepted records through the ledger to the target, each in exactly one known state at the end.

How rows travel is in `sending.py` (bundles) and `lanes.py` (one request a row); what is known of them is in `book.py`.
"""

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from pipelines.book import Batch, Book, Loaded
from pipelines.client import Capabilities, FhirClient
from pipelines.lanes import send_by_lanes
from pipelines.lease import Lease
from pipelines.ledger import Ledger
from pipelines.ledger_doubts import forget_sightings
from pipelines.pace import Circuit
from pipelines.policies import take_back_superseded
from pipelines.progress import Progress
from pipelines.sending import BundleSender, Identity, Row, Sent

ROWS_A_BUNDLE = 500
CHARACTERS_A_BUNDLE = 8_000_000
READERS = 8
LATE_SECONDS = 2.0
"""After which a request without an answer is looked for once more, before its run ends."""

__all__ = ["Batch", "Book", "Loaded", "bundles", "load"]


def load(
    batch: Batch, client: FhirClient, capabilities: Capabilities, ledger: Ledger, lease: Lease, progress: Progress
) -> Loaded:
    """Sends what `accepted.parquet` holds and the ledger does not know as done. Raises `LedgerError`."""
    safe = capabilities.safe_batches(batch.feed.resource)
    book = Book(batch, client, ledger, lease, progress, safe)
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
    circuit = Circuit()
    while True:
        book.loaded.unusable = send_by_lanes(book, client, book.batch.pace.at_once, circuit) or book.loaded.unusable
        if book.loaded.unusable or not book.loaded.counts["in_doubt"]:
            break
        if not book.settle_doubts_again():
            client.patience.wait(LATE_SECONDS)
            if not book.settle_doubts_again():
                break
    forget_sightings(book.ledger, book.batch.target, book.resource)


def _send_bundles(book: Book, client: FhirClient) -> None:
    """One bundle under way, while the next is encoded and intended and the one before is written down."""
    with ThreadPoolExecutor(1, "bundle") as line, ThreadPoolExecutor(READERS, "read back") as readers:
        sender = BundleSender(client, Identity(book.source, book.resource), readers.map)
        under_way: tuple[list[Row], Future[Sent]] | None = None
        intended: list[Row] = []
        try:
            for bundle in bundles(book.rows_to_send()):
                book.intend(bundle)
                intended = bundle
                before, under_way = under_way, None
                sent = before[1].result() if before else Sent()
                stopped = _lanes_in_doubt(before[0], sent) if before else set()
                if not sent.unusable:
                    intended = [row for row in bundle if row.lane not in stopped]
                    under_way = (intended, line.submit(sender.send, intended))
                    intended = [row for row in bundle if row.lane in stopped]
                if before:
                    _settle(book, before[0], sent)
                book.hold_back(intended)
                intended = []
                if sent.unusable:
                    return
        finally:
            if under_way:
                _settle(book, under_way[0], under_way[1].result())
            book.hold_back(intended)


def _settle(book: Book, rows: Sequence[Row], sent: Sent) -> None:
    book.loaded.unusable = book.loaded.unusable or sent.unusable
    book.settle([(row, sent.results[at]) for at, row in enumerate(rows)])


def _lanes_in_doubt(rows: Sequence[Row], sent: Sent) -> set[str]:
    return {rows[at].lane for at, result in sent.results.items() if result.state == "in_doubt"}


def bundles(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """Rows in bundles, bounded in number and in size."""
    bundle: list[Row] = []
    size = 0
    for row in rows:
        if len(bundle) == ROWS_A_BUNDLE or (bundle and size + len(row.body) > CHARACTERS_A_BUNDLE):
            yield bundle
            bundle, size = [], 0
        bundle.append(row)
        size += len(row.body)
    if bundle:
        yield bundle
