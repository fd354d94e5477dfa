"""The application: resources times interactions as routes. What stands around every request is in `surroundings.py`.

Checks run in one order: authentication, permission, path and method, shape of the body, existence, preconditions,
rules.
"""

import asyncio
import re
from collections.abc import Callable, Sequence
from datetime import UTC
from email.utils import format_datetime
from itertools import groupby
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from fhir_service.audit import Touch, require_audit, touch
from fhir_service.auth import Caller, token_response
from fhir_service.bundle import history_bundle, searchset
from fhir_service.capability import capability_statement, smart_configuration
from fhir_service.chart import routes as chart
from fhir_service.health import Health
from fhir_service.http import (
    BelowPath,
    Handler,
    Paths,
    Right,
    caller_of,
    json_response,
    null_body,
    parse_body,
    parse_query,
    query_pairs,
    read_body,
    route,
)
from fhir_service.interactions import batch, create, history, plain, search, update, validate
from fhir_service.interactions.create import Created
from fhir_service.interface.datatypes import dump_json, instant_text
from fhir_service.interface.outcomes import NOT_FOUND, TOO_LARGE, UNAVAILABLE, FhirError
from fhir_service.interface.registry import RESOURCES
from fhir_service.interface.vocabulary import Resource
from fhir_service.middleware import DOOR, TOKEN_PATHS, Surroundings
from fhir_service.service import VERSION, Service
from fhir_service.writer import Entry

LARGE_BODY = 32 << 10
"""Bytes from which on a body is parsed and checked in a thread: some milliseconds."""
T = TypeVar("T")
WRITE_SECONDS = 60.0
"""Seconds that a write may wait for the writer; a write that has not begun by then is withdrawn."""


def create_app(service: Service, further: Sequence[BaseRoute] = ()) -> ASGIApp:
    """The ASGI application of a service. `further` routes (the door) stand beside the interface."""
    routes: list[BaseRoute] = [*_public(service), *_documents(service), *chart.routes(service), *further]
    for resource in RESOURCES.values():
        routes += _resource_routes(service, resource)
    if not service.settings.interface_only:
        routes += [route("/", POST=_batch(service)), route("/metrics", GET=_metrics(service))]
    open_paths = (f"{chart.CHART}/", *([DOOR] if further else []))
    app = Surroundings(Paths(routes, _UnknownPath()), service, open_paths)
    served = [one.path for one in routes if isinstance(one, Route)]
    return BelowPath(app, unquote(urlsplit(service.site.base_url).path), served)


def _resource_routes(service: Service, resource: Resource) -> list[BaseRoute]:
    """The paths of one resource; a method that a path does not offer is 405."""
    makers: dict[str, Callable[[Service, Resource], Handler]] = {
        "create": _create,
        "read": _read,
        "update": _update,
        "search": _search,
    }
    handlers = {name: makers[name](service, resource) for name in resource.interactions}
    searching, reading = Right(resource.name, "s"), Right(resource.name, "r")
    always: list[BaseRoute] = [
        route(f"/{resource.name}", searching, GET=handlers.get("search"), POST=handlers.get("create")),
        route(f"/{resource.name}/_search", searching, POST=handlers.get("search")),
        route(f"/{resource.name}/{{id}}", reading, GET=handlers.get("read"), PUT=handlers.get("update")),
    ]
    if "create" not in resource.interactions:
        return always
    if service.settings.interface_only:
        return [Route(f"/{resource.name}/$validate", _UnknownPath()), *always]
    return [
        route(f"/{resource.name}/$validate", reading, POST=_validate(service, resource)),
        route(f"/{resource.name}/_history", searching, GET=_history(service, resource, "s")),
        route(f"/{resource.name}/{{id}}/_history", reading, GET=_history(service, resource, "r")),
        *always,
    ]


class _UnknownPath:
    """The ASGI endpoint of what is no path of the service."""

    async def __call__(self, _scope: Scope, _receive: Receive, _send: Send) -> None:
        raise FhirError(NOT_FOUND)


# --- Interactions over HTTP -----------------------------------------------------------------------


def _create(service: Service, resource: Resource) -> Handler:
    additions = not service.settings.interface_only

    async def handle(request: Request) -> Response:
        caller = caller_of(request)
        touched = touch(request, "create", resource.name)
        caller.require(resource.name, "c")
        raw = await read_body(request, service.settings.max_body)
        condition = create.condition_of(request.headers.getlist("if-none-exist") if additions else ())
        model = await _aside(raw, _model, service, resource, raw)
        entry = create.Create(resource, model, caller.client, service.site, len(raw), condition)
        try:
            made: Created = await _written(service, entry)
        finally:
            touched.patients = entry.patients
        touched.id = made.id
        headers = {"location": service.site.url(resource.name, made.id)}
        return null_body(200 if made.existed else 201, headers)

    return handle


def _model(service: Service, resource: Resource, raw: bytes) -> Any:
    """The model of a body that is to be created. Raises its bad request."""
    additions = not service.settings.interface_only
    model = plain.create(resource, raw, service.site) if additions else None
    return create.parse(resource, parse_body(raw), service.site, additions) if model is None else model


async def _aside(raw: bytes, work: Callable[..., T], *arguments: Any) -> T:
    """Do what takes time with a body: beside the event loop where the body is large, so that others are answered."""
    return await run_in_threadpool(work, *arguments) if len(raw) > LARGE_BODY else work(*arguments)


def _update(service: Service, resource: Resource) -> Handler:
    additions = not service.settings.interface_only
    parse = update.PARSERS[resource.name]

    async def handle(request: Request) -> Response:
        caller = caller_of(request)
        resource_id = request.path_params["id"]
        touched = touch(request, "update", resource.name, resource_id)
        caller.require(resource.name, "u")
        raw = await read_body(request, service.settings.max_body)
        body = await _aside(raw, parse_body, raw)
        model = await _aside(raw, parse, resource, body, resource_id, service.site, additions)
        since = update.http_date(request.headers.get("if-unmodified-since"))
        matches = request.headers.getlist("if-match")
        conditions = update.Preconditions(since, ",".join(matches) if matches else None)
        entry = update.Update(resource, resource_id, model, caller.client, service.site, len(raw), conditions)
        touched.patients = await _written(service, entry)
        return null_body(200)

    return handle


async def _written(service: Service, entry: Entry) -> Any:
    """The result of one entry, or its error."""
    (result,) = await _write(service, [entry])
    if isinstance(result, FhirError):
        raise result
    return result


async def _write(service: Service, entries: Sequence[Entry]) -> list[Any]:
    """The results of entries that are written together. What waits too long is withdrawn, and surely not stored."""
    future = service.writer.submit(entries)
    waiting = asyncio.ensure_future(asyncio.wrap_future(future))
    done, _ = await asyncio.wait([waiting], timeout=WRITE_SECONDS)
    if not done and future.cancel():
        raise FhirError(UNAVAILABLE, headers={"retry-after": "5"})
    results: list[Any] = await waiting
    return results


def _read(service: Service, resource: Resource) -> Handler:
    async def handle(request: Request) -> Response:
        touched = touch(request, "read", resource.name, request.path_params["id"])
        caller_of(request).require(resource.name, "r")
        resource_id = request.path_params["id"]
        found = service.reader.at_hand(resource, resource_id)
        if found is None:
            found = await run_in_threadpool(service.reader.look_up, resource, resource_id)
        touched.patients = found.patients
        headers = {
            "last-modified": format_datetime(found.updated_at.astimezone(UTC), usegmt=True),
            "etag": update.etag(found.version),
        }
        return json_response(request, rendered(service, found.body), headers=headers)

    return handle


def _page(service: Service, resource: Resource, pairs: search.Pairs, lenient: bool) -> search.Page:
    settings = service.settings
    size, most, additions = settings.page_size, settings.max_page_size, not settings.interface_only
    return search.run(
        service.reader, search.parse(resource, pairs, service.site, min(size, most), most, additions, lenient)
    )


def _search(service: Service, resource: Resource) -> Handler:
    async def handle(request: Request) -> Response:
        touched = touch(request, "search", resource.name)
        caller_of(request).require(resource.name, "s")
        pairs = await query_pairs(request, service.settings.max_body)
        prefer = request.headers.get("prefer", "").lower().replace(";", ",")
        lenient = "handling=lenient" in (each.strip() for each in prefer.split(","))
        page = await run_in_threadpool(_page, service, resource, pairs, lenient)
        touched.patients = page.patients
        return json_response(request, rendered(service, searchset(page)))

    return handle


def _validate(service: Service, resource: Resource) -> Handler:
    async def handle(request: Request) -> Response:
        caller_of(request).require(resource.name, "c")
        raw = await read_body(request, service.settings.max_body)
        body = await _aside(raw, parse_body, raw)
        problems = await _written(service, validate.Validate(resource, body, service.site, len(raw)))
        return json_response(request, dump_json(validate.outcome(problems)))

    return handle


def _history(service: Service, resource: Resource, letter: str) -> Handler:
    settings = service.settings

    async def handle(request: Request) -> Response:
        touched = touch(request, "history", resource.name, request.path_params.get("id"))
        caller_of(request).require(resource.name, letter)
        pairs = await query_pairs(request, settings.max_body)
        page, since = history.parse(resource, pairs, settings.page_size, settings.max_page_size)
        found = await run_in_threadpool(history.run, service.store, resource, page, since, touched.id)
        touched.patients = found.patients(resource)
        return json_response(request, rendered(service, history_bundle(resource.name, found)))

    return handle


def _batch(service: Service) -> Handler:
    async def handle(request: Request) -> Response:
        caller = caller_of(request)
        require_audit(request)
        raw = await read_body(request, service.settings.max_batch)
        requests = await run_in_threadpool(_understood, service, raw, caller)
        results = await _carried_out(service, [one.entry for one in requests if one.entry])
        request.scope["touched"], answer = await run_in_threadpool(_told, service, requests, results)
        return json_response(request, answer)

    return handle


async def _carried_out(service: Service, entries: list[Entry | batch.Fetch]) -> list[Any]:
    """The results of the entries of a batch, in the order sent: writes in a row together, then what is fetched.

    Raises what keeps the first writes from being stored; of what follows it is the result.
    """
    results: list[Any] = []
    size = 0
    for fetching, some in groupby(entries, lambda entry: isinstance(entry, batch.Fetch)):
        part: list[Any] = list(some)
        if fetching:
            for fetch in part:
                found = await run_in_threadpool(_fetched, service, fetch, service.settings.max_batch - size)
                size += len(found.body) if isinstance(found, batch.Fetched) else 0
                results.append(found)
            continue
        try:
            results += await _write(service, part)
        except FhirError as error:
            if not results:
                raise
            results += [error.with_traceback(None)] * len(part)
    return results


def _fetched(service: Service, fetch: batch.Fetch, room: int) -> batch.Fetched | FhirError:
    """The answer to a read or a search of a batch, or its error; so is an answer for which there is no room."""
    try:
        found = _read_entry(service, fetch) if fetch.id is not None else _search_entry(service, fetch)
    except FhirError as error:
        return error.with_traceback(None)
    if len(found.body) > room:
        return FhirError(TOO_LARGE, "the answer to the batch is too large: read in several", text="Answer too large")
    return found


def _read_entry(service: Service, fetch: batch.Fetch) -> batch.Fetched:
    found = service.reader.read(fetch.resource, fetch.id or "")
    how = {"etag": update.etag(found.version), "lastModified": instant_text(found.updated_at)}
    return batch.Fetched(rendered(service, found.body), how, found.patients)


def _search_entry(service: Service, fetch: batch.Fetch) -> batch.Fetched:
    page = _page(service, fetch.resource, parse_query(fetch.query), lenient=False)
    return batch.Fetched(rendered(service, searchset(page)), {}, page.patients)


def _told(service: Service, requests: list[batch.Request], results: list[Any]) -> tuple[list[Touch], bytes]:
    """Return the acts of a batch's entries, for the audit, and the answer to it."""
    return _touches(requests, results), batch.answer(requests, results, dump_json, service.site)


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


def _understood(service: Service, raw: bytes, caller: Caller) -> list[batch.Request]:
    understood = batch.understand_plain(raw, caller, service.site)
    if understood is not None:
        return understood
    if batch.has_too_many_parts(raw):
        raise batch.too_many()
    entries = batch.entries(parse_body(raw))
    size = len(raw) // max(len(entries), 1)
    return [batch.understand(entry, caller, service.site, size) for entry in entries]


def rendered(service: Service, stored: bytes) -> bytes:
    """A stored body, or several joined, as it goes out."""
    return service.documents.sign_all(service.site.fill(stored))


# --- Beside the resources -------------------------------------------------------------------------


def _public(service: Service) -> list[BaseRoute]:
    health = Health(service)

    async def token(request: Request) -> Response:
        return await token_response(request, service.auth)

    async def metadata(request: Request) -> Response:
        return json_response(request, dump_json(capability_statement(service.settings, service.store.id, VERSION)))

    async def discovery(request: Request) -> Response:
        return json_response(request, dump_json(smart_configuration(service.settings)))

    async def healthy(request: Request) -> Response:
        problem = await health.problem()
        body = {"status": "unavailable" if problem else "ok", "version": VERSION}
        return json_response(
            request, dump_json(body | ({"problem": problem} if problem else {})), 503 if problem else 200
        )

    return [
        *(route(path, POST=token) for path in TOKEN_PATHS),
        route("/metadata", GET=metadata),
        route("/.well-known/smart-configuration", GET=discovery),
        route("/health", GET=healthy),
    ]


def _metrics(service: Service) -> Handler:
    async def handle(_: Request) -> Response:
        return Response(service.metrics.text(), media_type="text/plain; version=0.0.4")

    return handle


def _documents(service: Service) -> list[BaseRoute]:
    async def document(request: Request) -> Response:
        report, position = request.path_params["id"], request.path_params["position"]
        touched = touch(request, "document", "DiagnosticReport", report)
        query = request.query_params
        if "caller" in request.scope:
            caller_of(request).require("DiagnosticReport", "r")
        else:
            service.documents.verify(report, position, query.get("expires", ""), query.get("signature", ""))
        if not re.fullmatch(r"\d{1,9}", position, re.ASCII):
            raise FhirError(NOT_FOUND)
        found = await run_in_threadpool(service.documents.read, report, position)
        touched.patients = found.patients
        headers = {
            "content-disposition": f'attachment; filename="{report}-{position}"',
            "x-content-type-options": "nosniff",
            "cache-control": "private, no-store",
        }
        return Response(found.data, media_type=found.content_type, headers=headers)

    return [route("/DiagnosticReport/{id}/files/presentedForm/{position}", GET=document)]
