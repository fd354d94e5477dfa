"""The load stage: send accepted records through the ledger to the target; each ends in exactly one known state.

`intake.py` judges which rows are sent, and `book.py` writes it. `promise_tests.py` tests with the first rows that the
target does as it says, then `requests_under_way.py` sends the rows, in bundles or one by one.
"""

from pipelines.ledger.doubts import forget_sightings
from pipelines.ledger.reject_state import close_answered
from pipelines.ledger.rejects import resubmit
from pipelines.loading.book import Book
from pipelines.loading.intake import Intake
from pipelines.loading.load import Load
from pipelines.loading.load_counts import LoadCounts
from pipelines.loading.policies import take_back_superseded
from pipelines.loading.sending_loop import Carrier


def load(this: Load) -> LoadCounts:
    """Send the rows of `accepted.parquet` that the ledger does not know as done. Raises `LedgerError`."""
    book = Book(this)
    intake, _ = before(book)
    Carrier(book, intake).send()
    return after(book)


def before(book: Book) -> tuple[Intake, set[str]]:
    """Do the steps before all rows; return the intake, and the keys of rows in doubt that may be sent again."""
    book.load.ledger.told.note_in(book.load.batch.folder)
    note_to_come(book)
    book.repeats.note_skipped(book.loaded)
    intake = Intake(book)
    return intake, intake.settle_doubts_before()


def note_to_come(book: Book) -> None:
    """Note that records of the load are to be sent as answers to rejects."""
    if found := book.answers.to_come():
        resubmit(book.load.ledger, *book.load.of, book.load.batch.batch_id, found)


def after(book: Book) -> LoadCounts:
    """Do the steps after all rows; return the counts."""
    if not (book.step.bundle and book.step.repeats):
        forget_sightings(book.load.ledger, book.load.batch.target, book.load.resource)
    take_back_superseded(book)
    close_answered(book.load.ledger, book.load.of, book.load.batch.batch_id)
    return book.loaded
