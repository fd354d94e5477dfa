"""A load in parts: worker processes load ranges of a batch's lanes, while this process holds the target.

What comes once before all rows, and once after them, is done here. A worker that dies is replaced; its part goes on
with another. Counts of the run are kept up to date from those of the parts.
"""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Self

from pipelines.client.pace import Circuit, Pace
from pipelines.client.steps import step_for
from pipelines.ledger.lease import Lease
from pipelines.ledger.parts import BEGINNINGS, PartState, lay_out, remove_parts, states
from pipelines.ledger.rows import SoFar
from pipelines.loading.book import Book
from pipelines.loading.loaded import Batch, Loaded
from pipelines.loading.part_outcome import PartLoaded, ends_all, in_all
from pipelines.loading.stage import after, before, go_on
from pipelines.loading.why import Why
from pipelines.runs.worker import Order
from pipelines.session.session import Session
from pipelines.validation.messages import send

PARTS_A_WORKER = 4
"""More parts than workers: those who are done early take what is left, and a killed one leaves less to look through."""
ROWS_A_WORKER = 25_000
"""Rows from which on a worker is worth its start, which takes as much of the processor as to send so many."""
LOOK_SECONDS = 0.2
COUNT_SECONDS = 2.0
CLOSING_SECONDS = 10.0
"""For which a worker is waited for whose parts are done."""
END_SECONDS = 120.0
"""For which a worker may write down what it has, once it is to end."""
PROGRAM = (sys.executable, "-m", "pipelines.runs.worker")


def workers_for(pace: Pace, rows: int) -> int:
    """Return how many processes load so many rows: 1 where this one does it by itself.

    A target that takes one request at a time is not asked by several.
    """
    return max(1, min(pace.workers, pace.at_once, rows // ROWS_A_WORKER))


def load_in_parts(session: Session, batch: Batch, lease: Lease, workers: int) -> Loaded:
    """Load a batch by so many workers, under the target's lease. Raises `LedgerError`."""
    connection = session.connection
    step = step_for(connection.capabilities, batch.feed.resource)
    book = Book(batch, connection.client, session.ledger, lease, session.progress, step, connection.capabilities)
    intake, freed = before(book)
    parts = workers * PARTS_A_WORKER
    lay_out(session.ledger, lease, parts)
    pace = replace(session.pace, per_second=session.pace.per_second or connection.profile.file.per_second)
    feed = replace(batch.feed, tables={}, environ={})  # the others are needed for reading its files alone
    order = Order(
        replace(batch, run=None, feed=feed, pace=share(pace, workers), workers=workers),
        parts,
        lease.owner,
        session.ledger.now(),
        freed,
        _address(session),
        connection.base_url,
        connection.credentials,
        connection.capabilities,
        connection.profile.file,
    )
    with Workers(order, workers) as at_work:
        Watch(session, book, lease).until_done(at_work)
    found = states(session.ledger, session.target)
    session.ledger.confirm(lease)  # else another has removed them
    if not _take_in(book, found):
        go_on(book, intake, Why(connection.client, connection.capabilities, book.resource), Circuit(), step)
    remove_parts(session.ledger, lease)
    return after(book)


def share(pace: Pace, workers: int) -> Pace:
    """The pace of one worker: the target's is that of all together."""
    per_second = pace.per_second and pace.per_second / workers
    return replace(pace, at_once=max(1, pace.at_once // workers), per_second=per_second)


def _address(session: Session) -> str | Path:
    url = session.ledger.engine.url
    return Path(str(url.database)) if url.get_backend_name() == "sqlite" else url.render_as_string(hide_password=False)


class Workers:
    """Worker processes for one order, at most so many at once; none outlives the block."""

    def __init__(self, order: Order, most: int) -> None:
        self._order, self._most = order, most
        self._left = most + order.parts * BEGINNINGS
        self.at_work: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Let workers that are at work write down what they have; one that does not come to its end is killed."""
        for each in self.at_work:
            with suppress(subprocess.TimeoutExpired):
                each.wait(0 if kind else CLOSING_SECONDS)
        for each in self.at_work:
            each.send_signal(signal.SIGINT)
        for each in self.at_work:
            with suppress(subprocess.TimeoutExpired):
                each.wait(END_SECONDS)
            each.kill()
            _end(each)

    @property
    def can_start(self) -> bool:
        """True if another worker may be started: many that ended before they began a part are not replaced for ever."""
        return self._left > 0

    def keep(self, wanted: int) -> None:
        """Note workers that have ended, and start others for parts that are left."""
        ended = [each for each in self.at_work if each.poll() is not None]
        self.at_work = [each for each in self.at_work if each not in ended]
        for each in ended:
            _end(each)
        while len(self.at_work) < min(wanted, self._most) and self.can_start:
            self._left -= 1
            self.at_work.append(_started(self._order))


def _started(order: Order) -> "subprocess.Popen[bytes]":
    """A worker with its order. It has a session of its own: Ctrl-C is answered here."""
    worker = subprocess.Popen(  # noqa: S603 - our own program
        PROGRAM, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, bufsize=0, start_new_session=True
    )
    assert worker.stdin is not None  # noqa: S101 - a pipe was asked for
    with suppress(OSError):  # killed already
        send(worker.stdin.fileno(), order)
    return worker


def _end(worker: "subprocess.Popen[bytes]") -> None:
    if worker.stdin:
        with suppress(OSError):
            worker.stdin.close()
    worker.wait()


class Watch:
    """Watches the parts, and keeps progress and the counts of the run up to date."""

    def __init__(self, session: Session, book: Book, lease: Lease) -> None:
        self._session, self._book, self._lease = session, book, lease
        self._shown, self._counted_at = 0, 0.0
        self._counted: dict[str, int] = {}

    def until_done(self, workers: Workers) -> None:
        """Return once no part is held, and none is left that a worker could begin. Raises `LedgerError`."""
        ledger, target = self._session.ledger, self._session.target
        while True:
            ledger.confirm(self._lease)
            found = states(ledger, target)
            self._tell(found)
            held, left = sum(each.outcome is None and each.held for each in found), _can_begin(found)
            workers.keep(held + left if left else 0)
            if not (held or left):
                return
            # a worker that has just ended may have held its part when the parts were read
            if not workers.at_work and not (workers.can_start and _can_begin(states(ledger, target))):
                return
            time.sleep(LOOK_SECONDS)

    def _tell(self, found: Sequence[PartState]) -> None:
        so_far = in_all(_told(each).loaded for each in found)
        rows = sum(so_far.counts.values())
        self._session.progress.advance(max(0, rows - self._shown))
        self._shown = max(rows, self._shown)
        batch = self._book.batch
        if batch.run is None or time.monotonic() < self._counted_at + COUNT_SECONDS:
            return
        counts = self._book.loaded.with_part(so_far).counts_with(batch.validated)
        if counts != self._counted:
            self._session.ledger.count_run(batch.target, SoFar(batch.batch_id, batch.run, counts))
        self._counted, self._counted_at = counts, time.monotonic()


def _can_begin(found: Sequence[PartState]) -> int:
    """Return how many parts a worker can begin: none once one has found that the target cannot be used."""
    stopped = any(ends_all(each.outcome) for each in found if each.outcome)
    return 0 if stopped else sum(each.is_left for each in found)


def _told(part: PartState) -> PartLoaded:
    """What a part came to, or has come to so far."""
    return PartLoaded.from_text(part.outcome or part.counts or json.dumps({"loaded": {}}))


def _take_in(book: Book, found: Sequence[PartState]) -> bool:
    """Add the outcomes of the parts to the load's; return True if the target does not do what it says."""
    told = [_told(each) for each in found]
    book.loaded = book.loaded.with_part(in_all(each.loaded for each in told))
    for each in told:
        book.answers.take_in(each.landed, each.wrong)
        book.refused.update(each.refused)
    for line in dict.fromkeys(line for each in told for line in each.said):
        book.progress.say(line)
    if undone := [each for each in found if each.outcome is None]:
        book.loaded.parts_left = len(undone)
        book.loaded.unusable = book.loaded.unusable or _why_undone(undone, len(found))
    return any(each.lowered for each in told)


def _why_undone(undone: Sequence[PartState], parts: int) -> str:
    """Return why parts have no outcome, and what to do."""
    if given_up := sum(each.attempts >= BEGINNINGS for each in undone):
        return (
            f"{given_up} of {parts} parts were begun {BEGINNINGS} times, and each time their worker ended "
            "(was it killed, or out of memory?): the next import goes on with them"
        )
    return (
        f"{len(undone)} of {parts} parts are not done, since their workers ended or could not start "
        "(was one killed, or out of memory?): the next import goes on with them"
    )
