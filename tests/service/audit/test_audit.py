"""The audit's chain: what was cut, changed or removed is found, and without an audit nothing is done."""

import asyncio
import itertools
import json
import os
import re
import threading
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request

from fhir_service.audit.chain import ChainedFile
from fhir_service.audit.records import Audit, Touch, touch
from fhir_service.requests import submitting
from fhir_service.web.middleware import Middleware
from tests.conftest import FROZEN, Running
from tests.support.audits import audit_of, lines, verify
from tests.support.bodies import send, task

# --- While the audit cannot be written ------------------------------------------------------------


@pytest.fixture
def full(fresh_service: Running) -> Callable[[bool], None]:
    """Fills the disk of the audit (True), or makes room (False)."""
    path = audit_of(fresh_service)
    aside = path.with_name("aside")
    if not Path("/dev/full").exists():
        pytest.skip("there is no /dev/full here")

    def fill(full: bool) -> None:
        if full:
            path.rename(aside)
            path.symlink_to("/dev/full")
        else:
            path.unlink()
            aside.rename(path)

    fresh_service.client.get("/Task")
    return fill


def test_a_stored_create_is_never_answered_as_failed(fresh_service: Running, full: Callable[[bool], None]) -> None:
    """EXTRA-OPS-06: what was under way when the audit failed is answered as it is, and put on record later."""
    full(True)
    made = fresh_service.client.post("/Task", json=task(1))
    assert made.status_code == 201
    full(False)
    task_id = made.headers["location"].rpartition("/")[2]
    assert fresh_service.client.get(f"/Task/{task_id}").status_code == 200
    found = [json.loads(line) for line in lines(audit_of(fresh_service))]
    shown = [(r["interaction"], r["id"], r["status"]) for r in found if r.get("id") == task_id]
    assert shown == [("create", task_id, 201), ("read", task_id, 200)]
    assert verify(audit_of(fresh_service)).exit_code == 0


def test_a_read_that_cannot_be_audited_is_not_answered(fresh_service: Running, full: Callable[[bool], None]) -> None:
    """EXTRA-OPS-06: 503 with an outcome, of the very first read too; it is no record."""
    before = lines(audit_of(fresh_service))
    full(True)
    for _ in range(2):
        answer = fresh_service.client.get("/Task")
        assert answer.status_code == 503
        assert answer.json()["issue"][0] == {
            "severity": "error",
            "code": "transient",
            "details": {"text": "Service unavailable"},
            "diagnostics": "the audit cannot be written",
        }
    full(False)
    assert fresh_service.client.get("/health").status_code == 200
    after = [json.loads(line) for line in lines(audit_of(fresh_service))[len(before) :]]
    assert [record for record in after if "chain" not in record] == []


def test_the_audit_has_a_keyed_hash_of_a_patient_whom_the_store_does_not_know(fresh_service: Running) -> None:
    """REPORT-27: an export of the wrong kind names people by the numbers of another system."""
    number, other = {"for": {"reference": "Patient/90817263"}}, {"for": {"reference": "Patient/90817264"}}
    assert fresh_service.client.post("/Task", json=task(1, **number)).status_code == 422
    assert fresh_service.client.post("/Task", json=task(2)).status_code == 201
    entries = [
        {"request": {"method": "POST", "url": "Task"}, "resource": task(3, **number)},
        {"request": {"method": "POST", "url": "Task"}, "resource": task(4, **other)},
    ]
    assert [one["status"] for one in send(fresh_service.client, entries)] == ["422", "422"]
    viewer = fresh_service.service.auth.add_client("viewer")
    fresh_service.client.post("/chart", data={name: viewer[name] for name in ("client_id", "client_secret")})
    assert fresh_service.client.get("/chart/patients/90817263").status_code == 404
    text = audit_of(fresh_service).read_text()
    assert "9081726" not in text
    found = [json.loads(line) for line in text.splitlines()]
    creates = [record["patients"][0] for record in found if record.get("interaction") == "create"]
    assert creates[1] == "p1"
    assert len(set(creates)) == 3
    assert creates[0] == creates[2]
    assert re.fullmatch("unknown-[0-9a-f]{16}", creates[0])
    assert [r["id"] for r in found if r.get("interaction") == "read" and r["type"] == "Patient"] == [creates[0]]


def test_no_write_is_taken_without_an_audit(fresh_service: Running, full: Callable[[bool], None]) -> None:
    """EXTRA-OPS-06: neither single writes nor bundles; `/health` says so, and the service recovers by itself."""
    client = fresh_service.client
    full(True)
    client.get("/Task")
    assert client.post("/Task", json=task(1)).status_code == 503
    assert client.put("/Task/unknown", json=task(1)).status_code == 503
    assert client.post("/", json={"resourceType": "Bundle", "type": "batch", "entry": []}).status_code == 503
    health = client.get("/health", headers={"authorization": ""})
    assert health.status_code == 503
    assert health.json()["status"] == "unavailable"
    assert health.json()["problem"] == "the audit cannot be written"
    full(False)
    assert client.get("/health").json()["status"] == "ok"
    assert client.get("/Task").json()["total"] == 0
    assert client.post("/Task", json=task(1)).status_code == 201


def test_the_chart_shows_a_page_that_says_so(fresh_service: Running, full: Callable[[bool], None]) -> None:
    client = fresh_service.service.auth.add_client("viewer")
    fresh_service.client.post("/chart", data={name: client[name] for name in ("client_id", "client_secret")})
    assert fresh_service.client.get("/chart/patients/p1").status_code == 200
    full(True)
    for _ in range(2):
        page = fresh_service.client.get("/chart/patients/p1")
        assert page.status_code == 503
        assert page.headers["content-type"].startswith("text/html")


def test_a_write_under_way_keeps_no_request_waiting(tmp_path: Path) -> None:
    """EXTRA-OPS-06: the event loop asks whether the audit is ready. Lines have the times in whose order they come."""
    path = tmp_path / "audit.ndjson"
    audit = Audit(path, b"key")
    ready: list[bool] = []

    def asked(file: int, data: bytes) -> int:
        # In a thread that is not waited for: where it waits for this write, it has no answer yet.
        asking = threading.Thread(target=lambda: ready.append(audit.ready()), daemon=True)
        asking.start()
        asking.join(5)
        ready.append(False)
        return os.write(file, data)

    assert audit.ready()
    assert audit._file._open
    audit._file._write = asked
    under_lock: list[bool] = []

    def clock() -> datetime:
        under_lock.append(audit._lock.locked())
        return FROZEN

    assert audit.write([Touch("read", "Task")], clock, "c", 200, "correlation")
    assert (ready, under_lock) == ([True, False], [True])


def test_the_acts_of_a_request_that_was_cut_off_are_audited(fresh_service: Running) -> None:
    """EXTRA-OPS-03: it may be stored; what has not begun is withdrawn."""
    service = fresh_service.service
    begun, held = threading.Event(), threading.Event()

    def hold(_: Any) -> None:
        begun.set()
        held.wait(30)

    holding = threading.Thread(target=lambda: service.writer.transact(hold))
    waiting: list[Any] = []
    submit = service.writer.submit

    async def application(scope: Any, receive: Any, send: Any) -> None:
        touch(Request(scope), "create", "Task")
        await submitting.write(service, [])

    async def cut_off() -> None:
        scope = {"type": "http", "method": "POST", "path": "/metadata", "headers": [], "query_string": b""}
        asking: Any = Middleware(application, service, ())(scope, None, None)  # type: ignore[arg-type]
        asked = asyncio.create_task(asking)
        await asyncio.sleep(0)
        assert waiting
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked

    def noted(*arguments: Any) -> Any:
        waiting.append(submit(*arguments))
        return waiting[0]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(service.writer, "submit", noted)
        holding.start()
        try:
            assert begun.wait(30)
            asyncio.run(cut_off())
        finally:
            held.set()
            holding.join()
    assert waiting[0].cancelled()
    found = json.loads(lines(audit_of(fresh_service))[-1])
    assert (found["interaction"], found["type"], found["status"]) == ("create", "Task", 500)


def test_lines_go_out_whole_where_the_disk_takes_a_part_of_them(tmp_path: Path) -> None:
    """A write may be short, and fail in the middle of a line: the rest follows when it can."""
    failing = itertools.cycle([False, False, True])

    def part(file: int, data: bytes) -> int:
        if next(failing):
            raise OSError(28, "No space left on device")
        return os.write(file, data[:50])

    path = tmp_path / "audit.ndjson"
    audit = Audit(path, b"key")
    audit._file = ChainedFile(path, part)
    touches = [Touch("create", "Task", str(number)) for number in range(4)]
    for one in touches:
        assert audit.write([one], lambda: FROZEN, "c", 201, "correlation")
    while not audit.works():
        pass
    records = [json.loads(line) for line in lines(path)]
    assert [record["id"] for record in records if "id" in record] == ["0", "1", "2", "3"]
    assert verify(path).exit_code == 0
