"""Identify the caller of a request by its token, and confirm the token before anything is done or answered.

If other processes may revoke tokens, the store is asked about each one. A create and a search ask the store anyway: if
their token was seen before, they look it up by that same statement. Until then such a request is unconfirmed, and no
answer to it may begin.
"""

from starlette.types import Scope

from fhir_service.auth.clients import hash_of
from fhir_service.interface.outcomes import EXCEPTION, FhirError
from fhir_service.interface.registry import RESOURCES
from fhir_service.service import Service
from fhir_service.web.http import FACE

_ASK_ANYWAY = {
    (method, f"{path}/{name}")
    for method, path, interaction in (("POST", "", "create"), ("POST", FACE, "create"), ("GET", "", "search"))
    for name, one in RESOURCES.items()
    if interaction in one.interactions
}
_UNCONFIRMED = "unconfirmed"


async def let_in(service: Service, scope: Scope, authorization: str | None) -> None:
    """Note the caller of a request. Raises FhirError(AUTHENTICATION) for an unknown or expired token."""
    auth = service.auth
    if not service.store.dialect.shared:
        scope["caller"] = auth.caller(authorization)
        return
    digest = hash_of(authorization)
    met = auth.met(digest) if (scope["method"], scope["path"]) in _ASK_ANYWAY else None
    if met:
        scope[_UNCONFIRMED] = digest
    scope["caller"] = met or auth.known(await auth.together.look_up(digest))


def unconfirmed(scope: Scope) -> str:
    """Return the hash of the token that is still to be confirmed; empty if none is."""
    found: str = scope.get(_UNCONFIRMED, "")
    return found


def confirm(scope: Scope) -> None:
    """Note that the token of a request is valid."""
    scope.pop(_UNCONFIRMED, None)


def require_confirmed(scope: Scope) -> None:
    """Raise RuntimeError if the token of a request is still to be confirmed."""
    if unconfirmed(scope):
        raise RuntimeError("the caller is not confirmed")


async def or_unauthenticated(service: Service, scope: Scope, error: FhirError) -> FhirError:
    """Return the error to answer with: the given one, or 401 if the request's token is no longer valid."""
    digest = unconfirmed(scope)
    confirm(scope)
    # Keep a 5xx as it is: the request may have been carried out all the same.
    if not digest or error.outcome.status >= EXCEPTION.status:
        return error
    try:
        service.auth.known(await service.auth.together.look_up(digest))
    except FhirError as other:
        for name in ("caller", "touched"):
            scope.pop(name, None)
        return other
    return error
