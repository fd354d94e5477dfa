"""The handlers of the interface's interactions, which answer in its own form."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from fhir_service.batches import answering
from fhir_service.interactions.validate import outcome
from fhir_service.interface.json_text import dump_json
from fhir_service.interface.vocabulary import Resource
from fhir_service.requests import acts, finding, showing
from fhir_service.requests.bundle import history_bundle, searchset
from fhir_service.service import Service
from fhir_service.web.admission import confirm, unconfirmed
from fhir_service.web.http import Handler, json_response, null_body


class Handlers(NamedTuple):
    """Functions that make the handlers of a resource's interactions. All answer in one form."""

    create: Callable[[Service, Resource], Handler]
    read: Callable[[Service, Resource], Handler]
    update: Callable[[Service, Resource], Handler]
    search: Callable[[Service, Resource], Handler]
    validate: Callable[[Service, Resource], Handler]
    history: Callable[[Service, Resource, str], Handler]


def create(service: Service, resource: Resource) -> Handler:
    conditions = _no_condition if service.settings.interface_only else acts.if_none_exist

    async def handle(request: Request) -> Response:
        made = await acts.create_resource(service, resource, request, conditions)
        headers = {"location": service.site.url(resource.name, made.id)}
        return null_body(200 if made.existed else 201, headers)

    return handle


def _no_condition(_: Request) -> Sequence[str]:
    return ()


def update(service: Service, resource: Resource) -> Handler:
    async def handle(request: Request) -> Response:
        await acts.update_resource(service, resource, request, acts.if_match)
        return null_body(200)

    return handle


def read(service: Service, resource: Resource) -> Handler:
    async def handle(request: Request) -> Response:
        found = await showing.read(service, resource, request)
        return json_response(request, showing.rendered(service, found.body), headers=showing.validators(found))

    return handle


def search(service: Service, resource: Resource) -> Handler:
    async def handle(request: Request) -> Response:
        at_hand = partial(finding.page_at_hand, service, resource)
        read = partial(finding.page_of, service, resource, token=unconfirmed(request.scope))
        page = await finding.search_page(service, resource, request, read, at_hand)
        confirm(request.scope)
        return json_response(request, await showing.joined(service, page.found, searchset, page))

    return handle


def validate(service: Service, resource: Resource) -> Handler:
    async def handle(request: Request) -> Response:
        problems = await acts.validate_resource(service, resource, request)
        return json_response(request, dump_json(outcome(problems)))

    return handle


def history(service: Service, resource: Resource, letter: str) -> Handler:
    async def handle(request: Request) -> Response:
        found = await finding.versions(service, resource, request, letter, lambda pairs: pairs)
        shown = await showing.joined(service, found.found, history_bundle, resource.name, found)
        return json_response(request, shown)

    return handle


def batch(service: Service) -> Handler:
    async def handle(request: Request) -> Response:
        return json_response(request, await answering.answer_bundle(service, request, answering.PLAIN))

    return handle


PLAIN = Handlers(create, read, update, search, validate, history)
