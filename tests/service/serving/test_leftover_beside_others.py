"""Stored writes of a killed service over PostgreSQL that lack a record in the audit get one at the next start."""

import os
import subprocess
import sys
from contextlib import ExitStack, closing, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from fhir_service.audit.chain import files_of
from fhir_service.audit.records import read
from fhir_service.audit.witnesses import MOST, Witnesses, left_beside
from fhir_service.service import Service
from fhir_service.serving.audit_after_kill import put_on_record
from fhir_service.settings import Settings
from fhir_service.store.changes import Witness
from tests.conftest import FROZEN
from tests.support import loopback
from tests.support.bodies import entry, task
from tests.support.contention import authorized
from tests.support.starting import start

OTHER = {"for": {"reference": "Patient/p2"}}
Json = dict[str, Any]


@pytest.fixture
def audit(tmp_path: Path) -> Path:
    return tmp_path / "audit.ndjson"


def dying(number: int, store: str, audit: Path, stack: ExitStack) -> tuple["subprocess.Popen[str]", str]:
    """Start a service that dies behind its n-th commit; return its process and address."""
    command = [sys.executable, "-m", "tests.support.dying", "stored", str(number), store, str(audit)]
    process = stack.enter_context(
        start(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=os.environ)
    )
    stack.callback(process.kill)
    assert process.stdout is not None
    return process, process.stdout.readline().split()[-1]


def records(audit: Path) -> list[Json]:
    """The records of writes, by time."""
    return [one for one in read(audit, None, None, None) if one["interaction"] in ("create", "update")]


def started_again(store: str, audit: Path) -> list[Json]:
    """The records of writes once a service has started again."""
    with closing(Service.open(Settings(store=store, audit=str(audit)))) as service:
        put_on_record(service)
    return records(audit)


@pytest.mark.parametrize("number", [1, 2, 5])
def test_the_last_write_has_a_record_and_each_other_one_its_own(store: str, audit: Path, number: int) -> None:
    """EXTRA-OPS-03: also while another service has the audit's first file, and of writes of its own."""
    headers = authorized(store)
    with ExitStack() as stack:
        _, other = dying(99, store, audit, stack)
        process, url = dying(number, store, audit, stack)
        ids: list[str] = []
        with loopback.Client(headers=headers, timeout=20) as http, suppress(httpx.HTTPError):
            for turn in range(1, number + 1):
                assert http.post(f"{other}/Task", json=task(-turn)).status_code == 201
                if turn % 2:
                    ids.append(http.post(f"{url}/Task", json=task(turn)).headers["location"].rpartition("/")[2])
                else:
                    http.put(f"{url}/Task/{ids[-1]}", json=task(turn, **OTHER))
        assert process.wait(20) == -9
        found = started_again(store, audit)
        assert [one["interaction"] for one in found].count("create") == number + (number + 1) // 2
        assert [one["interaction"] for one in found].count("update") == number // 2
        (late,) = [one for one in found if not one["correlation"]]
        assert (late["id"], late["client"]) == (late["id"], found[0]["client"])
        assert sorted(late["patients"]) == (["p1"] if number % 2 else ["p1", "p2"])
        assert late["stored_at"] <= late["time"]
        assert started_again(store, audit) == found
        assert len(list(left_beside(audit))) == 0
        assert len(files_of(audit)) > 1


def test_each_entry_of_a_bundle_has_a_record(store: str, audit: Path) -> None:
    """EXTRA-OPS-03"""
    bundle = {"resourceType": "Bundle", "type": "batch", "entry": [entry(task(number)) for number in range(30)]}
    with ExitStack() as stack:
        process, url = dying(1, store, audit, stack)
        with loopback.Client(base_url=url, headers=authorized(store), timeout=20) as http, suppress(httpx.HTTPError):
            http.post("/", json=bundle)
        assert process.wait(20) == -9
    found = started_again(store, audit)
    assert len({one["id"] for one in found}) == len(found) == 30


def test_failed_versions_and_those_of_other_processes_get_no_audit_record(store: str, audit: Path) -> None:
    """EXTRA-OPS-03"""
    headers = authorized(store)
    with ExitStack() as stack:
        process, url = dying(2, store, audit, stack)
        with loopback.Client(base_url=url, headers=headers, timeout=20) as http, suppress(httpx.HTTPError):
            made = http.post("/Task", json=task(1)).headers["location"].rpartition("/")[2]
            http.post("/Task", json=task(2))
        assert process.wait(20) == -9
    (left,) = [left.path for left in left_beside(audit)]
    with left.open("ab") as file:
        file.write(b'[["Task","%s",1,"2026-01-01T00:00:00+00:00","somebody"]]\n[["Task","no' % made.encode())
    assert len(started_again(store, audit)) == 2


def test_a_service_that_ended_by_itself_leaves_no_witnesses(store: str, audit: Path) -> None:
    """EXTRA-OPS-03"""
    headers = authorized(store)
    with ExitStack() as stack:
        process, url = dying(99, store, audit, stack)
        with loopback.Client(base_url=url, headers=headers, timeout=20) as http:
            http.post("/Task", json=task(1))
            assert len(list(audit.parent.glob("*.witnesses*"))) == 2
        process.terminate()
        assert process.wait(20) == 0
    assert not list(audit.parent.glob("*.witnesses*"))


# --- The files ------------------------------------------------------------------------------------


def version(number: int) -> Witness:
    return Witness("Task", str(number), 1, FROZEN, "c")


def test_the_latest_witnesses_are_kept_in_little_room(tmp_path: Path) -> None:
    """EXTRA-OPS-03"""
    witnesses, size = Witnesses(tmp_path / "audit"), 1000
    for first in range(0, 200 * size, size):
        witnesses.note([version(number) for number in range(first, first + size)])
    for half in witnesses._files:
        os.close(half.file)
    (left,) = [left.versions() for left in left_beside(tmp_path / "audit")]
    assert {version(number) for number in range(160 * size, 200 * size)} <= set(left)
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 2 * MOST + 200 * size


def test_the_latest_come_last_whatever_the_clock_says(tmp_path: Path) -> None:
    """EXTRA-OPS-03: where it was set back, the last writes are not taken for older ones."""
    witnesses = Witnesses(tmp_path / "audit")
    later, earlier = [[version(n)._replace(updated_at=FROZEN - n * timedelta(hours=1))] for n in (0, 1)]
    witnesses.note(later)
    os.utime(witnesses._files[0].path, (0, 0))  # a disk's times may have steps
    witnesses._files[0].size = MOST + 1
    witnesses.note(earlier)
    for half in witnesses._files:
        os.close(half.file)
    assert [left.versions() for left in left_beside(tmp_path / "audit")] == [[*later, *earlier]]


def test_where_witnesses_are_written_in_part_nothing_may_be_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """EXTRA-OPS-03: the next ones take their place."""
    witnesses, write = Witnesses(tmp_path / "audit"), os.pwrite
    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", lambda file, data, at: write(file, data[:9], at))
        with pytest.raises(OSError, match="No space left on device"):
            witnesses.note([version(1)])
    witnesses.note([version(2)])
    for half in witnesses._files:
        os.close(half.file)
    assert [left.versions() for left in left_beside(tmp_path / "audit")] == [[version(2)]]


def test_witnesses_of_a_process_that_lives_are_not_left(tmp_path: Path) -> None:
    """EXTRA-OPS-03"""
    first, second = Witnesses(tmp_path / "audit"), Witnesses(tmp_path / "audit")
    first.note([version(1)])
    second.note([version(2)])
    assert list(left_beside(tmp_path / "audit")) == []
    first.remove()
    second.remove()
    assert list(tmp_path.iterdir()) == []
