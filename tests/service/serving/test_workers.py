"""`serve --workers N`: processes behind one address, watched and replaced, with their metrics in one place."""

import json
import signal
from pathlib import Path

import pytest

from fhir_service.settings import SettingError, Settings
from tests.support import loopback
from tests.support.alive import lives
from tests.support.commands import command, environment
from tests.support.contention import authorized
from tests.support.standing import until
from tests.support.starting import finish
from tests.support.supervised import WORKERS, supervised


def test_a_process_that_dies_is_replaced_while_the_others_answer(url: str, tmp_path: Path) -> None:
    """CLI-SVC-02: the counters at any are those of all, and all end where the one that watches them is killed."""
    with supervised(url, tmp_path, code=-signal.SIGKILL) as (watching, address):
        headers = authorized(url)

        def requests() -> float:
            lines = loopback.get(f"{address}/metrics", headers=headers).text.splitlines()
            name = 'fhir_requests_total{method="GET",path="/Task",status="200"} '
            return next((float(line.removeprefix(name)) for line in lines if line.startswith(name)), 0.0)

        def ask(times: int) -> None:
            for _ in range(times):
                assert loopback.get(f"{address}/Task", headers=headers, timeout=60).status_code == 200

        ask(20)
        assert requests() == 20
        first, *others = watching.children()
        assert len(others) == WORKERS - 1
        first.kill()
        ask(20)
        assert requests() == 40
        until(lambda: len(watching.children()) == WORKERS and first not in watching.children(), "another process")
        assert set(others) < set(watching.children())
        children = watching.children()
        assert json.loads(loopback.get(f"{address}/health").text)["status"] == "ok"
        watching.kill()
        until(lambda: not any(lives(child.pid) for child in children), "the end of all")


@pytest.mark.long
def test_a_store_that_cannot_be_opened_is_named_once(tmp_path: Path) -> None:
    arguments = command("fhir-service", "serve", "--store", "postgresql://x@127.0.0.1:1/y", "--workers", 2, "--port", 0)
    done = finish(arguments, env=environment(), cwd=tmp_path, timeout=60)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (1, "", 1)


def test_a_duckdb_file_is_served_by_one_process() -> None:
    """CLI-SVC-01"""
    with pytest.raises(SettingError, match="one process at a time can write to a DuckDB file"):
        Settings(store="service.duckdb", workers=2)
    with pytest.raises(SettingError, match="workers: a number between 1 and 64"):
        Settings(store="postgresql://x@y/z", workers=0)
