"""The commands about the target itself: `target`, and `reference load`, which sends reference data to it."""

import os
from contextlib import closing
from pathlib import Path

import click

from pipelines.commands.common import AtTarget, print_answer, with_reason, with_target


@click.command(short_help="What the target offers, and how rows will be sent.")
@click.option("--formerly", metavar="ADDRESS", help="The target is the server that had this address before.")
@with_reason
@with_target
def target(at: AtTarget, formerly: str | None) -> int:
    """Shows what the target says of itself, and how, and at what risk, an import will send. Writes nothing there."""
    from pipelines.home.preparing import prepare_home
    from pipelines.session.connections import connect
    from pipelines.session.known_target import take_for
    from pipelines.session.ledger import open_ledger
    from pipelines.session.statement_report import ask_target

    if at.why and not formerly:
        raise click.UsageError("--why goes with --formerly")
    prepare_home(at.home)
    with connect(at.home, os.environ, at.insecure) as connection:
        if formerly:
            with closing(open_ledger(at.home, os.environ)) as ledger:
                ledger.take_up_journal(at.home)
                take_for(connection, ledger, formerly, at.why)
        return print_answer(ask_target(connection), at.as_json, connection.label)


@click.group(short_help="Reference data (patients, claims ...): sends it to a target.")
def reference() -> None:
    """Reference data: the patients, practitioners, claims and questionnaires that records name."""


@reference.command("load", short_help="Sends reference data to a target that accepts it.")
@click.argument("paths", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option(
    "--ids-are",
    metavar="SYSTEM",
    help="If the target assigns its own ids: send the given ids as identifiers of this system.",
)
@with_target
def reference_load(at: AtTarget, paths: tuple[Path, ...], ids_are: str | None) -> int:
    """Puts NDJSON files, or folders of them, to the target: under the given ids, else by their identifiers.

    Resources that the target already has stay unchanged. The bundled service loads the files as `fhir-service load`
    does.
    """
    from pipelines.home.preparing import prepare_home
    from pipelines.importing.reference import put_reference
    from pipelines.session.connections import connect

    prepare_home(at.home)
    with connect(at.home, os.environ, at.insecure) as connection:
        return print_answer(put_reference(connection, at.home, paths, os.environ, ids_are), at.as_json)
