"""One Dagster for two clinics on hosts of their own; the pages and daemon are on a third host. No disk is shared.

A clinic's host is killed with its disk in the middle of a load, and later the other's is cut off from the network. The
other clinic goes on each time, and the clinic itself once it is reached again.
"""

import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest

from tests.conftest import running
from tests.support.commands import BIN, environment, resources
from tests.support.deployments import database, psycopg_address, reached
from tests.support.fake_s3 import fake_bucket
from tests.support.hosts import CAN, LACKING, Host, Network, network
from tests.support.payers import Paid, paid, payments, practice
from tests.support.standing import until

pytest.importorskip("obstore", reason="the extra `cluster` is not installed")
pytest.importorskip("dagster_postgres", reason="the extra `cluster` is not installed")
pytestmark = [pytest.mark.long, pytest.mark.skipif(not CAN, reason=LACKING)]
PATIENTS, ROWS, FEW = 50, 5_000, 100
PORT, WEB_PORT = 4000, 3000
LOCATIONS = """{ workspaceOrError { ... on Workspace { locationEntries { name
    locationOrLoadError { __typename } } } } }"""
ASK = """import sys, urllib.request as u
asked = u.Request(sys.argv[1], sys.argv[2].encode(), {"content-type": "application/json"})
print(u.urlopen(asked, timeout=60).read().decode())
"""


class Deployment:
    """Hosts, what runs there, and what Dagster's storage says of it."""

    def __init__(self, joined: Network, storage: str, stack: ExitStack, logs: Path) -> None:
        self.network, self._stack, self._logs, self._storage = joined, stack, logs, storage
        self.common = {
            "DAGSTER_POSTGRES_URL": f"postgresql+psycopg2://{database(joined, storage)}",
            "CHARTFERRY_INSECURE": "yes",
            "CHARTFERRY_SETTLING_SECONDS": "0",
        }
        self._environs: dict[str, dict[str, str]] = {}

    def host(self, clinics: str, **environ: str) -> Host:
        """Return a host with a file of clinics, and with settings that it alone has."""
        host = self.network.host()
        self.furnish(host, clinics)
        self._environs[host.name] = environ
        return host

    def furnish(self, host: Host, clinics: str) -> None:
        (host.disk / "clinics.toml").write_text(clinics)
        (host.disk / "home" / "inbox").mkdir(parents=True)

    def start(self, host: Host, *words: str) -> "subprocess.Popen[Any]":
        """Start a command of `chartferry` on a host."""
        environ = environment(**self.common, **self._environs[host.name])
        log = self._stack.enter_context((self._logs / f"{host.name}.log").open("a"))
        process = host.start(
            [str(BIN / "chartferry"), *words], environ, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
        self._stack.callback(process.wait)
        self._stack.callback(process.kill)
        return process

    def serve(self, host: Host, clinic: str) -> "subprocess.Popen[Any]":
        return self.start(host, "clinic", str(host.path / "clinics.toml"), clinic, "serve")

    def said(self, host: Host) -> str:
        """Return what the command on a host has printed."""
        return (self._logs / f"{host.name}.log").read_text()

    def locations(self, pages: Host) -> dict[str, str]:
        """Return the code locations that the pages show, or the error that each has."""
        body, url = json.dumps({"query": LOCATIONS}), f"http://127.0.0.1:{WEB_PORT}/graphql"
        asked = ["ip", "netns", "exec", pages.name, sys.executable, "-c", ASK, url, body]
        answer = subprocess.run(asked, capture_output=True, text=True, check=False).stdout
        entries = json.loads(answer)["data"]["workspaceOrError"]["locationEntries"] if answer else []
        return {each["name"]: (each["locationOrLoadError"] or {}).get("__typename", "") for each in entries}

    def partitions(self) -> set[str]:
        """Return the partitions of all batches that Dagster knows."""
        with psycopg.connect(psycopg_address(self._storage)) as connection:
            return {key for (key,) in connection.execute("SELECT partition FROM dynamic_partitions").fetchall()}


def processes_of(host: Host) -> list[int]:
    found = subprocess.run(["ip", "netns", "pids", host.name], capture_output=True, text=True, check=True).stdout
    return [int(each) for each in found.split()]


def signaled(host: Host, number: int) -> None:
    """Send a signal to all processes of a host."""
    for pid in processes_of(host):
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def is_up(process: psutil.Process) -> bool:
    """True for `chartferry up` itself, and not for what has put it on its host."""
    words = process.cmdline()
    return "--clinics" in words and "unshare" not in words


def environs_of(host: Host) -> list[str]:
    """The environment of each process on a host."""
    environs = []
    for pid in processes_of(host):
        with suppress(OSError):
            environs.append(Path(f"/proc/{pid}/environ").read_text())
    return environs


def clinic_text(name: str, address: str, home: str = "") -> str:
    return f'[[clinic]]\nname = "{name}"\ncode_server = "{address}"\n{home}'


@pytest.fixture
def deployment(postgres, tmp_path: Path) -> Iterator[tuple[Deployment, Any, Any, Any, str]]:
    """The deployment, the clients of both targets, the bucket, and the ledger of north."""
    with ExitStack() as stack:
        targets = []
        for name in ("north", "south"):
            folder = tmp_path / name
            folder.mkdir()
            targets.append(stack.enter_context(running(folder, world=practice(folder / "world", PATIENTS))))
        bucket = stack.enter_context(fake_bucket())
        ledger, storage = (stack.enter_context(postgres.database()) for _ in range(2))
        joined = stack.enter_context(network(tmp_path))
        (logs := tmp_path / "logs").mkdir()
        made = Deployment(joined, storage, stack.enter_context(ExitStack()), logs)
        yield made, *targets, bucket, ledger


def test_a_clinics_host_that_is_lost_holds_up_no_other_clinic(deployment) -> None:
    """SCALE-03, SCALE-04: north has ledger and batches at servers, south has all on its own disk."""
    up, of_north, of_south, bucket, ledger = deployment
    movable = f"{up.network.prefix}.200"
    clients = [each.service.auth.add_client("importer") for each in (of_north, of_south)]
    credentials = [{"FHIR_CLIENT_ID": c["client_id"], "FHIR_CLIENT_SECRET": c["client_secret"]} for c in clients]
    urls = [reached(up.network, each.url) for each in (of_north, of_south)]
    at = {"north": f"{movable}:{PORT}", "south": f"{up.network.prefix}.4:{PORT}"}
    settings_of_north = {
        **{f"N_{name}": value for name, value in bucket.environ().items()},
        "N_AWS_ENDPOINT": reached(up.network, bucket.url),
        "N_CHARTFERRY_LEDGER": f"postgresql+psycopg://{database(up.network, ledger)}",
        "N_CHARTFERRY_BATCHES": "s3://bucket/batches",
        "N_CHARTFERRY_INBOX": "s3://bucket/exports",
        "N_CHARTFERRY_REQUESTS_PER_SECOND": "2",
        **{f"N_{name}": value for name, value in credentials[0].items()},
    }
    north_file = clinic_text("north", at["north"], f'home = "home"\nenvironment = "N_"\ntarget = "{urls[0]}"\n')
    south_file = clinic_text("south", at["south"], f'home = "home"\nenvironment = "S_"\ntarget = "{urls[1]}"\n')
    pages = up.host(clinic_text("north", at["north"]) + clinic_text("south", at["south"]))
    first = up.host(north_file, **settings_of_north)
    second = up.host(south_file, **{f"S_{name}": value for name, value in credentials[1].items()})
    third = up.host(north_file, **settings_of_north)
    assert at["south"].startswith(f"{second.address}:")

    def created(target: Any) -> int:
        return int(target.client.get("/PaymentNotice", params={"_count": 1}).raise_for_status().json()["total"])

    def of_ledger(query: str) -> Any:
        with psycopg.connect(psycopg_address(ledger)) as connection:
            return connection.execute(query.encode()).fetchall()[0][0]

    chosen, sources = random.Random(7), {"north": Paid(), "south": Paid()}

    def export(clinic: str, name: str, rows: int) -> None:
        text, source = payments(name, rows, PATIENTS, chosen)
        sources[clinic] += source
        if clinic == "north":
            bucket.put(f"exports/payments-{name}.csv", text.encode(), None, None)
        else:
            (second.disk / "home" / "inbox" / f"payments-{name}.csv").write_text(text)

    def arrived(clinic: str) -> bool:
        return created(of_north if clinic == "north" else of_south) == sources[clinic].total()

    # The pages come first, while nothing answers.
    first.takes(movable)
    up.start(pages, "--home", str(pages.path / "all"), "up", "--clinics", str(pages.path / "clinics.toml"))
    until(lambda: "north: its code server" in up.said(pages), "the pages look for the code servers")
    server = up.serve(first, "north")
    up.serve(second, "south")
    good = {"north": "RepositoryLocation", "south": "RepositoryLocation"}
    until(lambda: up.locations(pages) == good, "both clinics in the pages")
    # A host is killed with its disk in the middle of a load; the other clinic's file goes through meanwhile.
    export("north", "a", ROWS)
    until(lambda: of_ledger("SELECT count(*) FROM pg_tables WHERE tablename = 'record'"), "north's ledger")
    loaded = "SELECT count(*) FROM record WHERE state = 'created'"
    until(lambda: of_ledger(loaded) > 1_000, "north's load")
    server.kill()
    server.wait()
    first.loses_disk()
    assert of_ledger(loaded) < ROWS
    export("south", "b", FEW)
    until(lambda: arrived("south"), "south's file while north is dead", 300)
    until(lambda: up.locations(pages)["north"] != "RepositoryLocation", "the pages show that north is away")
    assert up.locations(pages)["south"] == "RepositoryLocation"
    # It goes on at another host under the address that it had.
    third.takes(movable, first)
    pages.forgets_neighbours()
    up.serve(third, "north")
    until(lambda: arrived("north"), "the rest of north's file")
    until(lambda: of_ledger("SELECT state FROM batch") == "finished", "the end of north's batch")
    # A feed that cannot be used, and its removal, are told on the clinic's host.
    feed = second.disk / "home" / "feeds" / "broken.toml"
    feed.write_text("no")
    until(lambda: "a feed, a view or a setting cannot be used" in up.said(second), "the broken feed is told", 300)
    feed.unlink()
    until(lambda: "feeds and views were read again" in up.said(second), "the feeds are read anew", 300)
    until(lambda: up.locations(pages) == good, "both clinics in the pages", 300)
    # The other's host is cut off and comes back.
    second.cut_off()
    export("south", "c", FEW)
    export("north", "d", FEW)
    until(lambda: arrived("north"), "north's file while south is cut off", 300)
    assert not arrived("south")
    second.cut_off(False)
    until(lambda: arrived("south"), "south's file once it is back", 600)
    # It is silent: it takes connections and never answers, while a run of it waits for its start.
    known = len(up.partitions())
    export("south", "e", FEW)
    until(lambda: len(up.partitions()) > known, "south's file is seen")
    signaled(second, signal.SIGSTOP)
    export("north", "f", FEW)
    until(lambda: arrived("north"), "north's file while south is silent", 300)
    signaled(second, signal.SIGCONT)
    until(lambda: arrived("south"), "south's file once it answers", 600)
    for target, clinic in ((of_north, "north"), (of_south, "south")):
        assert Counter(paid(resources(target.client, "PaymentNotice"))) == sources[clinic]
    assert {each.partition("/")[0] for each in up.partitions()} == {"north", "south"}
    # No host has the secrets of another clinic.
    secrets = {host.name: values["client_secret"] for host, values in zip((third, second), clients, strict=True)}
    for host in (pages, second, third):
        environs = environs_of(host)
        assert len(environs) >= 3
        for name, secret in secrets.items():
            assert any(secret in each for each in environs) == (host.name == name), (host.name, name)
    # Asked to end, the processes of pages and daemon do.
    [supervisor] = [each for each in map(psutil.Process, processes_of(pages)) if is_up(each)]
    supervisor.terminate()
    until(lambda: not processes_of(pages), "the end of pages and daemon", 120)
    assert up.said(pages).endswith("stopping ...\nstopped\n")
