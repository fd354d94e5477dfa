"""`chartferry up` in a separate process: its addresses and processes, and its Dagster's runs and partitions."""

import json
import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import httpx
import psutil

from tests.support import loopback
from tests.support.commands import command, environment
from tests.support.starting import start

PATIENCE_SECONDS = 1800
"""Seconds that a test waits for an event: far more than any event takes."""

PARTITIONS = """query ($asset: [String!]!) { assetNodeOrError(assetKey: {path: $asset}) { ... on AssetNode {
    assetPartitionStatuses { ... on DefaultPartitionStatuses {
        unmaterializedPartitions materializedPartitions failedPartitions materializingPartitions } } } } }"""
RUNS = """{ runsOrError(limit: 100) { ... on Runs { results { runId status jobName tags { key value } } } } }"""
EVENTS = """query ($run: ID!) { logsForRun(runId: $run) { ... on EventConnection { events {
    ... on MessageEvent { message } } } } }"""
CHILDREN = {
    "service": "fhir_service serve",
    "code server": "child_process code",
    "Dagster": "child_process web",
    "daemon": "child_process daemon",
}
UNDER_WAY = ("NOT_STARTED", "MANAGED", "QUEUED", "STARTING", "STARTED", "CANCELING")


@dataclass
class Standing:
    """A running `chartferry up`: the process of the supervisor, and the addresses that it printed."""

    home: Path
    process: subprocess.Popen[str]
    addresses: dict[str, str]

    def ask(self, query: str, **variables: Any) -> dict[str, Any]:
        """Return Dagster's answer to a GraphQL query. Ask again while its web server restarts."""

        def answer() -> dict[str, Any] | None:
            try:
                body = {"query": query, "variables": variables}
                said = loopback.post(f"{self.addresses['Dagster']}/graphql", json=body, timeout=120, trust_env=False)
            except httpx.TransportError:
                return None
            assert "errors" not in said.json(), said.json()["errors"]
            return dict(said.json()["data"])

        found: dict[str, Any] = until(answer, "Dagster answers")
        return found

    def partitions(self, feed: str, stage: str = "loaded") -> dict[str, str]:
        """Return the state of each partition, such as `materialized`; nothing without a code server."""
        node = self.ask(PARTITIONS, asset=[feed, stage])["assetNodeOrError"]
        found = node.get("assetPartitionStatuses", {})
        return {key: state.removesuffix("Partitions") for state, keys in found.items() for key in keys}

    def runs(self) -> list[dict[str, Any]]:
        """Return the runs, newest first, each with its tags as a dict."""
        found = self.ask(RUNS)["runsOrError"]["results"]
        return [run | {"tags": {tag["key"]: tag["value"] for tag in run["tags"]}} for run in found]

    def nothing_under_way(self) -> bool:
        return not any(run["status"] in UNDER_WAY for run in self.runs())

    def messages(self, run_id: str) -> list[str]:
        """Return the messages of a run's event log."""
        events = self.ask(EVENTS, run=run_id)["logsForRun"]["events"]
        return [event["message"] for event in events if "message" in event]

    def child(self, name: str) -> psutil.Process | None:
        """Return the supervisor's current process of this name."""
        for child in psutil.Process(self.process.pid).children():
            with gone_is_none():
                if CHILDREN[name] in " ".join(child.cmdline()):
                    return child
        return None


@contextmanager
def gone_is_none() -> Iterator[None]:
    """Treat a process that ends during a look-up as None."""
    try:
        yield
    except psutil.NoSuchProcess:
        return


def until(found: Callable[[], Any], what: str, seconds: float = PATIENCE_SECONDS, pause: float = 0.5) -> Any:
    """Wait until a function returns a true value; return that value."""
    ends = time.monotonic() + seconds
    while not (value := found()):
        assert time.monotonic() < ends, f"it never came: {what}"
        time.sleep(pause)
    return value


@contextmanager
def running_up(home: Path, *options: object, **environ: str) -> Iterator[subprocess.Popen[str]]:
    """Run the supervisor over a home, in a process that ends with the test in any case."""
    surroundings = environment(CHARTFERRY_HOME=str(home), **environ)
    pipe = subprocess.PIPE
    arguments = command("chartferry", "up", *options)
    with start(arguments, env=surroundings, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def addresses(process: subprocess.Popen[str]) -> dict[str, str]:
    """Return the addresses that the supervisor prints before it says how to end it."""
    assert process.stdout
    found: dict[str, str] = {}
    for line in process.stdout:
        name, *rest = line.split()
        found[name] = rest[0] if rest else ""
        if line.startswith("Ctrl-C"):
            break
    return found


@contextmanager
def standing(home: Path, **environ: str) -> Iterator[Standing]:
    """Run `chartferry up` over a home on free ports. At the end, stop it and assert that no process of it is left."""
    with running_up(home, "--port", 0, "--web-port", 0, **environ) as process:
        found = addresses(process)
        assert {"service", "Dagster"} <= set(found), process.stderr and process.stderr.read()
        yield Standing(home, process, found)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0
    assert gone(home)


def published(home: Path) -> Counter[str]:
    """Return the published states of the batches."""
    with duckdb.connect(str(home / "published" / "reports.duckdb"), read_only=True) as tables:
        return Counter(state for (state,) in tables.sql("SELECT state FROM import_batch").fetchall())


def processes_of(home: Path) -> list[int]:
    """Return the processes that run in the home's environment."""
    found = []
    for process in psutil.process_iter():
        with gone_is_none():
            try:
                if process.environ().get("CHARTFERRY_HOME") == str(home) and process.pid != os.getpid():
                    found.append(process.pid)
            except psutil.AccessDenied:
                continue
    return found


def gone(home: Path, seconds: float = 120) -> bool:
    """Wait until all processes of a home have ended. Return True, or fail after a number of seconds."""
    until(lambda: not processes_of(home), f"the end of every process over {home}", seconds, 0.2)
    return True


@contextmanager
def client_of(home: Path, url: str) -> Iterator[httpx.Client]:
    """Yield a client of a running service with the importer's credentials."""
    credentials = json.loads((home / "credentials.json").read_text(encoding="utf-8"))
    form = {name: credentials[name] for name in ("client_id", "client_secret")}
    token = (
        loopback.post(f"{url}/auth/token", data=form | {"grant_type": "client_credentials"}).raise_for_status().json()
    )
    headers = {"authorization": f"Bearer {token['access_token']}"}
    with loopback.Client(base_url=url, headers=headers, timeout=60) as client:
        yield client
