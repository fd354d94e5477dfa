"""Commands in processes of their own that cost no second of imports: forked from one process that has them all.

That process imports what the commands need and does nothing else: it opens no database, and has no thread and no event
loop. It is a program, `python -m tests.support.warm SOCKET`, and ends when its standard input does. The services that
commands start by themselves come from it too.
"""

import atexit
import gc
import json
import os
import pkgutil
import runpy
import selectors
import shutil
import signal
import socket
import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

BIN = Path(sys.executable).parent
COMMANDS = {str(BIN / name) for name in ("chartferry", "fhir-service")}
MODULES = {
    *("pipelines.cli", "fhir_service", "tests.support.dying", "tests.support.unpublished", "tests.faults.service"),
}
"""Programs that are run with `python -m`."""
APART = ("pipelines.cli", "pipelines.definitions", "pipelines.dagster", "fhir_service.__main__")
"""Not imported: run as programs, or needed by no command that tests start."""
LOADED = ("Patient", "Practitioner", "Group", "Claim", "Encounter", "Observation", "DiagnosticReport", "Questionnaire")
"""Types of reference data, whose models of FHIR take a third of a second."""
LAUNCHER = (sys.executable, "-S", "-E", str(Path(__file__).with_name("launcher.py")))


def is_warm(command: list[str]) -> bool:
    """True if a command is one that this process runs."""
    return command[0] in COMMANDS or (command[:2] == [sys.executable, "-m"] and command[2] in MODULES)


def service_command(address: str) -> tuple[str, ...]:
    """How a command starts a service: by a program that has the warm process at this address do so."""
    return (*LAUNCHER, address, sys.executable, "-m", "fhir_service")


def import_all() -> None:
    """Import the two packages, as far as commands need them, and without modules whose extra is not installed.

    And what their first request and the first records of a load would import or make.
    """
    import_module("httpcore")
    for package in ("fhir_service", "pipelines"):
        for module in pkgutil.walk_packages(import_module(package).__path__, f"{package}."):
            if not module.name.startswith(APART):
                with suppress(ModuleNotFoundError):
                    import_module(module.name)
    structure = import_module("fhir_service.reference.structure")
    for kind in LOADED:
        list(structure.flaws_of(kind, {}))


class Asked:
    """A command to run, with its files."""

    def __init__(self, asked: dict[str, Any], files: list[int]) -> None:
        self.command: list[str] = asked["command"]
        self._asked, self._files = asked, files

    @classmethod
    def by(cls, asking: socket.socket) -> "Asked":
        size, files, _, _ = socket.recv_fds(asking, 4, 3)
        body = b""
        while len(body) < int.from_bytes(size, "big"):
            body += asking.recv(1 << 20)
        return cls(json.loads(body), files)

    def close(self) -> None:
        for file in self._files:
            os.close(file)

    def become(self) -> None:
        """Make this process the one that was asked for, up to its program."""
        if self._asked["session"]:
            os.setsid()
        for place, file in enumerate(self._files):
            os.dup2(file, place)
            os.close(file)
        os.environ.clear()
        os.environ.update(self._asked["environ"])
        os.chdir(self._asked["cwd"])
        os.umask(self._asked["umask"])

    def run(self) -> None:
        """Run the program as Python does, and raise what it raises."""
        if self.command[0] in COMMANDS:
            sys.argv = list(self.command)
            runpy.run_path(self.command[0], run_name="__main__")
        else:
            sys.argv = ["-m", *self.command[3:]]
            runpy.run_module(self.command[2], run_name="__main__", alter_sys=True)


class Warm:
    """The warm process: it forks what it is asked for, and tells whoever asked of the end."""

    def __init__(self, address: str) -> None:
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(address)
        self._listening.listen(100)
        self._woken, self._wakes = socket.socketpair()
        for one in (self._woken, self._wakes):
            one.setblocking(False)
        self._running: dict[int, socket.socket] = {}
        self._selector = selectors.DefaultSelector()

    def serve(self) -> Asked | None:
        """Return in a new process what it is to run; in the warm process None, when its input has ended."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wakes.fileno(), warn_on_full_buffer=False)
        for file in (sys.stdin, self._listening, self._woken):
            self._selector.register(file, selectors.EVENT_READ)
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is sys.stdin:
                    return None
                if key.fileobj is self._listening:
                    if asked := self._fork():
                        return asked
                elif key.fileobj is self._woken:
                    with suppress(BlockingIOError):
                        self._woken.recv(1000)
                    self._tell_ends()
                else:
                    self._asker_left(key.data)

    def _fork(self) -> Asked | None:
        asking, _ = self._listening.accept()
        asked = Asked.by(asking)
        number = os.fork()
        if number == 0:
            self._leave()
            asking.close()
            return asked
        asked.close()
        asking.sendall(number.to_bytes(4, "big"))
        self._running[number] = asking
        self._selector.register(asking, selectors.EVENT_READ, number)
        return None

    def _leave(self) -> None:
        """Close in a new process what is the warm one's own."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        self._selector.close()
        for one in (self._listening, self._woken, self._wakes, *self._running.values()):
            one.close()

    def _tell_ends(self) -> None:
        for number in list(self._running):
            ended, status = os.waitpid(number, os.WNOHANG)
            if ended:
                asking = self._running.pop(number)
                with suppress(KeyError):
                    self._selector.unregister(asking)
                with suppress(OSError):
                    asking.sendall(os.waitstatus_to_exitcode(status).to_bytes(4, "big", signed=True))
                asking.close()

    def _asker_left(self, number: int) -> None:
        """Whoever stands for a command was killed: so is the command."""
        if number in self._running:
            self._selector.unregister(self._running[number])
            os.kill(number, signal.SIGKILL)


def end_at_once(code: list[int]) -> None:
    """End a process whose threads and exit functions have ended: to free the imported modules would take long."""
    if code:
        with suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code[0])


def main() -> None:
    """Import, then serve; run here what a new process was made for."""
    gc.disable()  # what is imported stays
    code: list[int] = []
    atexit.register(end_at_once, code)  # before all imports, so that it is called after what they register
    from pipelines.session import bundled

    import_all()
    bundled.SERVICE = service_command(sys.argv[1])
    warm = Warm(sys.argv[1])
    print("ready", flush=True)
    gc.collect()
    gc.enable()
    gc.freeze()  # so that a new process leaves the memory of what is imported shared
    asked = warm.serve()
    if not asked:
        shutil.rmtree(Path(sys.argv[1]).parent, ignore_errors=True)  # whoever began it may have been killed
    try:
        if asked:
            asked.become()
            asked.run()
        code.append(0)
    except SystemExit as ended:
        if ended.code is None or isinstance(ended.code, int):
            code.append(ended.code or 0)
        raise
    except Exception:
        code.append(1)
        raise


if __name__ == "__main__":
    main()
