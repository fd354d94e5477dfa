"""Answer a batch or a transaction over HTTP: carry out its entries, and note each for the audit."""

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
"""The most reads of a batch that share a statement."""
PART = 500
"""The most writes of a batch that share a commit."""
LONGER = 2
"""The reads of a batch may take so many times longer than those of a single request."""
Answerer = Callable[[Service, batch.Bundle, list[Any]], bytes]


class Rendering(NamedTuple):
    """The form of an answer. fetched: render a read or a search; answer: put all results together."""

    fetched: Fetcher
    answer: Answerer


async def answer_bundle(service: Service, request: Request, rendering: Rendering) -> bytes:
    """Carry out the batch or transaction in a request's body. Return the answer."""
    caller = caller_of(request)
    require_audit(request)
    # A client that may not write sends only reads and searches, which are short.
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
        # Entries without an answer may be stored all the same: the audit has to name them.
        request.scope["touched"] = _unanswered(bundle, results, error)
        raise
    request.scope["touched"], answer = told
    return answer


async def _carried_out_whole(service: Service, requests: list[batch.Request]) -> list[Any]:
    """Return the results of a transaction's entries, in the order sent. Raises the FhirError of a refused entry."""
    order = transaction.in_order(requests)
    done = await write(service, [cast("Entry", requests[index]) for index in order], whole=True)
    if done and isinstance(done[-1], FhirError):
        raise transaction.refusal_of_entry(done[-1], order[len(done) - 1])
    results = dict(zip(order, done, strict=True))
    return [results[index] for index in range(len(requests))]


async def _carry_out(
    service: Service, entries: list[Entry | batch.Fetch], fetched: Fetcher, results: list[Any]
) -> None:
    """Carry out the entries of a batch in the order sent, and add their results.

    Consecutive writes are stored in parts, consecutive reads are looked up together. Other clients take their turn
    between two parts. If a part cannot be stored, its entries get that FhirError as their results. If nothing was
    carried out before, it is raised.
    """
    size, left = 0, float(LONGER * service.settings.read_seconds)
    for fetching, some in groupby(entries, lambda entry: isinstance(entry, batch.Fetch)):
        row: list[Any] = list(some)
        if fetching:
            for some_of_it in parts(row, READ_AT_ONCE):
                room, began = service.settings.max_batch - size, time.monotonic()
                found = await run_in_threadpool(fetched_together, fetched, service, some_of_it, room, began + left)
                left -= time.monotonic() - began
                size += sum(len(one.body) for one in found if isinstance(one, batch.FetchResult))
                results += found
            continue
        for part in parts(row, PART):
            try:
                results += await write(service, part)
            except FhirError as error:
                if not results:
                    raise
                results += [error.with_traceback(None)] * len(part)


PLAIN = Rendering(
    fetched_plain, lambda service, bundle, results: batch.answer(bundle, results, dump_json, service.site)
)
"""The interface's own form."""


def _told(service: Service, bundle: batch.Bundle, results: list[Any], answer: Answerer) -> tuple[list[Touch], bytes]:
    """Return the acts of a Bundle's entries for the audit, and the answer to the Bundle."""
    results = bundle.results(results)
    return touches(bundle.requests, results), answer(service, bundle, results)


def _unanswered(bundle: batch.Bundle, results: list[Any], error: BaseException) -> list[Touch]:
    """Return the acts of a Bundle that ended with an error. Each entry without a result gets that error."""
    failed = error if isinstance(error, FhirError) else FhirError(EXCEPTION)
    refused = bundle.type == "transaction" and not results
    return touches(bundle.requests, [failed] * len(bundle.requests) if refused else bundle.results(results, failed))
