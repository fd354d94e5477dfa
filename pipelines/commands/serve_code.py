"""The supervisor of `chartferry serve`: the code server of a home whose Dagster pages and daemon are on another host.

The runs of the home are processes of its code server, so that its target, its secrets and its files stay on this host.
"""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from pipelines.commands.definitions import DEFINITIONS, DefinitionsReloader, definitions_at, stamp_of
from pipelines.commands.processes import SupervisedProcess, supervise
from pipelines.commands.supervising import CannotStart, ChildProcess, Say, check_own, free, only_up
from pipelines.commands.up import ATTENDED, service
from pipelines.home.dagster_folder import (
    CLINIC,
    CODE_SERVER,
    INSECURE,
    dagster_environment,
    is_set,
    prepare_served_dagster,
    problem_of,
)
from pipelines.home.preparing import prepare_home
from pipelines.session.bundled import is_bundled
from pipelines.session.clinics import EVERY, Clinic, host_and_port
from pipelines.session.named_target import named_target


def serve(home: Path, environ: Mapping[str, str], address: str, service_port: int, say: Say) -> None:
    """Run the code server of a home until SIGINT or SIGTERM. Raises CannotStart, BadHome and BadSetting.

    address: the HOST:PORT on which it listens. service_port: the port of the bundled service, if the home names no
    target; 0 means any free port.
    """
    at = host_and_port(address)
    if not at:
        raise CannotStart(f"{address!r} is no address: write HOST:PORT, such as 10.0.0.5:4000")
    if problem := problem_of(environ):
        raise CannotStart(problem)
    home = home.resolve()
    prepare_home(home)
    folder = prepare_served_dagster(home)
    environ = {**dagster_environment(home, environ), "DAGSTER_HOME": str(folder)}
    bundled = is_bundled(environ)
    if not bundled:
        named_target(environ, is_set(environ, INSECURE))
    name = environ.get(CLINIC)
    clinic = Clinic(name, home, environ, bundled) if name else None
    with ExitStack() as stack:
        look = stack.enter_context(only_up(home / "dagster", home))
        check_own(*at)
        log = home / "dagster" / "code-server.log"
        children = [ChildProcess("code server", (*ATTENDED, "code", DEFINITIONS, address), log, listens=at)]
        if bundled:
            children.insert(0, service(home, free(service_port, "--port", "CHARTFERRY_SERVICE_PORT")))
        wards = [SupervisedProcess(child, environ, clinic) for child in children]
        reloading = DefinitionsReloader(lambda: stamp_of(home, environ), partial(definitions_of, *at, environ), say)
        known_as = environ.get(CODE_SERVER) or address
        supervise([wards], [], [reloading.look, look], lambda: _tell(children, home, address, known_as, say), say)
    say("stopped")


def _tell(children: Sequence[ChildProcess], home: Path, address: str, known_as: str, say: Say) -> None:
    for each in children:
        if each.url:
            say(f"{each.name:11} {each.url.rpartition('/')[0]}")
    say(f"{'code server':11} {address}  (pages and daemon on another host reach it as {known_as})")
    say(f"{'home':11} {home}  (inbox, feeds, batches, published and logs)")
    say("Ctrl-C ends all of these processes")


def definitions_of(host: str, port: int, environ: Mapping[str, str], anew: bool, failed: bool) -> str | None:
    """Return why the definitions of the code server at an address cannot be used: see `definitions_at`."""
    host = EVERY.get(host, host)
    return definitions_at(f"{host}:{port}", {**environ, "no_grpc_proxy": host.strip("[]")}, anew, failed)
