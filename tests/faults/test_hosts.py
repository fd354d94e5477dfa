"""Hosts that share no disk import with workers: one is killed with its disk, one is cut off and comes back."""

import json
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.conftest import running
from tests.support.commands import resources
from tests.support.deployments import psycopg_address, reached, settings
from tests.support.fake_s3 import fake_bucket
from tests.support.hosts import CAN, LACKING, Host, Network, network
from tests.support.payers import HEADER, Paid, paid, payments, practice
from tests.support.standing import until

pytest.importorskip("obstore", reason="the extra `cluster` is not installed")
pytestmark = [pytest.mark.long, pytest.mark.skipif(not CAN, reason=LACKING)]
PATIENTS, ROWS, FEW = 100, 12_000, 5_000
IMPORTER = (
    "import sys; from pipelines.cli import run; from pipelines.runs import parts; parts.ROWS_A_WORKER = 2_000; "
    "sys.exit(run(sys.argv[1:]))"
)
"""The command, with workers for a file of few rows."""
SECONDS = 480.0


@dataclass
class Deployment:
    """The target, ledger and store that the hosts share over the network."""

    network: Network
    environ: dict[str, str]
    ledger: str
    client: Any

    def host(self, rows: int, name: str, source: Paid) -> Host:
        """A host with an export in its inbox. source: what all exports come to."""
        host = self.network.host()
        inbox = host.disk / "home" / "inbox"
        inbox.mkdir(parents=True)
        text, came = payments(name, rows, PATIENTS, random.Random(name)) if rows else (HEADER + "\n", Counter())
        if rows:
            (inbox / f"payments-{name}.csv").write_text(text)
        source.update(came)
        return host

    def begin(self, host: Host, *arguments: str) -> "subprocess.Popen[str]":
        whole = [sys.executable, "-c", IMPORTER, "--home", str(host.path / "home"), *arguments]
        pipe = subprocess.PIPE
        return host.start(
            whole, self.environ, stdout=pipe, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True
        )

    def does(self, host: Host, *arguments: str) -> tuple[int, str]:
        with self.begin(host, *arguments) as process:
            out, _ = process.communicate(timeout=SECONDS)
        assert "Traceback" not in out
        return process.returncode, out

    def asked(self, query: str) -> list[Any]:
        with psycopg.connect(self.ledger) as connection:
            return connection.execute(query.encode()).fetchall()

    def created(self) -> int:
        is_there = self.asked("SELECT 1 FROM pg_tables WHERE tablename = 'record'")
        return int(self.asked("SELECT count(*) FROM record WHERE state = 'created'")[0][0]) if is_there else 0


@pytest.fixture
def deployment(postgres, tmp_path: Path) -> Iterator[Deployment]:
    folder = tmp_path / "service"
    folder.mkdir()
    world = practice(folder / "world", PATIENTS)
    with (
        running(folder, world=world) as service,
        fake_bucket() as bucket,
        postgres.database() as url,
        network(tmp_path) as joined,
    ):
        client = service.service.auth.add_client("importer")
        target = reached(joined, service.url)
        environ = settings(joined, target, client, bucket, url, CHARTFERRY_REQUESTS_PER_SECOND="2")
        yield Deployment(joined, environ, psycopg_address(url), service.client)


WORKERS = ("import", "--insecure", "--workers", "2")


def agree(deployment: Deployment, host: Host, source: Paid) -> None:
    """Source, ledger and target agree, to the row and the cent."""
    assert paid(resources(deployment.client, "PaymentNotice")) == source
    assert deployment.created() == sum(source.values())
    code, out = deployment.does(host, "verify", "--insecure", "--json")
    assert (code, json.loads(out[out.index("{") :])["differences"]) == (0, [])


def test_each_record_is_there_once_after_one_of_three_hosts_was_killed_with_its_disk(deployment: Deployment) -> None:
    """SCALE-01, SCALE-02, SCALE-03: each loads by two workers; the target has one loader at a time."""
    source: Paid = Counter()
    first, second, third = (deployment.host(rows, name, source) for rows, name in ((ROWS, "a"), (FEW, "b"), (FEW, "c")))
    killed = deployment.begin(first, *WORKERS)
    until(lambda: deployment.created() > 2_000, "the first host's load")
    killed.kill()
    killed.communicate()
    first.loses_disk()
    assert 2_000 < deployment.created() < ROWS
    others = [deployment.begin(host, *WORKERS) for host in (second, third)]
    for each in others:
        said, _ = each.communicate(timeout=SECONDS)
        assert each.returncode == 0, said
    agree(deployment, first, source)


def test_a_host_that_is_cut_off_and_comes_back_sends_nothing_more(deployment: Deployment) -> None:
    """SCALE-01, SCALE-02, SCALE-03: another has taken its load over."""
    source: Paid = Counter()
    first, second = deployment.host(ROWS, "a", source), deployment.host(FEW, "b", source)
    cut = deployment.begin(first, *WORKERS)
    until(lambda: deployment.created() > 2_000, "the first host's load")
    first.cut_off()
    assert deployment.created() < ROWS
    code, said = deployment.does(second, *WORKERS)
    assert code == 0, said
    first.cut_off(False)
    said, _ = cut.communicate(timeout=SECONDS)
    assert cut.returncode not in (0, 3), said
    agree(deployment, second, source)
