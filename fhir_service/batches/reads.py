"""Look up the reads and searches of a batch together, within bounds on time and on the size of the answers."""

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

from fhir_service.interactions import batch
from fhir_service.interactions.read import reference_to, require_found
from fhir_service.interface.datatypes import is_id
from fhir_service.interface.outcomes import EXCEPTION, TOO_LARGE, UNAVAILABLE, FhirError
from fhir_service.requests import finding, showing
from fhir_service.requests.bundle import searchset, version_and_time
from fhir_service.service import Service
from fhir_service.store.bodies import Reference, StoredVersion
from fhir_service.web.http import parse_query

T = TypeVar("T")
Known = Mapping[Reference, StoredVersion]
Fetcher = Callable[[Service, batch.Fetch, Known], batch.FetchResult]

log = logging.getLogger(__name__)


def parts(row: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Yield a sequence in parts of a size."""
    return (row[start : start + size] for start in range(0, len(row), size))


def fetched_together(
    fetched: Fetcher, service: Service, fetches: Sequence[batch.Fetch], room: int, until: float
) -> list[batch.FetchResult | FhirError]:
    """Return the answer or the error of each read and search.

    Args:
        room: bytes that the answers may have together; one that does not fit gets an error.
        until: monotonic time at which the look-ups end; the rest gets an error.
    """
    if time.monotonic() > until:
        return [_late()] * len(fetches)
    references = {(fetch.resource.name, fetch.id) for fetch in fetches if fetch.id is not None and is_id(fetch.id)}
    results: list[batch.FetchResult | FhirError] = []
    try:
        known = service.reader.read_all(references)
    except Exception as error:  # noqa: BLE001 - entries before these may be stored: they are answered
        return [_outcome_of(error)] * len(fetches)
    for fetch in fetches:
        found = _within(fetched, service, fetch, known, room) if time.monotonic() <= until else _late()
        room -= len(found.body) if isinstance(found, batch.FetchResult) else 0
        results.append(found)
    return results


def _late() -> FhirError:
    return FhirError(UNAVAILABLE, "the reads of the batch took too long: send several batches")


def _within(
    fetched: Fetcher, service: Service, fetch: batch.Fetch, known: Known, room: int
) -> batch.FetchResult | FhirError:
    try:
        found = fetched(service, fetch, known)
    except Exception as error:  # noqa: BLE001 - the other entries are answered
        return _outcome_of(error)
    if len(found.body) > room:
        return FhirError(
            TOO_LARGE, "the answer to the batch is too large: send several batches", text="Answer too large"
        )
    return found


def _outcome_of(error: Exception) -> FhirError:
    """Return an error as the result of its entry. A fault of the service is shown without details."""
    if isinstance(error, FhirError):
        return error.with_traceback(None)
    # Log the class only: exception texts may hold patient data.
    log.error("a read or search in a batch failed: %s", type(error).__name__)
    return FhirError(EXCEPTION)


def fetched_plain(service: Service, fetch: batch.Fetch, known: Known) -> batch.FetchResult:
    """Render the resource of a read, or the page of a search, as the interface does."""
    if fetch.id is None:
        asked = service, fetch.resource, parse_query(fetch.query), False
        page = finding.page_at_hand(*asked) or finding.page_of(*asked)
        return batch.FetchResult(showing.rendered(service, searchset(page)), {}, page.patients)
    found = read_of(fetch, known)
    return batch.FetchResult(showing.rendered(service, found.body), version_and_time(found), found.patients)


def read_of(fetch: batch.Fetch, known: Known) -> StoredVersion:
    """Return the resource of a read. Raises the 404 that names type and id."""
    reference = reference_to(fetch.resource, fetch.id or "")
    return require_found(known.get(reference), reference)
