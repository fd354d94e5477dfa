"""The commands that run until Ctrl-C: `up`, `serve` and `metrics --serve`; and `clinic`, for one home of several."""

import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import click

from pipelines.commands.common import Options, insecure_option
from pipelines.home.dagster_folder import CLINIC, CODE_SERVER, INSECURE
from pipelines.home.exits import ALL_LOADED, BadSetting


@click.command(short_help="The import's figures for Prometheus.")
@click.option("--serve", is_flag=True, help="Answer scrapes under /metrics, until Ctrl-C.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=9464, show_default=True, help="Port; 0 is any free one.")
@click.pass_obj
def metrics(options: Options, serve: bool, host: str, port: int) -> int:
    """Prints the import's figures for Prometheus, as in metrics.prom of the home.

    Batches by state, rows by outcome, open rejects by age, rows in doubt, the last publication, the last tick of each
    sensor, and the lease. Counts and times only.
    """
    from prometheus_client import CollectorRegistry, generate_latest, start_http_server

    from pipelines.client.threads import A_WHILE
    from pipelines.importing.prometheus_figures import Figures
    from pipelines.session.ledger import ledger_of

    read = Figures(options.home, partial(ledger_of, options.home, os.environ))
    if not serve:
        click.echo(generate_latest(read).decode(), nl=False)
        return ALL_LOADED
    registry = CollectorRegistry()
    registry.register(read)

    try:
        server, thread = start_http_server(port, host, registry)
    except OSError as error:
        raise BadSetting(f"{host}:{port} cannot be used to listen on: {error.strerror}") from None
    click.echo(f"listening on http://{host}:{server.server_port}/metrics")
    try:
        while thread.is_alive():
            thread.join(A_WHILE)  # Ctrl-C just before a wait does not interrupt it
    except KeyboardInterrupt:
        server.shutdown()
    return ALL_LOADED


@click.command(short_help="Runs service, Dagster's web pages and daemon, until Ctrl-C.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    envvar="CHARTFERRY_SERVICE_PORT",
    help="Port of the service. [default: 8400]",
)
@click.option(
    "--web-port",
    type=click.IntRange(0, 65535),
    envvar="CHARTFERRY_WEB_PORT",
    help="Port of Dagster's pages. [default: 3000]",
)
@click.option(
    "--clinics", type=click.Path(path_type=Path), help="Run the clinics of this file, which share one Dagster."
)
@insecure_option
@click.pass_obj
def up(options: Options, port: int | None, web_port: int | None, clinics: Path | None, insecure: bool) -> int:
    """Runs the service, Dagster's web pages and its daemon on this machine, until Ctrl-C."""
    from pipelines.commands import up as running

    if name := os.environ.get(CLINIC):  # the clinic's names in Dagster would differ from those of its code location
        raise BadSetting(f"{CLINIC} is set: start clinic {name} by `chartferry up --clinics FILE`")
    if clinics and (options.feeds or port is not None):
        raise click.UsageError(
            "--clinics excludes --feeds and --port: its file sets the feeds and the port of each clinic"
        )
    web = running.WEB_PORT if web_port is None else web_port
    environ = _environ(options, insecure)
    if clinics:
        from pipelines.commands.up_clinics import up_clinics

        up_clinics(options.home, clinics, environ, web, click.echo)
    else:
        running.up(options.home, environ, running.SERVICE_PORT if port is None else port, web, click.echo)
    return ALL_LOADED


def _environ(options: Options, insecure: bool) -> dict[str, str]:
    """Return the environment of a home's processes, with the options added."""
    feeds = os.pathsep.join([*(str(path.resolve()) for path in options.feeds), os.environ.get("CHARTFERRY_FEEDS", "")])
    return {**os.environ, "CHARTFERRY_FEEDS": feeds.strip(os.pathsep)} | ({INSECURE: "yes"} if insecure else {})


@click.command(short_help="Runs this home's imports for a Dagster on another host.")
@click.argument("address", metavar="[HOST:PORT]", envvar=CODE_SERVER)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    envvar="CHARTFERRY_SERVICE_PORT",
    help="Port of the bundled service, if there is one.",
)
@insecure_option
@click.pass_obj
def serve(options: Options, address: str, port: int | None, insecure: bool) -> int:
    """Serves this home to Dagster's pages and daemon on another host, which connect to HOST:PORT.

    Its runs are processes of this host, until Ctrl-C. A process that ends by itself is restarted. The port has no
    login: let only the other host reach it. For a clinic of a file, HOST:PORT is its code_server, unless you name
    another.
    """
    from pipelines.commands.serve_code import serve as running

    running(options.home, _environ(options, insecure), address, port or 0, click.echo)
    return ALL_LOADED


@click.command(short_help="Runs a command for one clinic of a file.", context_settings={"ignore_unknown_options": True})
@click.argument("file", type=click.Path(path_type=Path))
@click.argument("name")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def clinic(file: Path, name: str, command: Sequence[str]) -> int:
    """Runs COMMAND of chartferry with the home, the target and the settings of one clinic of a file.

    The command replaces this process, so that Ctrl-C and other signals reach it.
    """
    from pipelines.session.clinics import read_clinics

    [found] = read_clinics(file, os.environ, only=name)
    sys.stdout.flush()
    sys.stderr.flush()
    program = (sys.executable, "-m", "pipelines.cli", *command)
    return os.execve(sys.executable, program, dict(found.environ))  # noqa: S606 - this program itself, no shell
