"""The steps of one run on several hosts without a shared disk, by Celery: the host of a step is killed in a load."""

import json
import random
import re
import shutil
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faults.dagster_deployment import Dagster, deployment
from tests.support.commands import resources
from tests.support.hosts import CAN, LACKING, Host
from tests.support.payers import paid, payments
from tests.support.standing import until

for _module, _extra in (("obstore", "cluster"), ("dagster_postgres", "cluster"), ("dagster_celery", "celery")):
    pytest.importorskip(_module, reason=f"the extra `{_extra}` is not installed")
REDIS = shutil.which("redis-server")
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not CAN, reason=LACKING),
    pytest.mark.skipif(REDIS is None, reason="the program redis-server is not installed"),
]
PATIENTS, ROWS = 100, 24_000
STEP_SECONDS = 60
"""After which Redis gives a step of a lost host to another."""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[int]:
    """The port of a Redis."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [str(REDIS), "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as server:
        yield port
        server.terminate()


@pytest.fixture
def dagster(postgres, broker: int, tmp_path: Path) -> Iterator[Dagster]:
    more = {
        "CHARTFERRY_EXECUTOR": "celery",
        "CHARTFERRY_STEP_SECONDS": str(STEP_SECONDS),
        "CHARTFERRY_WORKERS": "2",
        "CHARTFERRY_REQUESTS_PER_SECOND": "1.5",
    }
    with deployment(postgres, tmp_path, PATIENTS, more, {"CHARTFERRY_BROKER": broker}) as made:
        yield made


def worker(dagster: Dagster, host: Host) -> "subprocess.Popen[Any]":
    """Start a worker of Celery on a host."""
    app = "tests.support.few_rows_a_part"
    return dagster.start(
        host, sys.executable, "-m", "celery", "-A", app, "worker", "-l", "INFO", "-n", f"{host.name}@%h"
    )


def where(dagster: Dagster) -> dict[str, str]:
    """Return the steps that were begun, and the host of each."""
    query = "SELECT event FROM event_logs WHERE event LIKE '%in celery worker%' ORDER BY id"
    events = [event for (event,) in dagster.told(query)]
    found = [(re.search(r"Executing steps (\S+) in celery", each), re.search(r"(\w+)@", each)) for each in events]
    return {step[1].rpartition("__")[2]: host[1] for step, host in found if step and host}


@pytest.mark.parametrize("killed", ["join[2]", "hold[1]"], ids=["that joins", "that holds the target"])
def test_a_host_that_is_killed_while_it_makes_a_step_is_done_without(dagster: Dagster, killed: str) -> None:
    """SCALE-02, SCALE-03: the steps of one run load its parts on two hosts, and every payment is made once."""
    text, source = payments("a", ROWS, PATIENTS, random.Random(7))
    first, hosts = dagster.host(), [dagster.host(), dagster.host()]
    first.takes(dagster.address)
    dagster.code_server(first)
    until(dagster.listens, "the code server")  # it makes Dagster's tables
    at_work = {host.name: worker(dagster, host) for host in hosts}
    dagster.pages_and_daemon(first)
    dagster.bucket.put("exports/payments-a.csv", text.encode(), None, None)
    until(lambda: dagster.created() > 2_000, "the load")
    parts = "SELECT count(DISTINCT machine) FROM part WHERE owner <> ''"
    until(lambda: int(dagster.asked(parts)) == 2, "parts that are loaded on two hosts")
    steps = where(dagster)
    assert steps["hold[1]"] != steps["join[2]"]
    [lost] = [host for host in hosts if host.name == steps[killed]]
    at_work[lost.name].kill()
    at_work[lost.name].wait()
    lost.loses_disk()
    assert 2_000 < dagster.created() < ROWS
    began = time.monotonic()
    until(lambda: dagster.created() == ROWS, "the load that goes on without")
    loaded = time.monotonic() - began
    until(lambda: "SUCCESS" in dagster.runs(first), "the run's end")
    print(f"all rows after {loaded:.0f} s, and the run's end after {time.monotonic() - began:.0f} s")
    assert dagster.runs(first).count("FAILURE") == 0
    assert dagster.asked("SELECT state FROM batch") == "finished"
    assert dagster.asked("SELECT created + adopted FROM batch") == ROWS
    assert Counter(paid(resources(dagster.client, "PaymentNotice"))) == source
    [left] = [host for host in hosts if host is not lost]
    assert verified(dagster, left) == []


def verified(dagster: Dagster, host: Host) -> Any:
    """What `verify` finds on a host."""
    code = "import sys; from pipelines.cli import run; sys.exit(run(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "--home", str(host.path / "home"), "verify", "--insecure", "--json"]
    done = host.start(command, dagster.environ, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
    out, _ = done.communicate(timeout=240)
    assert done.returncode == 0, out
    return json.loads(out[out.index("{") :])["differences"]
