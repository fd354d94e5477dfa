"""The door of a running service: commands work through it while the service has the store open."""

import json
from collections.abc import Callable
from hmac import compare_digest

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from fhir_service.admin.actions import OPERATIONS
from fhir_service.admin.failing import sentence_of
from fhir_service.admin.running_service import HEADER, Arguments, CommandError, Result
from fhir_service.interface.outcomes import NOT_SUPPORTED, FhirError
from fhir_service.interface.scopes import unauthenticated
from fhir_service.service import Service


def routes(service: Service, secret: str) -> list[Route]:
    """Return the route `POST /_door/<operation>`. A request without the secret is answered as one without a token."""

    async def knock(request: Request) -> Response:
        if not compare_digest(request.headers.get(HEADER, "").encode(), secret.encode()):
            raise unauthenticated()
        operation = OPERATIONS.get(request.path_params["operation"])
        if request.method != "POST" or operation is None:
            raise FhirError(NOT_SUPPORTED, headers={"allow": "POST"})
        arguments = json.loads(await request.body())
        return await run_in_threadpool(_answer, service, operation, arguments)

    methods = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
    return [Route("/_door/{operation:path}", knock, methods=methods)]


def _answer(service: Service, operation: Callable[[Service, Arguments], Result], arguments: Arguments) -> Response:
    try:
        return JSONResponse(operation(service, arguments))
    except CommandError as error:
        return JSONResponse({"error": str(error), "exit": error.exit_code}, 400)
    except Exception as error:  # noqa: BLE001 - the command is told the class; exception texts may hold values
        said = None if isinstance(error, ValueError) else sentence_of(error, service.settings.store_path)
        return JSONResponse({"error": said or f"the service failed: {type(error).__name__}", "exit": 1}, 500)
