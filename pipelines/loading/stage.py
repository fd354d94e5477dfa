"""The load stage: accepted records through the ledger to the target, each in exactly one known state at the end.

Which rows are sent is judged in `intake.py`, and written in `book.py`; `under_way.py` sends them, in bundles or one by
one, after `proving.py` has seen by the first ones that the target does as it says.
"""

from pipelines.ledger.answered import close_answered
from pipelines.ledger.doubts import forget_sightings
from pipelines.ledger.rejects import resubmit
from pipelines.loading.book import Book
from pipelines.loading.carrying import Carrier
from pipelines.loading.intake import Intake
from pipelines.loading.load import Load
from pipelines.loading.loaded import Loaded
from pipelines.loading.policies import take_back_superseded


def load(this: Load) -> Loaded:
    """Send what `accepted.parquet` holds and the ledger does not know as done. Raises `LedgerError`."""
    book = Book(this)
    intake, _ = before(book)
    Carrier(book, intake).send()
    return after(book)


def before(book: Book) -> tuple[Intake, set[str]]:
    """Do what comes once before all rows; return these, and the keys of rows in doubt that may be sent again."""
    book.load.ledger.told.note_in(book.load.batch.folder)
    note_to_come(book)
    book.repeats.note_skipped(book.loaded)
    intake = Intake(book)
    return intake, intake.settle_doubts_before()


def note_to_come(book: Book) -> None:
    """Write down that records of the load are on their way to answer rejects."""
    if found := book.answers.to_come():
        resubmit(book.load.ledger, *book.load.of, book.load.batch.batch_id, found)


def after(book: Book) -> Loaded:
    """Do what comes once after all rows; return the counts."""
    if not (book.step.bundle and book.step.repeats):
        forget_sightings(book.load.ledger, book.load.batch.target, book.load.resource)
    take_back_superseded(book)
    close_answered(book.load.ledger, book.load.of, book.load.batch.batch_id)
    return book.loaded
