"""The token address: read a posted form and answer it."""

import asyncio
from urllib.parse import parse_qsl

from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from fhir_service.auth.clients import Auth, TokenError
from fhir_service.interface.datatypes import CONTROLS

FORM_SECONDS = 30.0
"""Seconds within which a form has to arrive."""
_LARGEST_FORM = 64 << 10


async def read_form(request: Request) -> dict[str, str]:
    """Return the fields of a posted form. Raises TokenError if there is no form, or it is too large or malformed."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        raise TokenError("invalid_request", "send the form as application/x-www-form-urlencoded")
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > _LARGEST_FORM:
            raise TokenError("invalid_request", f"the form has more than {_LARGEST_FORM:,} bytes")
    try:
        pairs = parse_qsl(body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=20)
    except ValueError:
        raise TokenError(
            "invalid_request", "the form is not percent-encoded UTF-8, or has more than 20 fields"
        ) from None
    if len(dict(pairs)) != len(pairs):
        raise TokenError("invalid_request", "a field is repeated")
    if any(CONTROLS.search(value) for _, value in pairs):
        raise TokenError("invalid_request", "a field holds a control character")
    return dict(pairs)


async def token_response(request: Request, auth: Auth) -> Response:
    """Answer `POST /auth/token`."""
    authorization = request.headers.get("authorization")
    headers = {"cache-control": "no-store", "pragma": "no-cache"}
    try:
        async with asyncio.timeout(FORM_SECONDS):
            form = await read_form(request)
    except TokenError as error:
        status, body = error.status, error.body
    except TimeoutError:
        status, body = 400, TokenError("invalid_request", "the form did not arrive in time").body
        headers["connection"] = "close"
    except ClientDisconnect:
        return Response(status_code=400)
    else:
        status, body = await run_in_threadpool(auth.token, form, authorization)
    if status == 401:
        headers["www-authenticate"] = "Bearer" if authorization is None else 'Bearer, Basic realm="fhir-service"'
    return JSONResponse(body, status, headers)
