"""The service, ledger and bucket of three hosts, for `several_hosts.py`; the run, and the comparison after it."""

import json
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb

from tests.faults.agreeing import disagreements
from tests.faults.many_exports import Exports, reference
from tests.faults.several_hosts import HOSTS, WORKERS, Figures, Place, import_all
from tests.support.commands import command, environment
from tests.support.deployments import psycopg_address, settings
from tests.support.fake_s3 import FakeBucket, fake_bucket
from tests.support.hosts import Host, Network, network
from tests.support.postgres import Postgres


@contextmanager
def deployment(
    folder: Path, patients: int, store: str, ledger: str, silence: float, say: Callable[[str], None]
) -> Iterator[tuple[Place, list[Host]]]:
    """A service by several processes over a store in PostgreSQL, a bucket, and hosts that have nothing but these.

    store, ledger: databases of the tests' PostgreSQL.
    """
    reference(folder / "reference", patients)
    (logs := folder / "logs").mkdir()
    (own := folder / "service").mkdir()
    with network(folder) as joined, fake_bucket() as bucket:
        _done(store, "load", str(folder / "reference"))
        client = json.loads(_done(store, "client", "add", "--name", "importer"))
        with served(joined, store, own) as target:
            environ = settings(
                joined,
                target,
                client,
                bucket,
                ledger,
                CHARTFERRY_INBOX="s3://bucket/exports",
                CHARTFERRY_COPIES="s3://bucket/tables",
            )
            place = Place(environ, psycopg_address(ledger), bucket, logs, silence, say)
            yield place, [joined.host() for _ in range(HOSTS)]


@contextmanager
def served(joined: Network, store: str, folder: Path) -> Iterator[str]:
    """Serve a store by two processes; yield their address for hosts."""
    arguments = command("fhir-service", "serve", "--store", store, "--host", joined.address, "--port", 0)
    more: dict[str, Any] = {"env": environment(), "cwd": folder, "stdout": subprocess.PIPE, "text": True}
    log = (folder / "service.log").open("w")
    with log, subprocess.Popen([*arguments, "--workers", str(WORKERS)], stderr=log, **more) as process:
        try:
            assert process.stdout
            yield process.stdout.readline().removeprefix("listening on ").strip()
        finally:
            process.terminate()


def _done(store: str, *arguments: str) -> str:
    whole = command("fhir-service", *arguments)
    environ = environment(FHIR_SERVICE_STORE=store)
    return subprocess.run(whole, env=environ, check=True, stdout=subprocess.PIPE, text=True).stdout


def published(bucket: FakeBucket, folder: Path) -> dict[str, int]:
    """Return how many rows tables of the newest copy have."""
    with bucket.lock:
        latest = json.loads(bucket.objects["tables/latest.json"][0])
        body = bucket.objects[f"tables/{latest['version']}/reports.duckdb"][0]
    (file := folder / "latest.duckdb").write_bytes(body)
    with duckdb.connect(str(file), read_only=True) as database:
        return {
            table: database.sql(f"SELECT count(*) FROM {table}").fetchall()[0][0]
            for table in ("payment", "task", "questionnaire_response")
        }


def run(
    folder: Path,
    postgres: Postgres,
    exports: Exports,
    patients: int,
    times: int,
    silence: float,
    say: Callable[[str], None] = print,
) -> tuple[Figures, dict[str, Any]]:
    """Import all exports with all faults, and compare all; return what happened, and what `verify` says."""
    with (
        postgres.database() as store,
        postgres.database() as ledger,
        deployment(folder, patients, store, ledger, silence, say) as (place, hosts),
    ):
        figures, lives = import_all(place, hosts, exports, times)
        say("all is imported")
        figures.wrong += disagreements(exports, psycopg_address(store), psycopg_address(ledger))
        code, said = lives[0].does("verify", "--insecure", "--json")
        found = json.loads(said[said.index("{") :])
        told = {name: found[name] for name in ("differences", "ledger_cents", "target_cents")}
        if code or told != {"differences": [], "ledger_cents": exports.cents, "target_cents": exports.cents}:
            figures.wrong.append(f"verify ended with {code}")
        say("all is compared")
        rows = Counter(wanted[0] for wanted in exports.wanted.values())
        if Counter(published(place.bucket, folder).values()) != Counter(rows.values()):
            figures.wrong.append("the tables of the newest copy do not have all rows")
        return figures, told
