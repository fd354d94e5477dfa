"""Two PostgreSQL servers on loopback, a primary and its streaming standby, and an address that moves between them.

As a program it runs both until its input ends, and then removes them with their folder, however the parent ended. It
prints one line when both are ready: the folder and the ports, or `no PostgreSQL: <why>`.
"""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

import psycopg

from tests.support.postgres import USER, NoPostgres, _binaries, _reachable, _run, cluster, copy_cluster

OPTIONS = "-c fsync=off -c full_page_writes=off -c listen_addresses=127.0.0.1 -c max_connections=200"
SYNCHRONOUS = "-c synchronous_standby_names=* -c synchronous_commit=remote_apply"
WAYS = ("an address that moves", "both hosts")


class Address:
    """A loopback port that leads to another port. Moving it cuts all connections."""

    def __init__(self, port: int) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._to, self._open = port, set[socket.socket]()
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def port(self) -> int:
        return int(self._listening.getsockname()[1])

    def move(self, port: int) -> None:
        self._to = port
        for each in list(self._open):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listening.close()
        self.move(0)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                came, _ = self._listening.accept()
                threading.Thread(target=self._serve, args=[came], daemon=True).start()

    def _serve(self, came: socket.socket) -> None:
        with came, suppress(OSError), socket.create_connection(("127.0.0.1", self._to)) as there:
            self._open |= {came, there}
            back = threading.Thread(target=_pump, args=[there, came], daemon=True)
            back.start()
            _pump(came, there)
            back.join()
            self._open -= {came, there}


def _pump(one: socket.socket, other: socket.socket) -> None:
    with suppress(OSError):
        while said := one.recv(1 << 16):
            other.sendall(said)
    for each in (one, other):
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)


class Pair:
    """A primary and its standby. way: one of `WAYS` in which clients find the primary."""

    def __init__(self, folder: Path, ports: tuple[int, int], way: str, address: Address) -> None:
        self._folder, self._ports, self._way, self._address = folder, ports, way, address

    def create(self, name: str = "ledger") -> str:
        """Make a database, and return its SQLAlchemy URL once the standby has it."""
        self._execute(0, f"CREATE DATABASE {name}")
        self.catch_up()
        if self._way == "both hosts":
            hosts = "&".join(f"host=127.0.0.1:{port}" for port in self._ports)
            return f"postgresql+psycopg://tests@/{name}?{hosts}&target_session_attrs=read-write"
        return f"postgresql+psycopg://tests@127.0.0.1:{self._address.port}/{name}"

    def catch_up(self) -> None:
        """Wait until the standby has all that the primary has."""
        [(now,)] = self._execute(0, "SELECT pg_current_wal_lsn()")
        until(lambda: self._execute(1, f"SELECT pg_last_wal_replay_lsn() >= '{now}'") == [(True,)])

    def hold_back(self) -> None:
        """Stop the replication to the standby."""
        self._execute(1, "ALTER SYSTEM SET primary_conninfo = ''")
        self._execute(1, "SELECT pg_reload_conf()")
        until(lambda: self._execute(1, "SELECT count(*) FROM pg_stat_wal_receiver") == [(0,)])

    def kill(self) -> None:
        """End the primary at once, as a crash does."""
        _run(_programs(self._folder) / "pg_ctl", "stop", "-m", "immediate", "-D", self._folder / "primary")

    def promote(self) -> None:
        """Make the standby the primary, under the same address."""
        _run(_programs(self._folder) / "pg_ctl", "promote", "-w", "-D", self._folder / "standby")
        self.move()

    def move(self) -> None:
        """Move the address to the standby."""
        self._address.move(self._ports[1])

    def fail_over(self) -> None:
        self.kill()
        self.promote()

    def read(self, url_name: str, query: str) -> list[tuple[object, ...]]:
        """Run a query on a database of the former standby."""
        return self._execute(1, query, url_name)

    def _execute(self, which: int, sql: str, database: str = "postgres") -> list[tuple[object, ...]]:
        with closing(_connection(self._ports[which], database)) as connection:
            done = connection.execute(sql.encode())
            return done.fetchall() if done.description else []


def until(holds: Callable[[], bool]) -> None:
    for _ in range(600):
        if holds():
            return
        time.sleep(0.02)
    raise AssertionError("it does not come to hold")


@contextmanager
def running_pair(way: str = WAYS[0], synchronous: bool = True) -> Iterator[Pair]:
    """Run a primary and a standby that end with the block, or with this process. Raises NoPostgres.

    synchronous: true if the primary acknowledges a commit only when the standby has applied it.
    """
    command = [sys.executable, "-m", __name__, str(cluster()), *(["synchronous"] if synchronous else [])]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        says = process.stdout.readline().split()
        if not says or not says[0].startswith("/"):
            raise NoPostgres(" ".join(says) or "no PostgreSQL: it did not start")
        ports = (int(says[1]), int(says[2]))
        with closing(Address(ports[0])) as address:
            yield Pair(Path(says[0]), ports, way, address)


# --- The process that keeps the servers -------------------------------------------------------------


def _programs(folder: Path) -> Path:
    return _reachable(_binaries(), folder)


def _connection(port: int, database: str = "postgres") -> "psycopg.Connection[tuple[object, ...]]":
    return psycopg.connect(host="127.0.0.1", port=port, user="tests", dbname=database, autocommit=True)


def _free_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return int(bound.getsockname()[1])


def _start(folder: Path, name: str, port: int, stack: ExitStack, options: str = "") -> None:
    programs, data = _programs(folder), folder / name
    started = f"-p {port} -k {folder} {OPTIONS} {options}"
    _run(programs / "pg_ctl", "start", "-w", "-D", data, "-l", folder / f"{name}.log", "-o", started)
    stack.callback(_stop, programs, data)


def _stop(programs: Path, data: Path) -> None:
    with suppress(NoPostgres):  # it was killed
        _run(programs / "pg_ctl", "stop", "-m", "immediate", "-D", data)


def _keep(folder: Path, files: str, synchronous: bool) -> None:
    if USER:
        shutil.chown(folder, USER)
    ports = (_free_port(), _free_port())
    for name in ("primary", "standby"):
        copy_cluster(files, folder / name)
    (folder / "standby" / "standby.signal").touch()
    with (folder / "standby" / "postgresql.auto.conf").open("a") as settings:
        settings.write(f"primary_conninfo = 'host=127.0.0.1 port={ports[0]} user=tests'\n")
    with ExitStack() as stack:
        _start(folder, "primary", ports[0], stack, SYNCHRONOUS if synchronous else "")
        _start(folder, "standby", ports[1], stack)
        with closing(_connection(ports[0])) as primary:
            streams = "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'"
            until(lambda: primary.execute(streams.encode()).fetchall() == [(1,)])
        print(folder, *ports, flush=True)
        sys.stdin.read()


def main() -> None:
    os.umask(0o022)
    folder = Path(tempfile.mkdtemp(prefix="standby-"))
    try:
        _keep(folder, sys.argv[1], "synchronous" in sys.argv[2:])
    except (NoPostgres, OSError, LookupError) as error:
        print(f"no PostgreSQL: {error}", flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
