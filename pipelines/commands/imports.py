"""The commands that carry data: `import`, `rehearse`."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from fhir_service.paths import exists
from pipelines.client.pace import MOST_WORKERS
from pipelines.commands.common import (
    AtTarget,
    NameArgument,
    Options,
    SomePath,
    as_text,
    print_answer,
    showing_progress,
    strict_option,
    with_reason,
    with_target,
)
from pipelines.home.exits import UNUSABLE


class PathOrAddress(SomePath):
    """A path, or the address of a manifest, which stays a text."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return value if isinstance(value, str) and "://" in value else super().convert(value, param, ctx)


@click.command("import", short_help="Imports exports (default: the inbox) and publishes tables.")
@click.argument("places", type=PathOrAddress(path_type=Path, readable=False), nargs=-1, metavar="[PATH or URL]...")
@click.option(
    "--dry-run", is_flag=True, help="Check the files against every rule; write nothing to the target, and keep nothing."
)
@strict_option
@click.option(
    "--again",
    metavar="BATCH",
    type=NameArgument(),
    help="Load the records of a batch again that were taken back or are gone from the target.",
)
@click.option(
    "--copayments",
    metavar="BATCH",
    type=NameArgument(),
    help="Confirm and load a batch that waits because all of its payments are copayments.",
)
@click.option(
    "--new",
    metavar="BATCH",
    type=NameArgument(),
    help="Confirm and load a batch that waits because its records seem to be loaded already.",
)
@click.option(
    "--whole", metavar="FEED", type=NameArgument(), help="Query all rows of a feed's database, not only the new ones."
)
@click.option(
    "--remap",
    is_flag=True,
    help="Apply the feed's `changed` policy to rows that read differently because the feed file changed.",
)
@click.option(
    "--clock-is-right", is_flag=True, help="Continue although the ledger has times later than this machine's clock."
)
@click.option(
    "--workers",
    type=click.IntRange(1, MOST_WORKERS),
    help="The most processes that load one file, each at least 25,000 records. [default: CHARTFERRY_WORKERS, else 1]",
)
@click.option(
    "--reference",
    type=SomePath(path_type=Path, exists=True),
    help="Load this reference data, a file or folder of NDJSON, first, if the target is the bundled service.",
)
@with_reason
@with_target
def import_(
    at: AtTarget,
    places: tuple[Path | str, ...],
    dry_run: bool,
    strict: bool,
    again: str | None,
    copayments: str | None,
    new: str | None,
    whole: str | None,
    remap: bool,
    clock_is_right: bool,
    workers: int | None,
    reference: Path | None,
) -> int:
    """Receives, validates and loads files or folders (default: the inbox), then publishes the tables.

    Takes the address of a manifest ($bulk-publish) too: its files of payments, responses and tasks are fetched first.
    """
    from pipelines.importing.bulk import locked_addresses, remove_fetched
    from pipelines.importing.import_options import ImportOptions

    asked = ImportOptions(again, copayments, new, whole, remap, dry_run, clock_is_right, reference)
    if contradiction := asked.contradiction(places, at.why):
        raise click.UsageError(contradiction)
    addresses = [each for each in places if isinstance(each, str)]
    click.get_current_context().with_resource(locked_addresses(at.home, addresses))
    paths = _files_at(places, at.home, at.insecure)
    environ = {**os.environ, **({"CHARTFERRY_WORKERS": str(workers)} if workers else {})}
    if clock_is_right:
        from pipelines.importing.clock import trust_clock

        trust_clock(at.home, environ, at.why, lambda said: click.echo(said, err=True))
    with at.opening(environ) as open_it:
        from pipelines.importing.requested_import import carry_out, load_first

        with open_it(strict) as session:
            if reference:
                load_first(session, reference, environ)
            summary = carry_out(asked, session, paths)
    if summary.exit_code != UNUSABLE:
        remove_fetched(at.home, addresses)
    return print_answer(summary, at.as_json)


def _files_at(places: Sequence[Path | str], home: Path, insecure: bool) -> list[Path]:
    """Return the files and folders, and the files of manifests at addresses. Raises `UnreadableFile`.

    A file of the inbox may be missing: it may be in its unfinished batch already.
    """
    from pipelines.home.batch import UnreadableFile
    from pipelines.home.inbox import Inbox
    from pipelines.importing.bulk import fetched_files

    paths, inbox = [each for each in places if isinstance(each, Path)], Inbox(home / "inbox")
    for path in paths:
        if not (exists(path) or inbox.holds(path)):
            raise UnreadableFile(f"{path}: there is no such file or folder")
    return [*paths, *fetched_files(home, [each for each in places if isinstance(each, str)], os.environ, insecure)]


@click.command(short_help="Shows what an import would do, on a copy of the store.")
@click.argument("paths", type=SomePath(path_type=Path, readable=False), nargs=-1)
@click.option(
    "--reference",
    type=click.Path(path_type=Path, exists=True),
    help="Rehearse against a new store with this reference data.",
)
@click.option("--store", help="The store to copy instead of the home's: a DuckDB file or a database URL.")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="The file to write the report to.")
@click.option("--against", type=click.Path(path_type=Path, dir_okay=False), help="An earlier report to compare with.")
@click.option("--json", "as_json", is_flag=True, help="Print the report.")
@click.pass_obj
def rehearse(
    options: Options,
    paths: tuple[Path, ...],
    reference: Path | None,
    store: str | None,
    out: Path | None,
    against: Path | None,
    as_json: bool,
) -> int:
    """Imports into a throw-away copy of the bundled store (or a new one) and shows the outcome of every row."""
    from pipelines.rehearsing.copying import RehearsalInput
    from pipelines.rehearsing.rehearsal import rehearse

    if store and reference:
        raise click.UsageError("--store and --reference exclude each other: give one of them")
    wanted = RehearsalInput(options.home, options.feeds, paths, reference, out, against, store)
    with showing_progress() as progress:
        done = rehearse(wanted, os.environ, progress)
    click.echo(done.path.read_text(encoding="utf-8") if as_json else as_text(done.lines()), nl=not as_json)
    return done.exit_code
