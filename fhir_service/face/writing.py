"""Creates and updates at the R4 face, answered with what is stored."""

from collections.abc import Sequence
from functools import partial
from typing import Any
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response

from fhir_service.face.answers import body_of, face_answer, tag_of
from fhir_service.face.elements import is_part
from fhir_service.face.form_parameters import OF_WRITES, form_alone, form_and_rest
from fhir_service.face.rendering import at_face
from fhir_service.interface.json_text import dump_json
from fhir_service.interface.outcomes import BUSINESS_RULE, FhirError, issue, operation_outcome
from fhir_service.interface.vocabulary import Resource
from fhir_service.requests import acts, showing
from fhir_service.service import Service
from fhir_service.web.http import Handler, address_pairs, caller_of, is_lenient, preferences


def create(service: Service, resource: Resource) -> Handler:
    async def handle(request: Request) -> Response:
        made = await acts.create_resource(service, resource, request, partial(_conditions, service, resource))
        location = at_face(service.site).url(resource.name, made.id)
        status = 200 if made.existed else 201
        return await _stored(service, resource, request, made.id, Response(None, status, {"location": location}))

    return handle


def _conditions(service: Service, resource: Resource, request: Request) -> Sequence[str]:
    """Return the conditions of a create: of its headers, which may name the type, and those that fhirpy puts elsewhere.

    Raises:
        FhirError: a parameter is not known. Passed over, each repeat of a create would make one more.
    """
    _, others = form_and_rest(address_pairs(request), OF_WRITES)
    found = [
        text.removeprefix(f"{at_face(service.site).base_url}/").removeprefix(f"{resource.name}?")
        for text in acts.if_none_exist(request)
    ]
    # fhirpy's `get_or_create` sends the condition as the query.
    found += [urlencode([(name, value)]) for name, value in others if name == "identifier"]
    form_alone([pair for pair in others if pair[0] != "identifier"], (), is_lenient(request))
    return found


def update(service: Service, resource: Resource) -> Handler:
    async def handle(request: Request) -> Response:
        await acts.update_resource(service, resource, request, _match)
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
    form_alone(address_pairs(request), OF_WRITES, is_lenient(request))
    if is_part(body):
        why = "the body was read with _summary or _elements, and an update would delete the rest: read it whole"
        raise FhirError(BUSINESS_RULE, why, "meta.tag")
    text = acts.if_match(request)
    return None if text is None else ",".join(map(tag_of, text.split(",")))


async def _stored(
    service: Service, resource: Resource, request: Request, resource_id: str, answer: Response
) -> Response:
    """Return the answer to a write, completed by what is stored, as the request prefers it."""
    form, _ = form_and_rest(address_pairs(request), OF_WRITES)
    try:
        found = await showing.current(service, resource, resource_id)
    except FhirError:
        # An error would mean that nothing is stored.
        return answer
    headers = dict(answer.headers) | showing.validators(found)
    headers.pop("content-length", None)
    wanted = next((one for one in preferences(request) if one.startswith("return=")), "return=representation")
    if wanted == "return=operationoutcome":
        done = operation_outcome(issue("informational", "The resource is stored", severity="information"))
        return face_answer(request, form, dump_json(done, form.pretty), answer.status_code, headers)
    if wanted == "return=minimal" or not caller_of(request).may(resource.name, "r"):
        return Response(None, answer.status_code, headers)
    return face_answer(request, form, await body_of(service, found, form), answer.status_code, headers)
