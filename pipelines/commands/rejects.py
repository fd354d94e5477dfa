"""The commands `rejects`: export records that were set aside, try them again, or discard them."""

import json
import os
from pathlib import Path

import click

from pipelines.commands.common import (
    AtTarget,
    Options,
    as_text,
    batch_option,
    check_batch,
    print_answer,
    strict_option,
    with_reason,
    with_target,
)
from pipelines.home.exits import ALL_LOADED, UNREADABLE
from pipelines.runs.lines import SHOWN_NEXT


@click.group(short_help="Rejects: exports, retries or discards records set aside.")
def rejects() -> None:
    """Records that were set aside: export them with their reasons, try them again, or discard them."""


@rejects.command("export", short_help="Writes open rejects to files, to be corrected.")
@batch_option
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    help="The folder to write to. [default: each batch's own]",
)
@with_target
def rejects_export(at: AtTarget, batch: str | None, out: Path | None) -> int:
    """Writes open rejects whole, as they came, with _reject_id and _reasons: one file per batch, to be corrected."""
    from pipelines.corrections.rejects import export_home

    check_batch(at.home, batch)
    done = export_home(at.home, os.environ, at.feeds, at.insecure, batch, out)
    click.echo(json.dumps(done.as_json(), indent=1) if at.as_json else as_text(done.lines()))
    return UNREADABLE if done.left else ALL_LOADED


@rejects.command("retry", short_help="Tries open rejects again, unchanged, by today's rules.")
@batch_option
@strict_option
@click.option(
    "--taken-back", is_flag=True, help="Load only rejected records that an undo or a person had taken back before."
)
@with_reason
@with_target
def rejects_retry(at: AtTarget, batch: str | None, strict: bool, taken_back: bool) -> int:
    """Tries open rejects again unchanged, refused rows included: today's feeds, rules, questionnaires and target."""
    check_batch(at.home, batch)
    with at.opening() as open_it:
        from pipelines.importing.retry import retry

        with open_it(strict) as session:
            tried = retry(session, batch, taken_back)
    return print_answer(tried, at.as_json)


@rejects.command("discard", short_help="Sets open rejects aside for good, on the record.")
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@with_reason
@click.pass_obj
def rejects_discard(options: Options, ids: tuple[str, ...], why: str | None) -> int:
    """Sets open rejects aside for good, on the record. Without a reason, or with an unknown ID, nothing is done."""
    from pipelines.corrections.rejects import discard_in

    if not (why or "").strip():
        raise click.UsageError("nothing was discarded: give a reason by --why")
    done, problems = discard_in(options.home, os.environ, ids, str(why).strip())
    for problem in problems:
        click.echo(f"chartferry: {problem}", err=True)
    if done is not None:
        click.echo(f"discarded: {done}; {SHOWN_NEXT}")
    return UNREADABLE if problems else ALL_LOADED
