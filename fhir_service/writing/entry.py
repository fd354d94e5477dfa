"""An entry: one write of a request, and the tools that it is carried out with."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from fhir_service.interface.site import Site
from fhir_service.store.changes import Changes
from fhir_service.store.view import Needs, View


@dataclass(frozen=True, slots=True)
class Desk:
    """The tools of an entry: the view, the changes, and the moment."""

    view: View
    changes: Changes
    site: Site
    now: datetime
    new_id: Callable[[], str]


class Entry(Protocol):
    """One write. `act` checks the rules against the view and adds to the changes; or it raises FhirError."""

    size: int

    def ask(self, needs: Needs) -> None: ...

    def act(self, desk: Desk) -> Any: ...
