"""The command about the target: `target`."""

import json
import os

import click

from pipelines.commands.common import Options, as_text, with_target


@click.command(short_help="What the target offers, and how rows will be sent.")
@with_target
@click.pass_obj
def target(options: Options, insecure: bool, as_json: bool) -> int:
    """What the target says of itself, what an import will therefore do, and at what risk. Writes nothing there."""
    from pipelines.home.preparing import prepare_home
    from pipelines.session.connections import connect
    from pipelines.session.offered import offered

    prepare_home(options.home)
    with connect(options.home, os.environ, insecure) as connection:
        found, label = offered(connection), connection.label
    if as_json:
        click.echo(json.dumps({"target": label, **found.as_json()}, indent=1))
    else:
        click.echo(as_text([f"target: {label}", *found.lines()]))
    return found.exit_code
