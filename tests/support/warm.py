"""The warm process: it has imported the modules of our commands, and forks a process for each, which saves a second.

It does nothing else: it opens no database, and has no thread and no event loop. It is a program, `python -m
tests.support.warm SOCKET`, and ends when its standard input does. It also forks the services that commands start.
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
"""Modules that are not imported: programs, and modules that no command in tests needs."""
LOADED = ("Patient", "Practitioner", "Group", "Claim", "Encounter", "Observation", "DiagnosticReport", "Questionnaire")
"""Types of reference data. Importing their FHIR models takes a third of a second."""
LAUNCHER = (sys.executable, "-S", "-E", str(Path(__file__).with_name("launcher.py")))


def is_warm(command: list[str]) -> bool:
    """True if the warm process runs this command."""
    return command[0] in COMMANDS or (command[:2] == [sys.executable, "-m"] and command[2] in MODULES)


def service_command(address: str) -> tuple[str, ...]:
    """Return the command line that starts a service in the warm process at this address."""
    return (*LAUNCHER, address, sys.executable, "-m", "fhir_service")


def import_all() -> None:
    """Import the modules of both packages that commands need, except those whose extra is not installed.

    Also import and build what the first request and the first records of a load need.
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
    """A requested command, with its files."""

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
        """Give this process the folder, environment and files that were asked for."""
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
        """Run the program like Python; raise what it raises."""
        if self.command[0] in COMMANDS:
            sys.argv = list(self.command)
            runpy.run_path(self.command[0], run_name="__main__")
        else:
            sys.argv = ["-m", *self.command[3:]]
            runpy.run_module(self.command[2], run_name="__main__", alter_sys=True)


class Warm:
    """The warm process: it forks a process for each request, and reports its end."""

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
        """Return the command to run in a new process; None in the warm process when its input has ended."""
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
        """Close the files of the warm process in a new process."""
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
        """Kill a command whose launcher was killed."""
        if number in self._running:
            self._selector.unregister(self._running[number])
            os.kill(number, signal.SIGKILL)


def end_at_once(code: list[int]) -> None:
    """End a process whose threads and exit functions have ended. Freeing the imported modules would take long."""
    if code:
        with suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code[0])


def main() -> None:
    """Import the modules, then serve. In a new process, run its command."""
    gc.disable()  # imported objects are never freed
    code: list[int] = []
    atexit.register(
        end_at_once, code
    )  # before all imports, so that it is called after the functions that they register
    from pipelines.session import bundled

    import_all()
    bundled.SERVICE = service_command(sys.argv[1])
    warm = Warm(sys.argv[1])
    print("ready", flush=True)
    gc.collect()
    gc.enable()
    gc.freeze()  # keeps the memory of the imported modules shared with new processes
    asked = warm.serve()
    if not asked:
        shutil.rmtree(Path(sys.argv[1]).parent, ignore_errors=True)  # the process that started it may have been killed
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
