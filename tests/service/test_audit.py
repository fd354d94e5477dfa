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
from click.testing import CliRunner, Result
from starlette.requests import Request

from fhir_service import submitting
from fhir_service.__main__ import main
from fhir_service.audit import Audit, Touch, touch
from fhir_service.chain import ChainedFile, Head, examine, files_of
from fhir_service.middleware import Surroundings
from tests.conftest import FROZEN, Running
from tests.support.bodies import send, task

READ = b'{"interaction":"read","type":"Task"}'


def audit_of(running: Running) -> Path:
    return running.service.audit.path


def verify(path: Path, *former: Path | str) -> Result:
    environment = {"FHIR_SERVICE_AUDIT": str(path), "FHIR_SERVICE_STORE": "unused"}
    return CliRunner(env=environment).invoke(main, ["audit", "verify", *map(str, former)])


def written(path: Path, *numbers: int) -> None:
    """A process that adds a record for each number, and ends."""
    file = ChainedFile(path)
    for number in numbers:
        file.append([b'{"n":%d}' % number], keep=True)
    file.close()


def lines(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines(keepends=True)


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


def test_what_cannot_be_put_on_record_is_not_shown(fresh_service: Running, full: Callable[[bool], None]) -> None:
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


def test_a_patient_whom_the_store_does_not_know_stands_as_a_keyed_hash(fresh_service: Running) -> None:
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
    """EXTRA-OPS-06: not one by one, not in a bundle; `/health` says so, and all goes on by itself."""
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


def test_what_a_request_that_was_cut_off_did_is_on_record(fresh_service: Running) -> None:
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
        asking: Any = Surroundings(application, service, ())(scope, None, None)  # type: ignore[arg-type]
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


# --- What verify finds ----------------------------------------------------------------------------


def test_whole_chains_are_told_as_whole(fresh_service: Running) -> None:
    """EXTRA-OPS-07: records of one request are chained one by one too."""
    fresh_service.client.get("/Task")
    send(fresh_service.client, [{"resource": task(n), "request": {"method": "POST", "url": "Task"}} for n in range(3)])
    done = verify(audit_of(fresh_service))
    assert done.exit_code == 0, done.output
    assert re.search(r": 4 records; ends with [0-9a-f]{64}\nnothing wrong\n\Z", done.output)


def change(path: Path, at: int) -> None:
    found = lines(path)
    found[at] = re.sub(rb'"n":\d', b'"n":0', found[at])
    path.write_bytes(b"".join(found))


def remove(path: Path, at: int) -> None:
    found = lines(path)
    del found[at]
    path.write_bytes(b"".join(found))


def cut(path: Path, at: int) -> None:
    found = lines(path)
    found[at] = found[at][:9] + (b"\n" if at + 1 < len(found) else b"")
    path.write_bytes(b"".join(found))


def swap(path: Path, at: int) -> None:
    found = lines(path)
    found[at - 1], found[at] = found[at], found[at - 1]
    path.write_bytes(b"".join(found))


def add(path: Path, at: int) -> None:
    found = lines(path)
    path.write_bytes(b"".join([*found[:at], b'{"n":9}\n', *found[at:]]))


@pytest.mark.parametrize("at", [0, 1, 2, 3, 4, 5])
@pytest.mark.parametrize("damage", [change, remove, cut, swap, add])
@pytest.mark.parametrize("goes_on", [False, True])
def test_what_was_cut_changed_or_removed_is_found(
    tmp_path: Path, damage: Callable[[Path, int], None], at: int, goes_on: bool
) -> None:
    """EXTRA-OPS-07: at the beginning, in the middle, and at the end; also where the service went on behind it."""
    path = tmp_path / "audit.ndjson"
    written(path, 1, 2)
    written(path, 3, 4)
    assert verify(path).exit_code == 0
    if damage in (change, swap) and at in (0, 3):
        at += 1  # the marks of the two openings hold nothing to change
    before = path.read_bytes()
    damage(path, at)
    assert path.read_bytes() != before
    if goes_on:
        written(path, 5)
    done = verify(path)
    assert done.exit_code == 4, done.output
    assert "WRONG" in done.output


def test_a_file_that_was_written_anew_with_its_head_lacks_the_hash_that_was_noted(tmp_path: Path) -> None:
    """EXTRA-OPS-07: a shorter chain holds by itself."""
    path = tmp_path / "audit.ndjson"
    written(path, 1, 2)
    noted = verify(path).output.partition("ends with ")[2][:64]
    written(path, 3)
    assert verify(path, "--noted", noted).exit_code == 0
    path.unlink()
    path.with_name("audit.ndjson.head").unlink()
    written(path, 1)
    assert verify(path).exit_code == 0
    done = verify(path, "--noted", noted)
    assert done.exit_code == 4
    assert f"WRONG  no line has the hash {noted}" in done.output


def test_a_hash_that_was_noted_is_found_as_people_write_it(tmp_path: Path) -> None:
    """EXTRA-OPS-07: and of an audit without a record, and of a file that was moved away."""
    path = tmp_path / "audit.ndjson"

    def last() -> str:
        return verify(path).output.partition("ends with ")[2][:64]

    path.touch()
    nothing = last()
    assert verify(path, "--noted", nothing).exit_code == 0
    written(path, 1, 2)
    noted = last()
    for given in (noted.upper(), f" {noted} ", nothing):
        assert verify(path, "--noted", given).exit_code == 0
    for no_hash in (noted[:12], f"{noted}0", "", "audit"):
        done = verify(path, "--noted", no_hash)
        assert done.exit_code == 2
        assert "is no hash" in done.output
    path.rename(tmp_path / "former.ndjson")
    written(path, 3)
    for former in ((), (tmp_path / "former.ndjson",)):
        assert "which was noted" not in verify(path, "--noted", noted, *former).output
    assert verify(path, "--noted", noted, tmp_path / "former.ndjson").exit_code == 0


def test_a_file_or_a_head_that_is_gone_is_found(tmp_path: Path) -> None:
    """EXTRA-OPS-07."""
    path = tmp_path / "audit.ndjson"
    written(path, 1, 2)
    head = path.with_name("audit.ndjson.head")
    kept = head.read_bytes()
    head.unlink()
    assert verify(path).exit_code == 4
    head.write_bytes(kept)
    assert verify(path).exit_code == 0
    path.unlink()
    assert verify(path).exit_code == 4
    written(path, 3)
    assert verify(path).exit_code == 4


def test_a_new_file_carries_the_head_of_the_one_before(tmp_path: Path) -> None:
    """EXTRA-OPS-07: files that were moved away are verified with it, moved while a process writes or not."""
    path, first, second = tmp_path / "audit.ndjson", tmp_path / "audit.1", tmp_path / "audit.2"
    written(path, 1, 2)
    path.rename(first)
    file = ChainedFile(path)
    file.append([b'{"n":3}'], keep=True)
    path.rename(second)
    file.append([b'{"n":4}'], keep=True)
    assert [record["n"] for record in map(json.loads, lines(path)) if "n" in record] == [4]
    assert verify(path, first, second).exit_code == 0
    assert verify(path).exit_code == 4
    assert verify(path, second).exit_code == 4
    remove(second, 1)
    assert verify(path, first, second).exit_code == 4


def test_lines_from_before_the_chain_count_as_unchained(tmp_path: Path) -> None:
    path = tmp_path / "audit.ndjson"
    path.write_bytes(b'{"n":1}\n{"n":2}\n{"n":3')
    written(path, 4, 5)
    done = verify(path)
    assert done.exit_code == 0
    assert "2 records, 2 from before the chain" in done.output
    assert "notice  line 3 has no end" in done.output


def test_a_line_that_a_kill_cut_off_costs_no_other(tmp_path: Path) -> None:
    """The record after it is found, and the chain goes on over it."""
    path = tmp_path / "audit.ndjson"
    written(path, 1, 2)
    with path.open("ab") as file:
        file.write(b'{"n":3,"pa')
    written(path, 4)
    assert [record["n"] for record in map(json.loads, lines(path)[:3] + lines(path)[4:]) if "n" in record] == [1, 2, 4]
    done = verify(path)
    assert done.exit_code == 0
    assert "notice  line 4 has no end" in done.output


def test_each_process_has_a_file_and_a_chain_of_its_own(tmp_path: Path) -> None:
    """One after another they take the same file; at the same time the second takes another, and both are read."""
    path = tmp_path / "audit.ndjson"
    one, two = ChainedFile(path), ChainedFile(path)
    for number in range(3):
        one.append([b'{"time":"%d","by":1}' % (2 * number)], keep=True)
        two.append([b'{"time":"%d","by":2}' % (2 * number + 1)], keep=True)
    assert files_of(path) == [path, tmp_path / "audit.2.ndjson"]
    assert [len(lines(found)) for found in files_of(path)] == [4, 4]
    shown = CliRunner(env={"FHIR_SERVICE_AUDIT": str(path), "FHIR_SERVICE_STORE": "x"}).invoke(main, ["audit"])
    assert [json.loads(line)["by"] for line in shown.output.splitlines()] == [1, 2, 1, 2, 1, 2]
    assert verify(path).exit_code == 0
    remove(tmp_path / "audit.2.ndjson", 2)
    assert verify(path).exit_code == 4


def test_the_chain_costs_one_write_for_a_group(tmp_path: Path) -> None:
    """However many records a request leaves, they go out in one write."""
    calls: list[int] = []

    def counted(file: int, data: bytes) -> int:
        calls.append(len(data))
        return os.write(file, data)

    file = ChainedFile(tmp_path / "audit.ndjson", counted)
    file.flush()
    calls.clear()
    file.append([READ] * 500, keep=True)
    assert len(calls) == 1
    assert Head.of(tmp_path / "audit.ndjson") == Head(
        (tmp_path / "audit.ndjson").stat().st_size, examine(files_of(tmp_path / "audit.ndjson"), [])[0].ends
    )
