"""The servers that are compared, each started empty and filled by its own means, and the PostgreSQL below them.

Each server has a folder of its own, which is removed at the end.
"""

import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx
import orjson
import psycopg

from bench.peers.bodies import BASE_URL, loading, reference
from bench.run import environment

ROOT = Path(__file__).resolve().parents[2]
HAPI = Path(__file__).with_name("hapi")
DEBIAN = Path("/usr/lib/postgresql")
INSTALL = "on Debian: apt-get install openjdk-17-jdk-headless maven postgresql wrk"
PROGRAMS = ("java", "mvn", "wrk")
USER = "bench"
# The user that PostgreSQL runs as: it refuses root.
POSTGRES_USER = "nobody" if os.geteuid() == 0 else None
POSTGRES = {"shared_buffers": "512MB", "max_wal_size": "8GB", "max_connections": "200", "listen_addresses": "127.0.0.1"}
HEAP = "2g"
JSON = "application/fhir+json"


class Unable(Exception):
    """The comparison cannot be made on this machine. The message says why, and what to do."""


@dataclass(frozen=True)
class Server:
    """A running server. search: the additional parameters that its search needs for an exact total."""

    name: str
    url: str
    headers: dict[str, str]
    bundle_type: str
    search: str = ""


# --- Requirements -------------------------------------------------------------------------------------


def missing() -> str | None:
    """Return a sentence that names the missing programs; None if all are installed."""
    absent = [program for program in PROGRAMS if not shutil.which(program)]
    absent += [] if postgres_programs() else ["PostgreSQL"]
    return f"Not installed: {', '.join(absent)}. Install them first; {INSTALL}" if absent else None


def postgres_programs() -> Path | None:
    """Return the folder of the newest installed PostgreSQL."""
    found = sorted(DEBIAN.glob("*/bin"), key=lambda folder: folder.parent.name.zfill(3))
    path = shutil.which("initdb")
    return found[-1] if found else Path(path).resolve().parent if path else None


# --- PostgreSQL ---------------------------------------------------------------------------------------


class Cluster:
    """A PostgreSQL server of the benchmark, with a random password."""

    def __init__(self, port: int, password: str) -> None:
        self.port, self.password = port, password

    def execute(self, statement: str, database: str = "postgres") -> None:
        with psycopg.connect(
            host="127.0.0.1", port=self.port, user=USER, password=self.password, dbname=database, autocommit=True
        ) as connection:
            connection.execute(statement.encode())

    def settle(self) -> None:
        """Make a checkpoint, so that none falls into the time of the next server."""
        self.execute("CHECKPOINT")

    def tidy(self) -> None:
        """Vacuum and analyze the tables, as autovacuum would do some time after the load."""
        for database in ("ours", "hapi"):
            self.execute("VACUUM ANALYZE", database)
        self.settle()


@contextmanager
def cluster() -> Iterator[Cluster]:
    """Start a new cluster with the databases `ours` and `hapi`. Its commits are durable: fsync is on."""
    programs = postgres_programs()
    assert programs
    folder = Path(tempfile.mkdtemp(prefix="peers-postgres-"))
    try:
        made = Cluster(free_port(), secrets.token_hex(16))
        (folder / "password").write_text(made.password)
        if POSTGRES_USER:
            for path in (folder, folder / "password"):
                shutil.chown(path, POSTGRES_USER)
        initdb = (programs / "initdb", "-D", folder / "data", "-U", USER, "--auth=scram-sha-256", "--encoding=UTF8")
        run(*initdb, "--locale=C.UTF-8", f"--pwfile={folder / 'password'}", user=POSTGRES_USER)
        options = [word for name, value in POSTGRES.items() for word in ("-c", f"{name}={value}")]
        serve = (programs / "postgres", "-D", folder / "data", "-k", folder, "-p", made.port, *options)
        with started("PostgreSQL", serve, folder / "log", {}, user=POSTGRES_USER, end=2) as process:
            until_it_answers(made, process, folder / "log")
            for database in ("ours", "hapi"):
                made.execute(f"CREATE DATABASE {database}")
            yield made
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def until_it_answers(made: Cluster, process: "subprocess.Popen[str]", log: Path) -> None:
    for _ in range(300):
        with suppress(psycopg.OperationalError):
            return made.execute("SELECT 1")
        if process.poll() is not None:
            break
        time.sleep(0.1)
    raise Unable(f"PostgreSQL did not start: {last_line(log)}")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


# --- The service of ours ------------------------------------------------------------------------------


@contextmanager
def ours(name: str, store: str, folder: Path, workers: int = 1) -> Iterator[Server]:
    """Start the bundled service with a number of processes, over a new store with the reference data."""
    folder.mkdir()
    settings = {"FHIR_SERVICE_STORE": store, "FHIR_SERVICE_AUDIT": str(folder / "audit.ndjson")}
    program = (sys.executable, "-m", "fhir_service")
    records = folder / "reference.ndjson"
    records.write_bytes(b"\n".join(map(orjson.dumps, reference())))
    run(*program, "load", "--refused", folder / "refused.ndjson", records, settings=settings)
    client = json.loads(run(*program, "client", "add", "--name", "peers", settings=settings))
    serve = (*program, "serve", "--port", "0", "--base-url", BASE_URL, "--workers", workers)
    with started(name, serve, folder / "log", settings) as process:
        url = first_line(name, process, folder / "log").split()[-1]
        form = {"grant_type": "client_credentials"} | {key: client[key] for key in ("client_id", "client_secret")}
        token = httpx.post(f"{url}/auth/token", data=form, trust_env=False).json()["access_token"]
        yield Server(name, url, {"authorization": f"Bearer {token}", "content-type": JSON}, "batch")


# --- HAPI ---------------------------------------------------------------------------------------------


def build() -> None:
    """Build HAPI's server of `hapi/pom.xml`; the first time, Maven downloads some 250 libraries."""
    run("mvn", "-B", "-ntp", "-q", "package", "dependency:copy-dependencies", "-DoutputDirectory=target/lib", cwd=HAPI)


@contextmanager
def hapi(name: str, made: Cluster, folder: Path) -> Iterator[Server]:
    """Start HAPI over the cluster, and give it the reference data."""
    folder.mkdir()
    settings = {
        "HAPI_URL": f"jdbc:postgresql://127.0.0.1:{made.port}/hapi?reWriteBatchedInserts=true",
        "HAPI_CONDITIONS_CACHED": "true",
        "HAPI_USER": USER,
        "HAPI_PASSWORD": made.password,
    }
    classes = f"{HAPI / 'target' / 'hapi-peer-1.jar'}{os.pathsep}{HAPI / 'target' / 'lib'}/*"
    with started(
        name, ("java", f"-Xms{HEAP}", f"-Xmx{HEAP}", "-cp", classes, "HapiPeer"), folder / "log", settings
    ) as process:
        url = first_line(name, process, folder / "log").strip()
        headers = {"content-type": JSON, "prefer": "return=minimal"}
        for body in loading():
            httpx.post(url, content=body, headers=headers, timeout=600, trust_env=False).raise_for_status()
        yield Server(name, url, headers, "transaction", "&_total=accurate")


def version() -> str:
    """The version of HAPI that is built."""
    return (HAPI / "pom.xml").read_text(encoding="utf-8").partition("<hapi.version>")[2].partition("<")[0]


# --- Processes ----------------------------------------------------------------------------------------


def run(*command: object, settings: dict[str, str] | None = None, user: str | None = None, cwd: Path = ROOT) -> str:
    """Run a program; return what it prints. Raises Unable with the last line of its error output."""
    done = subprocess.run(
        [str(word) for word in command], cwd="/" if user else cwd, env=environment() | (settings or {}),
        capture_output=True, text=True, check=False, user=user,
    )  # fmt: skip
    if done.returncode:
        said = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()] or ["it says nothing"]
        raise Unable(f"{Path(str(command[0])).name} failed: {said[-1].strip()[:500]}")
    return done.stdout


@contextmanager
def started(
    name: str, command: tuple[object, ...], log: Path, settings: dict[str, str], user: str | None = None, end: int = 15
) -> Iterator["subprocess.Popen[str]"]:
    """Start the process of a server. It gets the signal `end` when the block ends."""
    with (
        log.open("w") as errors,
        subprocess.Popen(
            [str(word) for word in command], cwd="/" if user else ROOT, env=environment() | settings,
            stdout=subprocess.PIPE, stderr=errors, text=True, user=user,
        ) as process,
    ):  # fmt: skip
        try:
            yield process
        finally:
            process.send_signal(end)
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                print(f"{name} did not end by itself and was killed", file=sys.stderr)


def first_line(name: str, process: "subprocess.Popen[str]", log: Path) -> str:
    """Return the line that a server prints when it is ready."""
    assert process.stdout
    line = process.stdout.readline()
    if not line:
        raise Unable(f"{name} did not start: {last_line(log)}")
    return line


def last_line(log: Path) -> str:
    lines = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    return lines[-1].strip()[:500] if lines else "it says nothing"
