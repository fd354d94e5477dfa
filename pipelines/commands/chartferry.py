"""The command `chartferry`: its options and its commands."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from pipelines.commands import (
    batches,
    evidence,
    feeds,
    imports,
    questionnaires,
    rejects,
    rules,
    serving,
    tables,
    target,
)
from pipelines.commands.common import Options, SomePath, as_text, write_figures_of

COMMANDS: tuple[click.Command, ...] = (
    imports.import_,
    imports.rehearse,
    target.target,
    target.reference,
    batches.status,
    batches.verify,
    evidence.evidence,
    rejects.rejects,
    rules.rules,
    batches.doubts,
    batches.undo,
    batches.purge,
    tables.reports,
    serving.metrics,
    serving.up,
    serving.serve,
    serving.clinic,
    feeds.feeds,
    questionnaires.questionnaire,
    tables.views,
)

WITH_FIGURES = ("import", "verify", "rejects", "doubts", "undo", "purge", "reports")
"""The commands that may change what is counted, so that `metrics.prom` is written after them."""


@click.group(commands=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--home",
    type=SomePath(path_type=Path, file_okay=False),
    envvar="CHARTFERRY_HOME",
    default="var",
    help="The folder of all state (default: var, or CHARTFERRY_HOME).",
)
@click.option(
    "--feeds",
    "feed_folders",
    type=SomePath(path_type=Path, exists=True, file_okay=False),
    multiple=True,
    help="A folder with further feed files.",
)
@click.version_option(package_name="chartferry")
@click.pass_context
def cli(context: click.Context, home: Path, feed_folders: tuple[Path, ...]) -> None:
    """Carries exports into a patient chart, never twice and never lost unseen, and brings its reports back."""
    context.obj = Options(home, feed_folders)


@cli.result_callback()
@click.pass_context
def write_figures(context: click.Context, code: int, /, **_options: Any) -> int:
    """Write `metrics.prom` if the command may have changed what it counts; return the command's exit code."""
    if context.invoked_subcommand in WITH_FIGURES:
        write_figures_of(context.obj.home)
    return code


def run_command(arguments: Sequence[str]) -> int:
    """Run a command; return its exit code. Raises `KeyboardInterrupt` if it was stopped."""
    try:
        return int(cli.main(list(arguments), prog_name="chartferry", standalone_mode=False) or 0)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.Abort:
        raise KeyboardInterrupt from None
    except Exception as error:  # noqa: BLE001 - each kind of failure has its own line
        # Imported here, since importing the kinds of failures takes longer than a command that needs none of them.
        from pipelines.ledger.failures import exit_and_message

        code, message = exit_and_message(error)
        click.echo(as_text([f"chartferry: {message}"]), err=True)
        return code
