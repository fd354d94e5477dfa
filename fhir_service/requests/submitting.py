"""Hand entries to the writer, and wait for their results."""

import asyncio
from collections.abc import Sequence
from typing import Any

from fhir_service.interface.outcomes import UNAVAILABLE, FhirError
from fhir_service.service import Service
from fhir_service.web import traces
from fhir_service.writing.entry import Entry

WRITE_SECONDS = 60.0
"""Seconds that a write may wait for the writer. One that has not begun after this time is withdrawn."""


async def write_one(service: Service, entry: Entry) -> Any:
    """Return the result of one entry, or raise its error."""
    (result,) = await write(service, [entry])
    if isinstance(result, FhirError):
        raise result
    return result


async def write(service: Service, entries: Sequence[Entry], whole: bool = False) -> list[Any]:
    """Write entries together and return their results. Entries that wait too long are withdrawn: a 503, never stored.

    whole: store all or none; the results end with the first refusal.
    """
    with traces.commit(len(entries)):
        future = service.writer.submit(entries, whole)
        waiting = asyncio.ensure_future(asyncio.wrap_future(future))
        try:
            done, _ = await asyncio.wait([waiting], timeout=WRITE_SECONDS)
        except asyncio.CancelledError:
            # The server is ending: withdraw a write that has not begun.
            future.cancel()
            waiting.cancel()
            raise
        if not done and future.cancel():
            raise FhirError(UNAVAILABLE, headers={"retry-after": "5"})
        results: list[Any] = await waiting
        return results
