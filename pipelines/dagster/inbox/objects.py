"""The inbox beyond the home, for the sensor: objects become batches in a thread beside its looks.

One is noted as taken at a look after a run of its batch was begun. If the process ends before that, or the run that was
asked for ends without having begun, it is taken into the same batch again, and one more run asked for.
"""

import time
from collections.abc import Collection, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import dagster as dg

from pipelines.dagster.inbox.beyond import Beyond, note_look
from pipelines.dagster.requests import is_under_way
from pipelines.dagster.unfinished import pause
from pipelines.feeds.files.catalog import Catalog
from pipelines.home.dagster_folder import INSECURE, STRICT, is_set
from pipelines.home.exits import Explained
from pipelines.home.inbox import Inbox
from pipelines.home.objects import Found, ObjectInbox, lying_at
from pipelines.home.stores import Seen, store_at
from pipelines.receiving.objects import TakenObject, take_in
from pipelines.receiving.written import QUIET
from pipelines.session.opening import open_ledger_alone, open_session

PATIENCE_SECONDS = 5.0
SECONDS_OF_TAKING = 20.0
SECONDS_BEFORE_ANOTHER_TRY = 300.0


@dataclass
class Handed:
    """An export whose batch was handed to the sensor. until: when it is taken again. run_key: of the run asked for.

    tries: how often it was handed over before.
    """

    taken: TakenObject
    until: float
    tries: int
    run_key: str | None = None


class Objects:
    """Looks at the inbox beyond the home, if a setting names one."""

    def __init__(self, home: Path, environ: Mapping[str, str]) -> None:
        self._home, self._environ = home, environ
        self._worker = ThreadPoolExecutor(1, "objects")
        self._under_way: Future[Beyond] | None = None
        self._still: dict[str, str] = {}
        self._later: dict[str, float] = {}
        self._handed: dict[str, Handed] = {}
        self._rests: tuple[float, dict[str, Seen]] = (0.0, {})

    def look(self, catalog: Catalog, instance: dg.DagsterInstance) -> Beyond:
        """Return what was taken in since the last look. Taking in goes on beside, where it takes longer."""
        inbox = Inbox.of(self._home, self._environ)
        if inbox.beyond is None:
            return Beyond()
        if self._under_way is None:
            keys = {each.run_key for each in self._handed.values() if each.run_key}
            busy = {key for key in keys if is_under_way(instance, key)}
            self._under_way = self._worker.submit(self._told, inbox, catalog, busy)
        wait([self._under_way], PATIENCE_SECONDS)
        if not self._under_way.done():
            return Beyond()
        done, self._under_way = self._under_way, None
        return done.result()

    def asked(self, keys: Mapping[str, str]) -> None:
        """Hold on to the run keys by batch: while such a run waits, no other one is asked for."""
        if self._under_way is None:
            for each in self._handed.values():
                each.run_key = each.run_key or keys.get(each.taken.batch.batch_id)

    def _told(self, inbox: Inbox, catalog: Catalog, busy: Collection[str]) -> Beyond:
        why, found = None, Beyond()
        try:
            found = self._look(inbox, catalog, busy)
        except Explained as error:
            why = str(error)
        except Exception as error:  # noqa: BLE001 - its text may hold values
            why = f"{type(error).__name__}, a fault of ours"
        note_look(self._home, why, datetime.now(UTC))
        return Beyond(said=(f"{inbox.beyond}: nothing was taken in: {why}",)) if why else found

    def _look(self, inbox: Inbox, catalog: Catalog, busy: Collection[str]) -> Beyond:
        if self._handed:
            self._note(inbox, busy)
        now, (rests_until, lay) = time.monotonic(), self._rests
        lying = lying_at(store_at(str(inbox.beyond)))
        if not lying or (now < rests_until and lying == lay):
            return Beyond()  # nothing is opened for what was seen before
        insecure, strict = (is_set(self._environ, name) for name in (INSECURE, STRICT))
        with open_session(self._home, self._environ, (), insecure, strict) as session:
            beyond = ObjectInbox.of(inbox, session.target)
            if beyond is None:
                return Beyond()
            found = beyond.look(self._still, datetime.now(UTC), QUIET.total_seconds())
            self._still = found.still
            self._leave_for_now(found, now)
            taken = take_in(beyond, found, self._home, catalog, session.ledger, SECONDS_OF_TAKING)
        again = now + SECONDS_BEFORE_ANOTHER_TRY
        for each in taken.received:
            mark = each.export.mark
            tries = self._handed[mark].tries + 1 if mark in self._handed else 0
            until = now + max(SECONDS_BEFORE_ANOTHER_TRY, pause(tries).total_seconds())
            self._handed[mark] = Handed(each, until, tries)
        marks = {name: each.mark for name, each in found.ready.items()}
        marks |= {name: each.mark for name, each in found.alone.items()}
        self._later |= {marks[name]: again for name in taken.left}
        self._rests = (again, lying) if not found.still and len(marks) == taken.number else (0.0, {})
        return Beyond.of(taken)

    def _note(self, inbox: Inbox, busy: Collection[str]) -> None:
        """Note as taken what a run was begun of. What waits for its run is not taken again meanwhile."""
        with open_ledger_alone(self._home, self._environ) as ledger:
            for mark, each in list(self._handed.items()):
                if each.taken.is_begun(ledger):
                    if beyond := ObjectInbox.of(inbox, each.taken.target):
                        beyond.note(each.taken.export)
                    del self._handed[mark]
                elif each.run_key in busy:
                    each.until = max(each.until, time.monotonic() + SECONDS_BEFORE_ANOTHER_TRY)

    def _leave_for_now(self, found: Found, now: float) -> None:
        """Take out of what was found what is not due again: what was left, and what was handed over."""
        self._later = {mark: until for mark, until in self._later.items() if until > now}
        handed = {mark for mark, each in self._handed.items() if each.until > now}
        not_due = handed | self._later.keys()
        found.ready = {name: each for name, each in found.ready.items() if each.mark not in not_due}
        found.alone = {name: each for name, each in found.alone.items() if each.mark not in not_due}
