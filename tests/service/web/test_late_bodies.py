"""A request whose body is late is carried out for a token that holds when the body is here."""

import http.client
import json
import time
from contextlib import closing
from typing import Any

import pytest

from fhir_service.web.http import PROMPT
from tests.conftest import BOTH, Running
from tests.support import loopback
from tests.support.bodies import entry, task, total

STORES = BOTH
BATCH = {
    "resourceType": "Bundle",
    "type": "batch",
    "entry": [entry(task(77)), {"request": {"method": "GET", "url": "Task"}}],
}
FORM = "application/x-www-form-urlencoded"
REQUESTS: list[tuple[str, bytes, str]] = [
    ("/Task", json.dumps(task(77)).encode(), "application/json"),
    ("/fhir/Task", json.dumps(task(77)).encode(), "application/json"),
    ("/Task/$validate", json.dumps(task(77)).encode(), "application/json"),
    ("/", json.dumps(BATCH).encode(), "application/json"),
    ("/Task/_search", b"_count=1&_offset=0", FORM),
]


@pytest.fixture
def client(service: Running) -> tuple[str, str]:
    """The id of a client, and a token of its own."""
    added = service.service.auth.add_client("short")
    form = {"grant_type": "client_credentials"} | {name: added[name] for name in ("client_id", "client_secret")}
    token = loopback.post(f"{service.url}/auth/token", data=form).json()["access_token"]
    # A create by a token that was met before is let in by what is known of it.
    headers = {"authorization": f"Bearer {token}"}
    assert loopback.post(f"{service.url}/Task", json=task(78), headers=headers).status_code == 201
    return added["client_id"], token


@pytest.mark.parametrize("revoked", [False, True])
@pytest.mark.parametrize(("path", "body", "kind"), REQUESTS)
def test_a_body_that_comes_after_its_client_was_revoked_is_refused(
    service: Running, client: tuple[str, str], path: str, body: bytes, kind: str, revoked: bool
) -> None:
    """AUTH-11, AUTH-05."""
    client_id, token = client
    before = total(service.client, "Task?identifier=urn:test%7C77")
    with closing(http.client.HTTPConnection(service.url.removeprefix("http://"), timeout=30)) as connection:
        connection.putrequest("POST", path)
        headers: dict[str, Any] = {
            "authorization": f"Bearer {token}",
            "content-type": kind,
            "content-length": len(body),
        }
        for name, value in headers.items():
            connection.putheader(name, value)
        connection.endheaders(body[:5])
        time.sleep(PROMPT)
        if revoked:
            service.service.auth.revoke(client_id)
        time.sleep(PROMPT)
        connection.send(body[5:])
        answer = connection.getresponse()
        assert (answer.status == 401) is revoked, answer.status
    stored = total(service.client, "Task?identifier=urn:test%7C77") - before
    assert stored == (not revoked and path in ("/", "/Task", "/fhir/Task"))
