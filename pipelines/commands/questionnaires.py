"""The commands `questionnaire`: draft a Questionnaire from a file, and show what the service will refuse."""

import json
import os
from pathlib import Path

import click

from pipelines.commands.common import Options, as_text
from pipelines.home.exits import ALL_LOADED, UNREADABLE


@click.group()
def questionnaire() -> None:
    """Drafts a Questionnaire from a file, and checks one."""


@questionnaire.command("new", short_help="Drafts a Questionnaire from an export or a codebook.")
@click.argument("file", type=click.Path(path_type=Path))
def questionnaire_new(file: Path) -> int:
    """Drafts a Questionnaire from an export's columns or a codebook, on standard output.

    The decisions for a person are listed on standard error. Answers that are few and repeated become options.
    """
    from fhir_service.interface.site import Site
    from pipelines.feeds.drafting.questionnaire import draft_questionnaire

    given = {name: os.environ.get(f"FHIR_SERVICE_{name.upper()}") for name in ("vendor", "customer")}
    site = Site(**{name: value for name, value in given.items() if value})
    [internal] = [address for address, name in site.systems.items() if name == "INTERNAL"]
    drafted = draft_questionnaire(file, internal)
    click.echo(json.dumps(drafted.body, indent=2, ensure_ascii=False))
    click.echo(as_text(f"DECIDE: {note}" for note in drafted.notes), err=True)
    return ALL_LOADED


@questionnaire.command("check", short_help="Shows what the service would refuse in questionnaires.")
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    help="If all are right, write them to this file as reference data.",
)
@click.pass_obj
def questionnaire_check(options: Options, file: Path, out: Path | None) -> int:
    """Shows what the service would refuse in a file of questionnaires (JSON or NDJSON).

    They are loaded into a store made for this check, which is thrown away.
    """
    from pipelines.importing.questionnaires import check_questionnaires

    checked = check_questionnaires(file, options.home, os.environ)
    click.echo(as_text(checked.lines()))
    if out and not checked.problems:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(checked.text, encoding="utf-8")
        click.echo(f"{out}: load it by fhir-service load, or put it into the reference folder")
    return UNREADABLE if checked.problems else ALL_LOADED
