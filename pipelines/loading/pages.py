"""The book of a load as one thread beside the requests reads and writes it: a page a commit."""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice

from pipelines.ledger.lease import LeaseLost
from pipelines.ledger.rows import Sighting
from pipelines.loading.answered import Result
from pipelines.loading.book import Book
from pipelines.loading.requests import Came
from pipelines.loading.row import Row


class Pages:
    """The book, read and written by one thread while requests are under way, a page a commit.

    done: results that are not written yet, which they are with the intents of the next rows. sightings: noted, and
    written with the first rows after them. page: what is being written.
    """

    def __init__(self, book: Book, rows: Iterator[Row], keeping: ThreadPoolExecutor, came: Came) -> None:
        self._book, self._keeping, self._came = book, keeping, came
        self._rows: Iterator[Row] | None = rows
        self.reading: Future[list[Row]] | None = None
        self.writing: Future[None] | None = None
        self.done: list[tuple[Row, Result]] = []
        self.sightings: list[Sighting] = []
        self._page: tuple[list[Row], list[tuple[Row, Result]], list[Sighting]] = ([], [], [])

    def read(self, most: int) -> None:
        """Have rows read ahead, at most so many."""
        if self._rows and not self.reading and most > 0:
            self.reading = self._keeping.submit(_some, self._rows, most)
            self.reading.add_done_callback(self._came.put)

    def take_read(self) -> list[Row]:
        """Return the rows that were read. Raises what the reading raised."""
        reading, self.reading = self.reading, None
        rows = reading.result() if reading else []
        if not rows:
            self._rows = None
        return rows

    def write(self, rows: list[Row]) -> None:
        """Have rows intended, and what is done written, in one commit."""
        if rows or self.done:
            self._page, self.done = (rows, self.done, self.sightings if rows else []), []
            self.sightings = [] if rows else self.sightings
            self.writing = self._keeping.submit(self._book.write_down, *self._page)
            self.writing.add_done_callback(self._came.put)

    def take_written(self) -> list[Row]:
        """Return the rows whose intents are committed. Raises what the writing raised; what is not written stays."""
        writing, self.writing = self.writing, None
        intended, results, _ = self._page
        try:
            if writing:
                writing.result()
        except LeaseLost:
            raise  # what is sure of the results is written
        except BaseException:
            self.done = [*results, *self.done]
            raise
        return intended

    def conclude(self) -> None:
        """Write what is done. Called again it does what it could not."""
        try:
            self._book.write_down([], self.done)
        except LeaseLost:
            self.done = []  # what is sure of them is written
            raise
        self.done = []


def _some(rows: Iterator[Row], most: int) -> list[Row]:
    return list(islice(rows, most))
