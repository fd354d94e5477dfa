"""Bundles over HTTP: carry out the entries of a batch or a transaction, note them for the audit, and answer."""

import time
from collections.abc import Callable
from itertools import groupby
from typing import Any, NamedTuple, cast

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from fhir_service.audit.records import Touch, require_audit
from fhir_service.batches.reads import Fetcher, fetched_plain, fetched_together, parts
from fhir_service.batches.requests import understood
from fhir_service.batches.touches import touches
from fhir_service.interactions import batch, transaction
from fhir_service.interface.json_text import dump_json
from fhir_service.interface.outcomes import EXCEPTION, FhirError
from fhir_service.requests.submitting import write
from fhir_service.service import Service
from fhir_service.web.http import caller_of, read_body
from fhir_service.writing.entry import Entry

READ_AT_ONCE = 100
"""Reads of a batch that share a statement."""
PART = 500
"""Writes of a batch that are stored by one commit."""
LONGER = 2
"""So many times longer than the reads of a single request may those of a batch take together."""
Answerer = Callable[[Service, batch.Bundle, list[Any]], bytes]


class Rendering(NamedTuple):
    """The form of an answer: how it shows what a read or search found, and how it is made of all results."""

    fetched: Fetcher
    answer: Answerer


async def answered(service: Service, request: Request, rendering: Rendering) -> bytes:
    """Carry out the batch or transaction of a request's body; return the answer to it."""
    caller = caller_of(request)
    require_audit(request)
    # Reads and searches of who may write nothing are short.
    limit = service.settings.max_batch if caller.writes else service.settings.max_body
    raw = await read_body(request, limit)
    bundle = await run_in_threadpool(understood, service, raw, caller_of(request))
    results: list[Any] = []
    try:
        if bundle.type == "transaction":
            results += await _carried_out_whole(service, bundle.requests)
        else:
            await _carry_out(
                service, [one for one in bundle.requests if not isinstance(one, FhirError)], rendering.fetched, results
            )
        told = await run_in_threadpool(_told, service, bundle, results, rendering.answer)
    except BaseException as error:
        # What has no answer, or was cancelled, may be stored all the same.
        request.scope["touched"] = _unanswered(bundle, results, error)
        raise
    request.scope["touched"], answer = told
    return answer


async def _carried_out_whole(service: Service, requests: list[batch.Request]) -> list[Any]:
    """The results of the entries of a transaction, in the order sent. Raises the refusal of the first that failed."""
    order = transaction.in_order(requests)
    done = await write(service, [cast("Entry", requests[index]) for index in order], whole=True)
    if done and isinstance(done[-1], FhirError):
        raise transaction.placed(done[-1], order[len(done) - 1])
    results = dict(zip(order, done, strict=True))
    return [results[index] for index in range(len(requests))]


async def _carry_out(
    service: Service, entries: list[Entry | batch.Fetch], fetched: Fetcher, results: list[Any]
) -> None:
    """Add the results of the entries of a batch, in the order sent: writes in a row in parts, then what is fetched.

    Other clients take their turn between two parts. Raises what keeps the first part from being stored; of what follows
    it is the result.
    """
    size, left = 0, float(LONGER * service.settings.read_seconds)
    for fetching, some in groupby(entries, lambda entry: isinstance(entry, batch.Fetch)):
        row: list[Any] = list(some)
        if fetching:
            for some_of_it in parts(row, READ_AT_ONCE):
                room, began = service.settings.max_batch - size, time.monotonic()
                found = await run_in_threadpool(fetched_together, fetched, service, some_of_it, room, began + left)
                left -= time.monotonic() - began
                size += sum(len(one.body) for one in found if isinstance(one, batch.Fetched))
                results += found
            continue
        for part in parts(row, PART):
            try:
                results += await write(service, part)
            except FhirError as error:
                if not results:
                    raise
                results += [error.with_traceback(None)] * len(part)


def _answer(service: Service, bundle: batch.Bundle, results: list[Any]) -> bytes:
    return batch.answer(bundle, results, dump_json, service.site)


PLAIN = Rendering(fetched_plain, _answer)
"""The interface's own form."""


def _told(service: Service, bundle: batch.Bundle, results: list[Any], answer: Answerer) -> tuple[list[Touch], bytes]:
    """Return the acts of a Bundle's entries, for the audit, and the answer to it."""
    results = bundle.results(results)
    return touches(bundle.requests, results), answer(service, bundle, results)


def _unanswered(bundle: batch.Bundle, results: list[Any], error: BaseException) -> list[Touch]:
    """Return the acts of a Bundle that ended with an error, which each entry without a result has."""
    failed = error if isinstance(error, FhirError) else FhirError(EXCEPTION)
    refused = bundle.type == "transaction" and not results
    return touches(bundle.requests, [failed] * len(bundle.requests) if refused else bundle.results(results, failed))
