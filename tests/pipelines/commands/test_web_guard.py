"""Dagster's web server as `up` starts it, asked by its own pages, by programs, and by pages of other sites."""

import http.client
import json
import socket
from collections.abc import Iterator
from urllib.parse import quote

import pytest

from pipelines.commands import supervising, up
from pipelines.commands.definitions import DEFINITIONS
from pipelines.dagster.guard import ADDRESSES
from pipelines.home.dagster_folder import WEB_HOST, dagster_environment, prepare_dagster_home
from tests.support.commands import environment
from tests.support.standing import until

ELSEWHERE = "https://elsewhere.example"
BEHIND_A_PROXY = "https://imports.example.org"
EVERYWHERE = "0.0.0.0"  # noqa: S104 - it is there for a container
JSON = "application/json"
QUERY = json.dumps({"query": "{ version }"})
PAUSE = "mutation { setAutoMaterializePaused(paused: false) }"
PAUSED = "{ instance { autoMaterializePaused } }"


@pytest.fixture(
    scope="module", params=[False, pytest.param(True, marks=pytest.mark.long)], ids=["alone", "with definitions"]
)
def port(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a web server over a new home. One address beside loopback is permitted.

    `make test` starts it without the code server: what is refused is so before any definition is looked at.
    """
    home = tmp_path_factory.mktemp("home")
    (home / "inbox").mkdir()
    folder, port = prepare_dagster_home(home), supervising.free(0, "--web-port", "")
    at = tmp_path_factory.mktemp("run") / "code.sock"
    code = up.code_server(at, folder / "code-server.log")
    server, _ = up.pages_and_daemon(folder, {DEFINITIONS: at} if request.param else {}, port)
    try:
        for child in [code] * request.param + [server]:
            child.start(
                dagster_environment(home, environment(**{ADDRESSES: f"{BEHIND_A_PROXY}/", WEB_HOST: EVERYWHERE}))
            )
            until(lambda: child.ready() or child.ended(), "it answers")  # noqa: B023
            assert not child.ended(), child.last_words()
        yield port
    finally:
        server.stop()
        code.stop()


def ask(
    port: int, method: str = "POST", path: str = "/graphql", body: str | None = None, **headers: str
) -> tuple[int, str]:
    """Status and text of an answer. headers: names with `_` for `-`; the Host is the own one unless named."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    sent = {"host": f"127.0.0.1:{port}"} | {name.replace("_", "-"): value for name, value in headers.items()}
    try:
        connection.request(method, path, body=body, headers=sent)
        answer = connection.getresponse()
        return answer.status, answer.read().decode() if answer.status != 101 else ""
    finally:
        connection.close()


def test_requests_of_its_own_pages_and_of_programs_are_answered(port: int) -> None:
    """CLI-CMD-20"""
    own = {"content_type": JSON}
    assert ask(port, body=QUERY, **own)[0] == 200
    assert ask(port, body=QUERY, origin=f"http://127.0.0.1:{port}", sec_fetch_site="same-origin", **own)[0] == 200
    for host in (f"localhost:{port}", f"[::1]:{port}", "localhost:4000"):
        assert ask(port, body=QUERY, host=host, origin=f"http://{host}", **own)[0] == 200
    assert ask(port, "GET", "/runs", sec_fetch_site="cross-site", accept="text/html")[0] == 200
    assert ask(port, "GET", "/graphql", accept="text/html")[0] == 200
    assert ask(port, body=QUERY, host="imports.example.org", origin=BEHIND_A_PROXY, **own)[0] == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": ELSEWHERE},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:1"},
        {"host": "elsewhere.example"},
        {"host": "localhost.elsewhere.example:3000"},
        {"host": "127.0.0.1@elsewhere.example"},
        {"host": ""},
        {"host": "elsewhere.example", "origin": "http://elsewhere.example"},
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site"},
        {"content_type": "text/plain"},
        {"content_type": "text/plain; application/json"},
        {"content_type": "application/x-www-form-urlencoded"},
    ],
)
def test_a_query_of_another_site_is_refused(port: int, headers: dict[str, str]) -> None:
    """CLI-CMD-20"""
    assert ask(port, body=QUERY, **{"content_type": JSON, **headers})[0] == 403


def test_no_kind_of_request_lets_another_site_change_anything(port: int) -> None:
    """CLI-CMD-20"""
    address, body = f"/graphql?query={quote(PAUSE)}", json.dumps({"query": PAUSE})
    assert ask(port, "GET", address)[0] == 403
    assert ask(port, "GET", address, accept="image/avif", sec_fetch_site="cross-site")[0] == 403
    assert ask(port, "POST", address)[0] == 403
    assert ask(port, "POST", address, origin=ELSEWHERE)[0] == 403
    assert ask(port, "POST", address.replace("graphql", "graphql/"), origin=ELSEWHERE)[0] == 403
    assert ask(port, "POST", body=body, content_type=JSON, origin=ELSEWHERE)[0] == 403
    assert ask(port, "POST", "/report_asset_materialization/reports/published", origin=ELSEWHERE)[0] == 403
    assert paused(port)
    assert "setAutoMaterializePaused" in ask(port, "POST", body=body, content_type=JSON)[1]
    assert not paused(port)


def paused(port: int) -> bool:
    said = json.loads(ask(port, body=json.dumps({"query": PAUSED}), content_type=JSON)[1])
    return bool(said["data"]["instance"]["autoMaterializePaused"])


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 101),
        ({"origin": "http://{own}"}, 101),
        ({"origin": ELSEWHERE}, 403),
        ({"origin": "null"}, 403),
        ({"host": "elsewhere.example"}, 403),
        ({"host": "elsewhere.example", "origin": "http://elsewhere.example"}, 403),
    ],
)
def test_a_web_socket_of_another_site_is_refused(port: int, headers: dict[str, str], status: int) -> None:
    """CLI-CMD-20"""
    opens = {
        "connection": "Upgrade",
        "upgrade": "websocket",
        "sec_websocket_version": "13",
        "sec_websocket_key": "AAAAAAAAAAAAAAAAAAAAAA==",
        "sec_websocket_protocol": "graphql-ws",
    }
    named = {name: value.format(own=f"127.0.0.1:{port}") for name, value in headers.items()}
    assert ask(port, "GET", **{**opens, **named})[0] == status


def test_no_other_site_shows_the_pages_in_a_frame(port: int) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    connection.request("GET", "/runs")
    assert connection.getresponse().getheader("x-frame-options") == "SAMEORIGIN"
    connection.close()


def test_the_pages_listen_on_the_network_of_a_container_where_a_setting_says_so(port: int) -> None:
    with socket.create_connection(("127.0.0.2", port), timeout=30):
        pass
