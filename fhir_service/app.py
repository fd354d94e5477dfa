"""The application: resources times interactions as routes. What stands around every request is in `middleware.py`.

Checks run in one order: authentication, permission, path and method, shape of the body, existence, preconditions,
rules.
"""

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from fhir_service import acts, batches
from fhir_service.audit import touch
from fhir_service.bundle import history_bundle, searchset
from fhir_service.capability import capability_statement, offered, smart_configuration
from fhir_service.chart import routes as chart
from fhir_service.face import handlers as face
from fhir_service.health import Health
from fhir_service.http import FACE, BelowPath, Handler, Paths, Right, caller_of, json_response, null_body, route
from fhir_service.interactions import validate
from fhir_service.interface.datatypes import dump_json
from fhir_service.interface.outcomes import NOT_FOUND, FhirError
from fhir_service.interface.registry import RESOURCES
from fhir_service.interface.vocabulary import Resource
from fhir_service.middleware import DOOR, TOKEN_PATHS, Surroundings
from fhir_service.service import VERSION, Service
from fhir_service.token_address import token_response


class Handlers(NamedTuple):
    """The makers of the handlers of a resource's interactions, which answer in one form."""

    create: Callable[[Service, Resource], Handler]
    read: Callable[[Service, Resource], Handler]
    update: Callable[[Service, Resource], Handler]
    search: Callable[[Service, Resource], Handler]
    validate: Callable[[Service, Resource], Handler]
    history: Callable[[Service, Resource, str], Handler]


def create_app(service: Service, further: Sequence[BaseRoute] = ()) -> ASGIApp:
    """The ASGI application of a service. `further` routes (the door) stand beside the interface."""
    routes: list[BaseRoute] = [*_public(service), *_documents(service), *chart.routes(service), *further]
    plain = Handlers(_create, _read, _update, _search, _validate, _history)
    open_paths = [f"{chart.CHART}/", *([DOOR] if further else [])]
    for resource in offered(service.settings):
        routes += _resource_routes(service, resource, plain)
    if not service.settings.interface_only:
        routes += [route("/", POST=_batch(service)), route("/metrics", GET=_metrics(service)), *_face(service)]
        open_paths += face.OPEN
    app = Surroundings(Paths(routes, _UnknownPath()), service, tuple(open_paths))
    served = [one.path for one in routes if isinstance(one, Route)]
    return BelowPath(app, unquote(urlsplit(service.site.base_url).path), served)


def _face(service: Service) -> list[BaseRoute]:
    """The paths of the R4 face: those of the interface, with answers of its own."""
    handlers = Handlers(face.create, face.read, face.update, face.find, face.check, face.history)
    return [
        *face.about(service),
        *(one for resource in RESOURCES.values() for one in _resource_routes(service, resource, handlers, FACE)),
    ]


def _resource_routes(service: Service, resource: Resource, handlers: Handlers, below: str = "") -> list[BaseRoute]:
    """The paths of one resource; a method that a path does not offer is 405."""
    path = f"{below}/{resource.name}"
    offered = {name: getattr(handlers, name)(service, resource) for name in resource.interactions}
    searching, reading = Right(resource.name, "s"), Right(resource.name, "r")
    always: list[BaseRoute] = [
        route(path, searching, GET=offered.get("search"), POST=offered.get("create")),
        route(f"{path}/_search", searching, POST=offered.get("search")),
        route(f"{path}/{{id}}", reading, GET=offered.get("read"), PUT=offered.get("update")),
    ]
    if "create" not in resource.interactions:
        return always
    if service.settings.interface_only:
        return [Route(f"{path}/$validate", _UnknownPath()), *always]
    return [
        route(f"{path}/$validate", reading, POST=handlers.validate(service, resource)),
        route(f"{path}/_history", searching, GET=handlers.history(service, resource, "s")),
        route(f"{path}/{{id}}/_history", reading, GET=handlers.history(service, resource, "r")),
        *always,
    ]


class _UnknownPath:
    """The ASGI endpoint of what is no path of the service."""

    async def __call__(self, _scope: Scope, _receive: Receive, _send: Send) -> None:
        raise FhirError(NOT_FOUND)


# --- Interactions over HTTP -----------------------------------------------------------------------


def _create(service: Service, resource: Resource) -> Handler:
    conditions = _no_condition if service.settings.interface_only else acts.if_none_exist

    async def handle(request: Request) -> Response:
        made = await acts.created(service, resource, request, conditions)
        headers = {"location": service.site.url(resource.name, made.id)}
        return null_body(200 if made.existed else 201, headers)

    return handle


def _no_condition(_: Request) -> Sequence[str]:
    return ()


def _update(service: Service, resource: Resource) -> Handler:
    async def handle(request: Request) -> Response:
        await acts.updated(service, resource, request, acts.if_match)
        return null_body(200)

    return handle


def _read(service: Service, resource: Resource) -> Handler:
    async def handle(request: Request) -> Response:
        found = await acts.read(service, resource, request)
        return json_response(request, acts.rendered(service, found.body), headers=acts.validators(found))

    return handle


def _search(service: Service, resource: Resource) -> Handler:
    async def handle(request: Request) -> Response:
        at_hand = partial(acts.page_at_hand, service, resource)
        page = await acts.searched(service, resource, request, partial(acts.page_of, service, resource), at_hand)
        return json_response(request, await acts.joined(service, page.found, searchset, page))

    return handle


def _validate(service: Service, resource: Resource) -> Handler:
    async def handle(request: Request) -> Response:
        problems = await acts.validated(service, resource, request)
        return json_response(request, dump_json(validate.outcome(problems)))

    return handle


def _history(service: Service, resource: Resource, letter: str) -> Handler:
    async def handle(request: Request) -> Response:
        found = await acts.versions(service, resource, request, letter, lambda pairs: pairs)
        shown = await acts.joined(service, found.versions, history_bundle, resource.name, found)
        return json_response(request, shown)

    return handle


def _batch(service: Service) -> Handler:
    async def handle(request: Request) -> Response:
        return json_response(request, await batches.answered(service, request, batches.PLAIN))

    return handle


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
