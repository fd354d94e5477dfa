"""Read the contents of the published tables from a session's target: reports, results, responses, charges, words.

If a part cannot be read, or is no longer shown, that is noted for the tables made of it.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from fhir_service.paths import exists
from pipelines.client.replies import TargetUnusable
from pipelines.reports.changed_resources import sweep_changes
from pipelines.reports.pages import RESOURCE, SweepIncomplete
from pipelines.reports.readings import RESULTS, Reading, note_not_shown, note_reading
from pipelines.reports.results import INCLUDE, RESULT, SearchesById, sweep_including, sweep_results, with_results
from pipelines.reports.service_data import CHARGES, PATIENT, PATIENTS, WithoutNames, forget_patients, keep_told
from pipelines.reports.settings import wants_patients
from pipelines.reports.sweep import QUESTIONNAIRE, Sweep, WholeReads, now, sweep
from pipelines.reports.tables import readable_tables
from pipelines.reports.words import keep_names
from pipelines.session.needed_reads import reading
from pipelines.session.session import Session

RESPONSE = "QuestionnaireResponse"


def read_beside(session: Session, part: str, read: Callable[[], Reading]) -> None:
    """Read a part and note the result; tell the user if it cannot be read."""
    home, target, at = session.home, session.target, now()
    try:
        found = read()
    except (SweepIncomplete, TargetUnusable) as error:
        note_reading(home, target, part, at, is_read=False)
        session.progress.say(f"{part} could not be read ({error}): the tables have those last read")
        return
    if found is Reading.READ:
        note_reading(home, target, part, at, is_read=True)
    elif found is Reading.NOT_SHOWN:
        note_not_shown(home, target, part, at)


def _responses(session: Session, is_asked_for: bool) -> Reading:
    return _searched(session, RESPONSE, is_asked_for)


def _words(session: Session, _: bool) -> Reading:
    client, home, target = session.connection.client, session.home, session.target
    sweep(client, home, target, resource_type=QUESTIONNAIRE)
    keep_names(home, target, session.connection.names())
    return Reading.READ


def _charges(session: Session, is_asked_for: bool) -> Reading:
    """Read the charges of claims: from the bundled service, or from the target's Claims and PaymentNotices."""
    if session.connection.tell:
        keep_told(session.connection.tell, session.home, session.target, CHARGES)
        return Reading.READ
    if not session.connection.capabilities.searched >= {"Claim", "PaymentNotice"}:
        return Reading.NOT_SHOWN
    were_due = [read_changes(session, kind, is_asked_for) for kind in ("Claim", "PaymentNotice")]
    return Reading.READ if all(were_due) else Reading.NOT_DUE


def _patients(session: Session, is_asked_for: bool) -> Reading:
    """Read sex and year of birth of patients if the home publishes them; else remove those read before."""
    if not wants_patients(session.home):
        forget_patients(session.home, session.target)
        return Reading.READ  # nothing of them is out of date
    if session.connection.tell:
        keep_told(session.connection.tell, session.home, session.target, PATIENTS)
        return Reading.READ
    return _searched(
        session, PATIENT, is_asked_for, WithoutNames(WholeReads(session.connection.client, in_large_pages=True))
    )


def _viewed(resource_type: str, session: Session, is_asked_for: bool) -> Reading:
    """Read the tasks or the payments of the target if a published view needs them."""
    viewed = {table.view.resource for table in readable_tables(session.home) if table.view}
    return _searched(session, resource_type, is_asked_for) if resource_type in viewed else Reading.NOT_DUE


def _searched(session: Session, resource_type: str, is_asked_for: bool, client: SearchesById | None = None) -> Reading:
    if resource_type not in session.connection.capabilities.searched:
        return Reading.NOT_SHOWN
    return Reading.READ if read_changes(session, resource_type, is_asked_for, client) else Reading.NOT_DUE


def read_changes(session: Session, resource_type: str, is_asked_for: bool, client: SearchesById | None = None) -> bool:
    """Read the resources of a type, or only their changes; return False if that was not due."""
    dated = resource_type in session.connection.capabilities.dated
    client = client or WholeReads(session.connection.client, in_large_pages=True)
    return sweep_changes(client, session.home, session.target, resource_type, dated, is_asked_for)


Read = Callable[[Session, bool], Reading]
BESIDE: dict[str, Read] = {
    "responses": _responses,
    "questionnaires or names": _words,
    "charges": _charges,
    "patients": _patients,
}
"""Functions that read the parts of `PARTS` beside the reports and their results."""
VIEWED: dict[str, Read] = {"payments": partial(_viewed, "PaymentNotice"), "tasks": partial(_viewed, "Task")}
"""Functions that read the parts for views."""


WRITTEN = {"Task", "PaymentNotice"}
IN_BULK = {RESULT, QUESTIONNAIRE, RESPONSE, *WRITTEN}
"""The types that are published in bulk beside the reports."""


def sweep_target(session: Session, is_asked_for: bool = False, with_views: bool = True) -> Sweep:
    """Sweep the diagnostic reports, and read the other parts of the tables.

    If another part cannot be read, its tables keep what was last read, and say so. Raises `TargetUnusable`.

    is_asked_for: True to read whole types that others write, even if that was done within a day. with_views: False to
    skip tasks and payments, which may be millions: their views then keep what was last read.
    """
    with reports_swept(session) as (swept, included):
        read_beside(session, RESULTS, lambda: _results(session, included))
    for part, read in {**BESIDE, **(VIEWED if with_views else {})}.items():
        read_beside(session, part, partial(read, session, is_asked_for))
    return swept


@contextmanager
def reports_swept(session: Session) -> Iterator[tuple[Sweep, Path | None]]:
    """Sweep the reports; yield the sweep, and the file of the included results if the target includes them.

    The file is removed at the end. Raises `TargetUnusable`.
    """
    client, home, target = session.connection.client, session.home, session.target
    able = session.connection.capabilities
    if INCLUDE not in able.includes or RESULT not in able.searched:
        with reading(RESOURCE):
            swept = sweep(WholeReads(client), home, target)
        yield swept, None
        return
    with with_results(WholeReads(client), home) as including:
        with reading(RESOURCE):
            swept = sweep_including(including, home, target)
        yield swept, including.file if exists(including.file) else None


def sweep_for_bulk(session: Session) -> tuple[Sweep, list[str]]:
    """Read all resources that are published in bulk; return the sweep of the reports, and the types that were read.

    Types that the target does not search are left out. Raises `TargetUnusable` if another type cannot be read: a
    publication of its earlier resources would present them as current.
    """
    client, home, target = session.connection.client, session.home, session.target
    found = sorted(session.connection.capabilities.searched & IN_BULK)
    with reports_swept(session) as (swept, included):
        for resource_type in found:
            with reading(resource_type):
                if resource_type == RESULT:
                    sweep_results(client, home, target, included=included)
                elif resource_type == QUESTIONNAIRE:
                    sweep(client, home, target, resource_type=QUESTIONNAIRE)
                else:
                    read_changes(session, resource_type, is_asked_for=True)
    return swept, [RESOURCE, *found]


def _results(session: Session, included: Path | None) -> Reading:
    if RESULT not in session.connection.capabilities.searched:
        return Reading.NOT_SHOWN
    sweep_results(session.connection.client, session.home, session.target, included=included)
    return Reading.READ
