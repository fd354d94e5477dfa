"""The load of one part of a batch, by a worker that holds its lease, and may not be the first that does."""

from pipelines.home.progress import Progress
from pipelines.ledger.parts import PartLease
from pipelines.loading.book import Book
from pipelines.loading.carrying import Carrier
from pipelines.loading.intake import Intake
from pipelines.loading.left_sending import doubt_left_sending
from pipelines.loading.load import Load
from pipelines.loading.part_outcome import PartLoaded


class Sayings(Progress):
    """Keeps what is said, for who shows it; the rows are counted elsewhere."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)


def load_part(load: Load, lease: PartLease, sayings: Sayings, freed: set[str]) -> PartLoaded:
    """Send the rows of the batch's part. Raises `LedgerError`.

    lease, sayings: of the load, by what they are. freed: keys of rows in doubt that may be sent again, unless a worker
    before has done so. New doubts are not looked up here: of equal records in several parts, whose a resource is can be
    told of all together alone.
    """
    book = Book(load)
    lease.counting = lambda: PartLoaded(book.loaded).as_text()
    intake = Intake(book)
    if lease.attempts == 1:
        intake.free(freed)
    else:
        doubt_left_sending(load)
    Carrier(book, intake).send()
    book.closing.write()
    return PartLoaded(book.loaded, *book.closing.answers.told(), book.refused, sayings.said, book.step != load.step)
