"""Read the contents of the published tables from a session's target: reports, results, responses, charges, words."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from fhir_service.paths import exists
from pipelines.reports.pages import RESOURCE
from pipelines.reports.readings import RESULTS, Reading
from pipelines.reports.results import INCLUDE, RESULT, sweep_including, sweep_results, with_results
from pipelines.reports.sweep import QUESTIONNAIRE, Sweep, sweep
from pipelines.session.needed_reads import reading
from pipelines.session.other_inputs import BESIDE, RESPONSE, VIEWED, read_beside, read_changes
from pipelines.session.session import Session

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
            swept = sweep(client, home, target)
        yield swept, None
        return
    with with_results(client, home) as including:
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
