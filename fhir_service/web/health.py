"""Answer `GET /health`: can the service answer reads and store writes now?"""

import asyncio
from concurrent.futures import Future
from typing import Any

from starlette.concurrency import run_in_threadpool

from fhir_service.interface.outcomes import FhirError
from fhir_service.service import Service
from fhir_service.store.tables import PROBE
from fhir_service.store.view import Needs
from fhir_service.writing.entry import CommitContext

FRESH_SECONDS = 10.0
"""Seconds for which the last commit proves that the store can be written."""
PROBE_SECONDS = 5.0
"""Seconds to wait for the commit of a probe."""
BUSY_SECONDS = 60.0
"""Seconds that one turn of the writer may take. Requests wait for it no longer either."""


class Probe:
    """An entry that stores the current time, to prove that the store can be written."""

    size = 0

    def ask(self, needs: Needs) -> None:
        """Ask for nothing."""

    def act(self, desk: CommitContext) -> None:
        desk.changes.say(PROBE, desk.now.isoformat())


class Health:
    """The checks of a service's health."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._probe: Future[list[Any]] | None = None

    async def problem(self) -> str | None:
        """Return why the service cannot answer reads or store writes; None if it can do both."""
        if not await run_in_threadpool(self._readable):
            return "the store cannot be reached"
        if not await run_in_threadpool(self._service.audit.works):
            return "the audit cannot be written"
        if not await self._writable():
            return "the store cannot be written"
        return None

    def _readable(self) -> bool:
        try:
            with self._service.store.read() as connection:
                return connection.exec_driver_sql("SELECT 1").scalar() == 1
        except Exception:  # noqa: BLE001 - whatever it is, the store does not answer
            return False

    async def _writable(self) -> bool:
        """True if something was stored lately, or a probe can be stored. Simultaneous callers share one probe."""
        writer = self._service.writer
        if writer.idle() < FRESH_SECONDS:
            return True
        try:
            if self._probe is None or self._probe.done():
                self._probe = writer.submit([Probe()])
            waiting = asyncio.wrap_future(self._probe)
            await asyncio.wait_for(asyncio.shield(waiting), PROBE_SECONDS)
        except TimeoutError:
            return not writer.stuck(BUSY_SECONDS)
        except FhirError:
            return False
        return True
