"""Three hosts without a shared disk import many exports: some are killed at each step, some cut off and brought back.

All begin at once and take what is there, from one bucket to one target. Exports come as the faults happen, so that each
fault meets rows that are left.
"""

import random
import subprocess
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import psycopg

from tests.faults.many_exports import Exports
from tests.support.fake_s3 import FakeBucket
from tests.support.halting import STEPS
from tests.support.hosts import Host

ROOT = Path(__file__).parents[2]
HOSTS, WORKERS = 3, 2
KILL, CUT = "killed", "cut off"
AHEAD = 2
"""Exports that wait, at most, beyond those that are under way."""
IDENTITY = "deployment.id"
ENDS = 900.0
"""Seconds that an import may take."""


class Fault(NamedTuple):
    """A fault of a host at a step. turn: the number among its kind, which chooses point and length."""

    what: str
    step: str
    turn: int


def faults(times: int) -> list[deque[Fault]]:
    """Return the faults of each host: every step so many times, by a kill and by a cut."""
    every = [Fault(what, step, turn) for turn in range(times) for step in STEPS for what in (KILL, CUT)]
    return [deque(every[host::HOSTS]) for host in range(HOSTS)]


@dataclass
class Place:
    """What the hosts share. environ: of their commands. ledger: in psycopg's form. silence: see `halting.py`."""

    environ: dict[str, str]
    ledger: str
    bucket: FakeBucket
    logs: Path
    silence: float
    say: Callable[[str], None]

    def asked(self, query: str) -> int:
        with psycopg.connect(self.ledger) as connection:
            try:
                return int(connection.execute(query.encode()).fetchall()[0][0])
            except psycopg.errors.UndefinedTable:
                return 0

    def batches(self, which: str = "true") -> int:
        return self.asked(f"SELECT count(*) FROM batch WHERE {which}")

    def put(self, name: str, text: str) -> None:
        """Put an export into the inbox of all hosts, as one that is there for a while."""
        self.bucket.put(f"exports/{name}", text.encode(), None, None)
        with self.bucket.lock:
            body, _ = self.bucket.objects[f"exports/{name}"]
            self.bucket.objects[f"exports/{name}"] = (body, datetime.now(UTC) - timedelta(minutes=1))

    def lying(self) -> int:
        """How many exports were put into the inbox."""
        with self.bucket.lock:
            return sum(key.startswith("exports/") for key in self.bucket.objects)


@dataclass
class Figures:
    """The outcomes of the hosts' commands. faults: by kind and step. codes: of imports; None for killed ones."""

    faults: Counter[tuple[str, str]] = field(default_factory=Counter)
    codes: Counter[int | None] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


class Life:
    """The life of one host: an import after another, each with the fault that comes next, until none is left."""

    def __init__(self, host: Host, place: Place, mine: deque[Fault], figures: Figures, dice: random.Random) -> None:
        self._host, self._place, self._mine, self._figures, self._dice = host, place, mine, figures, dice
        self._started = 0
        self.prepare()

    def prepare(self) -> None:
        """Copy what a host of this deployment needs to a disk that is empty."""
        (self._host.disk / "home" / "inbox").mkdir(parents=True, exist_ok=True)
        (self._host.disk / "home" / IDENTITY).write_text("0123456789abcdef" * 2)

    def live(self) -> None:
        """Let all faults happen."""
        try:
            while self._mine:
                if self._is_met(self._mine[0].step) and self._happens(self._mine[0]):
                    self._mine.popleft()
                else:
                    time.sleep(0.5)
        except Exception as error:  # noqa: BLE001 - of a thread: told where all ends
            self._figures.wrong.append(f"{self._host.name}: {type(error).__name__}: {error}")

    def does(self, *arguments: str) -> tuple[int, str]:
        """Run a command to its end, without a fault."""
        with self._begins("none", 0, arguments) as (process, log):
            return self._ended(process, log), log.read_text()

    def _is_met(self, step: str) -> bool:
        """True if an import that begins now may come to a step."""
        if step == "receive":
            return self._place.lying() > self._place.batches()
        return step == "publish" or self._place.lying() > self._place.batches("state = 'finished'")

    def _happens(self, fault: Fault) -> bool:
        """Import; return False if that has ended before it came to the step of the fault."""
        halted = self._host.disk / "halted"
        with self._begins(fault.step, fault.turn, ("import", "--insecure", "--workers", str(WORKERS))) as (
            process,
            log,
        ):
            while not halted.exists():
                if process.poll() is not None:
                    self._ended(process, log)
                    return False
                time.sleep(0.1)
            self._place.say(f"{self._host.name} is {fault.what} at {fault.step} ({fault.turn})")
            (self._killed if fault.what == KILL else self._cut_off)(process, log, fault.turn)
        self._figures.faults[fault.what, fault.step] += 1
        return True

    def _killed(self, process: "subprocess.Popen[bytes]", log: Path, turn: int) -> None:
        process.kill()
        process.wait()
        self._figures.codes[None] += 1
        if turn % 2:
            self._host.loses_disk()
            self.prepare()

    def _cut_off(self, process: "subprocess.Popen[bytes]", log: Path, turn: int) -> None:
        """Disconnect the host: so briefly that no other notices, or until another has taken over.

        The process goes on before the network is back, or after that.
        """
        halted, seconds = self._host.disk / "halted", self._dice.uniform(1.2, 1.5) * self._place.silence
        self._host.cut_off()
        time.sleep(seconds / 10 if turn % 3 == 2 else seconds)
        if turn % 2:
            halted.unlink()
            time.sleep(1)
        self._host.cut_off(False)
        time.sleep(1)
        halted.unlink(missing_ok=True)
        self._ended(process, log)

    @contextmanager
    def _begins(
        self, step: str, turn: int, arguments: tuple[str, ...]
    ) -> Iterator[tuple["subprocess.Popen[bytes]", Path]]:
        for each in self._host.disk.glob("halted*"):
            each.unlink()
        self._started += 1
        log, place = self._place.logs / f"{self._host.name}-{self._started}.log", self._host.path / "halted"
        halting = [sys.executable, "-m", "tests.support.halting", str(place), step, str(turn)]
        whole = [*halting, "--home", str(self._host.path / "home"), *arguments]
        environ = {**self._place.environ, "SILENCE_SECONDS": str(self._place.silence)}
        with log.open("w") as said:
            out: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": said, "stderr": said, "cwd": ROOT}
            process = self._host.start(whole, environ, **out)
        try:
            yield process, log
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()

    def _ended(self, process: "subprocess.Popen[bytes]", log: Path) -> int:
        code = process.wait(ENDS)
        self._figures.codes[code] += 1
        text = log.read_text()
        self._place.say(f"{self._host.name} has ended with {code}: {log.name}")
        if "Traceback" in text or code == 1:
            self._figures.wrong.append(f"{log.name}: ended with {code}, or has a traceback")
        return code


def import_all(place: Place, hosts: list[Host], exports: Exports, times: int) -> tuple[Figures, list[Life]]:
    """Let all faults happen, and import all exports."""
    figures, planned = Figures(), faults(times)
    every = sum(map(len, planned))
    lives = [
        Life(host, place, mine, figures, random.Random(at))
        for at, (host, mine) in enumerate(zip(hosts, planned, strict=True))
    ]
    threads = [threading.Thread(target=life.live, daemon=True) for life in lives]
    left = deque(exports.files.items())
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        happened = sum(figures.faults.values())
        due = len(exports.files) * (happened + 1) // every
        put = len(exports.files) - len(left)
        done = place.batches("state = 'finished'")
        if left and put - done < AHEAD and (put < due or put == done):
            place.put(*left.popleft())
        time.sleep(0.5)
    for name, text in left:
        place.put(name, text)
    figures.wrong += [f"{len(life)} faults did not happen" for life in planned if life]
    for turn in range(6):
        code, said = lives[turn % HOSTS].does("import", "--insecure", "--workers", str(WORKERS))
        if place.batches("state = 'finished'") == len(exports.files):
            break
        place.say(f"an import without faults ended with {code}: {said.strip().splitlines()[-1:]}")
    return figures, lives
