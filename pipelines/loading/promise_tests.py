"""Test with the first rows of a load if a target keeps conditional creates as its statement says.

The first row shows if bundles are taken. A later row is sent under the condition of one that is there. A target that
keeps the condition creates nothing, and answers with the resource that is there. A target that ignores it creates that
row, which is to be created anyway. So the test creates nothing twice. The first bundle of several rows then shows if
its answers are in order. The bundled service is not tested.
"""

import json
from collections.abc import Iterator
from itertools import islice

from pipelines.client.client import FhirClient
from pipelines.client.replies import NotDone, NotSent, Reply, RequestRefused, UnknownOutcome, settled_reply
from pipelines.client.steps import Step
from pipelines.loading.book import Book
from pipelines.loading.interrupts import without_interrupts
from pipelines.loading.posting import sender
from pipelines.loading.refusal_reasons import RefusalReasons
from pipelines.loading.row import AcceptedRow, Identity
from pipelines.loading.row_results import RowResult, created_result, read_existing
from pipelines.loading.sending import SentResults, are_of_others

MOST_TRIED = 10
MOST_TOGETHER = 25
NO_BUNDLES = "the target says that it takes a {}, but refuses it, so rows are sent one by one"
OTHER_ORDER = "the target answers the entries of a {} in another order than they were sent, so rows are sent one by one"
IGNORED = "the target says conditional create, but ignores the condition, so rows are looked up before a repeat"


def prove_first_rows(book: Book, rows: Iterator[AcceptedRow], why: RefusalReasons) -> None:
    """Send the first rows until it is known what the target keeps; lower the book's step accordingly."""
    _condition(book, rows, why)
    if book.step.bundle and not book.loaded.unusable:
        _order(book, rows, why)


def _condition(book: Book, rows: Iterator[AcceptedRow], why: RefusalReasons) -> None:
    """Send rows one after another, until it is known if the target takes bundles and keeps conditions."""
    client, identity = book.load.client, book.load.identity
    condition = there = ""
    free = (row for row in islice(rows, MOST_TRIED) if row.lane not in book.stopped)
    for row in (each if each.intended else each._replace(first_attempt_at=book.moment()) for each in free):
        with without_interrupts(client.patience):
            book.write_down([row], [])
            other = condition and not row.intended and _under(condition, there, book.step, client, identity, row)
            sent = SentResults({0: other}) if isinstance(other, RowResult) else _sent(book, row, why)
            result = sent.results[0]
            book.write_down([], [(row, result)])
        book.loaded.unusable = book.loaded.unusable or sent.unusable
        if isinstance(other, RowResult) and other.state == "created":
            _lower(book, IGNORED, book.step._replace(bundle=None).below)
        if book.loaded.unusable or not book.step.conditional:
            return
        if result.state in ("created", "adopted"):
            if other == "kept":
                return
            condition, there = identity.entry(row)[1], result.resource_id or ""


def _order(book: Book, rows: Iterator[AcceptedRow], why: RefusalReasons) -> None:
    """Send rows in one bundle, and read the resources. No result of the bundle counts if one row has another row's."""
    client, identity = book.load.client, book.load.identity
    most = min(MOST_TOGETHER, client.profile.most_rows)
    unit = [row for row in islice(rows, most) if row.lane not in book.stopped]
    if not unit:
        return
    with without_interrupts(client.patience):
        book.write_down(unit, [])
        sent = sender(book, why)(unit)
        made = [
            (identity.entry(row), sent.results[at].resource_id or "")
            for at, row in enumerate(unit)
            if sent.results[at].state == "created"
        ]
        if sent.misplaced or are_of_others(client, identity.resource_type, made):
            asked = [at for at, result in sent.results.items() if result.state != "planned"]
            sent.results |= dict.fromkeys(asked, RowResult("in_doubt"))
            _lower(book, OTHER_ORDER.format(book.step.bundle), book.step.below)
        book.write_down([], [(row, sent.results[at]) for at, row in enumerate(unit)])
    book.loaded.unusable = book.loaded.unusable or sent.unusable


def _sent(book: Book, row: AcceptedRow, why: RefusalReasons) -> SentResults:
    """Send a row as it is, at the step below if the target takes no bundles."""
    sent = sender(book, why)([row])
    if not sent.not_offered:
        return sent
    _lower(book, NO_BUNDLES.format(book.step.bundle), book.step.below)
    return sender(book, why)([row])


def _lower(book: Book, why: str, step: Step) -> None:
    book.step = step
    book.load.progress.say(why)


def _under(
    condition: str, there: str, step: Step, client: FhirClient, identity: Identity, row: AcceptedRow
) -> RowResult | str:
    """Send a row under the condition of another, whose resource is `there`.

    Returns:
        "kept" if nothing was created, "" if that is unknown, the result if the row may have been created.
    """
    body, _ = identity.entry(row)
    try:
        reply = _reply(step, client, identity.resource_type, body, condition)
    except (RequestRefused, NotDone, NotSent) as error:
        # A refusal alone tells nothing, since it may be about the row. If the row is then taken without this condition,
        # the refusal was about the condition.
        return "kept" if isinstance(error, RequestRefused) else ""
    except UnknownOutcome:
        return RowResult("in_doubt")
    if reply.kind == "existed":
        return "kept" if reply.resource_id == there else _made_or_not(client, identity.resource_type, body, reply)
    return created_result(reply)


def _made_or_not(client: FhirClient, resource_type: str, body: str, reply: Reply) -> RowResult:
    """Return the result of a row that was answered as if it existed: some targets answer every create so."""
    found = read_existing(client, resource_type, body, reply, unsure=True)
    return found if found and found.state == "created" else RowResult("in_doubt")


def _reply(step: Step, client: FhirClient, resource_type: str, body: str, condition: str) -> Reply:
    if not step.bundle:
        return client.create(resource_type, body, json.loads(condition))
    return settled_reply(client.create_all(resource_type, [(body, condition)], step.bundle)[0])
