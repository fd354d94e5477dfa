"""The R4 face over HTTP: the interactions of the interface, answered as R4 clients expect."""

from functools import partial
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from fhir_service.face.answers import body_of, face_answer, is_known
from fhir_service.face.form_parameters import OF_READS, OF_WRITES, form_alone, form_and_rest
from fhir_service.face.rendering import history_bundle
from fhir_service.face.searching import of_history, page_of
from fhir_service.interactions.validate import outcome
from fhir_service.interface.json_text import dump_json
from fhir_service.interface.vocabulary import Resource
from fhir_service.requests import acts, finding, showing
from fhir_service.service import Service
from fhir_service.web.http import Handler, address_pairs, caller_of, is_lenient


def read(service: Service, resource: Resource) -> Handler:
    async def handle(request: Request) -> Response:
        found = await showing.read(service, resource, request)
        form = form_alone(address_pairs(request), OF_READS, is_lenient(request))
        headers = showing.validators(found)
        if is_known(request, found):
            return Response(None, 304, headers)
        return face_answer(request, form, await body_of(service, found, form), headers=headers)

    return handle


def find(service: Service, resource: Resource) -> Handler:
    async def handle(request: Request) -> Response:
        look = partial(page_of, service, caller_of(request), resource)
        page = await finding.search_page(service, resource, request, look)
        return face_answer(request, page.form, page.body)

    return handle


def check(service: Service, resource: Resource) -> Handler:
    async def handle(request: Request) -> Response:
        problems = await acts.validate_resource(service, resource, request, _resource_within)
        form = form_alone(address_pairs(request), OF_WRITES, is_lenient(request))
        return face_answer(request, form, dump_json(outcome(problems), form.pretty))

    return handle


def _resource_within(body: Any) -> Any:
    """Return the resource of an operation, also from within Parameters: R4 allows both."""
    if not isinstance(body, dict) or body.get("resourceType") != "Parameters":
        return body
    given = body.get("parameter")
    parts = given if isinstance(given, list) else []
    named = [part for part in parts if isinstance(part, dict) and part.get("name") == "resource"]
    return named[0].get("resource", body) if len(named) == 1 else body


def history(service: Service, resource: Resource, letter: str) -> Handler:
    async def handle(request: Request) -> Response:
        found = await finding.versions(service, resource, request, letter, of_history)
        form, _ = form_and_rest(address_pairs(request), OF_READS)
        bundle = await run_in_threadpool(history_bundle, resource.name, found, form, service.site)
        return face_answer(request, form, showing.rendered(service, dump_json(bundle, form.pretty)))

    return handle
