"""The middleware around every request: correlation id, authentication, rate, errors, audit, metrics and log."""

import asyncio
import logging
import math
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fhir_service.audit.records import audit_unwritable
from fhir_service.body_memory import BodyShare
from fhir_service.interface.json_text import dump_json
from fhir_service.interface.outcomes import EXCEPTION, THROTTLED, FhirError, outcome_of
from fhir_service.service import Service
from fhir_service.web import admission, traces
from fhir_service.web.http import caller_of, json_response

TOKEN_PATHS = ("/auth/token", "/auth/token/")
ACCESS = "fhir_service.access"
"""The logger of requests: a line of JSON for each."""
PUBLIC = (*TOKEN_PATHS, "/.well-known/smart-configuration", "/metadata", "/health", "/chart")
DOOR = "/_door/"
FEW_TOUCHES = 50
"""So many acts of a request are audited without a thread: they take less than a millisecond."""
_SIGNED = re.compile(r"/DiagnosticReport/[^/]+/files/presentedForm/[^/]+\Z")
_CORRELATION = re.compile(r"[A-Za-z0-9._\-]{1,128}\Z", re.ASCII)
_METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))

log = logging.getLogger(__name__)
access = logging.getLogger(ACCESS)


@dataclass(slots=True)
class _Answer:
    """The facts of an answer for the log and the audit."""

    correlation: str
    began: float
    span: Any = None
    status: int = 0


class Middleware:
    """The middleware around the routes. open_paths: prefixes of paths that authenticate their requests themselves."""

    def __init__(self, app: ASGIApp, service: Service, open_paths: tuple[str, ...]) -> None:
        self._app, self._service, self._open_paths = app, service, open_paths
        self._rates = Rates(service.settings.requests_per_second, time.monotonic)
        self._let_in = partial(admission.let_in, service)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope["audit"] = self._service.audit
        scope["share"] = share = BodyShare(self._service.in_hand)
        request = Request(scope)
        span = traces.begin_span(request.headers.get("traceparent"))
        answer = _Answer(self._correlation(request), time.perf_counter(), span)

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                admission.require_confirmed(scope)
                answer.status = message["status"]
                if len(scope.get("touched", ())) > FEW_TOUCHES:
                    await run_in_threadpool(self._audit, scope, answer)
                else:
                    self._audit(scope, answer)
                share.release()
                message["headers"].append((b"x-correlation-id", answer.correlation.encode()))
            await send(message)

        try:
            await self._answered(request, answer, receive, sending)
        finally:
            share.release()
            # Acts are left if no answer began, as for a cancelled request: they may be stored all the same.
            self._record(scope, answer)
            self._note(scope, answer)

    async def _answered(self, request: Request, answer: _Answer, receive: Receive, send: Send) -> None:
        """Let the routes answer. Turn every exception into an OperationOutcome."""
        try:
            await self._admit(request)
            await self._app(request.scope, receive, send)
        except FhirError as error:
            # Drop traceback and context: they refer to the body and to the error itself, a cycle that would keep the
            # body in memory until garbage collection.
            refused = await admission.or_unauthenticated(self._service, request.scope, error)
            refused.__context__ = None
            await _refusal(request, refused.with_traceback(None))(request.scope, receive, send)
        except ClientDisconnect:
            answer.status = 499
        except asyncio.CancelledError:
            # uvicorn answers 500 if no answer began.
            answer.status = answer.status or EXCEPTION.status
            raise
        except Exception as error:  # noqa: BLE001 - a fault of ours is answered, never shown
            # Log the class only: exception texts may hold values of a body.
            log.error("a request failed with %s, correlation id %s", type(error).__name__, answer.correlation)  # noqa: TRY400
            admission.confirm(request.scope)
            if not answer.status:
                refused = FhirError(EXCEPTION, f"correlation id {answer.correlation}")
                await _refusal(request, refused)(request.scope, receive, send)

    def _correlation(self, request: Request) -> str:
        sent = request.headers.get("x-correlation-id", "")
        return sent if _CORRELATION.match(sent) else self._service.new_id()

    async def _admit(self, request: Request) -> None:
        """Authenticate the caller, then apply its rate. Public, signed and open paths need neither."""
        path = request.scope["path"]
        if path in PUBLIC or path.startswith(self._open_paths):
            return
        authorization = request.headers.get("authorization")
        if authorization is None and _SIGNED.match(path) and b"signature=" in request.scope["query_string"]:
            return
        await self._let_in(request.scope, authorization)
        # A late body has its token looked up again.
        request.scope["let_in"] = self._let_in
        wait = self._rates.take(caller_of(request).client)
        if wait:
            raise FhirError(THROTTLED, headers={"retry-after": str(wait)})

    def _audit(self, scope: Scope, answer: _Answer) -> None:
        """Audit the acts of an answer. Raises the 503 of data that cannot be shown without a record."""
        if not self._record(scope, answer):
            raise audit_unwritable()

    def _record(self, scope: Scope, answer: _Answer) -> bool:
        """Audit the acts that were not audited yet. Return False if that failed for a request that only reads."""
        touched = scope.pop("touched", None)
        if not touched:
            return True
        clock = self._service.clock
        return self._service.audit.write(touched, clock, _client(scope), answer.status, answer.correlation)

    def _note(self, scope: Scope, answer: _Answer) -> None:
        """Count and log a request by the template of its path, without query and body."""
        method = scope["method"] if scope["method"] in _METHODS else "OTHER"
        template = scope.get("template", "unknown")
        seconds = time.perf_counter() - answer.began
        self._service.metrics.answered(method, template, answer.status, seconds)
        traces.end_span(answer.span, method, template, answer.status)
        if access.isEnabledFor(logging.INFO):
            record: dict[str, Any] = {
                "time": self._service.clock().isoformat(timespec="milliseconds"),
                "method": method,
                "path": template,
                "status": answer.status,
                "ms": round(seconds * 1000, 1),
                "client": _client(scope),
                "correlation": answer.correlation,
            }
            access.info(dump_json(record).decode())


def _client(scope: Scope) -> str | None:
    caller = scope.get("caller")
    return caller.client if caller else None


def _refusal(request: Request, error: FhirError) -> Response:
    return json_response(request, dump_json(outcome_of(error)), error.outcome.status, error.headers)


class Rates:
    """The token bucket of each client. Every request passes if no rate is set."""

    def __init__(self, per_second: float | None, clock: Callable[[], float]) -> None:
        self._rate, self._clock = per_second, clock
        self._buckets: dict[str, tuple[float, float]] = {}

    def take(self, client: str) -> int:
        """Return 0 if a request of the client passes, else the whole seconds to wait."""
        if self._rate is None:
            return 0
        now, most = self._clock(), max(self._rate, 1.0)
        tokens, then = self._buckets.get(client, (most, now))
        tokens = min(most, tokens + (now - then) * self._rate)
        passes = tokens >= 1
        self._buckets[client] = (tokens - 1 if passes else tokens, now)
        return 0 if passes else max(1, math.ceil((1 - tokens) / self._rate))
