"""The command `chartferry`: its options, its commands, and the exit code and message for each kind of failure."""

import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from pipelines.commands import (
    batches,
    carrying,
    evidence,
    feeds,
    metrics,
    questionnaires,
    reference,
    rejects,
    rules,
    target,
    views,
)
from pipelines.commands.common import Options
from pipelines.home.exits import INTERNAL, UNREADABLE, UNUSABLE

COMMANDS: tuple[click.Command, ...] = (
    carrying.import_,
    carrying.rehearse,
    target.target,
    reference.reference,
    batches.status,
    batches.verify,
    evidence.evidence,
    rejects.rejects,
    rules.rules,
    batches.doubts,
    batches.undo,
    batches.purge,
    carrying.reports,
    metrics.metrics,
    carrying.up,
    feeds.feeds,
    questionnaires.questionnaire,
    views.views,
)


@click.group(commands=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--home", type=click.Path(path_type=Path, file_okay=False), envvar="CHARTFERRY_HOME", default="var", help="State."
)
@click.option(
    "--feeds",
    "feed_folders",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    multiple=True,
    help="A folder with further feed files.",
)
@click.version_option(package_name="chartferry")
@click.pass_context
def cli(context: click.Context, home: Path, feed_folders: tuple[Path, ...]) -> None:
    """Carries exports into a patient chart, never twice and never lost unseen, and brings its reports back."""
    context.obj = Options(home, feed_folders)


def run_command(arguments: Sequence[str]) -> int:
    """Run a command; return its exit code. Raises `KeyboardInterrupt` if it was stopped."""
    try:
        return int(cli.main(list(arguments), prog_name="chartferry", standalone_mode=False) or 0)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.Abort:
        raise KeyboardInterrupt from None
    except Exception as error:  # noqa: BLE001 - each has its line
        from pipelines.home import disk

        code, line = next(failure for kind, failure in _failures().items() if isinstance(error, kind))
        full = disk.is_full(error)
        click.echo(f"chartferry: {disk.FULL if full else line(error)}", err=True)
        return UNUSABLE if full else code


def _failures() -> dict[type[BaseException], tuple[int, Callable[[Any], str]]]:
    """Return exit code and message by kind of failure, without the text of exceptions that may hold a record's data.

    The kinds are imported here: together they take longer than a command that needs none of them, such as `--help`.
    """
    from sqlalchemy.exc import SQLAlchemyError

    from pipelines.client.client import TargetUnusable
    from pipelines.client.pace import BadPace
    from pipelines.client.profiles import BadProfile
    from pipelines.feeds.files.catalog import FeedError
    from pipelines.home.folder import BadHome
    from pipelines.ledger.database import why
    from pipelines.ledger.tables import LedgerError, NotPossible
    from pipelines.reports.views.definition import BadView
    from pipelines.session.connections import BadTarget

    return {
        FeedError: (UNREADABLE, str),
        BadView: (UNREADABLE, str),
        BadTarget: (UNUSABLE, str),
        BadPace: (UNUSABLE, str),
        BadProfile: (UNUSABLE, str),
        BadHome: (UNUSABLE, str),
        TargetUnusable: (UNUSABLE, str),
        NotPossible: (UNREADABLE, str),
        LedgerError: (UNUSABLE, str),
        SQLAlchemyError: (UNUSABLE, lambda error: f"the ledger could not be read or written: {why(error)}"),
        OSError: (UNUSABLE, lambda error: f"{error.strerror or type(error).__name__}: {error.filename or 'a file'}"),
        Exception: (INTERNAL, lambda error: f"a fault of this program: {type(error).__name__} at {_place(error)}"),
    }


def _place(error: BaseException) -> str:
    """Return file and line of the last frame of an exception in this program."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if Path(frame.filename).is_relative_to(Path(__file__).parents[1])] or frames
    return f"{Path(ours[-1].filename).name}:{ours[-1].lineno}"
