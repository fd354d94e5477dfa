"""The load of one part of a batch, by a worker that holds its lease, and may not be the first that does."""

import pyarrow as pa
import pyarrow.compute as pc

from pipelines.client.capabilities import Capabilities
from pipelines.client.client import FhirClient
from pipelines.client.steps import step_for
from pipelines.home import arrow
from pipelines.home.progress import Progress
from pipelines.home.spill import batches
from pipelines.ledger.doubts import doubt_sent
from pipelines.ledger.ledger import Ledger
from pipelines.ledger.parts import PartLease
from pipelines.loading.accepted import ROWS_A_LOOK
from pipelines.loading.book import Book
from pipelines.loading.intake import Intake
from pipelines.loading.loaded import Batch
from pipelines.loading.part_outcome import PartLoaded
from pipelines.loading.stage import send
from pipelines.loading.why import Why


class Sayings(Progress):
    """Keeps what is said, for who shows it; the rows are counted elsewhere."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)


def load_part(
    batch: Batch,
    client: FhirClient,
    capabilities: Capabilities,
    ledger: Ledger,
    lease: PartLease,
    freed: set[str],
) -> PartLoaded:
    """Send the rows of the batch's part. Raises `LedgerError`.

    freed: keys of rows in doubt that may be sent again, unless a worker before has done so. New doubts are not looked
    up here: of equal records in several parts, whose a resource is can be told of all together alone.
    """
    progress = Sayings()
    step = step_for(capabilities, batch.feed.resource)
    book = Book(batch, client, ledger, lease, progress, step, capabilities)
    lease.counting = lambda: PartLoaded(book.loaded).as_text()
    intake = Intake(book)
    if lease.attempts == 1:
        intake.free(freed)
    else:
        _doubt_sending(book)
    send(book, intake, Why(client, capabilities, book.resource))
    book.close_answered()
    return PartLoaded(book.loaded, *book.answers.told(), book.refused, progress.said, book.step != step)


def _doubt_sending(book: Book) -> None:
    """Put in doubt the rows that the worker before was sending: it sends no more, but may write answers down yet."""
    sending = book.ledger.sending(*book.of)
    keys, found = arrow.column([*sending], pa.string()), list[tuple[str, int]]()
    for some in batches(book.batch.folder / "accepted.parquet", ROWS_A_LOOK, ["key", "lane"]) if sending else ():
        rows = some.filter(pc.is_in(some.column("key"), keys))
        here = book.batch.part.only(rows) if book.batch.part else rows
        found += [(key, sending[key]) for key in here.column("key").to_pylist()]
    if found:
        doubt_sent(book.ledger, book.lease, book.source, book.resource, found)
