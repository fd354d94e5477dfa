"""An entry: one write of a request, and the tools that it is carried out with."""

from collections.abc import Callable
from datetime import datetime
from typing import Any, Protocol

from fhir_service.interface.site import Site
from fhir_service.interface.vocabulary import Moment, World
from fhir_service.store.changes import Changes
from fhir_service.store.view import Needs, View


class Desk:
    """The tools of the entries of a commit: view and changes, the moment, and the world that rules are asked in."""

    __slots__ = ("changes", "moment", "new_id", "now", "view", "world")

    def __init__(self, view: View, changes: Changes, site: Site, now: datetime, new_id: Callable[[], str]) -> None:
        self.view, self.changes, self.now, self.new_id = view, changes, now, new_id
        self.moment, self.world = Moment(now, view, site, new_id), World(site, view, {})


class Entry(Protocol):
    """One write. `act` checks the rules against the view and adds to the changes; or it raises FhirError."""

    size: int

    def ask(self, needs: Needs) -> None: ...

    def act(self, desk: Desk) -> Any: ...
