"""Search at the R4 face: the interface's own search, with the parameters that R4 knows for every type."""

from dataclasses import replace
from typing import NamedTuple

from fhir_service.face.form_parameters import OF_READS, OF_SEARCHES, AnswerForm, form_and_rest
from fhir_service.face.including import included_resources, wanted_includes
from fhir_service.face.rendering import searchset
from fhir_service.interactions.paging import Pairs
from fhir_service.interface.json_text import dump_json
from fhir_service.interface.scopes import Caller
from fhir_service.interface.vocabulary import Param, Resource
from fhir_service.requests import finding, showing
from fhir_service.service import Service

LAST_UPDATED = Param("_lastUpdated", "date", lambda _: None)


class FacePage(NamedTuple):
    """A rendered page, the form that was asked for, and the ids of the patients on it."""

    body: bytes
    form: AnswerForm
    patients: tuple[str, ...]


def page_of(service: Service, caller: Caller, resource: Resource, pairs: Pairs, lenient: bool) -> FacePage:
    """Return the page of a query. Raises the 400 of bad parameters."""
    form, others = form_and_rest(pairs, OF_SEARCHES)
    params = wanted_includes(resource, form.includes, lenient)
    query = service, _of_face(resource), bare(others, form), lenient
    page = finding.page_at_hand(*query) or finding.page_of(*query)
    bundle = searchset(page, included_resources(service, caller, params, page.found, form), form, service.site)
    return FacePage(showing.rendered(service, dump_json(bundle, form.pretty)), form, page.patients)


def bare(pairs: Pairs, form: AnswerForm) -> Pairs:
    """Return the parameters of a page. The page is empty if only the number of matches is asked for."""
    if form.summary != "count":
        return pairs
    return [*((name, value) for name, value in pairs if name != "_count"), ("_count", "0")]


def of_history(pairs: Pairs) -> Pairs:
    """Return the history's own parameters from those of its request."""
    form, others = form_and_rest(pairs, OF_READS)
    return bare(others, form)


def _of_face(resource: Resource) -> Resource:
    """Return a resource type with the search parameter and the order that the face adds."""
    sorts = {**resource.sorts, LAST_UPDATED.name: "updated_at"}
    return replace(resource, params=(*resource.params, LAST_UPDATED), sorts=sorts)
