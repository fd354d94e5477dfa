"""The load stage: accepted records through the ledger to the target, each in exactly one known state at the end.

Which rows are sent is judged in `intake.py`, and written in `book.py`; `bundles.py` and `lanes.py` (one request a row)
send them.
"""

from functools import partial

from pipelines.client.capabilities import Capabilities
from pipelines.client.client import FhirClient
from pipelines.client.pace import Circuit
from pipelines.home.collecting import seldom
from pipelines.home.progress import Progress
from pipelines.ledger.doubts import forget_sightings
from pipelines.ledger.lease import Lease
from pipelines.ledger.ledger import Ledger
from pipelines.loading.book import Book
from pipelines.loading.bundles import send_bundles
from pipelines.loading.intake import Intake, note_skipped
from pipelines.loading.lanes import send_by_lanes
from pipelines.loading.loaded import Batch, Loaded
from pipelines.loading.policies import take_back_superseded
from pipelines.loading.posting import post
from pipelines.loading.why import Why

LATE_SECONDS = 2.0
"""After which a request without an answer is looked for once more, before its run ends."""

__all__ = ["Batch", "Loaded", "load"]


def load(
    batch: Batch, client: FhirClient, capabilities: Capabilities, ledger: Ledger, lease: Lease, progress: Progress
) -> Loaded:
    """Send what `accepted.parquet` holds and the ledger does not know as done. Raises `LedgerError`."""
    safe = capabilities.safe_batches(batch.feed.resource)
    book = Book(batch, client, ledger, lease, progress, safe)
    book.note_answers()
    note_skipped(book)
    intake, why = Intake(book), Why(client, capabilities, book.resource)
    intake.settle_doubts_before()
    with seldom():
        if safe:
            send_bundles(book, intake.rows_to_send(), client, why)
        else:
            _send_singly(book, intake, client, why)
    take_back_superseded(book)
    book.close_answered(book.answers.done())
    return book.loaded


def _send_singly(book: Book, intake: Intake, client: FhirClient, why: Why) -> None:
    """The bare interface: what is in doubt from before, the rows, what has come in doubt, and the lanes it held up."""
    circuit, send = Circuit(), why.posting(partial(post, confirm=book.confirm))
    send = book.notes.posting(send) if book.notes else send
    while True:
        unusable = send_by_lanes(book, intake.rows_to_send(), client, book.batch.pace.at_once, circuit, send)
        book.loaded.unusable = unusable or book.loaded.unusable
        if book.loaded.unusable or not book.loaded.counts["in_doubt"]:
            break
        if not intake.settle_doubts_again():
            client.patience.wait(LATE_SECONDS)
            if not intake.settle_doubts_again():
                break
    forget_sightings(book.ledger, book.batch.target, book.resource)
