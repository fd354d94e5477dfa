"""The commands of the tables: `reports` publishes them; `views` checks and runs ViewDefinitions of SQL on FHIR."""

import json
import sys
from contextlib import ExitStack
from pathlib import Path

import click

from pipelines.commands.common import AtTarget, Options, as_text, insecure_option, print_answer, with_target
from pipelines.home.counted import counted
from pipelines.home.exits import ALL_LOADED, SET_ASIDE, UNREADABLE, WronglyAsked

A_FILE = click.Path(path_type=Path)


@click.command(short_help="Sweeps the reports, builds and publishes the tables.")
@click.option("--pseudonymous", is_flag=True, help="Write only pseudonymous tables, into <home>/pseudonymous.")
@click.option(
    "--study",
    metavar="NAME",
    help="With --pseudonymous: use pseudonyms and shifted days of this study only, in <home>/pseudonymous-NAME.",
)
@click.option(
    "--smallest-cell",
    type=click.IntRange(2),
    default=10,
    show_default=True,
    help="With --pseudonymous: the smallest count that an aggregate shows.",
)
@click.option(
    "--bulk", metavar="URL", help="Write only NDJSON of whole resources, into <home>/bulk-publish, to be served at URL."
)
@with_target
def reports(at: AtTarget, pseudonymous: bool, study: str | None, smallest_cell: int, bulk: str | None) -> int:
    """Sweeps the diagnostic reports, builds and publishes the tables.

    With --pseudonymous, ids become keyed pseudonyms, days are moved by patient, and text and small cells are left out.
    """
    if study is not None:
        from pipelines.reports.pseudonymous import STUDY

        if not pseudonymous:
            raise click.UsageError("--study goes with --pseudonymous")
        if not STUDY.fullmatch(study):
            raise click.UsageError("--study takes a name of 1 to 40 small letters, digits, `_` and `-`")
    if bulk and pseudonymous:
        raise click.UsageError("--bulk and --pseudonymous exclude each other: give one of them")
    if bulk and not bulk.startswith(("http://", "https://")):
        raise click.UsageError("--bulk takes the http:// or https:// address at which the folder will be served")
    with at.opening() as open_it:
        from pipelines.importing.begin_and_end import publish_only
        from pipelines.reports.pseudonymous import Study
        from pipelines.session.publishing import publish_in_bulk

        with open_it() as session:
            if bulk:
                click.echo(f"published: {publish_in_bulk(session, bulk)}")
                return ALL_LOADED
            summary = publish_only(session, Study(study or "", smallest_cell) if pseudonymous else None)
    if at.as_json:
        return print_answer(summary, at.as_json)
    click.echo(f"target: {summary.target}")
    click.echo("\n".join(f"{name}  {rows:,}" for name, rows in summary.tables.items()))
    click.echo(as_text(f"note: {remark}" for remark in summary.remarks), nl=bool(summary.remarks))
    click.echo(f"published: {summary.published}")
    return summary.exit_code


@click.group()
def views() -> None:
    """ViewDefinitions of SQL on FHIR: tables declared by paths."""


@views.command("check")
@click.argument("files", type=A_FILE, nargs=-1, required=True)
@click.option("--sql", is_flag=True, help="Print the SELECT of each view; it reads a relation named resource.")
@click.pass_obj
def views_check(options: Options, files: tuple[Path, ...], sql: bool) -> int:
    """Checks ViewDefinitions, and lists the columns of each.

    For views in <home>/views, it also says why one would not be published.
    """
    from pipelines.reports.tables import why_not_published
    from pipelines.reports.views.definition import BadView
    from pipelines.reports.views.run import check_view

    code = ALL_LOADED
    for file in files:
        try:
            lines = check_view(file, sql)
        except BadView as error:
            click.echo(f"chartferry: {as_text([str(error)])}", err=True)
            code = UNREADABLE
            continue
        click.echo(as_text(lines))
        if why := why_not_published(options.home, file):
            click.echo(f"chartferry: not published: {as_text([why])}", err=True)
            code = UNREADABLE
    return code


@views.command("run", short_help="Runs a view over resources of files or of the target.")
@click.argument("file", type=A_FILE)
@click.argument("resources", type=A_FILE, nargs=-1)
@click.option("--out", type=A_FILE, help="The file to write: .csv, .ndjson or .parquet. Default: CSV to the terminal.")
@insecure_option
@click.pass_obj
def views_run(options: Options, file: Path, resources: tuple[Path, ...], out: Path | None, insecure: bool) -> int:
    """Runs a view over RESOURCES (NDJSON files, or JSON files of one resource), else over the target's resources."""
    from pipelines.home.scratch import throwaway_folder
    from pipelines.reports.views.definition import read_view
    from pipelines.reports.views.run import SUFFIXES, as_bytes, resources_of, run_view
    from pipelines.session.needed_reads import all_of, reading

    view = read_view(file)
    if out is not None and out.suffix not in SUFFIXES:
        raise WronglyAsked(f"--out: {out.name} must end in {', '.join(SUFFIXES)}")
    options.home.mkdir(parents=True, exist_ok=True, mode=0o700)
    with ExitStack() as stack:
        folder = stack.enter_context(throwaway_folder(options.home))
        table = out or folder / "table.csv"
        if resources:
            bodies = resources_of(resources)
        else:
            open_it = stack.enter_context(AtTarget(options.home, options.feeds, insecure).opening())
            session = stack.enter_context(open_it())
            stack.enter_context(reading(view.resource))
            bodies = as_bytes(all_of(session.connection, view.resource))
        rows, not_held = run_view(view, bodies, folder / "spill", table)
        if out is None:
            with table.open(encoding="utf-8", newline="") as file_of_rows:
                sys.stdout.writelines(file_of_rows)
        else:
            click.echo(f"{out}: {counted(rows, 'row')}")
        for told in not_held:
            click.echo(f"chartferry: {file.name}: {told}", err=True)
    return ALL_LOADED


@views.command("test", short_help="Runs the view tests of a folder and writes their report.")
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--report", "report_file", type=A_FILE, default="test_report.json", show_default=True, help="The report.")
def views_test(folder: Path, report_file: Path) -> int:
    """Runs test files in the form of SQL on FHIR's public suite, and writes a report in the form of its reports."""
    from pipelines.reports.views.suite import report, run_folder

    results = list(run_folder(folder))
    if not results:
        raise WronglyAsked(f"{folder}: the folder holds no test files")
    report_file.write_text(json.dumps(report(results), indent=2), encoding="utf-8")
    failed = [each for each in results if each.reason]
    click.echo(as_text(f"failed: {each.file}, {each.title}: {each.reason}" for each in failed), nl=bool(failed))
    click.echo(f"{len(results) - len(failed)} of {len(results)} tests passed; report: {report_file}")
    return SET_ASIDE if failed else ALL_LOADED
