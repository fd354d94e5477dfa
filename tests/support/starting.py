"""Start a command of ours in a separate process, like `subprocess`: forked from a warm process if possible."""

import atexit
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import cache, partial
from pathlib import Path
from typing import IO, Any, Self

from pipelines.home.files import locked
from tests.support.launcher import order
from tests.support.warm import COMMANDS, LAUNCHER, is_warm, service_command

ROOT = Path(__file__).parents[2]
CAN_FORK = sys.platform == "linux"
File = int | IO[Any] | None
BY_PYTHON = ("PYTHON", "LC_", "LANG", "LD_", "TZ", "OMP_", "MALLOC")
"""Variables that Python reads when it starts, before any code of ours."""


def start(command: Sequence[str], *, env: Mapping[str, str], cwd: Path | None = None, **options: Any) -> Any:
    """Start a command. Return a `subprocess.Popen`, or a `Forked`, which has the same interface.

    A command that is not ours, or has other settings of Python than these tests, is started by `subprocess`.
    """
    warm = CAN_FORK and is_warm(list(command)) and _by_python(env) == _by_python(os.environ)
    if warm:
        return Forked(command, env=env, cwd=cwd, **options)
    return subprocess.Popen(command, env=env, cwd=cwd, **options)


def _by_python(environ: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environ.items() if name.startswith(BY_PYTHON)}


def finish(
    command: Sequence[str], *, env: Mapping[str, str], cwd: Path | None = None, timeout: float | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; return what it prints as text."""
    pipe = subprocess.PIPE
    with start(command, env=env, cwd=cwd, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    return subprocess.CompletedProcess(command, process.returncode, out, err)


class OwnService:
    """The command line by which commands in this process start a service: from the warm process if possible."""

    def __iter__(self) -> Iterator[str]:
        return iter(service_command(warm_process()) if CAN_FORK else (sys.executable, "-m", "fhir_service"))


def commands_in(folder: Path) -> Path:
    """Fill a new folder with our commands, which the warm process runs. Return it, for the path of a shell."""
    if not CAN_FORK:
        return Path(sys.executable).parent
    folder.mkdir()
    for command in COMMANDS:
        program = folder / Path(command).name
        program.write_text(f'#!/bin/sh\nexec {shlex.join((*LAUNCHER, warm_process(), command))} "$@"\n')
        program.chmod(0o755)
    return folder


class Forked:
    """A process that the warm process forked, with the part of `subprocess.Popen` that tests use."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: Path | None = None,
        stdin: File = None,
        stdout: File = None,
        stderr: File = None,
        text: bool = False,
        start_new_session: bool = False,
    ) -> None:
        self.args = command
        self.returncode: int | None = None
        self.stdin: Any
        self.stdout: Any
        self.stderr: Any
        with ExitStack() as theirs:
            read, write = ("r", "w") if text else ("rb", "wb")
            given, self.stdin = _ends(theirs, stdin, 0, write)
            out, self.stdout = _ends(theirs, stdout, 1, read)
            err, self.stderr = (out, None) if stderr == subprocess.STDOUT else _ends(theirs, stderr, 2, read)
            files = (given, out, err)
            self._told, self.pid = order(warm_process(), command, files, env, str(cwd or Path.cwd()), start_new_session)

    def poll(self) -> int | None:
        """Return the exit code if the process has ended."""
        with suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait until the process has ended; return its exit code."""
        if self.returncode is None:
            self._told.settimeout(timeout)
            try:
                answer = self._told.recv(4)
            except (TimeoutError, BlockingIOError):
                raise subprocess.TimeoutExpired(self.args, timeout or 0) from None
            assert answer, "the warm process has ended"
            self.returncode = int.from_bytes(answer, "big", signed=True)
            self._told.close()
        return self.returncode

    def communicate(self, input: Any = None, timeout: float | None = None) -> tuple[Any, Any]:
        """Write the input, read all output, and wait for the end."""
        ends = time.monotonic() + timeout if timeout is not None else None
        readers = ThreadPoolExecutor(2)
        try:
            read = [readers.submit(end.read) if end else None for end in (self.stdout, self.stderr)]
            if self.stdin:
                if input:
                    self.stdin.write(input)
                self.stdin.close()
            out, err = (one.result(_left(ends)) if one else None for one in read)
            for end in (self.stdout, self.stderr):
                if end:
                    end.close()
        except TimeoutError:
            raise subprocess.TimeoutExpired(self.args, timeout or 0) from None
        finally:
            readers.shutdown(wait=False)
        self.wait(_left(ends))
        return out, err

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for end in (self.stdin, self.stdout, self.stderr):
            if end:
                end.close()
        self.wait()


def _left(ends: float | None) -> float | None:
    return None if ends is None else max(0.0, ends - time.monotonic())


def _ends(theirs: ExitStack, wanted: File, place: int, mode: str) -> tuple[int, Any]:
    """Return the file for a process, and our end of it if it is a pipe."""
    if wanted is None:
        return place, None
    if wanted == subprocess.DEVNULL:
        return theirs.enter_context(Path(os.devnull).open("r+b")).fileno(), None
    if not isinstance(wanted, int):
        return wanted.fileno(), None
    assert wanted == subprocess.PIPE
    reads, writes = os.pipe()
    ours, their = (writes, reads) if mode.startswith("w") else (reads, writes)
    theirs.callback(os.close, their)
    return their, open(ours, mode, encoding=None if "b" in mode else "utf-8")  # noqa: PTH123 - a descriptor


def warm(module: str, *words: object) -> tuple[str, ...]:
    """Return the command line that starts a program from the warm process, in place of `python -m MODULE WORDS`."""
    launched = (*LAUNCHER, warm_process()) if CAN_FORK else ()
    return (*launched, sys.executable, "-m", module, *map(str, words))


def shared(name: str, make: Callable[[Path], None]) -> Path:
    """Return a folder that all workers of a test run share. The first one fills it by `make`."""
    place = Path(warm_process()).parent  # it is removed with that process
    with locked(place / f"{name}.lock"):
        if not (place / name).exists():
            made = place / f"{name}.new"
            shutil.rmtree(made, ignore_errors=True)
            made.mkdir()
            make(made)
            made.rename(place / name)
    return place / name


@cache
def warm_process() -> str:
    """Return the address of the warm process, which all workers of a test run share. It ends with the last of them."""
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID")
    folder = Path(tempfile.gettempdir()) / f"warm-{run}" if run else Path(tempfile.mkdtemp(prefix="warm-"))
    folder.mkdir(mode=0o700, exist_ok=True)
    with locked(folder / "lock"):
        held = _hold(folder) if (folder / "begun").exists() else _begin(folder)
    atexit.register(held)
    return str(folder / "socket")


def _begin(folder: Path) -> Callable[[], None]:
    """Start the warm process of a folder. Return a function that ends it and waits for the end."""
    until = folder / "until"
    os.mkfifo(until)
    writes = os.open(until, os.O_RDWR)  # does not block if no process reads
    reads = os.open(until, os.O_RDONLY)
    command = [sys.executable, "-m", "tests.support.warm", str(folder / "socket")]
    environ = os.environ | {"OPENBLAS_NUM_THREADS": "1"}  # keeps numpy from starting threads
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, stdin=reads, stdout=pipe, env=environ, cwd=ROOT, start_new_session=True)
    os.close(reads)
    assert process.stdout
    assert process.stdout.readline() == b"ready\n"
    let_go = _hold(folder)
    os.close(writes)
    (folder / "begun").touch()

    def end() -> None:
        let_go()
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)

    return end


def _hold(folder: Path) -> Callable[[], None]:
    """Keep the warm process of a folder running. Return a function that releases it."""
    return partial(os.close, os.open(folder / "until", os.O_WRONLY | os.O_NONBLOCK))
