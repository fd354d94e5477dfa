"""`GET /health`: whether the service can answer reads and take writes now."""

import asyncio
from concurrent.futures import Future
from typing import Any

from starlette.concurrency import run_in_threadpool

from fhir_service.interface.outcomes import FhirError
from fhir_service.service import Service
from fhir_service.store.tables import PROBE
from fhir_service.store.view import Needs
from fhir_service.writing.entry import Desk

FRESH_SECONDS = 10.0
"""For how long a write that was stored proves that another one can be."""
PROBE_SECONDS = 5.0
"""Seconds to wait for a write that proves that the store can be written."""
BUSY_SECONDS = 60.0
"""For how long the writer may be at one thing. Requests give up waiting for it then, too."""


class Probe:
    """An entry that stores the moment, to prove that something can be stored."""

    size = 0

    def ask(self, needs: Needs) -> None:
        """Nothing."""

    def act(self, desk: Desk) -> None:
        desk.changes.say(PROBE, desk.now.isoformat())


class Health:
    """Finds out what keeps a service from its work."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._probe: Future[list[Any]] | None = None

    async def problem(self) -> str | None:
        """Return why the service cannot answer reads and take writes; None if it can."""
        if not await run_in_threadpool(self._readable):
            return "the store cannot be reached"
        if not await run_in_threadpool(self._service.audit.works):
            return "the audit cannot be written"
        if not await self._writable():
            return "nothing can be stored"
        return None

    def _readable(self) -> bool:
        try:
            with self._service.store.read() as connection:
                return connection.exec_driver_sql("SELECT 1").scalar() == 1
        except Exception:  # noqa: BLE001 - whatever it is, the store does not answer
            return False

    async def _writable(self) -> bool:
        """True if something was stored just now; else by storing something, once for all who ask meanwhile."""
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
