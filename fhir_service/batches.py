"""Bundles over HTTP: carry out the entries of a batch or a transaction, note them for the audit, and answer."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple, TypeVar, cast

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from fhir_service import acts
from fhir_service.audit import Touch, require_audit
from fhir_service.bundle import how, searchset
from fhir_service.http import caller_of, parse_body, parse_query, read_body
from fhir_service.interactions import batch, create, transaction, update
from fhir_service.interactions.create import Created
from fhir_service.interactions.read import referred, there
from fhir_service.interface.datatypes import dump_json, is_id
from fhir_service.interface.outcomes import TOO_LARGE, FhirError
from fhir_service.scopes import Caller
from fhir_service.service import Service
from fhir_service.store.bodies import Found, Reference
from fhir_service.writing.entry import Entry

READ_AT_ONCE = 100
"""Reads of a batch that share a statement."""
PART = 500
"""Writes of a batch that are stored by one commit."""
T = TypeVar("T")
Known = Mapping[Reference, Found]
Fetcher = Callable[[Service, batch.Fetch, Known], batch.Fetched]
Answerer = Callable[[Service, batch.Bundle, list[Any]], bytes]


class Rendering(NamedTuple):
    """The form of an answer: how it shows what a read or search found, and how it is made of all results."""

    fetched: Fetcher
    answer: Answerer


async def answered(service: Service, request: Request, rendering: Rendering) -> bytes:
    """Carry out the batch or transaction of a request's body; return the answer to it."""
    caller = caller_of(request)
    require_audit(request)
    raw = await read_body(request, service.settings.max_batch)
    bundle = await run_in_threadpool(_understood, service, raw, caller)
    if bundle.type == "transaction":
        results = await _carried_out_whole(service, request, bundle.requests)
    else:
        results = await _carried_out(service, [one.entry for one in bundle.requests if one.entry], rendering.fetched)
    told = await run_in_threadpool(_told, service, bundle, results, rendering.answer)
    request.scope["touched"], answer = told
    return answer


async def _carried_out_whole(service: Service, request: Request, requests: list[batch.Request]) -> list[Any]:
    """The results of the entries of a transaction, in the order sent. Raises the refusal of the first that failed."""
    try:
        order = transaction.in_order(requests)
        done = await acts.write(service, [cast("Entry", requests[index].entry) for index in order], whole=True)
        if done and isinstance(done[-1], FhirError):
            raise transaction.placed(done[-1], order[len(done) - 1])
    except FhirError as error:
        refused = [one._replace(error=error) for one in requests]
        request.scope["touched"] = _touches(refused, [error] * len(requests))
        raise
    results = dict(zip(order, done, strict=True))
    return [results[index] for index in range(len(requests))]


async def _carried_out(service: Service, entries: list[Entry | batch.Fetch], fetched: Fetcher) -> list[Any]:
    """The results of the entries of a batch, in the order sent: writes in a row in parts, then what is fetched.

    Other clients take their turn between two parts. Raises what keeps the first part from being stored; of what follows
    it is the result.
    """
    results: list[Any] = []
    size = 0
    for fetching, some in groupby(entries, lambda entry: isinstance(entry, batch.Fetch)):
        row: list[Any] = list(some)
        if fetching:
            for some_of_it in parts(row, READ_AT_ONCE):
                room = service.settings.max_batch - size
                found = await run_in_threadpool(_fetched_together, fetched, service, some_of_it, room)
                size += sum(len(one.body) for one in found if isinstance(one, batch.Fetched))
                results += found
            continue
        for part in parts(row, PART):
            try:
                results += await acts.write(service, part)
            except FhirError as error:
                if not results:
                    raise
                results += [error.with_traceback(None)] * len(part)
    return results


def parts(row: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Yield a row in parts of a size."""
    return (row[start : start + size] for start in range(0, len(row), size))


def _fetched_together(
    fetched: Fetcher, service: Service, fetches: Sequence[batch.Fetch], room: int
) -> list[batch.Fetched | FhirError]:
    """The answers to reads and searches, or their errors; so is an answer for which there is no room."""
    references = {(fetch.resource.name, fetch.id) for fetch in fetches if fetch.id is not None and is_id(fetch.id)}
    results: list[batch.Fetched | FhirError] = []
    try:
        known = service.reader.read_all(references)
    except FhirError as error:
        return [error.with_traceback(None)] * len(fetches)
    for fetch in fetches:
        found = _within(fetched, service, fetch, known, room)
        room -= len(found.body) if isinstance(found, batch.Fetched) else 0
        results.append(found)
    return results


def _within(
    fetched: Fetcher, service: Service, fetch: batch.Fetch, known: Known, room: int
) -> batch.Fetched | FhirError:
    try:
        found = fetched(service, fetch, known)
    except FhirError as error:
        return error.with_traceback(None)
    if len(found.body) > room:
        return FhirError(TOO_LARGE, "the answer to the batch is too large: read in several", text="Answer too large")
    return found


def _fetched(service: Service, fetch: batch.Fetch, known: Known) -> batch.Fetched:
    """Show a resource that was read, or search, as the interface does."""
    if fetch.id is None:
        asked = service, fetch.resource, parse_query(fetch.query), False
        page = acts.page_at_hand(*asked) or acts.page_of(*asked)
        return batch.Fetched(acts.rendered(service, searchset(page)), {}, page.patients)
    found = read_of(fetch, known)
    return batch.Fetched(acts.rendered(service, found.body), how(found), found.patients)


def read_of(fetch: batch.Fetch, known: Known) -> Found:
    """Return the resource that a read asks for. Raises the 404 that names type and id."""
    reference = referred(fetch.resource, fetch.id or "")
    return there(known.get(reference), reference)


def _answer(service: Service, bundle: batch.Bundle, results: list[Any]) -> bytes:
    return batch.answer(bundle, results, dump_json, service.site)


PLAIN = Rendering(_fetched, _answer)
"""The interface's own form."""


def _told(service: Service, bundle: batch.Bundle, results: list[Any], answer: Answerer) -> tuple[list[Touch], bytes]:
    """Return the acts of a Bundle's entries, for the audit, and the answer to it."""
    return _touches(bundle.requests, results), answer(service, bundle, results)


def _touches(requests: list[batch.Request], results: list[Any]) -> list[Touch]:
    """Return the acts of a batch's entries, each with its own status. Entries that named no resource are one for each
    status.
    """
    done = iter(results)
    found, nameless = [], dict[int, None]()
    for one in requests:
        result = next(done) if one.entry else one.error
        status = result.outcome.status if isinstance(result, FhirError) else batch.status(result)
        if isinstance(one.entry, create.Create):
            made = result.id if isinstance(result, Created) else None
            found.append(Touch("create", one.entry.resource.name, made, one.entry.patients, status))
        elif isinstance(one.entry, update.Update):
            patients = result if isinstance(result, tuple) else ()
            found.append(Touch("update", one.entry.resource.name, one.entry.id, patients, status))
        elif isinstance(one.entry, batch.Fetch):
            patients = result.patients if isinstance(result, batch.Fetched) else ()
            kind = "read" if one.entry.id is not None else "search"
            found.append(Touch(kind, one.entry.resource.name, one.entry.id, patients, status))
        else:
            nameless[status] = None
    return [*found, *(Touch("batch", "Bundle", status=status) for status in nameless)]


def _understood(service: Service, raw: bytes, caller: Caller) -> batch.Bundle:
    understood = batch.understand_plain(raw, caller, service.site)
    if understood is not None:
        return understood
    if batch.has_too_many_parts(raw):
        raise batch.too_many()
    kind, entries = batch.entries(parse_body(raw))
    ids = transaction.link(entries, service.new_id) if kind == "transaction" else [""] * len(entries)
    size = len(raw) // max(len(entries), 1)
    requests = [batch.understand(entry, caller, service.site, size) for entry in entries]
    for one, given in zip(requests, ids, strict=True):
        if isinstance(one.entry, create.Create):
            one.entry.id = given
    return batch.Bundle(kind, requests)
