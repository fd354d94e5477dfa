"""A deployment of Dagster on hosts that share no disk: what runs on them, and what they reach."""

import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import psycopg
import yaml

from pipelines.home.dagster_folder import DAGSTER_YAML
from tests.conftest import running
from tests.support.deployments import database, psycopg_address, reached, settings
from tests.support.fake_s3 import FakeBucket, fake_bucket
from tests.support.hosts import Host, Network, network
from tests.support.payers import practice
from tests.support.postgres import Postgres

ROOT = Path(__file__).parents[2]
CODE_PORT, PAGES_PORT = 4000, 3000
MODULE = "pipelines.definitions"
RUNS = "{ runsOrError { ... on Runs { results { status jobName } } } }"


class Dagster:
    """Processes of Dagster on hosts. client: of the target; ledger, storage: databases."""

    client: Any
    bucket: FakeBucket
    ledger: str
    storage: str

    def __init__(self, joined: Network, environ: dict[str, str], stack: ExitStack, folder: Path) -> None:
        self.network, self.environ, self._stack, self._folder = joined, environ, stack, folder
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
        environ = {**self.environ, "CHARTFERRY_HOME": str(home), "DAGSTER_HOME": str(home / "dagster")}
        log = self._stack.enter_context((self._folder / f"{host.name}-{Path(command[0]).name}.log").open("w"))
        process = host.start(command, environ, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=ROOT)
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

    def created(self) -> int:
        """How many records the ledger says were created, or found at the target as ours."""
        if not self.asked("SELECT count(*) FROM pg_tables WHERE tablename = 'record'"):
            return 0
        return int(self.asked("SELECT count(*) FROM record WHERE state IN ('created', 'adopted')"))

    def asked(self, query: str) -> Any:
        """Ask the ledger for one value."""
        with psycopg.connect(psycopg_address(self.ledger)) as connection:
            return connection.execute(query.encode()).fetchall()[0][0]

    def told(self, query: str) -> list[Any]:
        """Ask Dagster's storage."""
        with psycopg.connect(psycopg_address(self.storage)) as connection:
            return connection.execute(query.encode()).fetchall()


@contextmanager
def deployment(
    postgres: Postgres, folder: Path, patients: int, more: Mapping[str, str], served: Mapping[str, int]
) -> Iterator[Dagster]:
    """A network without hosts; target, ledger, bucket and storage are reached by it.

    more: settings of all hosts. served: further settings, each the address of a port of this machine.
    """
    (service_folder := folder / "service").mkdir()
    world = practice(service_folder / "world", patients)
    with (
        running(service_folder, world=world) as service,
        fake_bucket() as bucket,
        postgres.database() as ledger,
        postgres.database() as storage,
        network(folder) as joined,
    ):
        client = service.service.auth.add_client("importer")
        named = {name: f"redis://{joined.address}:{joined.serve(port)}/0" for name, port in served.items()}
        environ = settings(
            joined,
            reached(joined, service.url),
            client,
            bucket,
            ledger,
            CHARTFERRY_INBOX="s3://bucket/exports",
            DAGSTER_POSTGRES_URL=f"postgresql+psycopg2://{database(joined, storage)}",
            DAGSTER_DISABLE_TELEMETRY="yes",
            **more,
            **named,
        )
        (logs := folder / "logs").mkdir()
        with ExitStack() as processes:
            made = Dagster(joined, environ, processes, logs)
            made.client, made.bucket, made.ledger, made.storage = service.client, bucket, ledger, storage
            yield made
