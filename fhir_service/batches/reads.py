"""Reads and searches among the entries of a batch: looked up together, as far as there is room for the answers."""

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

from fhir_service.interactions import batch
from fhir_service.interactions.read import referred, there
from fhir_service.interface.datatypes import is_id
from fhir_service.interface.outcomes import EXCEPTION, TOO_LARGE, UNAVAILABLE, FhirError
from fhir_service.requests import finding, showing
from fhir_service.requests.bundle import how, searchset
from fhir_service.service import Service
from fhir_service.store.bodies import Found, Reference
from fhir_service.web.http import parse_query

T = TypeVar("T")
Known = Mapping[Reference, Found]
Fetcher = Callable[[Service, batch.Fetch, Known], batch.Fetched]

log = logging.getLogger(__name__)


def parts(row: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Yield a row in parts of a size."""
    return (row[start : start + size] for start in range(0, len(row), size))


def fetched_together(
    fetched: Fetcher, service: Service, fetches: Sequence[batch.Fetch], room: int, until: float
) -> list[batch.Fetched | FhirError]:
    """The answers to reads and searches, or their errors; so is an answer for which there is no room.

    until: the time, of the monotonic clock, from which on nothing more is looked up.
    """
    if time.monotonic() > until:
        return [_late()] * len(fetches)
    references = {(fetch.resource.name, fetch.id) for fetch in fetches if fetch.id is not None and is_id(fetch.id)}
    results: list[batch.Fetched | FhirError] = []
    try:
        known = service.reader.read_all(references)
    except Exception as error:  # noqa: BLE001 - entries before these may be stored: they are answered
        return [_outcome_of(error)] * len(fetches)
    for fetch in fetches:
        found = _within(fetched, service, fetch, known, room) if time.monotonic() <= until else _late()
        room -= len(found.body) if isinstance(found, batch.Fetched) else 0
        results.append(found)
    return results


def _late() -> FhirError:
    return FhirError(UNAVAILABLE, "the reads of the batch took too long: read in several")


def _within(
    fetched: Fetcher, service: Service, fetch: batch.Fetch, known: Known, room: int
) -> batch.Fetched | FhirError:
    try:
        found = fetched(service, fetch, known)
    except Exception as error:  # noqa: BLE001 - the other entries are answered
        return _outcome_of(error)
    if len(found.body) > room:
        return FhirError(TOO_LARGE, "the answer to the batch is too large: read in several", text="Answer too large")
    return found


def _outcome_of(error: Exception) -> FhirError:
    """Return an error as the result of its entry. A fault of ours is never shown."""
    if isinstance(error, FhirError):
        return error.with_traceback(None)
    # The class only: exception texts may hold values.
    log.error("an entry of a batch was not fetched: %s", type(error).__name__)
    return FhirError(EXCEPTION)


def fetched_plain(service: Service, fetch: batch.Fetch, known: Known) -> batch.Fetched:
    """Show a resource that was read, or search, as the interface does."""
    if fetch.id is None:
        asked = service, fetch.resource, parse_query(fetch.query), False
        page = finding.page_at_hand(*asked) or finding.page_of(*asked)
        return batch.Fetched(showing.rendered(service, searchset(page)), {}, page.patients)
    found = read_of(fetch, known)
    return batch.Fetched(showing.rendered(service, found.body), how(found), found.patients)


def read_of(fetch: batch.Fetch, known: Known) -> Found:
    """Return the resource that a read asks for. Raises the 404 that names type and id."""
    reference = referred(fetch.resource, fetch.id or "")
    return there(known.get(reference), reference)
