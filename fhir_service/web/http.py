"""Requests and answers: find the handler of a path and method, read bodies and queries, make responses."""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from fhir_service.body_memory import BodyShare, weight
from fhir_service.interface.json_text import Malformed, parse_json
from fhir_service.interface.outcomes import INVALID, NOT_FOUND, NOT_SUPPORTED, TOO_LARGE, FhirError
from fhir_service.interface.scopes import Caller, letter_of

JSON, FHIR_JSON = "application/json", "application/fhir+json"
FACE = "/fhir"
"""The path of the R4 face."""
BODY_SECONDS = 60.0
"""Seconds within which a body has to arrive."""
LARGE_BODY = 32 << 10
"""A body above this size, in bytes, is weighed in a thread: it takes some milliseconds."""
PROMPT = 0.1
"""A body that took more seconds than these is late: its caller's token is looked up again."""

_NOT_WANTED = re.compile(r"q=0(?:\.0{0,3})?")

Handler = Callable[[Request], Awaitable[Response]]


class RequiredRight(NamedTuple):
    """The right that a path needs: a letter of `cruds` on a type, by method. reading: the letter for GET."""

    type: str
    reading: str


def route(path: str, right: RequiredRight | None = None, **handlers: Handler | None) -> Route:
    """Return a route with a handler for each of its methods. Any other method is 405, or 403 without its right."""
    return Route(path, _ByMethod(path, right, handlers))


class _ByMethod:
    """An ASGI endpoint that chooses the handler by method."""

    def __init__(self, path: str, right: RequiredRight | None, handlers: dict[str, Handler | None]) -> None:
        self._path, self._right = path, right
        self._handlers = {method: handler for method, handler in handlers.items() if handler}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["template"] = self._path
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        handler = self._handlers.get(method)
        if handler is None:
            self._require(Request(scope), method)
            raise FhirError(NOT_SUPPORTED, headers={"allow": ", ".join(sorted(self._handlers))})
        response = await handler(Request(scope, receive))
        await response(scope, receive, send)

    def _require(self, request: Request, method: str) -> None:
        """Raise the 403 of a caller that lacks the right for a method, even if the path does not offer the method."""
        if self._right and (letter := letter_of(method, self._right.reading)):
            caller_of(request).require(self._right.type, letter)


class Paths(Router):
    """The routes. A path without parameters is found in a dict; for others the routes are tried one by one."""

    def __init__(self, routes: Sequence[BaseRoute], default: ASGIApp) -> None:
        super().__init__(routes, redirect_slashes=False, default=default)
        self._fixed = {
            found.path: found.app for found in routes if isinstance(found, Route) and not found.param_convertors
        }

    async def app(self, scope: Scope, receive: Receive, send: Send) -> None:
        found = self._fixed.get(scope["path"], super().app)
        await found(scope, receive, send)


class UnknownPath:
    """The ASGI endpoint of unknown paths: 404."""

    async def __call__(self, _scope: Scope, _receive: Receive, _send: Send) -> None:
        raise FhirError(NOT_FOUND)


class BelowPath:
    """Serve an application below the path of its base URL, too: a proxy need not remove that path.

    If the base URL ends in the path of the R4 face, what follows is the interface and not the face.
    """

    def __init__(self, app: ASGIApp, path: str, served: Sequence[str]) -> None:
        self._app, self._path = app, path.rstrip("/")
        self._served = frozenset(one for one in served if not f"{one}/".startswith(f"{FACE}/"))
        self._first = frozenset(one.split("/")[1] for one in served)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(self._cut(scope) if self._path and scope["type"] == "http" else scope, receive, send)

    def _cut(self, scope: Scope) -> Scope:
        """Remove the path of the base URL. The service's own paths stay, even those that begin like it."""
        asked: str = scope["path"]
        rest = asked.removeprefix(self._path) or "/"
        below = asked.startswith(self._path) and rest.startswith("/") and asked not in self._served
        return {**scope, "path": rest} if below and rest.split("/")[1] in self._first else scope


def caller_of(request: Request) -> Caller:
    """Return the caller of an authenticated request."""
    caller: Caller = request.scope["caller"]
    return caller


async def read_body(request: Request, limit: int) -> bytes:
    """Return the body of a request with a JSON content type.

    Raises FhirError: 400 for another content type or a compressed body, 413 above the limit in bytes, 503 if the
    requests under way leave no memory for it.
    """
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() not in (JSON, FHIR_JSON):
        raise FhirError(INVALID, "send the body as application/json or application/fhir+json")
    if request.headers.get("content-encoding", "").strip().lower() not in ("", "identity"):
        raise FhirError(INVALID, "the body is compressed: send it as it is, without content-encoding")
    raw = await _limited(request, limit)
    of_value = weight(raw) if len(raw) <= LARGE_BODY else await run_in_threadpool(weight, raw)
    _share(request).hold(of_value)
    return raw


async def _limited(request: Request, limit: int) -> bytes:
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced[:20]) > limit:
        raise _too_large(limit)
    began = time.monotonic()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            raw = await _read(request, limit)
    except TimeoutError:
        why = f"the body did not arrive within {BODY_SECONDS:.0f} seconds"
        raise FhirError(INVALID, why, headers={"connection": "close"}) from None
    if "let_in" in request.scope and time.monotonic() - began > PROMPT:
        await request.scope["let_in"](request.scope, request.headers.get("authorization"))
    return raw


def _too_large(limit: int) -> FhirError:
    return FhirError(TOO_LARGE, f"a body may have at most {limit:,} bytes", headers={"connection": "close"})


def _share(request: Request) -> BodyShare:
    share: BodyShare = request.scope["share"]
    return share


async def _read(request: Request, limit: int) -> bytes:
    chunks, size, share = [], 0, _share(request)
    async for chunk in request.stream():
        size += len(chunk)
        if size > limit:
            raise _too_large(limit)
        share.hold(size)
        chunks.append(chunk)
    return b"".join(chunks)


def parse_body(raw: bytes) -> Any:
    """Return the JSON value of a body. Raises the 400 of a body that is not JSON."""
    try:
        return parse_json(raw)
    except Malformed as error:
        raise FhirError(INVALID, str(error)) from None


async def query_pairs(request: Request, limit: int) -> list[tuple[str, str]]:
    """Return the parameters of a search: those in the address, then those in the form of a `_search`."""
    found = address_pairs(request)
    if request.method == "POST":
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind not in ("application/x-www-form-urlencoded", ""):
            raise FhirError(INVALID, "send the form as application/x-www-form-urlencoded")
        found += parse_query((await _limited(request, limit)).decode("latin-1"))
    return found


def address_pairs(request: Request) -> list[tuple[str, str]]:
    """Return the parameters in the address of a request."""
    return parse_query(request.scope["query_string"].decode("latin-1"))


def parse_query(text: str) -> list[tuple[str, str]]:
    """Return the parameters of a query. Raises the 400 of a query that is not ASCII, or not percent-encoded UTF-8."""
    try:
        text.encode("ascii")
        return parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=200)
    except ValueError:
        raise FhirError(INVALID, "the query is not percent-encoded UTF-8, or has more than 200 parameters") from None


def media_type(request: Request) -> str:
    """Return the content type of the answer.

    The interface answers with `application/json` unless `Accept` names FHIR's type, the R4 face the other way round.
    """
    accept = ",".join(request.headers.getlist("accept")).lower()
    if FHIR_JSON in accept and any(map(_wants_fhir, accept.split(","))):
        return FHIR_JSON
    at_face = f"{request.scope['path']}/".startswith(f"{FACE}/")
    return FHIR_JSON if at_face and JSON not in accept else JSON


def _wants_fhir(asked: str) -> bool:
    """True if a part of `Accept` names FHIR's type, and not with `q=0`."""
    kind, *parameters = (part.strip() for part in asked.split(";"))
    return kind == FHIR_JSON and not any(_NOT_WANTED.fullmatch(parameter) for parameter in parameters)


def json_response(request: Request, body: bytes, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(body, status, headers, media_type=media_type(request))


def null_body(status: int, headers: dict[str, str] | None = None) -> Response:
    """Return the answer to a create or an update: `null`, always as application/json (decision H3)."""
    return Response(b"null", status, headers, media_type=JSON)


def is_lenient(request: Request) -> bool:
    """True if a request prefers that unknown parameters are ignored."""
    return "handling=lenient" in preferences(request)


def preferences(request: Request) -> list[str]:
    """Return the values of a request's `Prefer` header, in lower case."""
    stated = request.headers.get("prefer", "").lower().replace(";", ",")
    return [each.strip() for each in stated.split(",")]
