"""Identify the sender of a request by its token, and make sure of it before anything is done or told.

Where other processes may end a token, the store is asked for it. A create asks the store anyway, in the batch that it
is stored by, and a search by its statement: one with a token that was met before asks by that whether the token still
holds. Such a request is unconfirmed until then, and is not answered while it is.
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
    """Note the caller of a request. Raises FhirError(AUTHENTICATION) for a token that is known to be none."""
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
    """The hash of the token that has to hold still before anything is done; empty where that is sure."""
    found: str = scope.get(_UNCONFIRMED, "")
    return found


def confirm(scope: Scope) -> None:
    """Note that the token of a request was found to hold."""
    scope.pop(_UNCONFIRMED, None)


def require_confirmed(scope: Scope) -> None:
    """Raises RuntimeError for a request that nothing may be told yet."""
    if unconfirmed(scope):
        raise RuntimeError("the caller is not confirmed")


async def or_unauthenticated(service: Service, scope: Scope, error: FhirError) -> FhirError:
    """Return how a request is refused: as it went wrong, or for its token, which holds no more."""
    digest = unconfirmed(scope)
    confirm(scope)
    # A failure of the service is told as it is: what was asked for may be stored all the same.
    if not digest or error.outcome.status >= EXCEPTION.status:
        return error
    try:
        service.auth.known(await service.auth.together.look_up(digest))
    except FhirError as other:
        for name in ("caller", "touched"):
            scope.pop(name, None)
        return other
    return error
