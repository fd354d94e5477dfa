"""The supervisor of `chartferry up`: runs the bundled service, and Dagster's code server, web server and daemon.

It starts these processes, prints their addresses, restarts those that end by themselves, and stops all at Ctrl-C.
"""

import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from pipelines.commands.definitions import DEFINITIONS, DefinitionsReloader, definitions_at, stamp_of, write_workspace
from pipelines.commands.processes import SupervisedProcess, supervise
from pipelines.commands.supervising import LOOPBACK, ChildProcess, FolderRemoved, Say, check_web_host, free, only_up
from pipelines.home.dagster_folder import INSECURE, dagster_environment, is_set, lacking, prepare_dagster_home
from pipelines.home.preparing import prepare_home
from pipelines.session.bundled import SERVICE, STORE, is_bundled
from pipelines.session.named_target import named_target

SERVICE_PORT, WEB_PORT = 8400, 3000
REFERENCE = "reference"
ATTENDED = (sys.executable, "-m", "pipelines.dagster.child_process")


def up(home: Path, environ: Mapping[str, str], service_port: int, web_port: int, say: Say) -> None:
    """Run all processes until SIGINT or SIGTERM. Port 0 means any free port. Raises CannotStart and BadSetting."""
    check_web_host(environ, say)
    home = home.resolve()
    while True:
        try:
            _run(home, environ, service_port, web_port, say)
        except FolderRemoved as error:
            say(f"{error}; Dagster's folder is made again, without the history of runs")
        else:
            say("stopped")
            return


def _run(home: Path, environ: Mapping[str, str], service_port: int, web_port: int, say: Say) -> None:
    """Run all processes until SIGINT or SIGTERM. Raises Removed, once all have ended, if Dagster's folder is gone."""
    prepare_home(home)
    folder = prepare_dagster_home(home)
    environ = dagster_environment(home, environ)
    with ExitStack() as stack:
        look = stack.enter_context(only_up(folder, home))
        if missing := lacking(folder):
            say(
                f"{folder / 'dagster.yaml'} lacks the settings {', '.join(missing)}: move the file away and"
                " start again, and a complete one is written"
            )
        children = []
        if not is_bundled(environ):
            named_target(environ, is_set(environ, INSECURE))
        else:
            children.append(service(home, free(service_port, "--port", "CHARTFERRY_SERVICE_PORT")))
        socket = Path(stack.enter_context(TemporaryDirectory(prefix="chartferry-"))) / "code.sock"
        children.append(code_server(socket, folder / "code-server.log"))
        others = pages_and_daemon(folder, {DEFINITIONS: socket}, free(web_port, "--web-port", "CHARTFERRY_WEB_PORT"))
        ask = partial(definitions_at, str(socket), environ)
        reloading = DefinitionsReloader(lambda: stamp_of(home, environ), ask, say)
        first, shared = ([SupervisedProcess(child, environ) for child in some] for some in (children, others))
        supervise([first], shared, [reloading.look, look], lambda: _tell([*children, *others], home, say), say)


def service(home: Path, port: int) -> ChildProcess:
    """Return the bundled service over the store of a home, with the folder of its reference data."""
    (home / REFERENCE).mkdir(mode=0o700, exist_ok=True)
    serve = ("serve", "--store", str(home / STORE), "--host", LOOPBACK, "--port", str(port), "--until-stdin-closes")
    url = f"http://{LOOPBACK}:{port}/health"
    return ChildProcess("service", (*SERVICE, *serve), home / "service.log", url)


def code_server(socket: Path, log: Path) -> ChildProcess:
    """Return the code server on a socket.

    Any user with write access to the socket can make the server run any program. So it is no port of this machine, and
    it is in a folder of the owner. It is not in the home, since the path of a socket must be short.
    """
    return ChildProcess("code server", (*ATTENDED, "code", DEFINITIONS, str(socket)), log, socket=socket)


def pages_and_daemon(folder: Path, locations: Mapping[str, Path | tuple[str, int]], port: int) -> list[ChildProcess]:
    """Return Dagster's web server and daemon.

    locations: the socket of each code server, or its host and port, by the name of its location. The workspace file is
    in the home, since a restarted process reads it again, and a system may remove old files of `/tmp`.
    """
    workspace = folder / "workspace.yaml"
    write_workspace(workspace, locations)
    web = (*ATTENDED, "web", LOOPBACK, str(port), str(workspace))
    daemon = (*ATTENDED, "daemon", "run", "-w", str(workspace))
    return [
        ChildProcess("Dagster", web, folder / "webserver.log", f"http://{LOOPBACK}:{port}/server_info"),
        ChildProcess("daemon", daemon, folder / "daemon.log"),
    ]


def _tell(children: Sequence[ChildProcess], home: Path, say: Say) -> None:
    for child in children:
        if child.url:
            say(f"{child.name:9} {child.url.rpartition('/')[0]}")
            if child.name == "service":
                say(f"{'chart':9} {child.url.rpartition('/')[0]}/chart")
    has_service = any(child.name == "service" for child in children)
    told = {
        "inbox": f"{home / 'inbox'}  (files put here are imported)",
        "reference": f"{home / REFERENCE}  (reference data as NDJSON, such as patients: loaded before any import)",
        "feeds": f"{home / 'feeds'}  (feed files for further kinds of exports)",
        "batches": f"{home / 'batches'}  (each received file, with the results of its runs)",
        "report": f"{home / 'published' / 'report.html'}  (the report page; the tables are beside it)",
        "evidence": f"{home / 'evidence'}  (sign-off pages that chartferry evidence writes)",
        "metrics": f"{home / 'metrics.prom'}  (figures for Prometheus)",
        "logs": f"{home / 'dagster'}/*.log",
    }
    if has_service:
        told["logs"] = f"{home / 'service.log'}, {told['logs']}"
    for name, said in told.items():
        if has_service or name != "reference":
            say(f"{name:9} {said}")
    say("Ctrl-C ends all of these processes")
