"""Sending rows to a target with the bare interface: one POST a row, lanes side by side, one after another within one.

An outcome that is not known stays so: the row is in doubt, its lane stops, nothing is sent again by itself. Before the
first row of a patient, what the patient has there is noted: it tells later what a request in doubt can have made.
"""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any

from pipelines.client.pace import Circuit
from pipelines.client.replies import AGAIN, unusable
from pipelines.ledger.lease import LeaseLost
from pipelines.loading.answered import Posted
from pipelines.loading.asking import ASKED_AHEAD, Ask, Asking
from pipelines.loading.book import Book
from pipelines.loading.lookup import BY_ITSELF, ROWS_A_SEARCH, Looks
from pipelines.loading.pages import Pages
from pipelines.loading.posting import Post
from pipelines.loading.requests import Answer, Came, Requests
from pipelines.loading.row import Row
from pipelines.loading.turns import Turns

ROWS_AHEAD = 2_000
SPARE = 8
"""Rows that are intended before a request is free for them: no request waits for a commit, and rows share commits.

A kill leaves them in doubt, as it does rows under way. Types whose doubts need a person therefore have none.
"""


def send_by_lanes(
    book: Book, rows: Iterator[Row], send: Post, circuit: Circuit, looks: Looks | None, ask: Ask | None = None
) -> str | None:
    """Send rows, each by `send`, with a look at their patients before; return why it ended early, else None.

    looks: None where rows are told by their identifiers, so that no look is needed. ask: asks for rows before they
    have their turn, where the create itself does not.
    """
    at_once = book.load.batch.pace.at_once
    with (
        ThreadPoolExecutor(at_once, "lane") as pool,
        ThreadPoolExecutor(at_once, "look") as looking,
        ThreadPoolExecutor(1, "book") as keeping,
        ThreadPoolExecutor(1, "deal") as dealing,
    ):
        dealing.submit(bool).result()  # its one thread is there, whatever is interrupted from here on
        came: Came = SimpleQueue()
        requests = Requests(send, book.confirm, pool, at_once, circuit, came)
        pages, asking = Pages(book, rows, keeping, came), Asking(ask, looking, came)
        return _Lanes(book, requests, pages, asking, looks, looking, came).run(dealing)


class _Lanes:
    """Deals rows out: what was read to its turn, whose turn it is to the book, what is intended to the requests.

    under_look: patients that are being looked at, by the row that asked. spare: how many rows are intended ahead.
    """

    def __init__(
        self,
        book: Book,
        requests: Requests,
        pages: Pages,
        asking: Asking,
        looks: Looks | None,
        looking: ThreadPoolExecutor,
        came: Came,
    ) -> None:
        self._book, self._requests, self._pages, self._asking = book, requests, pages, asking
        self._looks, self._looking, self._came = looks, looking, came
        self._spare = SPARE if book.load.resource in BY_ITSELF else 0
        self._turns = Turns(book.stopped, looks.noted if looks else None)
        self._under_look: dict[Future[Any], Row] = {}

    def run(self, dealing: ThreadPoolExecutor) -> str | None:
        """Deal in another thread: Ctrl-C comes between any two steps of this one, and would lose what it has taken."""
        try:
            while dealing.submit(self._deal).result() and self._ask_whether_it_is_back():
                pass
            dealing.submit(self._conclude).result()
        except BaseException as error:
            self._requests.fail(error)  # nothing more is sent
            dealing.submit(self._conclude).result()
            raise
        return self._requests.unusable

    def _deal(self) -> bool:
        """Send as long as anything is to be waited for; return True if the target is to be asked whether it is back."""
        while self._go_on():
            self._finish()
        return self._requests.circuit.open and not self._requests.ending

    def _conclude(self) -> None:
        """Wait for what is under way, write it, and take back what was intended and not sent, unless that is another's
        now. Called again it does what it could not. Raises what failed.
        """
        requests = self._requests
        while self._at_work:
            self._finish()
        self._pages.conclude()
        if not isinstance(requests.failed, LeaseLost):
            self._book.hold_back(requests.intended)
        requests.intended.clear()
        if requests.failed:
            raise requests.failed

    def _go_on(self) -> bool:
        """Send what may go now, have the book read and written; return True if anything is to be waited for."""
        self._requests.call()
        if self._requests.may_begin:
            self._read()
            self._asking.begin(ASKED_AHEAD + self._requests.at_once - len(self._turns.ready))
            self._look()
        self._write()
        return self._at_work

    @property
    def _at_work(self) -> bool:
        """True if anything is to be waited for, or has come and is to be taken."""
        at_book = self._pages.reading or self._pages.writing
        asking = self._under_look or self._asking.under_way
        return bool(self._requests.are_under_way() or asking or at_book or not self._came.empty())

    def _read(self) -> None:
        """Have rows read ahead, enough for a search."""
        most = ROWS_AHEAD - self._turns.count - self._asking.count
        if most >= ROWS_A_SEARCH:
            self._pages.read(most)

    def _write(self) -> None:
        """Have the next rows intended, and results written, some at a time."""
        requests = self._requests
        enough = requests.may_begin and len(requests.intended) > self._spare // 2
        if not (self._pages.writing or requests.failed or enough):
            self._pages.write(self._next_rows())

    def _next_rows(self) -> list[Row]:
        """Return rows whose turn it is, with the moment of their attempt."""
        requests = self._requests
        if not requests.may_begin:
            return []
        spare = 0 if requests.circuit.trying else self._spare
        rows = self._turns.take(requests.free() + spare - len(requests.intended))
        return [row if row.intended else row._replace(first_attempt_at=self._book.moment()) for row in rows]

    def _look(self) -> None:
        """Ask what the patients of rows have at the target, as far as requests are free."""
        if self._looks is None:
            return
        for _ in range(min(len(self._turns.to_look), self._requests.at_once - len(self._under_look))):
            row = self._turns.to_look.popleft()
            look = self._looking.submit(self._looks.look, row)
            self._under_look[look] = row
            look.add_done_callback(self._came.put)

    def _ask_whether_it_is_back(self) -> bool:
        """After failures in a row: wait until the target answers reads, then send one row at a time."""
        load, requests = self._book.load, self._requests
        if requests.circuit.given_up:
            requests.unusable = unusable(AGAIN)
        elif (why := load.client.wait_until_it_answers(load.resource)) is not None:
            requests.unusable = why
        else:
            requests.circuit.half_open()
        return not requests.unusable

    # -- what has come

    def _finish(self) -> None:
        """Take what has come of requests and of the book."""
        if not self._at_work:
            return
        came, more = self._came.get(), True
        while more:
            try:
                self._take(came)
            except BaseException as error:  # noqa: BLE001 - it ends the sending, and is raised at its end
                self._requests.fail(error)
            if more := not self._came.empty():
                came = self._came.get()

    def _take(self, came: "Future[Any] | Answer") -> None:
        if isinstance(came, Answer):
            self._answered(came)
        elif came is self._pages.writing:
            self._has_written()
        elif came is self._pages.reading:
            self._has_read()
        elif came in self._under_look:
            self._looked(came)
        else:
            self._turns.add(self._asking.take())

    def _answered(self, answer: Answer) -> None:
        """Keep a result. A lane with a row in doubt stops."""
        row, posted = answer
        if row is None or not isinstance(posted, Posted):
            return
        self._pages.done.append((row, posted.result))
        if posted.result.state == "in_doubt":
            self._book.stopped.add(row.lane)
        self._turns.end(row)

    def _has_read(self) -> None:
        self._asking.add(self._pages.take_read())
        self._turns.add(self._asking.take())

    def _has_written(self) -> None:
        self._requests.intended.extend(self._pages.take_written())

    def _looked(self, look: Future[Any]) -> None:
        patient = self._under_look.pop(look).patient_id or ""
        self._pages.sightings.append(look.result())
        self._turns.note(patient)
