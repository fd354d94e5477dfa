"""Rows one by one, a request each, at any step: all of a load by lanes, or the first ones that try a target."""

from collections.abc import Iterator
from functools import partial

from pipelines.client.pace import Circuit
from pipelines.client.steps import Step
from pipelines.loading.answered import Posted
from pipelines.loading.book import Book
from pipelines.loading.lanes import send_by_lanes
from pipelines.loading.lookup import Looks
from pipelines.loading.posting import Post, post
from pipelines.loading.row import Row
from pipelines.loading.sending import BundleSender
from pipelines.loading.why import Why


class Singly:
    """Sends the rows of one load one by one. The circuit and the looks at patients are those of all its rows."""

    def __init__(self, book: Book, why: Why) -> None:
        self._book, self._why = book, why
        self._circuit = Circuit()
        self._looks = Looks(book.load.client, book.load.resource, book.load.ledger.clock)

    def send(self, rows: Iterator[Row]) -> None:
        """Send rows at the load's step."""
        book, send = self._book, self._posting(self._book.step)
        send = book.notes.posting(send) if book.notes else send
        looks = None if book.step.named else self._looks
        book.loaded.unusable = send_by_lanes(book, rows, send, self._circuit, looks) or book.loaded.unusable

    def send_one(self, step: Step, row: Row) -> tuple[Posted, bool]:
        """Send one row at a step; return True with its result if the target does not take such a request at all."""
        load = self._book.load
        if not step.bundle:
            return self._posting(step)(row), False
        sent = BundleSender(load.client, load.identity, step, self._why.whole).send([row])
        return Posted(sent.results[0], None if sent.not_offered else sent.unusable), sent.not_offered

    def _posting(self, step: Step) -> Post:
        load, confirm = self._book.load, self._book.confirm
        sending = partial(post, load.client, load.resource, confirm=confirm, step=step, identity=load.identity)
        return self._why.posting(sending)
