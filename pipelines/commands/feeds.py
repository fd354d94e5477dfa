"""The commands `feeds`: check feed files, try them on a sample, draft new ones, and complete crosswalks."""

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pipelines.commands.common import NameArgument, Options, as_text
from pipelines.home.counted import counted
from pipelines.home.exits import ALL_LOADED, UNREADABLE, WronglyAsked

if TYPE_CHECKING:
    from pipelines.corrections.worklist import WorkList
    from pipelines.feeds.files.catalog import Feed


@click.group(short_help="Feed files: checks and drafts them.")
def feeds() -> None:
    """Feed files: which exports are taken, and what each column becomes."""


@feeds.command("check", short_help="Checks feed files and shows what each column becomes.")
@click.argument("files", type=click.Path(path_type=Path), nargs=-1)
@click.option("--sample", type=click.Path(path_type=Path), help="An export: show what its first rows become.")
@click.option("--rows", type=click.IntRange(1, 1000), default=5, show_default=True, help="How many rows of the sample.")
@click.pass_obj
def feeds_check(options: Options, files: tuple[Path, ...], sample: Path | None, rows: int) -> int:
    """Checks feed files (default: all that an import would use) and says what each column becomes."""
    from pipelines.commands.explain import feed_lines
    from pipelines.feeds.files.catalog import FeedError, home_catalog, load_feed

    code, found = ALL_LOADED, []
    if not files:
        catalog = home_catalog(options.home, os.environ, options.feeds)
        match = catalog.match(sample.name) if sample else None
        found = list(catalog.feeds) if sample is None else [match] if match else []
    for file in files:
        try:
            found.append(load_feed(file))
        except FeedError as error:
            for line in error.all:
                click.echo(f"chartferry: {line}", err=True)
            if file.suffix != ".toml":
                click.echo(
                    f"chartferry: {file.name}: no feed file (*.toml); to try a feed with an export, write"
                    " --sample before"
                    " the name of the export",
                    err=True,
                )
            code = UNREADABLE
    for feed in found:
        click.echo("\n".join(feed_lines(feed)))
    if sample is not None and not found and code == ALL_LOADED:
        raise WronglyAsked(f"{sample.name}: no feed takes a file of this name")
    return max(code, *(_show_sample(feed, sample, rows, options.home) for feed in found)) if sample and found else code


def _show_sample(feed: "Feed", sample: Path, rows: int, home: Path) -> int:
    """Print the first rows of an export as the feed maps them; return the exit code."""
    from pipelines.feeds.drafting.sample import sample_lines
    from pipelines.home.batch import UnreadableFile
    from pipelines.session.questionnaires import reference_questionnaires

    try:
        known = reference_questionnaires(home) if feed.file.kind == "answers" else None
        for line in sample_lines(feed, sample, rows, known):
            click.echo(as_text([line]))
    except UnreadableFile as error:
        click.echo(f"chartferry: {error}", err=True)
        return UNREADABLE
    return ALL_LOADED


@feeds.command("new")
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--kind", type=click.Choice(["payments", "answers", "tasks"]), help="What the export holds. [default: guessed]"
)
@click.option("--ask", is_flag=True, help="Ask about each line marked DECIDE, and show the values seen.")
def feeds_new(file: Path, kind: str | None, ask: bool) -> int:
    """Drafts a feed file from an export, on standard output.

    Of the export's values, the draft holds only codes such as a status.

    With --ask, questions and values go to standard error, and answers are read from standard input: from a terminal, or
    one on each line.
    """
    from pipelines.feeds.drafting.draft import draft

    click.echo(draft(file, kind, _asking() if ask else None), nl=False)
    return ALL_LOADED


def _asking() -> Callable[[Sequence[str]], str | None]:
    """Return a function that shows a question and returns the next line of standard input, None at its end."""
    answers = sys.stdin

    def ask(question: Sequence[str]) -> str | None:
        click.echo("\n".join(as_text([line]) for line in question), err=True)
        click.echo("> ", nl=False, err=True)
        return answers.readline() or None

    return ask


@feeds.command("expect", short_help="Drafts expectations of a feed's files from the files that came.")
@click.argument("feed", type=NameArgument())
@click.pass_obj
def feeds_expect(options: Options, feed: str) -> int:
    """Drafts expectations for a feed's files, from the files that have come."""
    from pipelines.feeds.files.catalog import home_catalog
    from pipelines.importing.expectations import draft_expectations
    from pipelines.session.ledger import ledger_of, nothing_in

    found = home_catalog(options.home, os.environ, options.feeds).named(feed)
    with ledger_of(options.home, os.environ) as ledger:
        if found is None or ledger is None:
            raise WronglyAsked(f"{feed}: there is no feed of this name" if found is None else nothing_in(options.home))
        click.echo(as_text(draft_expectations(ledger, options.home, found)))
    return ALL_LOADED


@feeds.command("map", short_help="Lists values without an entry in a crosswalk, and adds entries.")
@click.argument("feed", type=NameArgument())
@click.option(
    "--out", type=click.Path(path_type=Path, dir_okay=False), help="Write the list to this CSV, to be filled in."
)
@click.option(
    "--entries", type=click.Path(path_type=Path, dir_okay=False), help="Add the entries of such a CSV, filled in."
)
@click.option("--reference", type=click.Path(path_type=Path, exists=True), help="Reference data to find candidates in.")
@click.pass_obj
def feeds_map(options: Options, feed: str, out: Path | None, entries: Path | None, reference: Path | None) -> int:
    """Lists the values of open rejects without an entry in a crosswalk, with near candidates, and takes new entries.

    Candidates come from the reference data (default: <home>/reference). On a terminal, an entry is asked for each
    value.
    """
    from pipelines.corrections.worklist import read_csv_entries, work_list, write_csv

    found = work_list(options.home, os.environ, options.feeds, feed, reference)
    if found.work and not entries and not any(work.candidates for work in found.work):
        folder = reference or options.home / "reference"
        click.echo(
            f"no candidates: {folder} has no records of this type; name other reference data by --reference DIR",
            err=True,
        )
    if entries:
        given = read_csv_entries(entries)
    elif out and found.work:
        write_csv(found, out)
        then = f"fill in the column entry, then run chartferry feeds map {feed} --entries {out}"
        click.echo(f"{out}: {counted(len(found.work), 'value')}; {then}")
        return UNREADABLE if found.left else ALL_LOADED
    else:
        given = _asked_for(found, asking=sys.stdin.isatty())
    written = found.write_entries(given)
    for line in found.left:
        click.echo(f"chartferry: {line}", err=True)
    if written:
        click.echo(
            f"{counted(written, 'entry was', 'entries were')} written; chartferry import tries the rejects again"
        )
    elif given:
        click.echo("no entry was written: the crosswalks have all of these entries already")
    elif not found.work:
        click.echo(
            f"nothing to list: no open reject of {feed} lacks a crosswalk entry; a value is listed after an"
            " import has rejected it"
        )
    return UNREADABLE if found.left else ALL_LOADED


def _asked_for(found: "WorkList", asking: bool) -> dict[tuple[str, str], str]:
    """Print the work list; on a terminal ask for each entry, by the number of a candidate or as an id."""
    given: dict[tuple[str, str], str] = {}
    for work in found.work:
        click.echo(as_text([f"{work.walk.name}: {work.value}: {work.rows:,} row{'s' * (work.rows != 1)}"]))
        for number, near in enumerate(work.candidates, 1):
            click.echo(as_text([f"  {number}  {near.id}  {near.words}"]))
        if asking and work.walk.file:
            said = click.prompt("  number, id, or nothing", default="", show_default=False).strip()
            if said.isdecimal() and 0 < int(said) <= len(work.candidates):
                said = work.candidates[int(said) - 1].id
            if said:
                given[work.walk.name, work.value] = said
    return given
