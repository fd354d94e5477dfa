"""The command `chartferry`: options, commands, exit codes. What they do is in the modules that they call."""

import json
import os
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import click
from sqlalchemy.exc import SQLAlchemyError

from pipelines.client import TargetUnusable
from pipelines.connections import BadTarget
from pipelines.exits import ALL_LOADED, INTERNAL, INTERRUPTED, UNREADABLE, UNUSABLE
from pipelines.feeds.catalog import Feed, FeedError
from pipelines.ledger_tables import LedgerError, NotPossible
from pipelines.pace import BadPace
from pipelines.progress import Progress, progress_on

if TYPE_CHECKING:
    from pipelines.session import Session

FAILURES: dict[type[BaseException], tuple[int, Callable[[Any], str]]] = {
    FeedError: (UNREADABLE, str),
    BadTarget: (UNUSABLE, str),
    BadPace: (UNUSABLE, str),
    TargetUnusable: (UNUSABLE, str),
    NotPossible: (UNREADABLE, str),
    LedgerError: (UNUSABLE, str),
    SQLAlchemyError: (UNUSABLE, lambda error: f"the ledger could not be read or written ({type(error).__name__})"),
    OSError: (UNUSABLE, lambda error: f"{error.strerror or type(error).__name__}: {error.filename or 'a file'}"),
    KeyboardInterrupt: (INTERRUPTED, lambda _: "stopped; the same command goes on where it ended"),
    click.Abort: (INTERRUPTED, lambda _: "stopped"),
    Exception: (INTERNAL, lambda error: f"a fault of this program: {type(error).__name__} at {_place(error)}"),
}
"""What ends a command with one line: exit code and line. No text of an exception that may hold a record's data."""


@dataclass(frozen=True)
class Options:
    """What stands before the command."""

    home: Path
    feeds: tuple[Path, ...]


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--home", type=click.Path(path_type=Path, file_okay=False), envvar="CHARTFERRY_HOME", default="var", help="State."
)
@click.option(
    "--feeds",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    multiple=True,
    help="A folder with further feed files.",
)
@click.version_option(package_name="chartferry")
@click.pass_context
def cli(context: click.Context, home: Path, feeds: tuple[Path, ...]) -> None:
    """Carries exports into a patient chart, never twice and never lost unseen, and brings its reports back."""
    context.obj = Options(home, feeds)


def main() -> None:
    """The entry point: every failure that a user can mend is one line and its exit code."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Runs a command; gives its exit code."""
    try:
        return int(cli.main(list(arguments), prog_name="chartferry", standalone_mode=False) or 0)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except tuple(FAILURES) as error:
        code, line = next(failure for kind, failure in FAILURES.items() if isinstance(error, kind))
        click.echo(f"chartferry: {line(error)}", err=True)
        return code


def _place(error: BaseException) -> str:
    """The last line of ours that an exception came through."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if Path(frame.filename).is_relative_to(Path(__file__).parent)] or frames
    return f"{Path(ours[-1].filename).name}:{ours[-1].lineno}"


@contextmanager
def showing_progress() -> Iterator[Progress]:
    progress = progress_on(sys.stderr)
    try:
        yield progress
    finally:
        progress.close()


target_options = (
    click.option("--insecure", is_flag=True, help="Allow http:// to a target beyond this machine."),
    click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON document."),
)


def with_target(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in target_options:
        command = option(command)
    return command


@cli.command("import")
@click.argument("paths", type=click.Path(path_type=Path), nargs=-1)
@click.option("--dry-run", is_flag=True, help="Apply every rule, send nothing but reads, keep nothing.")
@click.option("--strict", is_flag=True, help="Decided rules reject too, at a target that is not a service of ours.")
@click.option("--again", metavar="BATCH", help="Load a batch anew that was taken back, or what is gone of it.")
@click.option("--remap", is_flag=True, help="Apply the feed's policy to rows that changed only because the feed did.")
@with_target
@click.pass_obj
def import_(
    options: Options,
    paths: tuple[Path, ...],
    dry_run: bool,
    strict: bool,
    again: str | None,
    remap: bool,
    insecure: bool,
    as_json: bool,
) -> int:
    """Receives, validates and loads files or folders (default: the inbox), then publishes the tables."""
    from pipelines.importing import import_again, import_paths, import_remapped
    from pipelines.session import open_session

    if again and (paths or dry_run or remap):
        raise click.UsageError("--again takes a batch alone")
    if remap and dry_run:
        raise click.UsageError("--remap has no dry run")
    for path in paths:
        if not path.exists():
            click.echo(f"chartferry: {path}: there is no such file or folder", err=True)
            return UNREADABLE
    with (
        showing_progress() as progress,
        open_session(options.home, os.environ, options.feeds, insecure, strict, progress) as session,
    ):
        if again:
            summary = import_again(session, again)
        else:
            summary = import_remapped(session, paths) if remap else import_paths(session, paths, dry_run)
    click.echo(json.dumps(summary.as_json(), indent=1) if as_json else "\n".join(summary.lines()))
    return summary.exit_code


@cli.command()
@click.argument("paths", type=click.Path(path_type=Path), nargs=-1)
@click.option("--reference", type=click.Path(path_type=Path, exists=True), help="Reference data for a new store.")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="Where the report goes.")
@click.option("--against", type=click.Path(path_type=Path, dir_okay=False), help="An earlier report to compare with.")
@click.option("--json", "as_json", is_flag=True, help="Print the report.")
@click.pass_obj
def rehearse(
    options: Options,
    paths: tuple[Path, ...],
    reference: Path | None,
    out: Path | None,
    against: Path | None,
    as_json: bool,
) -> int:
    """Imports into a throw-away copy of the bundled store (or a new one) and tells what would come of every row."""
    from pipelines.batch import Unreadable
    from pipelines.rehearsal import Wanted, rehearse

    wanted = Wanted(options.home, options.feeds, paths, reference, out, against)
    try:
        with showing_progress() as progress:
            done = rehearse(wanted, os.environ, progress)
    except Unreadable as error:
        click.echo(f"chartferry: {error}", err=True)
        return UNREADABLE
    click.echo(done.path.read_text(encoding="utf-8") if as_json else "\n".join(done.lines()), nl=not as_json)
    return done.exit_code


@cli.command()
@click.argument("batch", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print it as one JSON document.")
@click.pass_obj
def status(options: Options, batch: str | None, as_json: bool) -> int:
    """Batches with their counts, or one with its runs, its rows in doubt and its manifest."""
    from pipelines.status import batch_status, status_lines

    found = batch_status(options.home, os.environ, batch)
    if found is None:
        click.echo(f"chartferry: {batch or options.home}: {'no such batch' if batch else 'no ledger here'}", err=True)
        return UNREADABLE
    click.echo(json.dumps(found, indent=1) if as_json else "\n".join(status_lines(found)))
    return ALL_LOADED


@cli.command()
@with_target
@click.pass_obj
def reports(options: Options, insecure: bool, as_json: bool) -> int:
    """Sweeps the diagnostic reports, builds and publishes the tables."""
    from pipelines.importing import publish_only
    from pipelines.session import open_session

    with (
        showing_progress() as progress,
        open_session(options.home, os.environ, options.feeds, insecure, progress=progress) as session,
    ):
        summary = publish_only(session)
    if as_json:
        click.echo(json.dumps(summary.as_json(), indent=1))
    else:
        click.echo(f"target: {summary.target}")
        click.echo("\n".join(f"{name}  {rows:,}" for name, rows in summary.tables.items()))
        click.echo(f"published: {summary.published}")
    return summary.exit_code


@cli.command()
@click.option("--port", type=click.IntRange(0, 65535), envvar="CHARTFERRY_SERVICE_PORT", help="Of the service: 8400.")
@click.option("--web-port", type=click.IntRange(0, 65535), envvar="CHARTFERRY_WEB_PORT", help="Of Dagster: 3000.")
@click.pass_obj
def up(options: Options, port: int | None, web_port: int | None) -> int:
    """Runs the service, Dagster's web pages and its daemon on this machine, until Ctrl-C."""
    from pipelines import up as running

    ports = (running.SERVICE_PORT if port is None else port, running.WEB_PORT if web_port is None else web_port)
    feeds = os.pathsep.join([*(str(path.resolve()) for path in options.feeds), os.environ.get("CHARTFERRY_FEEDS", "")])
    try:
        running.up(options.home, {**os.environ, "CHARTFERRY_FEEDS": feeds.strip(os.pathsep)}, *ports, click.echo)
    except running.CannotStart as error:
        click.echo(f"chartferry: {error}", err=True)
        return UNUSABLE
    return ALL_LOADED


@cli.command()
@click.argument("batch", required=False)
@click.option("--adopt", is_flag=True, help="Rebuild what a lost ledger does not know, from what the target has.")
@with_target
@click.pass_obj
def verify(options: Options, batch: str | None, adopt: bool, insecure: bool, as_json: bool) -> int:
    """Reads the target and proves that ledger and target agree, to the row and the cent."""
    from pipelines.verify import adopt_lost, verify_target

    work = adopt_lost if adopt else partial(verify_target, batch_id=batch)
    return _answer(options, insecure, as_json, work)


@cli.group()
def doubts() -> None:
    """Rows of which nobody knows yet whether the target has them."""


@doubts.command("resolve")
@click.option("--batch", "-b", help="Only those of this batch.")
@with_target
@click.pass_obj
def doubts_resolve(options: Options, batch: str | None, insecure: bool, as_json: bool) -> int:
    """Looks rows in doubt up at the target again, and settles those that can be told. Sends nothing."""
    from pipelines.decisions import resolve

    return _answer(options, insecure, as_json, lambda session: resolve(session, batch))


@doubts.command("accept")
@click.argument("name", metavar="ID")
@click.option("--resource", required=True, help="The id of the resource that the row made.")
@with_target
@click.pass_obj
def doubts_accept(options: Options, name: str, resource: str, insecure: bool, as_json: bool) -> int:
    """Settles a row in doubt by hand: this resource is what it made. On the record, with your name."""
    from pipelines.decisions import Said, accept

    return _answer(options, insecure, as_json, lambda session: Said(accept(session, name, resource)))


@doubts.command("resend")
@click.argument("name", metavar="ID")
@with_target
@click.pass_obj
def doubts_resend(options: Options, name: str, insecure: bool, as_json: bool) -> int:
    """Lets the next import send a row in doubt again: you have made sure that the target does not have it."""
    from pipelines.decisions import Said, resend

    return _answer(options, insecure, as_json, lambda session: Said(resend(session, name)))


@cli.command()
@click.argument("batch")
@click.option("--dry-run", is_flag=True, help="List it, and change nothing.")
@with_target
@click.pass_obj
def undo(options: Options, batch: str, dry_run: bool, insecure: bool, as_json: bool) -> int:
    """Takes a batch back where the interface allows: responses and tasks. Lists payments, which cannot be."""
    from pipelines.decisions import undo as undo_batch

    return _answer(options, insecure, as_json, lambda session: undo_batch(session, batch, dry_run))


@cli.command()
@click.argument("batch")
@click.pass_obj
def purge(options: Options, batch: str) -> int:
    """Removes a finished batch's source rows, which hold patient data. Ledger and counts stay."""
    from pipelines.decisions import purge_in

    click.echo(purge_in(options.home, os.environ, batch))
    return ALL_LOADED


class Answer(Protocol):
    """What a command found or did."""

    @property
    def exit_code(self) -> int: ...
    def as_json(self) -> dict[str, Any]: ...
    def lines(self) -> Iterable[str]: ...


def _answer(options: Options, insecure: bool, as_json: bool, work: Callable[["Session"], Answer]) -> int:
    """Does something at the target of the environment and prints what came of it."""
    from pipelines.session import open_session

    with (
        showing_progress() as progress,
        open_session(options.home, os.environ, options.feeds, insecure, progress=progress) as session,
    ):
        done, label = work(session), session.connection.label
    if as_json:
        click.echo(json.dumps({"target": label, **done.as_json()}, indent=1))
    else:
        click.echo("\n".join([f"target: {label}", *done.lines()]))
    return done.exit_code


@cli.group()
def rejects() -> None:
    """Records that were set aside: give them back with their reasons, try them again, or leave it at that."""


def _no_such_batch(options: Options, batch: str | None) -> bool:
    """Whether a batch is named that this home does not know; says so."""
    from pipelines.status import batch_status

    missing = batch is not None and batch_status(options.home, os.environ, batch) is None
    if missing:
        click.echo(f"chartferry: {batch}: no such batch", err=True)
    return missing


@rejects.command("export")
@click.option("--batch", "-b", help="Only those of this batch.")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), help="Where to; else each batch's own folder.")
@with_target
@click.pass_obj
def rejects_export(options: Options, batch: str | None, out: Path | None, insecure: bool, as_json: bool) -> int:
    """Writes open rejects whole, as they came, with _reject_id and _reasons: one file per batch, to be corrected."""
    from pipelines.rejects import export_home

    if _no_such_batch(options, batch):
        return UNREADABLE
    done = export_home(options.home, os.environ, options.feeds, insecure, batch, out)
    click.echo(json.dumps(done.as_json(), indent=1) if as_json else "\n".join(done.lines()))
    return UNREADABLE if done.left else ALL_LOADED


@rejects.command("retry")
@click.option("--batch", "-b", help="Only those of this batch.")
@click.option("--strict", is_flag=True, help="Decided rules reject too, at a target that is not a service of ours.")
@with_target
@click.pass_obj
def rejects_retry(options: Options, batch: str | None, strict: bool, insecure: bool, as_json: bool) -> int:
    """Tries open rejects again as they are: today's feeds, rules, questionnaires and target, refused rows included."""
    from pipelines.retrying import retry
    from pipelines.session import open_session

    if _no_such_batch(options, batch):
        return UNREADABLE
    with (
        showing_progress() as progress,
        open_session(options.home, os.environ, options.feeds, insecure, strict, progress) as session,
    ):
        tried = retry(session, batch)
    click.echo(json.dumps(tried.as_json(), indent=1) if as_json else "\n".join(tried.lines()))
    return tried.exit_code


@rejects.command("discard")
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@click.option("--why", help="The reason, kept with your name and the time.")
@click.pass_obj
def rejects_discard(options: Options, ids: tuple[str, ...], why: str | None) -> int:
    """Sets open rejects aside for good, on the record. Without a reason, or with an unknown ID, nothing is done."""
    from pipelines.rejects import discard_in

    if not (why or "").strip():
        raise click.UsageError("say why (--why): nothing was discarded")
    done, problems = discard_in(options.home, os.environ, ids, str(why).strip())
    for problem in problems:
        click.echo(f"chartferry: {problem}", err=True)
    if done is not None:
        click.echo(f"discarded: {done}")
    return UNREADABLE if problems else ALL_LOADED


@cli.group()
def feeds() -> None:
    """Feed files: which exports are taken, and what each column becomes."""


@feeds.command("check")
@click.argument("files", type=click.Path(path_type=Path), nargs=-1)
@click.option("--sample", type=click.Path(path_type=Path), help="An export: shows what its first rows become.")
@click.option("--rows", type=click.IntRange(1, 1000), default=5, show_default=True, help="How many rows of the sample.")
@click.pass_obj
def feeds_check(options: Options, files: tuple[Path, ...], sample: Path | None, rows: int) -> int:
    """Checks feed files (default: all that an import would use) and says what each column becomes."""
    from pipelines.explain import feed_lines
    from pipelines.feeds.catalog import load_feed, load_feeds
    from pipelines.session import feed_folders_of

    code, found = ALL_LOADED, []
    if not files:
        catalog = load_feeds(feed_folders_of(options.home, os.environ, options.feeds))
        match = catalog.match(sample.name) if sample else None
        found = list(catalog.feeds) if sample is None else [match] if match else []
    for file in files:
        try:
            found.append(load_feed(file))
        except FeedError as error:
            click.echo(f"chartferry: {error}", err=True)
            code = UNREADABLE
    for feed in found:
        click.echo("\n".join(feed_lines(feed)))
    if sample is not None and not found and code == ALL_LOADED:
        click.echo(f"chartferry: {sample.name}: no feed takes a file of this name", err=True)
        return UNREADABLE
    return max(code, *(_show_sample(feed, sample, rows) for feed in found)) if sample and found else code


def _show_sample(feed: Feed, sample: Path, rows: int) -> int:
    """The first rows of an export by a feed, on the terminal of the person who asks."""
    from pipelines.batch import Unreadable
    from pipelines.feeds.sample import sample_lines

    try:
        for line in sample_lines(feed, sample, rows):
            click.echo(line)
    except Unreadable as error:
        click.echo(f"chartferry: {error}", err=True)
        return UNREADABLE
    return ALL_LOADED


@feeds.command("new")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--kind", type=click.Choice(["payments", "answers", "tasks"]), help="What it holds; guessed by default.")
def feeds_new(file: Path, kind: str | None) -> int:
    """Drafts a feed file from an export, on standard output. No value of a row goes into it."""
    from pipelines.batch import Unreadable
    from pipelines.feeds.draft import draft

    try:
        click.echo(draft(file, kind), nl=False)
    except Unreadable as error:
        click.echo(f"chartferry: {error}", err=True)
        return UNREADABLE
    return ALL_LOADED


if __name__ == "__main__":
    main()
