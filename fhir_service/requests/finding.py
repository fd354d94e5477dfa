"""Carry out a search or a history: check the rights, note it for the audit, parse the parameters, find the page."""

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol, TypeVar

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from fhir_service.audit.records import touch
from fhir_service.interactions import history, search
from fhir_service.interactions.paging import Page, Pairs
from fhir_service.interface.vocabulary import Resource
from fhir_service.service import Service
from fhir_service.web.http import caller_of, is_lenient, query_pairs

LONG_QUERY = 1 << 10
"""A query is parsed in a thread if its values have more characters than this."""


class OfPatients(Protocol):
    """A result with the ids of its patients."""

    @property
    def patients(self) -> tuple[str, ...]: ...


P = TypeVar("P", bound=OfPatients)


async def search_page(
    service: Service,
    resource: Resource,
    request: Request,
    page: Callable[[Pairs, bool], P],
    at_hand: Callable[[Pairs, bool], P | None] = lambda _pairs, _lenient: None,
) -> P:
    """Search by a request's parameters.

    Args:
        page: finds the page in a thread, given the parameters and True for lenient handling.
        at_hand: returns the page if it is in memory, without waiting. Called for short queries only.
    """
    touched = touch(request, "search", resource.name)
    caller_of(request).require(resource.name, "s")
    pairs = await query_pairs(request, service.settings.max_body)
    lenient = is_lenient(request)
    found = at_hand(pairs, lenient) if sum(len(value) for _, value in pairs) <= LONG_QUERY else None
    if found is None:
        found = await run_in_threadpool(page, pairs, lenient)
    touched.patients = found.patients
    return found


def query_of(service: Service, resource: Resource, pairs: Pairs, lenient: bool) -> search.Query:
    """Return the query of some parameters. Raises the 400 of bad ones."""
    settings = service.settings
    size, most, additions = settings.page_size, settings.max_page_size, not settings.interface_only
    stable = service.store.dialect.shared and additions
    return search.parse(resource, pairs, service.site, min(size, most), most, additions, lenient, stable)


def page_at_hand(service: Service, resource: Resource, pairs: Pairs, lenient: bool) -> Page | None:
    """Return the page of a query if it is in memory."""
    if service.reader.shared:
        return None
    return search.at_hand(service.reader, query_of(service, resource, pairs, lenient))


def page_of(service: Service, resource: Resource, pairs: Pairs, lenient: bool, token: str = "") -> Page:
    """Return the page of a query. For `token` see `Query`."""
    return search.run(service.reader, replace(query_of(service, resource, pairs, lenient), token=token))


async def versions(
    service: Service, resource: Resource, request: Request, letter: str, own: Callable[[Pairs], Pairs]
) -> Page:
    """Return the versions of the type or resource in a request's path.

    Args:
        letter: the right that is needed.
        own: selects the parameters of the history from those of the request.
    """
    settings = service.settings
    touched = touch(request, "history", resource.name, request.path_params.get("id"))
    caller_of(request).require(resource.name, letter)
    pairs = own(await query_pairs(request, settings.max_body))
    page, since = history.parse(resource, pairs, settings.page_size, settings.max_page_size)
    found = await run_in_threadpool(history.run, service.store, resource, page, since, touched.id)
    touched.patients = found.patients
    return found
