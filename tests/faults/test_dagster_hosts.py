"""Dagster on several hosts without a shared disk: pages and daemon on one, the code server and its runs on another.

The host with the runs is killed with its disk in the middle of a load; a third one takes its place.
"""

import random
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
import yaml

from pipelines.home.dagster_folder import DAGSTER_YAML
from tests.conftest import running
from tests.support.commands import resources
from tests.support.deployments import database, psycopg_address, reached, settings
from tests.support.fake_s3 import fake_bucket
from tests.support.hosts import CAN, LACKING, Host, Network, network
from tests.support.payers import paid, payments, practice
from tests.support.standing import until

pytest.importorskip("obstore", reason="the extra `cluster` is not installed")
pytest.importorskip("dagster_postgres", reason="the extra `cluster` is not installed")
pytestmark = [pytest.mark.long, pytest.mark.skipif(not CAN, reason=LACKING)]
PATIENTS, ROWS = 100, 12_000
CODE_PORT, PAGES_PORT = 4000, 3000
MODULE = "pipelines.definitions"
RUNS = "{ runsOrError { ... on Runs { results { status jobName } } } }"


class Dagster:
    """Processes of Dagster on hosts."""

    def __init__(self, joined: Network, environ: dict[str, str], stack: ExitStack, folder: Path) -> None:
        self.network, self._environ, self._stack, self._folder = joined, environ, stack, folder
        self.address = f"{joined.prefix}.200"

    def host(self) -> Host:
        """A host that has only the settings of Dagster."""
        host = self.network.host()
        self.prepare(host)
        return host

    def prepare(self, host: Host) -> None:
        folder = host.disk / "home" / "dagster"
        folder.mkdir(parents=True)
        storage = {"postgres": {"postgres_url": {"env": "DAGSTER_POSTGRES_URL"}}}
        (folder / "dagster.yaml").write_text(yaml.safe_dump({**yaml.safe_load(DAGSTER_YAML), "storage": storage}))
        server = {"host": self.address, "port": CODE_PORT, "location_name": MODULE}
        (folder / "workspace.yaml").write_text(yaml.safe_dump({"load_from": [{"grpc_server": server}]}))

    def start(self, host: Host, *command: str) -> "subprocess.Popen[Any]":
        home = host.path / "home"
        environ = {**self._environ, "CHARTFERRY_HOME": str(home), "DAGSTER_HOME": str(home / "dagster")}
        log = self._stack.enter_context((self._folder / f"{host.name}-{Path(command[0]).name}.log").open("w"))
        process = host.start(command, environ, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self._stack.callback(process.wait)
        self._stack.callback(process.kill)
        return process

    def code_server(self, host: Host) -> "subprocess.Popen[Any]":
        return self.start(host, sys.executable, "-m", "pipelines.dagster.code_server", MODULE, f"0.0.0.0:{CODE_PORT}")

    def listens(self) -> bool:
        """True if a code server is there."""
        with socket.socket() as tried:
            tried.settimeout(1)
            return tried.connect_ex((self.address, CODE_PORT)) == 0

    def pages_and_daemon(self, host: Host) -> None:
        workspace = str(host.path / "home" / "dagster" / "workspace.yaml")
        programs = Path(sys.executable).parent
        where: Sequence[str] = ("-h", host.address, "-p", str(PAGES_PORT))
        self.start(host, str(programs / "dagster-webserver"), *where, "-w", workspace)
        self.start(host, str(programs / "dagster-daemon"), "run", "-w", workspace)

    def runs(self, pages: Host) -> list[str]:
        """The states of imports, as the pages show them."""
        answer = httpx.post(f"http://{pages.address}:{PAGES_PORT}/graphql", json={"query": RUNS}, timeout=60)
        found = answer.json()["data"]["runsOrError"]["results"]
        return [run["status"] for run in found if run["jobName"] == "import_payments"]


@pytest.fixture
def hosts(postgres, tmp_path: Path) -> Iterator[tuple[Dagster, Any, Any, Any]]:
    folder = tmp_path / "service"
    folder.mkdir()
    world = practice(folder / "world", PATIENTS)
    with (
        running(folder, world=world) as service,
        fake_bucket() as bucket,
        postgres.database() as ledger,
        postgres.database() as storage,
        network(tmp_path) as joined,
    ):
        client = service.service.auth.add_client("importer")
        environ = settings(
            joined,
            reached(joined, service.url),
            client,
            bucket,
            ledger,
            CHARTFERRY_INBOX="s3://bucket/exports",
            CHARTFERRY_REQUESTS_PER_SECOND="2",
            DAGSTER_POSTGRES_URL=f"postgresql+psycopg2://{database(joined, storage)}",
            DAGSTER_DISABLE_TELEMETRY="yes",
        )
        (logs := tmp_path / "logs").mkdir()
        with ExitStack() as processes:
            made = Dagster(joined, environ, processes, logs)
            yield made, service.client, bucket, psycopg_address(ledger)


def test_a_host_that_is_killed_in_a_load_is_replaced_by_one_with_an_empty_disk(hosts) -> None:
    """SCALE-03: the run is made again there, from ledger and store alone, and every payment is made once."""
    dagster, client, bucket, ledger = hosts

    def asked(query: str) -> Any:
        with psycopg.connect(ledger) as connection:
            return connection.execute(query.encode()).fetchall()[0][0]

    def created() -> int:
        return int(asked("SELECT count(*) FROM record WHERE state = 'created'"))

    text, source = payments("a", ROWS, PATIENTS, random.Random(7))
    pages, first, second = dagster.host(), dagster.host(), dagster.host()
    first.takes(dagster.address)
    server = dagster.code_server(first)
    until(dagster.listens, "the code server")  # it makes Dagster's tables
    dagster.pages_and_daemon(pages)
    bucket.put("exports/payments-a.csv", text.encode(), None, None)
    until(lambda: asked("SELECT count(*) FROM pg_tables WHERE tablename = 'record'"), "the ledger")
    until(lambda: created() > 2_000, "the first host's load")
    server.kill()
    server.wait()
    first.loses_disk()
    assert 2_000 < created() < ROWS
    second.takes(dagster.address, first)
    pages.forgets_neighbours()
    dagster.code_server(second)
    until(lambda: created() == ROWS, "the second host's load")
    until(lambda: "SUCCESS" in dagster.runs(pages), "the run's end")
    assert asked("SELECT state FROM batch") == "finished"
    assert Counter(paid(resources(client, "PaymentNotice"))) == source
    assert dagster.runs(pages).count("FAILURE") == 1  # the export may be run once more, and makes nothing then
