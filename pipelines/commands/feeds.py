"""The commands `feeds`: check feed files, try them on a sample, and draft new ones."""

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pipelines.commands.common import Name, Options, as_text
from pipelines.commands.feeds_map import feeds_map
from pipelines.home.exits import ALL_LOADED, UNREADABLE

if TYPE_CHECKING:
    from pipelines.feeds.files.catalog import Feed


@click.group(commands=[feeds_map], short_help="Which exports are taken, and what each column becomes.")
def feeds() -> None:
    """Feed files: which exports are taken, and what each column becomes."""


@feeds.command("check", short_help="Checks feed files and says what each column becomes.")
@click.argument("files", type=click.Path(path_type=Path), nargs=-1)
@click.option("--sample", type=click.Path(path_type=Path), help="An export: shows what its first rows become.")
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
                click.echo(f"chartferry: {file.name}: to try a feed with an export, name it by --sample", err=True)
            code = UNREADABLE
    for feed in found:
        click.echo("\n".join(feed_lines(feed)))
    if sample is not None and not found and code == ALL_LOADED:
        click.echo(f"chartferry: {sample.name}: no feed takes a file of this name", err=True)
        return UNREADABLE
    return max(code, *(_show_sample(feed, sample, rows, options.home) for feed in found)) if sample and found else code


def _show_sample(feed: "Feed", sample: Path, rows: int, home: Path) -> int:
    """Print the first rows of an export as the feed maps them; return the exit code."""
    from pipelines.feeds.drafting.sample import sample_lines
    from pipelines.home.batch import Unreadable
    from pipelines.session.reference_questionnaires import reference_questionnaires

    try:
        known = reference_questionnaires(home) if feed.file.kind == "answers" else None
        for line in sample_lines(feed, sample, rows, known):
            click.echo(as_text([line]))
    except Unreadable as error:
        click.echo(f"chartferry: {error}", err=True)
        return UNREADABLE
    return ALL_LOADED


@feeds.command("new")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--kind", type=click.Choice(["payments", "answers", "tasks"]), help="What it holds; guessed by default.")
@click.option("--ask", is_flag=True, help="Goes through the lines that say DECIDE, with the values before you.")
def feeds_new(file: Path, kind: str | None, ask: bool) -> int:
    """Drafts a feed file from an export, on standard output. Of the rows it holds codes such as a status, no more.

    With --ask, questions and values go to standard error and answers are read from standard input: from a terminal,
    or one on each line.
    """
    from pipelines.feeds.drafting.draft import draft

    click.echo(draft(file, kind, _asking() if ask else None), nl=False)
    return ALL_LOADED


def _asking() -> Callable[[Sequence[str]], str | None]:
    """Return a function that shows a question and reads the next line of standard input, None at its end."""
    answers = sys.stdin

    def ask(question: Sequence[str]) -> str | None:
        click.echo("\n".join(as_text([line]) for line in question), err=True)
        click.echo("> ", nl=False, err=True)
        return answers.readline() or None

    return ask


@feeds.command("expect", short_help="Drafts what to expect of a feed's files, by those that came.")
@click.argument("feed", type=Name())
@click.pass_obj
def feeds_expect(options: Options, feed: str) -> int:
    """Drafts what to expect of a feed's files, from those that have come."""
    from pipelines.feeds.files.catalog import home_catalog
    from pipelines.importing.expected import draft_expectations
    from pipelines.session.ledger import ledger_of

    found = home_catalog(options.home, os.environ, options.feeds).named(feed)
    with ledger_of(options.home, os.environ) as ledger:
        if found is None or ledger is None:
            what = "there is no feed of this name" if found is None else "nothing was imported yet"
            click.echo(f"chartferry: {feed}: {what}", err=True)
            return UNREADABLE
        click.echo(as_text(draft_expectations(ledger, found)))
    return ALL_LOADED
