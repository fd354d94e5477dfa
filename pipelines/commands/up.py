"""The supervisor of `chartferry up`: runs the bundled service, and Dagster's code server, web server and daemon.

It starts these processes, prints their addresses, restarts those that end by themselves, and stops all at Ctrl-C.
"""

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from pipelines.commands.definitions import DEFINITIONS, Reloading, reload, stamp_of, write_workspace
from pipelines.commands.supervising import LOOPBACK, CannotStart, Child, Say, alone, asked_to_end, free, signals
from pipelines.home.dagster_folder import INSECURE, dagster_environment, is_set, lacking, prepare_dagster_home
from pipelines.home.logs import rotate
from pipelines.home.preparing import prepare_home
from pipelines.session.bundled import STORE
from pipelines.session.named import NAMES, named_target
from pipelines.session.service_commands import SERVICE

SERVICE_PORT, WEB_PORT = 8400, 3000
REFERENCE = "reference"
ATTENDED = (sys.executable, "-m", "pipelines.dagster.attended")
READY_WITHIN_SECONDS = 600.0


def up(home: Path, environ: Mapping[str, str], service_port: int, web_port: int, say: Say) -> None:
    """Run all processes until SIGINT or SIGTERM. Port 0 means any free port. Raises CannotStart and BadTarget."""
    home = home.resolve()
    prepare_home(home)
    folder = prepare_dagster_home(home)
    environ = dagster_environment(home, environ)
    with ExitStack() as stack:
        stack.enter_context(alone(folder, home))
        if missing := lacking(folder):
            say(f"{folder / 'dagster.yaml'} has no {', '.join(missing)}: move it aside and start again to have them")
        children = []
        if any(environ.get(name) for name in NAMES):
            named_target(environ, is_set(environ, INSECURE))
        else:
            (home / REFERENCE).mkdir(mode=0o700, exist_ok=True)
            children.append(service(home, free(service_port, "--port", "CHARTFERRY_SERVICE_PORT")))
        runtime = Path(stack.enter_context(TemporaryDirectory(prefix="chartferry-")))
        children += _dagster(folder, runtime, port := free(web_port, "--web-port", "CHARTFERRY_WEB_PORT"))
        reloading = Reloading(
            lambda: stamp_of(home, environ), lambda: reload(f"http://{LOOPBACK}:{port}", DEFINITIONS), say
        )
        wakes = stack.enter_context(signals())
        for child in children:
            stack.callback(child.stop)
        say("starting ...")
        first = [child for child in children if child.comes_first]
        if _start(first, environ, wakes) and _start([each for each in children if each not in first], environ, wakes):
            _tell(children, home, say)
            _watch(children, environ, wakes, say, reloading.look)
        say("stopping ...")
    say("stopped")


def service(home: Path, port: int) -> Child:
    """Return the bundled service over the store of a home."""
    serve = ("serve", "--store", str(home / STORE), "--host", LOOPBACK, "--port", str(port), "--until-stdin-closes")
    url = f"http://{LOOPBACK}:{port}/health"
    return Child("service", (*SERVICE, *serve), home / "service.log", url, comes_first=True)


def _dagster(folder: Path, runtime: Path, port: int) -> list[Child]:
    """Return Dagster's three processes. runtime: a folder of the owner, for the socket that they share."""
    socket = runtime / "code.sock"
    return [code_server(socket, folder / "code-server.log"), *pages_and_daemon(folder, {DEFINITIONS: socket}, port)]


def code_server(socket: Path, log: Path) -> Child:
    """Return the code server on a socket.

    Whoever may write to the socket may have it run any program: it is no port of this machine, and lies in a folder of
    the owner. The path of a socket must be short, so that it is not in the home.
    """
    return Child("code server", (*ATTENDED, "code", DEFINITIONS, str(socket)), log, socket=socket, comes_first=True)


def pages_and_daemon(folder: Path, locations: Mapping[str, Path], port: int) -> list[Child]:
    """Return Dagster's web server and daemon. locations: the socket of each code server, by the name of its location.

    The file that names the sockets is in the home, since a process that is restarted reads it again: a system may
    remove old files of `/tmp`.
    """
    workspace = folder / "workspace.yaml"
    write_workspace(workspace, locations)
    web = (*ATTENDED, "web", LOOPBACK, str(port), str(workspace))
    daemon = (*ATTENDED, "daemon", "run", "-w", str(workspace))
    return [
        Child("Dagster", web, folder / "webserver.log", f"http://{LOOPBACK}:{port}/server_info"),
        Child("daemon", daemon, folder / "daemon.log"),
    ]


def _start(children: Sequence[Child], environ: Mapping[str, str], wakes: int) -> bool:
    """Start processes and wait until all are ready; False if a signal came first. Raises CannotStart."""
    for child in children:
        child.start(environ)
    return _wait_until_ready(children, wakes)


def _wait_until_ready(children: Sequence[Child], wakes: int) -> bool:
    """Wait until all processes are ready; False if a signal came first. Raises CannotStart if one ends or is late."""
    until = time.monotonic() + READY_WITHIN_SECONDS
    waiting = list(children)
    while waiting:
        if asked_to_end(wakes, 0.2):
            return False
        for child in children:
            if child.ended():
                raise CannotStart(f"{child.name} did not start: {child.last_words()}")
        waiting = [child for child in waiting if not child.ready()]
        if waiting and time.monotonic() > until:
            raise CannotStart(f"{waiting[0].name} does not answer: {waiting[0].last_words()}")
    return True


def _watch(
    children: Sequence[Child], environ: Mapping[str, str], wakes: int, say: Say, look: Callable[[], None]
) -> None:
    """Restart processes that end by themselves, until a signal arrives. Raises CannotStart if one ends too often.

    look: is called once a second.
    """
    while not asked_to_end(wakes, 1.0):
        look()
        for child in children:
            if rotate(child.log):
                child.began = 0
            if child.ended():
                words = child.last_words()
                child.stop()
                if child.restarts_too_often():
                    raise CannotStart(f"{child.name} ends again and again: {words}")
                say(f"{child.name} ended ({words}); starting it anew")
                child.start(environ)


def _tell(children: Sequence[Child], home: Path, say: Say) -> None:
    for child in children:
        if child.url:
            say(f"{child.name:9} {child.url.rpartition('/')[0]}")
            if child.name == "service":
                say(f"{'chart':9} {child.url.rpartition('/')[0]}/chart")
    is_bundled = any(child.name == "service" for child in children)
    told = {
        "inbox": f"{home / 'inbox'}  (what is put there is imported)",
        "reference": f"{home / REFERENCE}  (patients and the rest, as NDJSON: loaded before any import)",
        "feeds": f"{home / 'feeds'}  (how other exports are read)",
        "batches": f"{home / 'batches'}  (each file, and what became of it)",
        "report": f"{home / 'published' / 'report.html'}  (what needs a look, and the tables beside it)",
        "evidence": f"{home / 'evidence'}  (pages to sign, by chartferry evidence)",
        "metrics": f"{home / 'metrics.prom'}  (figures for Prometheus)",
        "logs": f"{home / 'service.log'}, {home / 'dagster'}/*.log",
    }
    for name, said in told.items():
        if is_bundled or name != "reference":
            say(f"{name:9} {said}")
    say("Ctrl-C ends all of it")
