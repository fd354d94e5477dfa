"""The R4 face over HTTP: the interactions of the interface, answered as R4 clients expect."""

from collections.abc import Sequence
from functools import partial
from typing import Any
from urllib.parse import urlencode

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from fhir_service import acts, batches
from fhir_service.capability import smart_configuration
from fhir_service.face.asked import OF_READS, OF_WRITES, Asked, alone, asked
from fhir_service.face.batches import rendering
from fhir_service.face.elements import is_part
from fhir_service.face.rendering import at_face, history_bundle, resource_of
from fhir_service.face.searching import bare, page_of
from fhir_service.face.statement import face_statement
from fhir_service.http import FACE, JSON, Handler, address_pairs, caller_of, media_type, route
from fhir_service.interactions import search, validate
from fhir_service.interactions.update import etag
from fhir_service.interface.datatypes import dump_json
from fhir_service.interface.outcomes import BUSINESS_RULE, FhirError, issue, operation_outcome
from fhir_service.interface.vocabulary import Resource
from fhir_service.service import VERSION, Service
from fhir_service.store.bodies import Found

OPEN = (f"{FACE}/metadata", f"{FACE}/.well-known/smart-configuration")
"""The paths that need no token."""


def create(service: Service, resource: Resource) -> Handler:
    async def handle(request: Request) -> Response:
        made = await acts.created(service, resource, request, partial(_conditions, service, resource))
        location = at_face(service.site).url(resource.name, made.id)
        status = 200 if made.existed else 201
        return await _stored(service, resource, request, made.id, Response(None, status, {"location": location}))

    return handle


def _conditions(service: Service, resource: Resource, request: Request) -> Sequence[str]:
    """Return the conditions of a create: of its headers, which may name the type, and those that fhirpy puts elsewhere.

    Raises:
        FhirError: a parameter is not known. Passed over, each repeat of a create would make one more.
    """
    _, others = asked(address_pairs(request), OF_WRITES)
    found = [
        text.removeprefix(f"{at_face(service.site).base_url}/").removeprefix(f"{resource.name}?")
        for text in acts.if_none_exist(request)
    ]
    # fhirpy's `get_or_create` sends the condition as the query.
    found += [urlencode([(name, value)]) for name, value in others if name == "identifier"]
    alone([pair for pair in others if pair[0] != "identifier"], (), acts.is_lenient(request))
    return found


def update(service: Service, resource: Resource) -> Handler:
    async def handle(request: Request) -> Response:
        await acts.updated(service, resource, request, _match)
        resource_id = request.path_params["id"]
        # The HAPI client knows from this header only what it has updated.
        headers = {"content-location": at_face(service.site).url(resource.name, resource_id)}
        return await _stored(service, resource, request, resource_id, Response(None, 200, headers))

    return handle


def _match(request: Request, body: Any) -> str | None:
    """Return the text of `If-Match`, its tags as the interface writes them: some clients send them as strong ones.

    Raises:
        FhirError: a parameter is not known, or the body was read in part, so that an update would delete the rest.
    """
    alone(address_pairs(request), OF_WRITES, acts.is_lenient(request))
    if is_part(body):
        why = "this was read with _summary or _elements: read it whole, and change that"
        raise FhirError(BUSINESS_RULE, why, "meta.tag")
    text = acts.if_match(request)
    return None if text is None else ",".join(map(_tag, text.split(",")))


def _tag(text: str) -> str:
    version = text.strip().removeprefix("W/").strip('"')
    return version if version == "*" else f'W/"{version}"'


async def _stored(
    service: Service, resource: Resource, request: Request, resource_id: str, answer: Response
) -> Response:
    """Return the answer to a write, completed by what is stored, as the request prefers it."""
    form, _ = asked(address_pairs(request), OF_WRITES)
    try:
        found = await acts.current(service, resource, resource_id)
    except FhirError:
        # An error would say that nothing is stored.
        return answer
    headers = dict(answer.headers) | acts.validators(found)
    headers.pop("content-length", None)
    wanted = next((one for one in acts.preferences(request) if one.startswith("return=")), "return=representation")
    if wanted == "return=operationoutcome":
        done = operation_outcome(issue("informational", "The resource is stored", severity="information"))
        return _shown(request, form, dump_json(done, form.pretty), answer.status_code, headers)
    if wanted == "return=minimal" or not caller_of(request).may(resource.name, "r"):
        return Response(None, answer.status_code, headers)
    return _shown(request, form, await _body(service, found, form), answer.status_code, headers)


def read(service: Service, resource: Resource) -> Handler:
    async def handle(request: Request) -> Response:
        found = await acts.read(service, resource, request)
        form = alone(address_pairs(request), OF_READS, acts.is_lenient(request))
        headers = acts.validators(found)
        if etag(found.version) in map(_tag, request.headers.get("if-none-match", "").split(",")):
            return Response(None, 304, headers)
        return _shown(request, form, await _body(service, found, form), headers=headers)

    return handle


async def _body(service: Service, found: Found, form: Asked) -> bytes:
    """Return a resource as it goes out."""

    def made() -> bytes:
        return acts.rendered(service, dump_json(resource_of(found, form), form.pretty))

    # Facts about elements are slow to import, once.
    slow = form.is_part or len(found.body) > acts.LARGE_BODY
    return await run_in_threadpool(made) if slow else made()


def find(service: Service, resource: Resource) -> Handler:
    async def handle(request: Request) -> Response:
        look = partial(page_of, service, caller_of(request), resource)
        page = await acts.searched(service, resource, request, look)
        return _shown(request, page.form, page.body)

    return handle


def check(service: Service, resource: Resource) -> Handler:
    async def handle(request: Request) -> Response:
        problems = await acts.validated(service, resource, request, _resource_within)
        form = alone(address_pairs(request), OF_WRITES, acts.is_lenient(request))
        return _shown(request, form, dump_json(validate.outcome(problems), form.pretty))

    return handle


def _resource_within(body: Any) -> Any:
    """Return the resource of the Parameters of an operation, where it comes so: R4 takes either."""
    if not isinstance(body, dict) or body.get("resourceType") != "Parameters":
        return body
    given = body.get("parameter")
    parts = given if isinstance(given, list) else []
    named = [part for part in parts if isinstance(part, dict) and part.get("name") == "resource"]
    return named[0].get("resource", body) if len(named) == 1 else body


def history(service: Service, resource: Resource, letter: str) -> Handler:
    def own(pairs: search.Pairs) -> search.Pairs:
        form, others = asked(pairs, OF_READS)
        return bare(others, form)

    async def handle(request: Request) -> Response:
        found = await acts.versions(service, resource, request, letter, own)
        form, _ = asked(address_pairs(request), OF_READS)
        bundle = await run_in_threadpool(history_bundle, resource.name, found, form, service.site)
        return _shown(request, form, acts.rendered(service, dump_json(bundle, form.pretty)))

    return handle


def batch(service: Service) -> Handler:
    async def handle(request: Request) -> Response:
        form = alone(address_pairs(request), OF_WRITES, acts.is_lenient(request))
        shows = "return=minimal" not in acts.preferences(request)
        body = await batches.answered(service, request, rendering(caller_of(request), form, shows))
        return _shown(request, form, body)

    return handle


def about(service: Service) -> list[Route]:
    """Return the paths beside the resources: a batch, and what the face says of itself."""

    async def metadata(request: Request) -> Response:
        form, _ = asked(address_pairs(request), OF_READS)
        statement = face_statement(service.settings, service.store.id, VERSION)
        return _shown(request, form, dump_json(statement, form.pretty))

    async def discovery(_: Request) -> Response:
        return Response(dump_json(smart_configuration(service.settings)), media_type=JSON)

    handlers = dict(zip(OPEN, (metadata, discovery), strict=True))
    return [
        *(route(path, POST=batch(service)) for path in (FACE, f"{FACE}/")),
        *(route(path, GET=handler) for path, handler in handlers.items()),
    ]


def _shown(
    request: Request, form: Asked, body: bytes, status: int = 200, headers: dict[str, str] | None = None
) -> Response:
    return Response(body, status, headers, media_type=form.media or media_type(request))
