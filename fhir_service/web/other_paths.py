"""The paths beside the resources: tokens, capability statement, health, metrics, and documents of reports."""

import re

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from fhir_service.audit.records import touch
from fhir_service.auth.token_address import token_response
from fhir_service.interface.json_text import dump_json
from fhir_service.interface.outcomes import NOT_FOUND, FhirError
from fhir_service.service import VERSION, Service
from fhir_service.web.capability import capability_statement, smart_configuration
from fhir_service.web.health import Health
from fhir_service.web.http import Handler, caller_of, json_response, route
from fhir_service.web.middleware import TOKEN_PATHS


def public(service: Service) -> list[BaseRoute]:
    """Return the paths that need no token."""
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


def metrics(service: Service) -> Handler:
    """Return the handler of the metrics for Prometheus."""

    async def handle(_: Request) -> Response:
        return Response(service.metrics.text(), media_type="text/plain; version=0.0.4")

    return handle


def documents(service: Service) -> list[BaseRoute]:
    """Return the route of the documents in `presentedForm` of reports."""

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
