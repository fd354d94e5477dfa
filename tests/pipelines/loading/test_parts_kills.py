"""SIGKILL of the importer and of its workers at random moments, against the real service, and in the end all agree."""

import multiprocessing
import os
import random
import time
from contextlib import suppress

import psutil
import pytest

from pipelines.cli import run
from pipelines.runs import parts, watching
from tests.conftest import running
from tests.pipelines.loading.test_importer_kills import PATIENTS, PRELOADED, check, source
from tests.support.commands import forget_settings
from tests.support.payers import practice

CHILDREN = multiprocessing.get_context("forkserver")
WORKERS = 3


@pytest.fixture(scope="module", autouse=True)
def preloaded():
    CHILDREN.set_forkserver_preload([*PRELOADED, "tests.pipelines.loading.test_parts_kills"])


@pytest.fixture
def service(tmp_path):
    folder = tmp_path / "service"
    folder.mkdir()
    with running(folder, world=practice(folder / "world", PATIENTS)) as found:
        yield found


def an_import(home, environ):
    os.environ.update(environ)
    with open(os.devnull, "w") as nothing:  # noqa: PTH123 - a device
        os.dup2(nothing.fileno(), 1)
        os.dup2(nothing.fileno(), 2)
    few_rows_are_enough()
    os._exit(run(["--home", str(home), "import"]))


def few_rows_are_enough():
    parts.ROWS_A_WORKER = 10
    watching.LOOK_SECONDS = 0.02


@pytest.mark.long
@pytest.mark.parametrize("seed", range(20))
def test_store_ledger_and_source_agree_after_kills_of_importer_and_workers(
    service, tmp_path, monkeypatch, capsys, seed
):
    """SCALE-02, LEDGER-01, LEDGER-05: workers are killed two or three times, the importer up to twice."""
    chosen, home = random.Random(seed), tmp_path / "home"
    credentials = service.service.auth.add_client(f"importer {seed}")
    environ = {
        "FHIR_BASE_URL": service.url,
        "FHIR_CLIENT_ID": credentials["client_id"],
        "FHIR_CLIENT_SECRET": credentials["client_secret"],
        "CHARTFERRY_SETTLING_SECONDS": "0",
        "CHARTFERRY_WORKERS": str(WORKERS),
    }
    forget_settings(monkeypatch)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(parts, "ROWS_A_WORKER", 10)
    wanted = source(home, f"s{seed}", chosen)
    killed = 0
    for _ in range(1 + seed % 2):
        child = CHILDREN.Process(target=an_import, args=(home, environ))
        child.start()
        for _ in range(chosen.randint(2, 3)):
            killed += kill_a_worker(child, chosen)
        child.join(chosen.uniform(0.0, 2.0))
        child.kill()
        child.join()
    assert killed
    deadline = time.monotonic() + 120
    while run(["--home", str(home), "import"]) != 0:
        assert time.monotonic() < deadline, "".join(capsys.readouterr())
    check(service, home, wanted, capsys)


def kill_a_worker(importer, chosen):
    """Kill a worker of the importer a while after one is there; return how many were killed."""
    ends = time.monotonic() + 20
    while importer.is_alive() and time.monotonic() < ends:
        with suppress(psutil.NoSuchProcess):
            for each in psutil.Process(importer.pid).children():
                if "pipelines.runs.worker" in each.cmdline():
                    time.sleep(chosen.uniform(0.5, 2.5))
                    each.kill()
                    return 1
        time.sleep(0.01)
    return 0
