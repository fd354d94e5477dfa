"""The actions of commands on the clients of a store."""

from typing import Any

from fhir_service.admin.running_service import Arguments, CommandError, Result
from fhir_service.auth.client_keys import BadKeys
from fhir_service.auth.clients import UnknownClient
from fhir_service.interface.scopes import EVERYTHING, ScopeError
from fhir_service.service import Service


def add(service: Service, arguments: Arguments) -> Result:
    """Add a client; return its id and secret, once."""
    name = arguments["name"].strip()
    if not name or len(name) > 100 or not name.isprintable():
        raise CommandError("a client's name must have 1 to 100 printable characters")
    scope = arguments.get("scope")
    try:
        return dict(service.auth.add_client(name, EVERYTHING if scope is None else scope, arguments.get("keys")))
    except (ScopeError, BadKeys) as error:
        raise CommandError(str(error)) from None


def change_keys(service: Service, arguments: Arguments) -> Result:
    """Replace the public keys of a client that signs."""
    try:
        service.auth.change_keys(arguments["client_id"], arguments["keys"])
    except UnknownClient:
        raise CommandError(f"there is no client {arguments['client_id']} that signs with keys") from None
    except BadKeys as error:
        raise CommandError(str(error)) from None
    return {}


def list_all(service: Service, _: Arguments) -> Result:
    """List the clients."""
    return {"clients": [{name: _shown(value) for name, value in row.items()} for row in service.auth.list_clients()]}


def revoke(service: Service, arguments: Arguments) -> Result:
    """End the access of a client."""
    try:
        service.auth.revoke(arguments["client_id"])
    except UnknownClient:
        raise CommandError(f"there is no client {arguments['client_id']}") from None
    return {}


def _shown(value: Any) -> Any:
    return value.isoformat() if hasattr(value, "isoformat") else value
