"""List for the audit what each entry of a Bundle did."""

from typing import Any

from fhir_service.audit.records import Touch
from fhir_service.interactions import batch, create, update
from fhir_service.interface.outcomes import FhirError


def touches(requests: list[batch.Request], results: list[Any]) -> list[Touch]:
    """Return an act for each entry of a batch, with its own status. Entries that named no resource share one for each
    status.
    """
    found, nameless = [], dict[int, None]()
    for one, result in zip(requests, results, strict=True):
        status = result.outcome.status if isinstance(result, FhirError) else batch.status(result)
        if isinstance(one, create.Create):
            made = result.id if isinstance(result, create.CreateResult) else None
            found.append(Touch("create", one.resource.name, made, one.patients, status))
        elif isinstance(one, update.Update):
            patients = result if isinstance(result, tuple) else ()
            found.append(Touch("update", one.resource.name, one.id, patients, status))
        elif isinstance(one, batch.Fetch):
            patients = result.patients if isinstance(result, batch.FetchResult) else ()
            kind = "read" if one.id is not None else "search"
            found.append(Touch(kind, one.resource.name, one.id, patients, status))
        else:
            nameless[status] = None
    return [*found, *(Touch("batch", "Bundle", status=status) for status in nameless)]
