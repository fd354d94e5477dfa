"""Reads of the target without which a command cannot go on."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fhir_service.interface.checking import check
from fhir_service.interface.registry import RESOURCES
from pipelines.client.replies import NoResult, TargetUnusable
from pipelines.client.whole import whole_search
from pipelines.reports.pages import SweepIncomplete
from pipelines.session.connections import TargetConnection
from pipelines.session.questionnaires import Snapshot


@contextmanager
def reading(what: str) -> Iterator[None]:
    """Turn the failure of a read into `TargetUnusable`."""
    try:
        yield
    except (NoResult, SweepIncomplete) as error:
        raise TargetUnusable(f"{what} could not be read from the target ({error})") from None


def all_of(connection: TargetConnection, resource_type: str) -> Iterator[dict[str, Any]]:
    """Yield all resources of a type at the target, each once. Raises as the reading of pages does, and `Incomplete`."""
    return whole_search(connection.client.pages(resource_type), resource_type)


def read_snapshot(connection: TargetConnection) -> Snapshot:
    """Read the target's questionnaires. Raises `TargetUnusable`."""
    with reading("Questionnaire"):
        bodies = list(all_of(connection, "Questionnaire"))
    checked = (check(RESOURCES["Questionnaire"], body, connection.site, needs=()).model for body in bodies)
    known = (model for model in checked if model is not None)
    return Snapshot.of(known, () if connection.ours else bodies)
