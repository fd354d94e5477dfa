"""Stored writes of a killed service that lack a record in the audit get one at the next start, and only one."""

import os
import subprocess
import sys
import time
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest

from fhir_service.audit.records import read
from fhir_service.service import Service
from fhir_service.serving.audit_after_kill import put_on_record
from fhir_service.settings import Settings
from tests.service.serving.test_kills import prepared
from tests.support import loopback
from tests.support.bodies import task
from tests.support.starting import start

OTHER = {"for": {"reference": "Patient/p2"}}
Json = dict[str, Any]


def killed(store: Path, headers: dict[str, str], number: int, aside: Path | None = None) -> None:
    """A service that creates and changes tasks, one after another, until it dies behind a commit.

    aside: where the audit is moved before the last write.
    """
    command = [sys.executable, "-m", "tests.support.dying", "committed", str(number), str(store)]
    with start(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=os.environ) as service:
        assert service.stdout is not None
        url = service.stdout.readline().split()[-1]
        ids: list[str] = []
        with loopback.Client(base_url=url, headers=headers, timeout=20) as http, suppress(httpx.HTTPError):
            for turn in count(1):
                if aside and turn == number:
                    time.sleep(0.1)
                    audit_of(store).rename(aside)
                if turn % 2:
                    ids.append(http.post("/Task", json=task(turn)).headers["location"].rpartition("/")[2])
                else:
                    http.put(f"/Task/{ids[-1]}", json=task(turn, **OTHER))
        assert service.wait(20) == -9


def audit_of(store: Path) -> Path:
    return store.with_name(f"{store.name}.audit.ndjson")


def started_again(store: Path) -> list[Json]:
    """The records of writes once the service has started again, by time."""
    service = Service.open(Settings(store=str(store)))
    try:
        put_on_record(service)
    finally:
        service.close()
    return [one for one in read(audit_of(store), None, None, None) if one["interaction"] in ("create", "update")]


@pytest.mark.parametrize("number", [1, 2, 3, 6])
def test_the_last_write_has_a_record_and_each_other_one_its_own(tmp_path: Path, number: int) -> None:
    """EXTRA-OPS-03: of an update, the patients of before and after are named."""
    store = tmp_path / "service.duckdb"
    killed(store, prepared(store), number)
    records = started_again(store)
    assert [one["interaction"] for one in records] == (["create", "update"] * number)[:number]
    assert [one["status"] for one in records] == ([201, 200] * number)[:number]
    assert [sorted(one["patients"]) for one in records] == ([["p1"], ["p1", "p2"]] * number)[:number]
    assert [bool(one["correlation"]) for one in records] == [True] * (number - 1) + [False]
    assert records[-1]["stored_at"] <= records[-1]["time"]
    assert len({one["client"] for one in records}) == 1
    assert started_again(store) == records


def test_a_service_does_so_before_it_answers(tmp_path: Path) -> None:
    """EXTRA-OPS-03"""
    store = tmp_path / "service.duckdb"
    killed(store, prepared(store), 1)
    command = [sys.executable, "-m", "tests.support.dying", "commit", "9", str(store)]
    with start(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=os.environ) as service:
        assert service.stdout is not None
        service.stdout.readline()
        found = [one["interaction"] for one in read(audit_of(store), None, None, None)]
        service.terminate()
        assert service.wait(20) == 0
    assert found == ["create"]


def test_a_write_recorded_in_a_rotated_audit_file_gets_no_second_record(tmp_path: Path) -> None:
    """EXTRA-OPS-03"""
    store = tmp_path / "service.duckdb"
    killed(store, prepared(store), 4, tmp_path / "former.ndjson")
    assert [one["interaction"] for one in started_again(store)] == ["update"]
    former = [one["interaction"] for one in read(tmp_path / "former.ndjson", None, None, None)]
    assert former == ["create", "update", "create"]


def test_a_service_that_ended_by_itself_has_left_nothing(tmp_path: Path) -> None:
    """EXTRA-OPS-03: what the audit lacks then was taken from it."""
    store = tmp_path / "service.duckdb"
    killed(store, prepared(store), 3)
    store.with_name(f"{store.name}.run").unlink()
    assert len(started_again(store)) == 2


def test_an_audit_that_cannot_be_understood_keeps_no_service_from_starting(tmp_path: Path) -> None:
    """EXTRA-OPS-06"""
    store = tmp_path / "service.duckdb"
    killed(store, prepared(store), 3)
    with audit_of(store).open("a") as file:
        file.write('{"interaction":7,"time":"soon"}\n')
    service = Service.open(Settings(store=str(store)))
    put_on_record(service)
    service.close()


def test_an_audit_that_is_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    """EXTRA-OPS-06: its lines are gone."""
    store = tmp_path / "service.duckdb"
    killed(store, prepared(store), 1)
    audit_of(store).unlink(missing_ok=True)
    os.mkfifo(audit_of(store))
    service = Service.open(Settings(store=str(store)))
    put_on_record(service)
    service.close()
