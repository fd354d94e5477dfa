"""The paths of the R4 face beside the resources: batches, and the statement of the face."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from fhir_service.batches.answering import answer_bundle
from fhir_service.face.answers import face_answer
from fhir_service.face.batches import rendering
from fhir_service.face.form_parameters import OF_READS, OF_WRITES, form_alone, form_and_rest
from fhir_service.face.statement import face_statement
from fhir_service.interface.json_text import dump_json
from fhir_service.service import VERSION, Service
from fhir_service.web.capability import smart_configuration
from fhir_service.web.http import FACE, JSON, Handler, address_pairs, caller_of, is_lenient, preferences, route

OPEN = (f"{FACE}/metadata", f"{FACE}/.well-known/smart-configuration")
"""The paths without a token."""


def batch(service: Service) -> Handler:
    async def handle(request: Request) -> Response:
        form = form_alone(address_pairs(request), OF_WRITES, is_lenient(request))
        shows = "return=minimal" not in preferences(request)
        body = await answer_bundle(service, request, rendering(caller_of(request), form, shows))
        return face_answer(request, form, body)

    return handle


def about(service: Service) -> list[Route]:
    """Return the routes of batches and of the face's statement."""

    async def metadata(request: Request) -> Response:
        form, _ = form_and_rest(address_pairs(request), OF_READS)
        statement = face_statement(service.settings, service.store.id, VERSION)
        return face_answer(request, form, dump_json(statement, form.pretty))

    async def discovery(_: Request) -> Response:
        return Response(dump_json(smart_configuration(service.settings)), media_type=JSON)

    handlers = dict(zip(OPEN, (metadata, discovery), strict=True))
    return [
        *(route(path, POST=batch(service)) for path in (FACE, f"{FACE}/")),
        *(route(path, GET=handler) for path, handler in handlers.items()),
    ]
