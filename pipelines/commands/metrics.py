"""The command `metrics`: the import's figures for Prometheus."""

import os

import click

from pipelines.commands.common import Options
from pipelines.home.exits import ALL_LOADED, UNUSABLE


@click.command(short_help="The import's figures for Prometheus.")
@click.option("--serve", is_flag=True, help="Answer scrapes under /metrics, until Ctrl-C.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=9464, show_default=True, help="Port; 0 is any free one.")
@click.pass_obj
def metrics(options: Options, serve: bool, host: str, port: int) -> int:
    """Prints what metrics.prom of the home holds.

    Batches by state, rows by outcome, open rejects by age, rows in doubt, the last publication, the last tick of each
    sensor, and the lease. Counts and times only.
    """
    from prometheus_client import CollectorRegistry, start_http_server

    from pipelines.importing.figures import Figures, text_of

    read = Figures(options.home, os.environ)
    if not serve:
        click.echo(text_of(read.collect()).decode(), nl=False)
        return ALL_LOADED
    registry = CollectorRegistry()
    registry.register(read)

    try:
        server, thread = start_http_server(port, host, registry)
    except OSError as error:
        click.echo(f"chartferry: {host}:{port} cannot be listened on: {error.strerror}", err=True)
        return UNUSABLE
    click.echo(f"listening on http://{host}:{server.server_port}/metrics")
    try:
        thread.join()
    except KeyboardInterrupt:
        server.shutdown()
    return ALL_LOADED
