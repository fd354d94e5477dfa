"""Machines that are killed at a write to the store of batches: another one continues, with nothing lost or doubled."""

import json
import multiprocessing
import os
import shutil
import signal
from typing import Any
from unittest.mock import patch

import pytest

from pipelines.cli import run
from pipelines.home import stores
from pipelines.home.stores import store_at
from pipelines.loading.book import Book
from tests.pipelines.loading.test_importer_kills import PRELOADED
from tests.support.dying import at_call
from tests.support.emulated import SERVERS, Served, emulated
from tests.support.machines import ROWS, Machines, amounts, has_rows

pytest.importorskip("obstore", reason="the extra `cluster` is not installed")
CHILDREN = multiprocessing.get_context("forkserver")


@pytest.fixture(scope="module", autouse=True)
def preloaded() -> None:
    CHILDREN.set_forkserver_preload([*PRELOADED, "tests.pipelines.importing.test_stored_batches_kills"])


def an_import(home: str, environ: dict[str, str], step: int, after: bool) -> None:
    os.environ.update(environ)
    for number in (1, 2):
        os.dup2(os.open(os.devnull, os.O_WRONLY), number)
    dying = at_call(step, after)
    for kind in (stores.Folder, stores.Bucket):
        for name in ("put", "swap"):
            setattr(kind, name, dying(getattr(kind, name)))
    os._exit(run(["--home", home, "import"]))


def an_import_that_dies_in_its_load(home: str, environ: dict[str, str]) -> None:
    os.environ.update(environ)
    for number in (1, 2):
        os.dup2(os.open(os.devnull, os.O_WRONLY), number)
    settle = Book._settle

    def dying(book: Book, results: Any) -> None:
        if results:
            os.kill(os.getpid(), signal.SIGKILL)
        settle(book, results)

    patch.object(Book, "_settle", dying).start()
    os._exit(run(["--home", home, "import"]))


@pytest.mark.parametrize("machines", ["folder"], indirect=True)
def test_rows_that_a_killed_machine_sent_are_settled_by_another_without_sending(machines, target):
    """SCALE-03, LEDGER-01: what it validated was kept before the ledger had its rows."""
    target.additions = False
    machines.put("one")
    about = (str(machines.home("one")), dict(os.environ))
    child = CHILDREN.Process(target=an_import_that_dies_in_its_load, args=about)
    child.start()
    child.join(120)
    assert child.exitcode == -signal.SIGKILL
    machines.loses("one")
    sent = len(amounts(target))
    resolved = machines.asked("two", "doubts", "resolve")
    assert sent
    assert len(resolved["adopted"]) == sent
    assert len(amounts(target)) == sent
    assert machines.asked("three", "import")["exit_code"] == 3
    assert amounts(target) == [1.0, 2.0]


def killed_at(machines: Machines, name: str, step: int, after: bool) -> bool:
    """Import on a machine that is killed at a write to the store; False if there are not that many."""
    child = CHILDREN.Process(target=an_import, args=(str(machines.home(name)), dict(os.environ), step, after))
    child.start()
    child.join(120)
    return child.exitcode == -signal.SIGKILL


def goes_on(machines: Machines, target, step: int, after: bool) -> bool:
    """Kill a machine at a write, go on with another, and let all agree; False if there are not that many writes."""
    file = machines.put("one")
    killed = killed_at(machines, "one", step, after)
    if file.exists():
        assert machines.asked("one", "import")["exit_code"] == 3
    machines.loses("one")
    done = machines.asked("two", "import")
    assert done["exit_code"] in (0, 3)
    assert amounts(target) == [1.0, 2.0]
    machines.loses("two")
    assert machines.asked("three", "verify")["differences"] == []
    _, out, _ = machines.does("three", "rejects", "export", "--json")
    assert [each["rejects"] for each in json.loads(out)["files"]] == [1]
    return killed


@pytest.mark.alike
@pytest.mark.parametrize("machines", ["folder"], indirect=True)
@pytest.mark.parametrize("step", [3, 12])
def test_another_machine_finishes_an_import_that_was_killed_at_a_write_to_the_store(machines, target, step):
    """SCALE-03, LEDGER-01"""
    assert goes_on(machines, target, step, after=step % 2 == 0)


@pytest.mark.long
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("step", range(1, 25))
def test_another_machine_finishes_an_import_that_was_killed_at_any_write_to_the_store(machines, target, step, after):
    """SCALE-03, LEDGER-01: before and after the write."""
    goes_on(machines, target, step, after)


@pytest.mark.long
@pytest.mark.parametrize(("scheme", "serve"), SERVERS)
def test_a_server_that_speaks_a_clouds_protocol_keeps_batches(
    scheme: str, serve: Served, home, target, postgres, tmp_path, monkeypatch, capsys
):
    """SCALE-03"""
    assert home.exists()
    place = f"{scheme}://batches/pre"
    with emulated(serve, tmp_path / "served", "batches", monkeypatch), postgres.database() as url:
        monkeypatch.setenv("CHARTFERRY_LEDGER", url)
        monkeypatch.setenv("CHARTFERRY_BATCHES", place)
        machines = Machines(tmp_path / "machines", place, capsys)
        for step in (2, 5, 9, 14):
            shutil.rmtree(machines.folder, ignore_errors=True)
            goes_on(machines, target, step, after=bool(step % 2))
        machines.put("one", ROWS.replace("k", "o").partition("o3")[0])
        batch = machines.asked("one", "import")["batches"][0]["batch_id"]
        assert machines.does("two", "purge", batch)[0] == 0
        store = store_at(machines.place)
        assert not has_rows(store, batch)
