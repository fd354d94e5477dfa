"""The command `feeds map`: the values of a feed's rejects without an entry in a crosswalk, and their entries."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pipelines.commands.common import Name, Options, as_text
from pipelines.home.counted import counted
from pipelines.home.exits import ALL_LOADED, UNREADABLE

if TYPE_CHECKING:
    from pipelines.corrections.worklist import WorkList


@click.command("map", short_help="Lists values without an entry in a crosswalk, and takes entries.")
@click.argument("feed", type=Name())
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="A CSV for a colleague to fill in.")
@click.option("--entries", type=click.Path(path_type=Path, dir_okay=False), help="Such a CSV, filled in.")
@click.option("--reference", type=click.Path(path_type=Path, exists=True), help="Reference data to find candidates in.")
@click.pass_obj
def feeds_map(options: Options, feed: str, out: Path | None, entries: Path | None, reference: Path | None) -> int:
    """Lists the values of open rejects without an entry in a crosswalk, each with near candidates, and takes entries.

    Candidates are those of the reference data (default: <home>/reference). On a terminal each value is asked for.
    """
    from pipelines.corrections.worklist import read_csv_entries, work_list, write_csv

    found = work_list(options.home, os.environ, options.feeds, feed, reference)
    if found.work and not entries and not any(work.candidates for work in found.work):
        folder = reference or options.home / "reference"
        click.echo(f"no candidates: {folder} has no such records; --reference DIR names other reference data", err=True)
    if entries:
        given = read_csv_entries(entries)
    elif out and found.work:
        write_csv(found, out)
        then = f"fill in entry, then chartferry feeds map {feed} --entries {out}"
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
        click.echo("no entry was written: the crosswalks have them already")
    elif not found.work:
        click.echo(f"no open reject of {feed} lacks an entry; values are listed once an import has rejected them")
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
