"""Answers of the R4 face: resources in the form that is asked for."""

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from fhir_service.face.form_parameters import AnswerForm
from fhir_service.face.rendering import resource_of
from fhir_service.interactions.update import etag
from fhir_service.interface.json_text import dump_json
from fhir_service.requests import showing
from fhir_service.service import Service
from fhir_service.store.bodies import StoredVersion
from fhir_service.web.http import LARGE_BODY, media_type


def face_answer(
    request: Request, form: AnswerForm, body: bytes, status: int = 200, headers: dict[str, str] | None = None
) -> Response:
    """Return an answer in the form that is asked for."""
    return Response(body, status, headers, media_type=form.media or media_type(request))


async def body_of(service: Service, found: StoredVersion, form: AnswerForm) -> bytes:
    """Return a resource as it goes out."""

    def made() -> bytes:
        return showing.rendered(service, dump_json(resource_of(found, form), form.pretty))

    # The module of elements is slow to import, but only once.
    slow = form.is_part or len(found.body) > LARGE_BODY
    return await run_in_threadpool(made) if slow else made()


def tag_of(text: str) -> str:
    """Return an entity tag as the interface writes it: some clients send it as a strong tag."""
    version = text.strip().removeprefix("W/").strip('"')
    return version if version == "*" else f'W/"{version}"'


def is_known(request: Request, found: StoredVersion) -> bool:
    """True if a request says that the client has this version of a resource already."""
    return etag(found.version) in map(tag_of, request.headers.get("if-none-match", "").split(","))
