"""The load stage: accepted records through the ledger to the target, each in exactly one known state at the end.

Which rows are sent is judged in `intake.py`, and written in `book.py`; `bundles.py` and `lanes.py` (one request a row)
send them, after `proving.py` has seen by the first ones that the target does as it says.
"""

from collections.abc import Iterator
from functools import partial

from pipelines.client.capabilities import Capabilities
from pipelines.client.client import FhirClient
from pipelines.client.pace import Circuit
from pipelines.client.steps import Step, step_for
from pipelines.home.collecting import seldom
from pipelines.home.progress import Progress
from pipelines.ledger.doubts import forget_sightings
from pipelines.ledger.lease import Held
from pipelines.ledger.ledger import Ledger
from pipelines.loading.answered import Posted
from pipelines.loading.book import Book
from pipelines.loading.bundles import send_bundles
from pipelines.loading.identity import Identity
from pipelines.loading.intake import Intake, note_skipped
from pipelines.loading.lanes import send_by_lanes
from pipelines.loading.loaded import Batch, Loaded
from pipelines.loading.lookup import BY_ITSELF
from pipelines.loading.policies import take_back_superseded
from pipelines.loading.posting import Post, post
from pipelines.loading.proving import proven
from pipelines.loading.row import Row
from pipelines.loading.sending import BundleSender
from pipelines.loading.why import Why

LATE_SECONDS = 2.0
"""After which a request without an answer is looked for once more, before its run ends."""

__all__ = ["Batch", "Loaded", "after", "before", "go_on", "load", "send"]


def load(
    batch: Batch, client: FhirClient, capabilities: Capabilities, ledger: Ledger, lease: Held, progress: Progress
) -> Loaded:
    """Send what `accepted.parquet` holds and the ledger does not know as done. Raises `LedgerError`."""
    book = Book(batch, client, ledger, lease, progress, step_for(capabilities, batch.feed.resource), capabilities)
    intake, _ = before(book)
    send(book, intake, Why(client, capabilities, book.resource))
    return after(book)


def before(book: Book) -> tuple[Intake, set[str]]:
    """Do what comes once before all rows; return these, and the keys of rows in doubt that may be sent again."""
    book.note_answers()
    note_skipped(book)
    intake = Intake(book)
    return intake, intake.settle_doubts_before()


def after(book: Book) -> Loaded:
    """Do what comes once after all rows; return the counts."""
    if not (book.step.bundle and book.step.repeats):
        forget_sightings(book.ledger, book.batch.target, book.resource)
    take_back_superseded(book)
    book.close_answered(book.answers.done())
    return book.loaded


def send(book: Book, intake: Intake, why: Why) -> None:
    """Send what is in doubt from before, the rows, and the lanes that new doubts held up, once these are settled."""
    rows, circuit, promised = intake.rows_to_send(), Circuit(), book.step
    with seldom():
        if promised.conditional and not promised.repeats and not book.notes:
            proven(book, book.client, rows, partial(_one, book, book.client, why))
        if not book.loaded.unusable:
            _carry(book, rows, why, circuit, promised)
    go_on(book, intake, why, circuit, promised)


def go_on(book: Book, intake: Intake, why: Why, circuit: Circuit, promised: Step) -> None:
    """Send payments that waited for the answers to others, settle what has come in doubt, and send what it held up."""
    while _has_more(book, intake, book.client):
        with seldom():
            _carry(book, intake.rows_to_send(), why, circuit, promised)


def _carry(book: Book, rows: Iterator[Row], why: Why, circuit: Circuit, promised: Step) -> None:
    """Send rows at the load's step."""
    rows = rows if book.step == promised else _without_a_person(book, rows)
    if book.step.bundle:
        send_bundles(book, rows, book.client, why)
    else:
        _send_singly(book, rows, book.client, why, circuit)


def _has_more(book: Book, intake: Intake, client: FhirClient) -> bool:
    """True if rows can go on that new doubts held up, since these are settled, or that waited for others' answers."""
    if book.loaded.unusable:
        return False
    if intake.has_payments_again():
        return True
    if book.batch.part or book.step.repeats or not book.loaded.counts["in_doubt"]:
        return False  # doubts of a part are settled with those of the others
    if intake.settle_doubts_again():
        return True
    client.patience.wait(LATE_SECONDS)
    return intake.settle_doubts_again()


def _send_singly(book: Book, rows: Iterator[Row], client: FhirClient, why: Why, circuit: Circuit) -> None:
    """One request a row, at any step."""
    send = why.posting(_posting(book, book.step))
    send = book.notes.posting(send) if book.notes else send
    looks = not book.step.named
    unusable = send_by_lanes(book, rows, client, book.batch.pace.at_once, circuit, send, looks)
    book.loaded.unusable = unusable or book.loaded.unusable


def _posting(book: Book, step: Step) -> Post:
    return partial(post, confirm=book.confirm, step=step, identity=Identity(book.source, book.resource))


def _one(book: Book, client: FhirClient, why: Why, step: Step, row: Row) -> tuple[Posted, bool]:
    """Send one row at a step, as `proven` wants it."""
    if not step.bundle:
        return why.posting(_posting(book, step))(client, book.resource, row), False
    sent = BundleSender(client, Identity(book.source, book.resource), whole=why.whole, step=step).send([row])
    return Posted(sent.results[0], None if sent.not_offered else sent.unusable), sent.not_offered


def _without_a_person(book: Book, rows: Iterator[Row]) -> Iterator[Row]:
    """The rows, apart from payments in doubt: a target that ignores conditions would make them twice."""
    for row in rows:
        if row.intended and not book.step.conditional and book.resource not in BY_ITSELF:
            book.keep(row, "in_doubt")
        else:
            yield row
