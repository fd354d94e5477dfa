"""Large, slow and unfinished requests: never a hang, growing memory, or damage to what is stored."""

import functools
import gc
import json
import socket
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from urllib.parse import urlsplit

import httpx
import pytest
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from fhir_service.admin.checks import check_store
from fhir_service.admin.running_service import run_file
from fhir_service.auth import token_address
from fhir_service.interactions import create, update
from fhir_service.interface.json_text import DEEPEST
from fhir_service.web import http as exchange
from fhir_service.web import protocol
from tests.conftest import BOTH, WORLD
from tests.service.hostile.sent import (
    HEADERS,
    TEXT,
    arrays,
    exchanged,
    get,
    outcome,
    post,
    request_of,
    statuses,
    with_meta,
)
from tests.support import commands
from tests.support.bodies import TASK

STORES = BOTH


def test_a_large_body_is_refused_by_its_announcement(service):
    """LIMIT-09: before any of it is sent."""
    for length in (1024 * 1024 + 1, 10**15):
        lines = ("content-type: application/json", f"content-length: {length}", "expect: 100-continue")
        received = exchanged(service.url, get(service, *lines, start="POST /Task HTTP/1.1"))
        assert b" 413 " in received
        assert b'"too-long"' in received


@pytest.mark.parametrize("note", ["x" * 40_000, "字" * 13_333], ids=["ascii", "of several bytes a sign"])
def test_the_size_of_a_task_with_all_its_notes_is_bounded(service, monkeypatch, note):
    """Each update adds notes, and each version is kept."""
    monkeypatch.setattr(update, "LARGEST", 100_000)
    path = urlsplit(post(service, "/Task", TEXT).headers["location"]).path
    noted = json.dumps(TASK | {"note": [{"text": note, "authorReference": TASK["requester"]}]}, ensure_ascii=False)
    answers = [service.client.put(path, content=noted.encode(), headers=HEADERS) for _ in range(4)]
    assert [answer.status_code for answer in answers] == [200, 200, 200, 413]
    assert outcome(answers[-1])["expression"] == ["Task.note"]
    assert service.client.put(path, content=TEXT, headers=HEADERS).status_code == 200
    assert len(service.client.get(path).json()["note"]) == 3


def test_the_largest_body_is_taken(service):
    """LIMIT-06: one byte more is not."""
    raw = TEXT.encode().ljust(1024 * 1024)
    assert post(service, "/Task", raw).status_code == 201
    response = post(service, "/Task", raw + b" ")
    assert (response.status_code, outcome(response)["code"]) == (413, "too-long")


def test_a_stranger_sends_no_body(service):
    """LIMIT-09: a client without a token is refused before its body arrives."""
    lines = (
        "POST /Task HTTP/1.1",
        "host: x",
        "content-type: application/json",
        "content-length: 1000000",
        "connection: close",
    )
    assert statuses(exchanged(service.url, "\r\n".join([*lines, "", ""]).encode())) == [401]


def test_a_body_that_does_not_come_is_not_waited_for(service, monkeypatch):
    """The connection is answered and closed. A client that sends byte by byte has no more time than others."""
    monkeypatch.setattr(exchange, "BODY_SECONDS", 0.5)
    head = request_of(service, "content-type: application/json", "content-length: 500", start="POST /Task HTTP/1.1")
    for parts in ([head], [head, *[b" "] * 20]):
        began = time.monotonic()
        assert statuses(exchanged(service.url, *parts)) == [400]
        assert time.monotonic() - began < 5


def test_a_form_that_does_not_come_is_not_waited_for(service, monkeypatch):
    monkeypatch.setattr(token_address, "FORM_SECONDS", 0.5)
    lines = "content-type: application/x-www-form-urlencoded", "content-length: 500"
    received = exchanged(service.url, request_of(service, *lines, start="POST /auth/token HTTP/1.1"))
    assert statuses(received) == [400]


@pytest.mark.parametrize("parts", [[], [b"GET /Ta"], [b"GET /Task HTTP/1.1\r\nhost: x\r\n", *[b"x-a: b\r\n"] * 20]])
def test_a_head_that_does_not_come_is_not_waited_for(service, monkeypatch, parts):
    """Also on a connection over which nothing is ever said."""
    monkeypatch.setattr(protocol, "HEAD_SECONDS", 0.5)
    began = time.monotonic()
    received = exchanged(service.url, *parts)
    assert statuses(received) in ([], [400])
    assert time.monotonic() - began < 5


def test_a_body_that_is_cut_off_stores_nothing(service):
    """A part of a body is not a request."""
    before = service.client.get("/Task?_count=0").json()["total"]
    lines = "content-type: application/json", f"content-length: {len(TEXT)}"
    head = request_of(service, *lines, start="POST /Task HTTP/1.1")
    for cut in (0, 1, len(TEXT) // 2, len(TEXT) - 1):
        address = urlsplit(service.url)
        with socket.create_connection((address.hostname, address.port)) as connection:
            connection.sendall(head + TEXT[:cut].encode())
    assert service.client.get("/Task?_count=0").json()["total"] == before
    assert service.client.get("/health").status_code == 200


def test_a_fault_in_one_request_fails_no_other_in_the_same_commit(service, monkeypatch):
    """"""
    act = create.Create.act

    def faulty(entry, desk):
        if entry.model.description == "a fault":
            raise ZeroDivisionError
        return act(entry, desk)

    monkeypatch.setattr(create.Create, "act", faulty)
    busy = threading.Thread(target=service.service.writer.transact, args=[lambda _: time.sleep(0.5)])
    busy.start()
    with ThreadPoolExecutor(9) as pool:
        words = ["x"] * 4 + ["a fault"] + ["x"] * 4
        send = functools.partial(httpx.post, f"{service.url}/Task", headers=service.headers)
        answers = list(pool.map(lambda word: send(json=TASK | {"description": word}).status_code, words))
    busy.join()
    assert answers == [201] * 4 + [503] + [201] * 4


def test_nothing_that_was_sent_here_did_damage(service):
    """The store is sound that hostile requests of all kinds were sent to before."""
    assert check_store(service.service.store, service.service.site) == []


def resident(pid):
    """Megabytes that a process holds."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    (line,) = [line for line in status.splitlines() if line.startswith("VmRSS")]
    return int(line.split()[1]) / 1024


def storm(client, number):
    """Requests that each could leave something behind: large, deep, unknown, each with names of its own."""
    raw = [
        with_meta(arrays(DEEPEST)).ljust(900_000),
        "[" * 900_000,
        TEXT.ljust(2_000_000),
        with_meta('"' + "x" * 900_000),
    ]
    for body in raw:
        assert client.post("/Task", content=body, headers=HEADERS).status_code in (400, 413)
    for _ in range(60):
        name = uuid.uuid4().hex
        assert client.get(f"/{name}").status_code == 404
        assert client.get(f"/Task/{name}", headers={"x-correlation-id": name}).status_code == 404
        assert client.get("/Task", params={name: name}).status_code == 400
        assert client.get("/Task", params={"label": name * 100}).status_code == 200
        assert client.get("/Task", headers={"authorization": f"Bearer {name}{number:011}"}).status_code == 401
        assert client.request(f"X{name}"[:12].upper(), "/Task").status_code in (400, 405)


@contextmanager
def unreachable():
    """Collects what only a search for garbage frees."""
    found: list[object] = []
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        yield found
        gc.collect()
        found += gc.garbage
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


def test_the_memory_of_a_refused_body_is_released_with_its_answer(service):
    """A service looks for garbage seldom: a body must not wait for that."""
    entry = {"request": {"method": "POST", "url": "Task"}, "resource": TASK | {"status": "?"}}
    bundle = {"resourceType": "Bundle", "type": "batch", "entry": [entry] * 3}
    with unreachable() as left:
        assert service.client.post("/Task", json=TASK | {"status": "?"}).status_code == 422
        assert service.client.post("/Task", content=with_meta(arrays(DEEPEST)), headers=HEADERS).status_code == 400
        assert service.client.post("/", json=bundle).status_code == 200
        assert service.client.get(f"/Task/{uuid.uuid4()}").status_code == 404
    assert [one.f_code.co_qualname for one in left if isinstance(one, FrameType)] == []


def test_a_connection_is_gone_with_its_end(service):
    """LIMIT-16: 100,000 connections, without credentials, took 180 MB until garbage was looked for."""
    with unreachable() as left:
        for parts in ([b"GET /x"], [get(service)], [get(service) * 3], [b"no HTTP\r\n\r\n"], []):
            address = urlsplit(service.url)
            with socket.create_connection((address.hostname, address.port)) as connection:
                connection.sendall(b"".join(parts))
                time.sleep(0.1)
        time.sleep(0.5)
    assert [one for one in left if isinstance(one, protocol.HttpProtocol | RequestResponseCycle)] == []


@pytest.mark.long
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
def test_memory_does_not_grow_with_what_is_refused(tmp_path):
    """After the first rounds, more of the same takes no more."""
    home = tmp_path / "home"
    store = home / "service.duckdb"
    assert commands.load(home, WORLD).returncode == 0
    added = commands.run("fhir-service", "client", "add", "--store", store, "--name", "storm").stdout
    (home / "credentials.json").write_text(added, encoding="utf-8")
    with commands.serving(home) as client:
        pid = json.loads(run_file(store).read_text(encoding="utf-8"))["pid"]
        for number in range(5):
            storm(client, number)
        before = resident(pid)
        for number in range(20):
            storm(client, number)
        grown = resident(pid) - before
        print(f"{before:.0f} MB, then {grown:+.1f} MB")
        assert grown < 24
