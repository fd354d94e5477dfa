"""Carry out the interaction of a request: check its rights, note it for the audit, read its body, and act.

The result is a value. The routes of the interface (`app.py`) and of the R4 face (`face/`) show it in their own forms.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from fhir_service.audit.records import touch
from fhir_service.interactions import create, plain, update, validate
from fhir_service.interactions.create import CreateResult
from fhir_service.interactions.if_none_exist import condition_of
from fhir_service.interface.checking import parse
from fhir_service.interface.vocabulary import Problem, Resource
from fhir_service.requests.submitting import write_one
from fhir_service.service import Service
from fhir_service.web.admission import confirm, unconfirmed
from fhir_service.web.http import LARGE_BODY, caller_of, parse_body, read_body

T = TypeVar("T")


async def create_resource(
    service: Service, resource: Resource, request: Request, conditions: Callable[[Request], Sequence[str]]
) -> CreateResult:
    """Create the resource in a request's body. conditions: returns the values of its `If-None-Exist`."""
    caller = caller_of(request)
    touched = touch(request, "create", resource.name)
    caller.require(resource.name, "c")
    raw = await read_body(request, service.settings.max_body)
    condition = condition_of(conditions(request))
    model = await _aside(raw, _model, service, resource, raw)
    entry = create.Create(resource, model, caller.client, service.site, len(raw), condition)
    entry.token = unconfirmed(request.scope)
    try:
        made: CreateResult = await write_one(service, entry)
    finally:
        touched.patients = entry.patients
    confirm(request.scope)
    touched.id = made.id
    return made


def _model(service: Service, resource: Resource, raw: bytes) -> Any:
    """Return the model of a body to create. Raises the 400 of a bad body."""
    additions = not service.settings.interface_only
    model = plain.create(resource, raw, service.site) if additions else None
    return parse(resource, parse_body(raw), service.site, additions) if model is None else model


async def _aside(raw: bytes, work: Callable[..., T], *arguments: Any) -> T:
    """Work on a body, in a thread if the body is large: the event loop goes on with other requests."""
    return await run_in_threadpool(work, *arguments) if len(raw) > LARGE_BODY else work(*arguments)


async def update_resource(
    service: Service, resource: Resource, request: Request, match: Callable[[Request, Any], str | None]
) -> None:
    """Update the resource in a request's path. match: returns the `If-Match` of a request with a body."""
    caller = caller_of(request)
    resource_id = request.path_params["id"]
    touched = touch(request, "update", resource.name, resource_id)
    caller.require(resource.name, "u")
    raw = await read_body(request, service.settings.max_body)
    body = await _aside(raw, parse_body, raw)
    additions = not service.settings.interface_only
    model = await _aside(raw, update.PARSERS[resource.name], resource, body, resource_id, service.site, additions)
    since = update.http_date(request.headers.get("if-unmodified-since"))
    conditions = update.Preconditions(since, match(request, body), _tags(request, "if-none-match"))
    entry = update.Update(resource, resource_id, model, caller.client, service.site, len(raw), conditions)
    touched.patients = await write_one(service, entry)


def if_none_exist(request: Request) -> Sequence[str]:
    """Return the values of a request's `If-None-Exist` headers."""
    return request.headers.getlist("if-none-exist")


def if_match(request: Request, _: Any = None) -> str | None:
    """Return the values of a request's `If-Match` headers, joined; None if it has none."""
    return _tags(request, "if-match")


def _tags(request: Request, name: str) -> str | None:
    found = request.headers.getlist(name)
    return ",".join(found) if found else None


async def validate_resource(
    service: Service, resource: Resource, request: Request, within: Callable[[Any], Any] = lambda body: body
) -> list[Problem]:
    """Return all problems that a create of a request's body would have. within: returns the resource in the body.

    A problem may say something of a patient, such as a balance that is exceeded. It is therefore audited like a read.
    """
    touched = touch(request, "validate", resource.name)
    caller_of(request).require(resource.name, "c")
    raw = await read_body(request, service.settings.max_body)
    body = await _aside(raw, parse_body, raw)
    entry = validate.Validate(resource, within(body), service.site, len(raw))
    problems: list[Problem] = await write_one(service, entry)
    touched.patients = entry.patients
    return problems
