"""The supervisor of `chartferry up --clinics`: one Dagster for several clinics, each with processes of its own.

A clinic has a code server, which holds its definitions and its runs, and a bundled service if it names no target. A
clinic's process that ends is restarted: at once, and if it ends repeatedly, once a minute. It blocks no other clinic.
The processes of a clinic on another host are started there, and only watched here.
"""

import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from pipelines.commands.definitions import DefinitionsReloader, definitions_at, stamp_of
from pipelines.commands.processes import SupervisedProcess, supervise
from pipelines.commands.supervising import LOOPBACK, Say, check_web_host, free, no_answer, only_up
from pipelines.commands.up import code_server, pages_and_daemon, service
from pipelines.home.dagster_folder import (
    POSTGRES,
    check_at_server,
    dagster_environment,
    prepare_shared_dagster,
    problem_of,
)
from pipelines.home.exits import BadSetting
from pipelines.home.folder import make_private
from pipelines.home.preparing import prepare_home
from pipelines.session.clinics import Clinic, CodeServer, read_clinics, read_code_servers, shared_environment

SECONDS_BETWEEN_LOOKS = 5.0
PATIENCE = {"DAGSTER_GRPC_TIMEOUT_SECONDS": "15"}
"""Seconds that the pages wait for each code server, one after another at their start. Dagster's default is 60 s."""


def environment_for(servers: Sequence[CodeServer]) -> dict[str, str]:
    """Return the environment by which pages and daemon reach these hosts directly, not through a proxy."""
    hosts = sorted({each.at[0].strip("[]") for each in servers})
    return {"no_grpc_proxy": ",".join(hosts)} if hosts else {}


def environment_of_pages(servers: Sequence[CodeServer], common: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of the pages, which do not wait long for hosts that never answer.

    common: the environment of pages and daemon; its settings win. A reload of definitions has a timeout of its own.
    """
    return {**PATIENCE, **common} if servers else dict(common)


@dataclass
class WatchedServer:
    """Reports when a code server becomes unreachable, and when it is back. silent: the reason; None if reachable."""

    server: CodeServer
    say: Say
    silent: str | None = None
    due: float = 0.0
    thread: threading.Thread | None = field(default=None, repr=False)

    def look(self) -> None:
        """Start a look in a thread if one is due, since an unreachable host makes it wait."""
        if time.monotonic() >= self.due and not (self.thread and self.thread.is_alive()):
            self.due = time.monotonic() + SECONDS_BETWEEN_LOOKS
            self.thread = threading.Thread(target=self.look_once, name=self.server.clinic, daemon=True)
            self.thread.start()

    def look_once(self) -> None:
        """Look once, and report a change since the last look."""
        before, self.silent = self.silent, no_answer(*self.server.at)
        where = f"{self.server.clinic}: its code server at {self.server.address}"
        if self.silent and not before:
            self.say(f"{where} does not answer ({self.silent}); its imports wait, all other clinics continue")
        elif before and not self.silent:
            self.say(f"{where} answers again")


def up_clinics(home: Path, file: Path, environ: Mapping[str, str], web_port: int, say: Say) -> None:
    """Run the processes of all clinics until SIGINT or SIGTERM. Raises CannotStart, BadSetting and BadHome.

    home: the home of the deployment, with Dagster's own folder. web_port: 0 means any free port.
    """
    home, clinics = home.resolve(), read_clinics(file, environ)
    elsewhere = read_code_servers(file)
    shared = shared_environment(file, environ)
    _apart_from(home, clinics)
    if problem := problem_of(shared):
        raise BadSetting(problem)
    check_web_host(shared, say)
    make_private(home)
    for clinic in clinics:
        prepare_home(clinic.home)
    shares = {clinic.name: clinic.runs for clinic in clinics} | {each.clinic: each.runs for each in elsewhere}
    folder = _dagster(home, shares, bool(shared.get(POSTGRES)), say)
    if elsewhere:
        check_at_server(folder)
    with ExitStack() as stack:
        look = stack.enter_context(only_up(folder, home))
        for clinic in clinics:
            stack.enter_context(only_up(clinic.home / "dagster", clinic.home))
        runtime = Path(stack.enter_context(TemporaryDirectory(prefix="chartferry-")))
        port = free(web_port, "--web-port", "CHARTFERRY_WEB_PORT")
        sockets = {clinic.name: runtime / f"{clinic.name}.sock" for clinic in clinics}
        taken = {port, *(clinic.port for clinic in clinics)}
        of_clinics = [_of_clinic(clinic, sockets[clinic.name], home, taken) for clinic in clinics]
        common = {**environment_for(elsewhere), **dagster_environment(home, shared), "CHARTFERRY_HOME": str(home)}
        web, daemon = pages_and_daemon(folder, {**sockets, **{each.clinic: each.at for each in elsewhere}}, port)
        for_all = [SupervisedProcess(web, environment_of_pages(elsewhere, common)), SupervisedProcess(daemon, common)]
        pages = f"http://{LOOPBACK}:{port}"
        looks = [look, *(_reloading(clinic, sockets[clinic.name], say).look for clinic in clinics)]
        looks += [WatchedServer(each, say).look for each in elsewhere]
        supervise(of_clinics, for_all, looks, lambda: _tell(clinics, elsewhere, of_clinics, pages, say), say)
    say("stopped")


def _dagster(home: Path, shares: Mapping[str, int], is_at_server: bool, say: Say) -> Path:
    """Return Dagster's folder of the deployment, with its settings."""
    folder, without = prepare_shared_dagster(home, shares, is_at_server)
    if without:
        say(
            f"{folder / 'dagster.yaml'} sets no limit of runs for {', '.join(without)}: remove the file, and"
            " the next start writes it again"
        )
    return folder


def _apart_from(home: Path, clinics: Sequence[Clinic]) -> None:
    """Raise BadSetting if the deployment's home is a clinic's: the two would share Dagster's folder."""
    for clinic in clinics:
        if clinic.home == home or clinic.home in home.parents:
            raise BadSetting(
                f"clinic {clinic.name}: its home is also the home of the deployment, {home}: name another home"
                " for the deployment by --home"
            )


def _of_clinic(clinic: Clinic, socket: Path, home: Path, taken: set[int]) -> list[SupervisedProcess]:
    """Return the processes of a clinic. Raises CannotStart if its port cannot be used.

    home: the home of the deployment. taken: ports that are in use; the chosen port is added.
    """
    environ = {**dagster_environment(clinic.home, clinic.environ), "DAGSTER_HOME": str(home / "dagster")}
    children = [code_server(socket, clinic.home / "dagster" / "code-server.log")]
    if clinic.bundled:
        port = clinic.port
        while not port or (port != clinic.port and port in taken):
            port = free(0, "port", "")
        taken.add(port)
        children.insert(0, service(clinic.home, free(port, "port in the file of clinics", "end what has it")))
    return [SupervisedProcess(child, environ, clinic) for child in children]


def _reloading(clinic: Clinic, socket: Path, say: Say) -> DefinitionsReloader:
    return DefinitionsReloader(
        lambda: stamp_of(clinic.home, clinic.environ),
        partial(definitions_at, str(socket), clinic.environ),
        lambda said: say(f"{clinic.name}: {said}"),
    )


def _tell(
    clinics: Sequence[Clinic],
    elsewhere: Sequence[CodeServer],
    groups: Sequence[Sequence[SupervisedProcess]],
    pages: str,
    say: Say,
) -> None:
    say(f"{'Dagster':9} {pages}")
    for clinic, wards in zip(clinics, groups, strict=True):
        urls = [ward.child.url for ward in wards if ward.child.url]
        target = urls[0].rpartition("/")[0] if urls else clinic.environ["FHIR_BASE_URL"]
        say(f"{clinic.name:9} {clinic.home}  (inbox, feeds, batches, published and logs; its target is {target})")
    for server in elsewhere:
        say(f"{server.clinic:9} {server.address}  (its code server, on the host of its home)")
    say("Ctrl-C ends all of these processes")
