"""The application: a route for each interaction of each resource. `middleware.py` surrounds every request.

Checks run in one order: authentication, permission, path and method, shape of the body, existence, preconditions,
rules.
"""

from collections.abc import Sequence
from urllib.parse import unquote, urlsplit

from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp

from fhir_service import plain
from fhir_service.chart import routes as chart
from fhir_service.face import handlers as face
from fhir_service.face import writing
from fhir_service.face.about import OPEN, about
from fhir_service.interface.registry import RESOURCES
from fhir_service.interface.vocabulary import Resource
from fhir_service.service import Service
from fhir_service.web import other_paths
from fhir_service.web.capability import offered
from fhir_service.web.http import FACE, BelowPath, Paths, RequiredRight, UnknownPath, route
from fhir_service.web.middleware import DOOR, Middleware


def create_app(service: Service, further: Sequence[BaseRoute] = ()) -> ASGIApp:
    """Return the ASGI application of a service. further: routes beside the interface, such as the door."""
    routes: list[BaseRoute] = [*other_paths.public(service), *other_paths.documents(service)]
    routes += [*chart.routes(service), *further]
    open_paths = [f"{chart.CHART}/", *([DOOR] if further else [])]
    for resource in offered(service.settings):
        routes += _resource_routes(service, resource, plain.PLAIN)
    if not service.settings.interface_only:
        routes += [
            route("/", POST=plain.batch(service)),
            route("/metrics", GET=other_paths.metrics(service)),
            *_face(service),
        ]
        open_paths += OPEN
    app = Middleware(Paths(routes, UnknownPath()), service, tuple(open_paths))
    served = [one.path for one in routes if isinstance(one, Route)]
    return BelowPath(app, unquote(urlsplit(service.site.base_url).path), served)


def _face(service: Service) -> list[BaseRoute]:
    """The paths of the R4 face: those of the interface, with answers of its own."""
    shown = plain.Handlers(writing.create, face.read, writing.update, face.find, face.check, face.history)
    return [
        *about(service),
        *(one for resource in RESOURCES.values() for one in _resource_routes(service, resource, shown, FACE)),
    ]


def _resource_routes(
    service: Service, resource: Resource, handlers: plain.Handlers, below: str = ""
) -> list[BaseRoute]:
    """The paths of one resource; a method that a path does not offer is 405."""
    path = f"{below}/{resource.name}"
    offered = {name: getattr(handlers, name)(service, resource) for name in resource.interactions}
    searching, reading = RequiredRight(resource.name, "s"), RequiredRight(resource.name, "r")
    always: list[BaseRoute] = [
        route(path, searching, GET=offered.get("search"), POST=offered.get("create")),
        route(f"{path}/_search", searching, POST=offered.get("search")),
        route(f"{path}/{{id}}", reading, GET=offered.get("read"), PUT=offered.get("update")),
    ]
    if "create" not in resource.interactions:
        return always
    if service.settings.interface_only:
        return [Route(f"{path}/$validate", UnknownPath()), *always]
    return [
        route(f"{path}/$validate", reading, POST=handlers.validate(service, resource)),
        route(f"{path}/_history", searching, GET=handlers.history(service, resource, "s")),
        route(f"{path}/{{id}}/_history", reading, GET=handlers.history(service, resource, "r")),
        *always,
    ]
