"""The Errors table of the interface, row for row, and the one exception that carries a row to the caller.

What the table does not name (413, 429, 500, a conditional create with several matches) follows below it.
"""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Outcome:
    """One way in which a request fails: HTTP status, `issue.code` and `issue.details.text`."""

    status: int
    code: str
    text: str


INVALID = Outcome(400, "invalid", "Bad request")
AUTHENTICATION = Outcome(401, "unknown", "Authentication failed")
FORBIDDEN = Outcome(403, "forbidden", "Authorization failed")
NOT_FOUND = Outcome(404, "not-found", "Unknown path")
NOT_SUPPORTED = Outcome(405, "not-supported", "Operation is not supported")
CONFLICT = Outcome(412, "conflict", "Resource updated since If-Unmodified-Since date")
BUSINESS_RULE = Outcome(422, "business-rule", "Unprocessable entity")

MULTIPLE_MATCHES = Outcome(412, "multiple-matches", "Multiple matches")
TOO_LARGE = Outcome(413, "too-long", "Request body too large")
THROTTLED = Outcome(429, "throttled", "Too many requests")
EXCEPTION = Outcome(500, "exception", "Internal server error")
UNAVAILABLE = Outcome(503, "transient", "Service unavailable")


class FhirError(Exception):
    """A request that ends in an outcome. Carries codes, ids and paths, never content of a resource.

    `text` replaces the outcome's own text where the interface has a message for the case.
    """

    def __init__(
        self,
        outcome: Outcome,
        diagnostics: str | None = None,
        expression: str | None = None,
        text: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(outcome.code)
        self.outcome = outcome
        self.diagnostics = diagnostics
        self.expression = expression
        self.text = text or outcome.text
        self.headers = headers or {}


def unknown_resource(resource_type: str, resource_id: str) -> FhirError:
    """Return the 404 of a read or update. It names type and id exactly as sent."""
    return FhirError(NOT_FOUND, text=f"Unknown {resource_type} resource '{resource_id}'")


def issue(
    code: str,
    text: str,
    diagnostics: str | None = None,
    expression: str | None = None,
    severity: str = "error",
) -> dict[str, Any]:
    """One `OperationOutcome.issue`."""
    found: dict[str, Any] = {"severity": severity, "code": code, "details": {"text": text}}
    if diagnostics:
        found["diagnostics"] = diagnostics
    if expression:
        found["expression"] = [expression]
    return found


def operation_outcome(*issues: dict[str, Any]) -> dict[str, Any]:
    """Return an OperationOutcome with these issues."""
    return {"resourceType": "OperationOutcome", "issue": list(issues)}


def outcome_of(error: FhirError) -> dict[str, Any]:
    """Return the body that answers an error: one issue, for the first problem (decision H7)."""
    return operation_outcome(issue(error.outcome.code, error.text, error.diagnostics, error.expression))
