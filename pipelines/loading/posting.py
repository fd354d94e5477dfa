"""Send units at a step. A request for one row is repeated only while that cannot make a second resource."""

import json
from collections.abc import Callable, Sequence
from typing import Any

from pipelines.client.client import FhirClient
from pipelines.client.pace import Attempts
from pipelines.client.replies import NotDone, NotSent, RequestRefused, TooLarge, UnknownOutcome, WriteConflict, unusable
from pipelines.client.steps import BARE, Step
from pipelines.ledger.lease import LeaseLost
from pipelines.loading.book import Book
from pipelines.loading.refusal_reasons import RefusalReasons
from pipelines.loading.row import AcceptedRow, Identity, dated_body, own_identifiers
from pipelines.loading.row_results import (
    PostResult,
    RowResult,
    created_result,
    read_existing,
    refused_result,
)
from pipelines.loading.sending import UNKNOWN_TRIES, BundleSender, Send, SentResults, told_apart


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
