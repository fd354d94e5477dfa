"""Read what the published tables are made of from a session's target: reports, results, responses, charges, words."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from pipelines.client.replies import TargetUnusable
from pipelines.reports.changes import sweep_changes
from pipelines.reports.included import INCLUDE, sweep_including, with_results
from pipelines.reports.pages import RESOURCE, SweepIncomplete
from pipelines.reports.results import RESULT, SearchesById, sweep_results
from pipelines.reports.settings import wants_patients
from pipelines.reports.sweep import QUESTIONNAIRE, Sweep, sweep
from pipelines.reports.tables import readable_tables
from pipelines.reports.told import CHARGES, PATIENT, PATIENTS, WithoutNames, forget_patients, keep_told
from pipelines.reports.words import keep_names
from pipelines.session.reading import reading
from pipelines.session.session import Session

RESPONSE = "QuestionnaireResponse"
WRITTEN = {"Task", "PaymentNotice"}
IN_BULK = {RESULT, QUESTIONNAIRE, RESPONSE, *WRITTEN}
"""The types that are published in bulk beside the reports."""


def sweep_target(session: Session, is_asked_for: bool = False, with_views: bool = True) -> Sweep:
    """Sweep the diagnostic reports, and read what else the tables are made of.

    What else cannot be read holds nothing up: the tables have it as last read. Raises `TargetUnusable`.

    is_asked_for: True if what others write is read whole even where that was done within a day. with_views: False if
    tasks and payments are not read, which may be millions: the views of them stay as they were last read.
    """
    with reports_swept(session) as (swept, included):
        _beside(session, "results of reports", lambda: _results(session, included))
    for what, read in {**BESIDE, **(VIEWED if with_views else {})}.items():
        _beside(session, what, partial(read, session, is_asked_for))
    return swept


def _beside(session: Session, what: str, read: Callable[[], None]) -> None:
    try:
        read()
    except (SweepIncomplete, TargetUnusable) as error:
        session.progress.say(f"{what} could not be read ({error}): the tables have those last read")


@contextmanager
def reports_swept(session: Session) -> Iterator[tuple[Sweep, Path | None]]:
    """Sweep the reports; yield the sweep, and the file of the results that came with them, if the target includes them.

    The file is gone at the end. Raises `TargetUnusable`.
    """
    client, home, target = session.connection.client, session.home, session.target
    able = session.connection.capabilities
    if INCLUDE not in able.includes or RESULT not in able.searched:
        with reading(RESOURCE):
            swept = sweep(client, home, target)
        yield swept, None
        return
    with with_results(client, home) as including:
        with reading(RESOURCE):
            swept = sweep_including(including, home, target)
        yield swept, including.file if including.file.exists() else None


def sweep_for_bulk(session: Session) -> tuple[Sweep, list[str]]:
    """Read all resources that are published in bulk; return the sweep of the reports, and the types that were read.

    Types that the target does not search are left out. Raises `TargetUnusable` if another cannot be read: a
    publication with what was read of it before would pass it off as present.
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
                    _changes(session, resource_type, is_asked_for=True)
    return swept, [RESOURCE, *found]


def _results(session: Session, included: Path | None) -> None:
    if RESULT in session.connection.capabilities.searched:
        sweep_results(session.connection.client, session.home, session.target, included=included)


def _responses(session: Session, is_asked_for: bool) -> None:
    if RESPONSE in session.connection.capabilities.searched:
        _changes(session, RESPONSE, is_asked_for)


def _words(session: Session, _: bool) -> None:
    client, home, target = session.connection.client, session.home, session.target
    sweep(client, home, target, resource_type=QUESTIONNAIRE)
    keep_names(home, target, session.connection.names())


def _charges(session: Session, is_asked_for: bool) -> None:
    """Read what claims charge: as the bundled service tells, or by the Claims and PaymentNotices of the target."""
    if session.connection.tell:
        keep_told(session.connection.tell, session.home, session.target, CHARGES)
    elif session.connection.capabilities.searched >= {"Claim", "PaymentNotice"}:
        _changes(session, "Claim", is_asked_for)
        _changes(session, "PaymentNotice", is_asked_for)


def _patients(session: Session, is_asked_for: bool) -> None:
    """Read sex and year of birth of patients, if the home publishes them; else remove what was read before."""
    if not wants_patients(session.home):
        forget_patients(session.home, session.target)
    elif session.connection.tell:
        keep_told(session.connection.tell, session.home, session.target, PATIENTS)
    elif PATIENT in session.connection.capabilities.searched:
        _changes(session, PATIENT, is_asked_for, WithoutNames(session.connection.client))


def _viewed(session: Session, is_asked_for: bool) -> None:
    """Read the tasks and payments of the target, if a view is published of them."""
    viewed = {table.view.resource for table in readable_tables(session.home) if table.view}
    for resource_type in sorted(viewed & session.connection.capabilities.searched & WRITTEN):
        _changes(session, resource_type, is_asked_for)


def _changes(session: Session, resource_type: str, is_asked_for: bool, client: SearchesById | None = None) -> None:
    dated = resource_type in session.connection.capabilities.dated
    client = client or session.connection.client
    sweep_changes(client, session.home, session.target, resource_type, dated, is_asked_for)


BESIDE: dict[str, Callable[[Session, bool], None]] = {
    "responses": _responses,
    "questionnaires or names": _words,
    "charges": _charges,
    "patients": _patients,
}
"""What is read beside the reports and their results, in words."""
VIEWED = {"what views read": _viewed}
