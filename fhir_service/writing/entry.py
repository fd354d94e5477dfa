"""An entry is one write of a request. The desk is what it is carried out with."""

from collections.abc import Callable
from datetime import datetime
from typing import Any, Protocol

from fhir_service.interface.site import Site
from fhir_service.interface.vocabulary import Moment, World
from fhir_service.store.changes import Changes
from fhir_service.store.view import Needs, View


class CommitContext:
    """The context in which the entries of one commit act: view, changes, time, and the world for the rules."""

    __slots__ = ("changes", "moment", "new_id", "now", "view", "world")

    def __init__(self, view: View, changes: Changes, site: Site, now: datetime, new_id: Callable[[], str]) -> None:
        self.view, self.changes, self.now, self.new_id = view, changes, now, new_id
        self.moment, self.world = Moment(now, view, site, new_id), World(site, view, {})


class Entry(Protocol):
    """One write. `act` checks the rules against the view, then adds to the changes. It raises FhirError."""

    size: int

    def ask(self, needs: Needs) -> None: ...

    def act(self, desk: CommitContext) -> Any: ...
