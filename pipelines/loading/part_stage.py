"""The load of one part of a batch, by a worker that holds the part's lease. Another worker may have begun the part."""

import pyarrow as pa
import pyarrow.compute as pc

from pipelines.home import arrow
from pipelines.home.progress import Progress
from pipelines.home.spill import batches
from pipelines.ledger.doubts import doubt_sent
from pipelines.ledger.parts import PartLease
from pipelines.loading.accepted import ROWS_A_LOOK
from pipelines.loading.book import Book
from pipelines.loading.intake import Intake
from pipelines.loading.load import Load
from pipelines.loading.part_outcome import PartLoaded
from pipelines.loading.sending_loop import Carrier


class CollectedMessages(Progress):
    """Collected messages, which another process shows. Rows are counted elsewhere."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)


def load_part(load: Load, lease: PartLease, sayings: CollectedMessages, freed: set[str]) -> PartLoaded:
    """Send the rows of the batch's part. Raises `LedgerError`.

    lease, sayings: those of the load, with their own types. freed: keys of rows in doubt that may be sent again,
    unless an earlier worker has sent them. New doubts are not looked up here: equal records may be in several parts,
    and only for all of them together can their resources be told apart.
    """
    load.ledger.told.note_in(load.batch.folder)
    book = Book(load)
    lease.counting = lambda: PartLoaded(book.loaded).as_text()
    intake = Intake(book)
    if lease.attempts == 1:
        intake.free(freed)
    else:
        doubt_left_sending(load)
    Carrier(book, intake).send()
    return PartLoaded(book.loaded, book.refused, sayings.said, book.step != load.step)


def doubt_left_sending(load: Load) -> None:
    """Put rows in doubt that the worker before was sending. It sends no more, but may still write answers."""
    sending = load.ledger.sending(*load.of)
    keys, found = arrow.column([*sending], pa.string()), list[tuple[str, int]]()
    for some in batches(load.batch.folder / "accepted.parquet", ROWS_A_LOOK, ["key", "lane"]) if sending else ():
        rows = some.filter(pc.is_in(some.column("key"), keys))
        here = load.batch.part.only(rows) if load.batch.part else rows
        found += [(key, sending[key]) for key in here.column("key").to_pylist()]
    if found:
        doubt_sent(load.ledger, load.lease, load.source, load.resource, found)
