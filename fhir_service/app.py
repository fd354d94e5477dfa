"""The application: resources times interactions as routes, and what stands around every request.

Checks run in one order: authentication, permission, path and method, shape of the body, existence, preconditions,
rules.
"""

import asyncio
import logging
import re
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC as _UTC
from email.utils import format_datetime
from typing import Any
from urllib.parse import parse_qsl, unquote_to_bytes

from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, Router
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fhir_service.auth import Caller, token_response
from fhir_service.bundle import history_bundle, searchset
from fhir_service.capability import capability_statement, smart_configuration
from fhir_service.interactions import batch, create, history, search, update, validate
from fhir_service.interactions.create import Created
from fhir_service.interactions.read import read
from fhir_service.interface.datatypes import Malformed, dump_json, parse_json
from fhir_service.interface.outcomes import (
    EXCEPTION,
    INVALID,
    NOT_FOUND,
    NOT_SUPPORTED,
    THROTTLED,
    TOO_LARGE,
    FhirError,
    outcome_of,
)
from fhir_service.interface.registry import RESOURCES
from fhir_service.interface.vocabulary import Resource
from fhir_service.limits import Rates
from fhir_service.service import VERSION, Service

JSON, FHIR_JSON = "application/json", "application/fhir+json"
PUBLIC = ("/auth/token", "/.well-known/smart-configuration", "/metadata", "/health")
DOOR = "/_door/"
log = logging.getLogger(__name__)

Handler = Callable[[Request], Awaitable[Response]]


def create_app(service: Service, further: Sequence[BaseRoute] = ()) -> ASGIApp:
    """The ASGI application of a service. `further` routes (the door) stand beside the interface."""
    routes: list[BaseRoute] = [*_public(service), *_documents(service), *further]
    for resource in RESOURCES.values():
        routes += _resource_routes(service, resource)
    if not service.settings.interface_only:
        routes.append(route("/", POST=_batch(service)))
    router = Router(routes, redirect_slashes=False, default=_unknown_path)
    return Surroundings(router, service, has_door=bool(further))


def _resource_routes(service: Service, resource: Resource) -> list[BaseRoute]:
    """The paths of one resource; a method that a path does not offer is 405."""
    makers: dict[str, Callable[[Service, Resource], Handler]] = {
        "create": _create,
        "read": _read,
        "update": _update,
        "search": _search,
    }
    handlers = {name: makers[name](service, resource) for name in resource.interactions}
    plain: list[BaseRoute] = [
        route(f"/{resource.name}", GET=handlers.get("search"), POST=handlers.get("create")),
        route(f"/{resource.name}/_search", POST=handlers.get("search")),
        route(f"/{resource.name}/{{id}}", GET=handlers.get("read"), PUT=handlers.get("update")),
    ]
    if service.settings.interface_only or "create" not in resource.interactions:
        return plain
    return [
        route(f"/{resource.name}/$validate", POST=_validate(service, resource)),
        route(f"/{resource.name}/_history", GET=_history(service, resource, "s")),
        route(f"/{resource.name}/{{id}}/_history", GET=_history(service, resource, "r")),
        *plain,
    ]


def route(path: str, **handlers: Handler | None) -> Route:
    """A path with a handler for each method that it offers; any other method is 405."""
    return Route(path, _ByMethod(handlers))


class _ByMethod:
    """An ASGI endpoint that picks the handler by method."""

    def __init__(self, handlers: dict[str, Handler | None]) -> None:
        self._handlers = {method: handler for method, handler in handlers.items() if handler}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        handler = self._handlers.get("GET" if scope["method"] == "HEAD" else scope["method"])
        if handler is None:
            raise FhirError(NOT_SUPPORTED, headers={"allow": ", ".join(sorted(self._handlers))})
        response = await handler(Request(scope, receive))
        await response(scope, receive, send)


async def _unknown_path(_scope: Scope, _receive: Receive, _send: Send) -> None:
    raise FhirError(NOT_FOUND)


# --- Interactions over HTTP -----------------------------------------------------------------------


def _caller(request: Request) -> Caller:
    caller: Caller = request.scope["caller"]
    return caller


def _create(service: Service, resource: Resource) -> Handler:
    additions = not service.settings.interface_only

    async def handle(request: Request) -> Response:
        caller = _caller(request)
        caller.require(resource.name, "c")
        raw = await read_body(request, service.settings.max_body)
        asked = request.headers.get("if-none-exist") if additions else None
        condition = create.condition(asked)
        model = create.parse(resource, parse_body(raw), service.site, additions)
        entry = create.Create(resource, model, caller.client, service.site, len(raw), condition)
        made: Created = await _written(service, entry)
        headers = {"location": service.site.url(resource.name, made.id)}
        return null_body(200 if made.existed else 201, headers)

    return handle


def _update(service: Service, resource: Resource) -> Handler:
    additions = not service.settings.interface_only
    parse = update.PARSERS[resource.name]

    async def handle(request: Request) -> Response:
        caller = _caller(request)
        caller.require(resource.name, "u")
        resource_id = request.path_params["id"]
        raw = await read_body(request, service.settings.max_body)
        model = parse(resource, parse_body(raw), resource_id, service.site, additions)
        since = update.http_date(request.headers.get("if-unmodified-since"))
        conditions = update.Preconditions(since, request.headers.get("if-match"))
        entry = update.Update(resource, resource_id, model, caller.client, service.site, len(raw), conditions)
        await _written(service, entry)
        return null_body(200)

    return handle


async def _written(service: Service, entry: Any) -> Any:
    """The result of one entry, or its error."""
    (result,) = await asyncio.wrap_future(service.writer.submit([entry]))
    if isinstance(result, FhirError):
        raise result
    return result


def _read(service: Service, resource: Resource) -> Handler:
    async def handle(request: Request) -> Response:
        _caller(request).require(resource.name, "r")
        found = await run_in_threadpool(read, service.store, resource.name, request.path_params["id"])
        headers = {
            "last-modified": format_datetime(found.updated_at.astimezone(_UTC), usegmt=True),
            "etag": update.etag(found.version),
        }
        return json_response(request, rendered(service, found.body.encode()), headers=headers)

    return handle


def _search(service: Service, resource: Resource) -> Handler:
    settings = service.settings

    async def handle(request: Request) -> Response:
        _caller(request).require(resource.name, "s")
        pairs = await query_pairs(request, settings.max_body)
        lenient = "handling=lenient" in re.split(r"\s*[,;]\s*", request.headers.get("prefer", "").lower())
        size, most, additions = settings.page_size, settings.max_page_size, not settings.interface_only
        query = search.parse(resource, pairs, service.site, min(size, most), most, additions, lenient)
        page = await run_in_threadpool(search.run, service.store, query)
        return json_response(request, rendered(service, searchset(page)))

    return handle


def _validate(service: Service, resource: Resource) -> Handler:
    async def handle(request: Request) -> Response:
        _caller(request).require(resource.name, "c")
        raw = await read_body(request, service.settings.max_body)
        problems = await _written(service, validate.Validate(resource, parse_body(raw), service.site, len(raw)))
        return json_response(request, dump_json(validate.outcome(problems)))

    return handle


def _history(service: Service, resource: Resource, letter: str) -> Handler:
    settings = service.settings

    async def handle(request: Request) -> Response:
        _caller(request).require(resource.name, letter)
        pairs = await query_pairs(request, settings.max_body)
        page, since = history.parse(resource, pairs, settings.page_size, settings.max_page_size)
        found = await run_in_threadpool(
            history.run, service.store, resource, page, since, request.path_params.get("id")
        )
        return json_response(request, rendered(service, history_bundle(resource.name, found)))

    return handle


def _batch(service: Service) -> Handler:
    async def handle(request: Request) -> Response:
        caller = _caller(request)
        raw = await read_body(request, service.settings.max_batch)
        requests = await run_in_threadpool(_understood, service, raw, caller)
        wanted = [entry.entry for entry in requests if entry.entry]
        results = await asyncio.wrap_future(service.writer.submit(wanted)) if wanted else []
        return json_response(request, batch.answer(requests, results, dump_json, service.site))

    return handle


def _understood(service: Service, raw: bytes, caller: Caller) -> list[batch.Request]:
    entries = batch.entries(parse_body(raw))
    size = len(raw) // max(len(entries), 1)
    return [batch.understand(entry, caller, service.site, size) for entry in entries]


def rendered(service: Service, stored: bytes) -> bytes:
    """A stored body, or several joined, as it goes out."""
    return service.documents.sign_all(service.site.fill(stored))


# --- Beside the resources -------------------------------------------------------------------------


def _public(service: Service) -> list[BaseRoute]:
    async def token(request: Request) -> Response:
        return await token_response(request, service.auth)

    async def metadata(request: Request) -> Response:
        return json_response(request, dump_json(capability_statement(service.settings, service.store.id, VERSION)))

    async def discovery(request: Request) -> Response:
        return json_response(request, dump_json(smart_configuration(service.settings)))

    async def health(request: Request) -> Response:
        reachable = await run_in_threadpool(_reachable, service)
        body = {"status": "ok" if reachable else "unavailable", "version": VERSION}
        return json_response(request, dump_json(body), 200 if reachable else 503)

    return [
        route("/auth/token", POST=token),
        route("/metadata", GET=metadata),
        route("/.well-known/smart-configuration", GET=discovery),
        route("/health", GET=health),
    ]


def _reachable(service: Service) -> bool:
    try:
        with service.store.read() as connection:
            return connection.exec_driver_sql("SELECT 1").scalar() == 1
    except Exception:  # noqa: BLE001 - whatever it is, the store does not answer
        return False


def _documents(service: Service) -> list[BaseRoute]:
    async def document(request: Request) -> Response:
        report, position = request.path_params["id"], request.path_params["position"]
        query = request.query_params
        if "caller" in request.scope:
            _caller(request).require("DiagnosticReport", "r")
        else:
            service.documents.verify(report, position, query.get("expires", ""), query.get("signature", ""))
        if not re.fullmatch(r"\d{1,9}", position, re.ASCII):
            raise FhirError(NOT_FOUND)
        found = await run_in_threadpool(service.documents.read, report, position)
        headers = {
            "content-disposition": f'attachment; filename="{report}-{position}"',
            "x-content-type-options": "nosniff",
        }
        return Response(found.data, media_type=found.content_type, headers=headers)

    return [route("/DiagnosticReport/{id}/files/presentedForm/{position}", GET=document)]


_DOCUMENT = re.compile(r"/DiagnosticReport/[^/]+/files/presentedForm/[^/]+\Z")


# --- Bodies and answers ---------------------------------------------------------------------------


async def read_body(request: Request, limit: int) -> bytes:
    """The body of a request with a JSON content type. Raises a bad request, or the 413 of one above the limit."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() not in (JSON, FHIR_JSON):
        raise FhirError(INVALID, "the body is sent as application/json or application/fhir+json")
    return await _limited(request, limit)


async def _limited(request: Request, limit: int) -> bytes:
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced[:20]) > limit:
        raise FhirError(TOO_LARGE, headers={"connection": "close"})
    chunks, size = [], 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > limit:
            raise FhirError(TOO_LARGE, headers={"connection": "close"})
        chunks.append(chunk)
    return b"".join(chunks)


def parse_body(raw: bytes) -> Any:
    """The JSON value of a body. Raises a bad request."""
    try:
        return parse_json(raw)
    except Malformed as error:
        raise FhirError(INVALID, str(error)) from None


async def query_pairs(request: Request, limit: int) -> list[tuple[str, str]]:
    """The parameters of a search: of the address, and of the form of a `_search`."""
    found = _pairs(request.scope["query_string"])
    if request.method == "POST":
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind not in ("application/x-www-form-urlencoded", ""):
            raise FhirError(INVALID, "the form is sent as application/x-www-form-urlencoded")
        found += _pairs(await _limited(request, limit))
    return found


def _pairs(query: bytes) -> list[tuple[str, str]]:
    try:
        text = query.decode("ascii")
        unquote_to_bytes(text)
        return parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=200)
    except ValueError:
        raise FhirError(INVALID, "the query cannot be read") from None


def _media_type(request: Request) -> str:
    accept = request.headers.get("accept", "").lower()
    return FHIR_JSON if FHIR_JSON in accept else JSON


def json_response(request: Request, body: bytes, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(body, status, headers, media_type=_media_type(request))


def null_body(status: int, headers: dict[str, str] | None = None) -> Response:
    """The answer of a create or update: `null`, always as application/json (decision H3)."""
    return Response(b"null", status, headers, media_type=JSON)


# --- Around every request -------------------------------------------------------------------------

_CORRELATION = re.compile(r"[A-Za-z0-9._\-]{1,128}\Z", re.ASCII)


class Surroundings:
    """Correlation id, authentication, rate and errors of every request."""

    def __init__(self, app: ASGIApp, service: Service, has_door: bool) -> None:
        self._app, self._service, self._has_door = app, service, has_door
        self._rates = Rates(service.settings.requests_per_second, time.monotonic)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        correlation = self._correlation(request)
        started = False

        async def sending(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                message["headers"].append((b"x-correlation-id", correlation.encode()))
            await send(message)

        try:
            await self._admit(request)
            await self._app(scope, receive, sending)
        except FhirError as error:
            await self._refuse(request, error)(scope, receive, sending)
        except ClientDisconnect:
            log.info("the client went away: %s", correlation)
        except Exception as error:  # noqa: BLE001 - a fault of ours is answered, never shown
            # The class only: exception texts may hold values of a body.
            log.error(  # noqa: TRY400
                "a request failed: %s %s", type(error).__name__, correlation
            )
            if not started:
                refused = FhirError(EXCEPTION, f"correlation id {correlation}")
                await self._refuse(request, refused)(scope, receive, sending)

    def _correlation(self, request: Request) -> str:
        sent = request.headers.get("x-correlation-id", "")
        return sent if _CORRELATION.match(sent) else self._service.new_id()

    async def _admit(self, request: Request) -> None:
        """Authentication, then the client's rate. The public paths, the door and signed addresses do without."""
        path = request.scope["path"]
        if path in PUBLIC or (self._has_door and path.startswith(DOOR)):
            return
        authorization = request.headers.get("authorization")
        if authorization is None and _DOCUMENT.match(path) and b"signature=" in request.scope["query_string"]:
            return
        caller = self._service.auth.caller(authorization)
        request.scope["caller"] = caller
        wait = self._rates.take(caller.client)
        if wait:
            raise FhirError(THROTTLED, headers={"retry-after": str(wait)})

    @staticmethod
    def _refuse(request: Request, error: FhirError) -> Response:
        return json_response(request, dump_json(outcome_of(error)), error.outcome.status, error.headers)
