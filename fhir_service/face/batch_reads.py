"""Reads and searches among the entries of a batch, as the R4 face shows them."""

from fhir_service.batches.reads import Known, read_of
from fhir_service.face.form_parameters import OF_READS, form_alone
from fhir_service.face.rendering import resource_of
from fhir_service.face.searching import page_of
from fhir_service.interactions import batch
from fhir_service.interface.json_text import dump_json
from fhir_service.interface.scopes import Caller
from fhir_service.requests import showing
from fhir_service.requests.bundle import version_and_time
from fhir_service.service import Service
from fhir_service.web.http import parse_query


def fetched_at_face(caller: Caller, service: Service, fetch: batch.Fetch, known: Known) -> batch.FetchResult:
    """Read a resource, or search, and show it as the face does."""
    pairs = parse_query(fetch.query)
    if fetch.id is None:
        page = page_of(service, caller, fetch.resource, pairs, lenient=False)
        return batch.FetchResult(page.body, {}, page.patients)
    form = form_alone(pairs, OF_READS, lenient=False)
    found = read_of(fetch, known)
    body = showing.rendered(service, dump_json(resource_of(found, form), form.pretty))
    return batch.FetchResult(body, version_and_time(found), found.patients)
