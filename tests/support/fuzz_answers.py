"""The laws of every answer: `fault` says what is wrong with an answer, whatever the request was."""

from dataclasses import dataclass
from typing import Any

import httpx

from fhir_service.interface import json_text
from fhir_service.interface.registry import RESOURCES


@dataclass(frozen=True)
class Sent:
    """A request as it is sent."""

    method: str
    target: str
    content: bytes | None = None
    headers: tuple[tuple[bytes, bytes], ...] = ((b"content-type", b"application/json"),)


CODES_OF = {
    400: {"invalid"},
    401: {"unknown"},
    403: {"forbidden"},
    404: {"not-found"},
    405: {"not-supported"},
    412: {"conflict", "multiple-matches"},
    413: {"too-long"},
    422: {"business-rule"},
}


def fault(sent: Sent, response: httpx.Response) -> str | None:
    """Return what is wrong with an answer; None for a resource, a Bundle, null, or an outcome of the Errors table."""
    if response.status_code not in (200, 201, *CODES_OF):
        return f"status {response.status_code}"
    if "x-correlation-id" not in response.headers:
        return "no correlation id"
    if sent.method == "HEAD":
        return "a body for HEAD" if response.content else None
    if response.is_success and "/files/" in sent.target:
        return None
    try:
        body = json_text.parse_json(response.content)
    except json_text.Malformed as error:
        return f"the body is not JSON: {error}"
    return _fault_of_outcome(response, body) if response.is_error else _fault_of_success(sent, body)


def _fault_of_outcome(response: httpx.Response, body: Any) -> str | None:
    if not isinstance(body, dict) or body.get("resourceType") != "OperationOutcome" or len(body["issue"]) != 1:
        return "no OperationOutcome"
    issue = body["issue"][0]
    if issue["severity"] != "error" or issue["code"] not in CODES_OF[response.status_code]:
        return f"{response.status_code} with {issue['code']}"
    return "it shows our insides" if "Traceback" in response.text or ".py" in response.text else None


def _fault_of_success(sent: Sent, body: Any) -> str | None:
    if body is None:
        return None if sent.method in ("POST", "PUT") else "null"
    kind = body.get("resourceType") if isinstance(body, dict) else None
    expected = {*RESOURCES, "Bundle", "OperationOutcome", "CapabilityStatement"}
    return None if kind in expected else f"a body of {kind}"
