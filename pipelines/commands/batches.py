"""The commands about imported batches and decisions on them: `status`, `verify`, `doubts`, `undo`, `purge`."""

import json
import os
from functools import partial
from typing import Any

import click

from pipelines.commands.common import (
    AtTarget,
    NameArgument,
    Options,
    Work,
    as_text,
    batch_option,
    check_begun,
    no_batch,
    with_reason,
    with_target,
)
from pipelines.home.exits import ALL_LOADED, WronglyAsked
from pipelines.runs.lines import SHOWN_NEXT


@click.command(short_help="Batches with their counts, or one batch in detail.")
@click.argument("batch", required=False, type=NameArgument())
@click.option("--json", "as_json", is_flag=True, help="Print it as one JSON document.")
@click.pass_obj
def status(options: Options, batch: str | None, as_json: bool) -> int:
    """Shows all batches with their counts, or one batch with its runs, its rows in doubt and its manifest."""
    from pipelines.importing.status import batch_status, status_lines
    from pipelines.session.ledger import nothing_in

    found = batch_status(options.home, os.environ, batch)
    if found is None:
        raise WronglyAsked(no_batch(batch) if batch else nothing_in(options.home))
    click.echo(json.dumps(found, indent=1) if as_json else as_text(status_lines(found)))
    return ALL_LOADED


@click.command(short_help="Proves that ledger and target agree, to the row and the cent.")
@click.argument("batch", required=False, type=NameArgument())
@click.option("--adopt", is_flag=True, help="For a home without ledger and journal: find in the target what it sent.")
@click.option("--all", "whole", is_flag=True, help="Read the whole target, even if it can list what has changed.")
@with_reason
@with_target
def verify(at: AtTarget, batch: str | None, adopt: bool, whole: bool) -> int:
    """Reads the target and proves that ledger and target agree, to the row and the cent."""
    if adopt and batch:
        raise click.UsageError("--adopt works on all batches of this home: leave out the batch")
    if not batch:
        check_begun(at.home)

    def load() -> Work:
        from pipelines.verifying.adopting import adopt_lost
        from pipelines.verifying.verify import verify_and_write

        return adopt_lost if adopt else partial(verify_and_write, batch_id=batch, whole=whole)

    return at.answer(load, anew=adopt)


@click.group(short_help="Rows in doubt: sent, with an unknown outcome.")
def doubts() -> None:
    """Rows in doubt: they were sent, and it is not known yet if the target has them."""


@doubts.command("resolve", short_help="Looks up rows in doubt at the target again.")
@batch_option
@with_target
def doubts_resolve(at: AtTarget, batch: str | None) -> int:
    """Looks up rows in doubt at the target again, and settles those whose outcome is found. Sends nothing."""
    if not batch:
        check_begun(at.home)

    def load() -> Work:
        from pipelines.runs.doubt_lookups import resolve

        return partial(resolve, batch_id=batch)

    return at.answer(load)


@doubts.command("accept", short_help="Settles a row in doubt: names the resource that it made.")
@click.argument("name", metavar="BATCH:LINE", type=NameArgument())
@click.option("--resource", required=True, type=NameArgument(), help="The id of the resource that the row made.")
@with_reason
@with_target
def doubts_accept(at: AtTarget, name: str, resource: str) -> int:
    """Settles a row in doubt by hand: the resource is the one that the row made. On the record, with your name."""

    def load() -> Work:
        from pipelines.corrections.decisions import DecisionMessage, accept

        return lambda session: DecisionMessage(f"{accept(session, name, resource)}; {SHOWN_NEXT}")

    return at.answer(load)


@doubts.command("resend", short_help="Lets the next import send a row in doubt again.")
@click.argument("name", metavar="BATCH:LINE", type=NameArgument())
@click.option(
    "--apart-from",
    multiple=True,
    type=NameArgument(),
    metavar="RESOURCE",
    help="A resource with equal content that this row did not make.",
)
@with_reason
@with_target
def doubts_resend(at: AtTarget, name: str, apart_from: tuple[str, ...]) -> int:
    """Lets the next import send a row in doubt again, after you have made sure that the target does not have it.

    The row is looked up first. It is not sent again while the target has an equal resource that was not there before.
    """

    def load() -> Work:
        from pipelines.corrections.decisions import DecisionMessage, resend

        return lambda session: DecisionMessage(resend(session, name, apart_from))

    return at.answer(load)


@click.command(short_help="Takes back the responses and tasks of a batch.")
@click.argument("batch", type=NameArgument())
@click.option("--dry-run", is_flag=True, help="List what would be taken back, and change nothing.")
@with_reason
@with_target
def undo(at: AtTarget, batch: str, dry_run: bool) -> int:
    """Takes a batch's responses and tasks back, as the interface allows. Lists payments, which cannot be taken back."""

    def load() -> Work:
        from pipelines.corrections.undo import undo as take_back

        return partial(take_back, batch_id=batch, dry_run=dry_run)

    def then(session: Any, done: Any) -> None:
        from pipelines.importing.undoing import publish_undone

        publish_undone(session, done, batch_id=batch)

    return at.answer(load, then=then)


@click.command(short_help="Removes the source rows (patient data) of a finished batch.")
@click.argument("batch", type=NameArgument())
@with_reason
@click.pass_obj
def purge(options: Options, batch: str, why: str | None) -> int:
    """Removes a finished batch's source rows, which hold patient data. Ledger and counts stay."""
    from pipelines.corrections.retention import purge_in

    click.echo(purge_in(options.home, os.environ, batch, why))
    return ALL_LOADED
