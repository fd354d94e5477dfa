"""Send units at a step. A request for one row is repeated only while that cannot make a second resource.

The first rows of a load test if the target keeps conditional creates as its statement says.
The first row shows if bundles are taken. A later row is sent under the condition of one that is there. A target that
keeps the condition creates nothing, and answers with the resource that is there. A target that ignores it creates that
row, which is to be created anyway. So the test creates nothing twice. The first bundle of several rows then shows if
its answers are in order. The bundled service is not tested.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

from pipelines.client.client import FhirClient
from pipelines.client.pace import Attempts
from pipelines.client.replies import (
    NotDone,
    NotSent,
    Reply,
    RequestRefused,
    TooLarge,
    UnknownOutcome,
    WriteConflict,
    settled_reply,
    unusable,
)
from pipelines.client.steps import BARE, Step
from pipelines.ledger.lease import LeaseLost
from pipelines.loading.book import Book
from pipelines.loading.interrupts import without_interrupts
from pipelines.loading.refusal_reasons import RefusalReasons
from pipelines.loading.row import (
    AcceptedRow,
    Identity,
    PostResult,
    RowResult,
    created_result,
    dated_body,
    own_identifiers,
    read_existing,
    refused_result,
)
from pipelines.loading.sending import UNKNOWN_TRIES, BundleSender, Send, SentResults, are_of_others, told_apart


def sender(book: Book, why: RefusalReasons, read_all: Callable[..., Any] = map) -> Send:
    """Return the sender of units at a book's step: bundles, or single rows. read_all: runs reads side by side."""
    load, step = book.load, book.step
    if step.bundle:
        return told_apart(
            load.client, load.identity, BundleSender(load.client, load.identity, step, why.whole, read_all).send
        )

    def send(unit: Sequence[AcceptedRow]) -> SentResults:
        (row,) = unit
        posted = post(load.client, load.resource, row, confirm=book.confirm, step=step, identity=load.identity)
        return SentResults({0: why.whole(posted.result, dated_body(load.resource, row))}, posted.unusable)

    return told_apart(load.client, load.identity, send) if step.conditional else send


def post(
    client: FhirClient,
    resource_type: str,
    row: AcceptedRow,
    confirm: Callable[[], None] = lambda: None,
    step: Step = BARE,
    identity: Identity | None = None,
) -> PostResult:
    """Send one row. Try again with pauses while surely nothing was done, or while a repeat makes no second resource.

    confirm: called before another attempt; raises `LeaseLost` if another loader took over during the pause. identity:
    gives the row's identifier, at the steps above the bare interface.
    """
    attempts, unsure = Attempts(client.patience), row.intended
    body, condition = _as_sent(resource_type, row, step, identity)
    while True:
        try:
            reply = client.create(resource_type, body, condition)
            is_new = reply.kind == "created"
            result = created_result(reply) if is_new else read_existing(client, resource_type, body, reply, unsure)
            return PostResult(result or RowResult("in_doubt"))
        except (RequestRefused, TooLarge) as error:
            return PostResult(refused_result(error.reply))
        except UnknownOutcome as error:
            safe = condition is not None and (step.repeats or isinstance(error, WriteConflict))
            if not safe or attempts.number >= UNKNOWN_TRIES:
                return PostResult(RowResult("in_doubt"))
            problem, asked, final, unsure = f"no clear answer ({error})", None, False, True
        except (NotSent, NotDone) as error:
            problem, asked, final = str(error), error.retry_after, error.final
        if not attempts.next(asked, final):
            state = "in_doubt" if unsure else "planned"
            return PostResult(RowResult(state), unusable(problem, attempts.number))
        try:
            confirm()
        except LeaseLost as error:
            return PostResult(RowResult("in_doubt"), str(error))


def _as_sent(resource_type: str, row: AcceptedRow, step: Step, identity: Identity | None) -> tuple[str, str | None]:
    """Return the body of a row, with its identifier if the step names rows, and the condition of its create."""
    if not step.named or identity is None:
        return own_identifiers(dated_body(resource_type, row))[0], None
    body, asked = identity.entry(row)
    return body, json.loads(asked) if step.conditional else None


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
