"""The library fhirclient with a given token."""

from typing import Any

from fhirclient.client import FHIRClient


def fhirclient_server(url: str, authorization: str) -> Any:
    """Return fhirclient's server with a token. The library cannot get one by a client's secret."""
    auth = {"app_id": "tests", "access_token": authorization.removeprefix("Bearer ")}
    state = {"app_id": "tests", "server": {"base_uri": f"{url}/", "auth_type": "oauth2", "auth": auth}}
    return FHIRClient(state=state).server
