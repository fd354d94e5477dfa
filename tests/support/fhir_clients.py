"""fhirclient with a token that was got before."""

from typing import Any

from fhirclient.client import FHIRClient


def fhirclient_server(url: str, authorization: str) -> Any:
    """fhirclient's server with a token: it has no flow of its own for a client's secret."""
    auth = {"app_id": "tests", "access_token": authorization.removeprefix("Bearer ")}
    state = {"app_id": "tests", "server": {"base_uri": f"{url}/", "auth_type": "oauth2", "auth": auth}}
    return FHIRClient(state=state).server
