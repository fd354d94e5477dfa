"""The inbox beyond the home, for the sensor: objects become batches in a thread, across its looks.

An object is noted as taken at a look after a run of its batch began. If the process ends before that, the object is
received into the same batch again, and one more run is requested. This happens also after an hour in which no run began
or was under way.
"""

import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

from pipelines.dagster.inbox.outside_inbox import ObjectLook, note_look
from pipelines.feeds.files.catalog import Catalog
from pipelines.home.dagster_folder import INSECURE, STRICT, is_set
from pipelines.home.file_growth import QUIET
from pipelines.home.inbox import Inbox
from pipelines.home.objects import ObjectFindings, ObjectInbox, lying_at
from pipelines.home.stores import ListedObject, store_at
from pipelines.ledger.failures import said_of
from pipelines.receiving.objects import TakenObject, take_in
from pipelines.session.ledger import open_ledger
from pipelines.session.opening import open_session

PATIENCE_SECONDS = 5.0
SECONDS_OF_TAKING = 20.0
SECONDS_BEFORE_ANOTHER_TRY = 300.0
SECONDS_FOR_A_RUN = 3600.0
"""Seconds after which an object is received again if no run of its batch began."""


class Objects:
    """A reader of the inbox beyond the home, if a setting names one."""

    def __init__(self, home: Path, environ: Mapping[str, str]) -> None:
        self._home, self._environ = home, environ
        self._worker = ThreadPoolExecutor(1, "objects")
        self._under_way: Future[ObjectLook] | None = None
        self._still: dict[str, str] = {}
        self._later: dict[str, float] = {}
        self._handed: dict[str, TakenObject] = {}
        self._rests: tuple[float, dict[str, ListedObject]] = (0.0, {})

    def look(self, catalog: Catalog) -> ObjectLook:
        """Return the results since the last look. Receiving continues in a thread if it takes longer."""
        inbox = Inbox.of(self._home, self._environ)
        if inbox.beyond is None:
            return ObjectLook()
        if self._under_way is None:
            self._under_way = self._worker.submit(self._told, inbox, catalog)
        wait([self._under_way], PATIENCE_SECONDS)
        if not self._under_way.done():
            return ObjectLook()
        done, self._under_way = self._under_way, None
        return done.result()

    def _told(self, inbox: Inbox, catalog: Catalog) -> ObjectLook:
        why, found = None, ObjectLook()
        try:
            found = self._look(inbox, catalog)
        except Exception as error:  # noqa: BLE001 - its text may hold values
            why = said_of(error)
        note_look(self._home, why, datetime.now(UTC))
        return ObjectLook(said=(f"{inbox.beyond}: nothing was taken in: {why}",)) if why else found

    def _look(self, inbox: Inbox, catalog: Catalog) -> ObjectLook:
        if self._handed:
            self._note(inbox)
        now, (rests_until, lay) = time.monotonic(), self._rests
        lying = lying_at(store_at(str(inbox.beyond)))
        if not lying or (now < rests_until and lying == lay):
            return ObjectLook()  # nothing is opened if all objects were seen before
        insecure, strict = (is_set(self._environ, name) for name in (INSECURE, STRICT))
        with open_session(self._home, self._environ, (), insecure, strict) as session:
            beyond = ObjectInbox.of(inbox, session.target)
            if beyond is None:
                return ObjectLook()
            found = beyond.look(self._still, datetime.now(UTC), QUIET.total_seconds())
            self._still = found.still
            self._leave_for_now(found, now)
            taken = take_in(beyond, found, self._home, catalog, session.ledger, SECONDS_OF_TAKING)
        again = now + SECONDS_BEFORE_ANOTHER_TRY
        handed = {each.export.mark: each for each in taken.received}
        found_now = ObjectLook.of(taken, self._handed)
        self._handed |= handed
        self._later |= dict.fromkeys(handed, now + SECONDS_FOR_A_RUN)
        marks = {name: each.mark for name, each in found.ready.items()}
        marks |= {name: each.mark for name, each in found.alone.items()}
        self._later |= {marks[name]: again for name in taken.left}
        self._rests = (again, lying) if not found.still and len(marks) == taken.number else (0.0, {})
        return found_now

    def _note(self, inbox: Inbox) -> None:
        """Note objects as taken if a run of their batch began."""
        with closing(open_ledger(self._home, self._environ)) as ledger:
            for mark, each in list(self._handed.items()):
                if each.is_begun(ledger):
                    if beyond := ObjectInbox.of(inbox, each.target):
                        beyond.note(each.export)
                    del self._handed[mark]

    def _leave_for_now(self, found: ObjectFindings, now: float) -> None:
        """Remove objects that are not due again: those that were left, and those that were handed over."""
        self._later = {mark: until for mark, until in self._later.items() if until > now}
        found.ready = {name: each for name, each in found.ready.items() if each.mark not in self._later}
        found.alone = {name: each for name, each in found.alone.items() if each.mark not in self._later}
