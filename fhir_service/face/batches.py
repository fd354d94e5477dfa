"""The answer to a batch at the R4 face: entries have versions, times, absolute addresses, and the resources stored."""

from collections import defaultdict
from collections.abc import Iterable
from functools import partial
from typing import Any, NamedTuple

import orjson

from fhir_service import acts
from fhir_service.batches import Known, Rendering, read_of
from fhir_service.bundle import how
from fhir_service.face.asked import OF_READS, Asked, alone
from fhir_service.face.rendering import Shown, at_face, resource_of
from fhir_service.face.searching import page_of
from fhir_service.http import parse_query
from fhir_service.interactions import batch, create, update
from fhir_service.interactions.update import etag
from fhir_service.interface.datatypes import dump_json
from fhir_service.interface.outcomes import FhirError, outcome_of
from fhir_service.interface.registry import RESOURCES
from fhir_service.scopes import Caller
from fhir_service.service import Service
from fhir_service.store.bodies import Found

NEW = 201
"""The status of an entry that created a resource."""


class Written(NamedTuple):
    """A resource that an entry wrote, or that a conditional create found."""

    type: str
    id: str
    status: int


def rendering(caller: Caller, form: Asked, shows: bool) -> Rendering:
    """Return the form of a batch's answer. shows: whether what was stored is in it."""
    return Rendering(partial(_fetched, caller), partial(_answer, caller, form, shows))


def _fetched(caller: Caller, service: Service, fetch: batch.Fetch, known: Known) -> batch.Fetched:
    """Read a resource, or search, and show it as the face does."""
    pairs = parse_query(fetch.query)
    if fetch.id is None:
        page = page_of(service, caller, fetch.resource, pairs, lenient=False)
        return batch.Fetched(page.body, {}, page.patients)
    form = alone(pairs, OF_READS, lenient=False)
    found = read_of(fetch, known)
    body = acts.rendered(service, dump_json(resource_of(found, form), form.pretty))
    return batch.Fetched(body, how(found), found.patients)


def _answer(
    caller: Caller, form: Asked, shows: bool, service: Service, bundle: batch.Bundle, results: list[Any]
) -> bytes:
    done = iter(results)
    outcomes = [_outcome(one, next(done) if one.entry else one.error) for one in bundle.requests]
    written = [one for one in outcomes if isinstance(one, Written)]
    # The version of what is new is known without a look at it.
    stored = _stored(service, [one for one in written if shows or one.status != NEW])
    room = service.settings.max_batch if shows else 0
    entries = []
    for one in outcomes:
        if isinstance(one, Written):
            entry, size = _entry(service, caller, one, stored.get((one.type, one.id)), room)
            room -= size
            entries.append(entry)
        else:
            entries.append(one)
    answer = {"resourceType": "Bundle", "type": f"{bundle.type}-response"} | ({"entry": entries} if entries else {})
    return dump_json(answer, form.pretty)


def _outcome(request: batch.Request, result: Any) -> Written | Shown:
    """Return what an entry wrote, else its entry in the answer."""
    if isinstance(result, FhirError):
        return {"response": {"status": str(result.outcome.status), "outcome": outcome_of(result)}}
    if isinstance(result, batch.Fetched):
        return {"resource": orjson.Fragment(result.body), "response": {"status": "200"} | result.how}
    if isinstance(request.entry, update.Update):
        return Written(request.entry.resource.name, request.entry.id, 200)
    if isinstance(request.entry, create.Create):
        return Written(request.entry.resource.name, result.id, batch.status(result))
    return {"response": {"status": "200"}}


def _stored(service: Service, written: Iterable[Written]) -> dict[tuple[str, str], Found]:
    """Return what was written, as it is now; nothing if it cannot be read, as that does not undo the writes."""
    ids: dict[str, dict[str, None]] = defaultdict(dict)
    for one in written:
        ids[one.type][one.id] = None
    found: dict[tuple[str, str], Found] = {}
    try:
        for name, of_type in ids.items():
            with service.reader.state(several=False) as state:
                bodies = state.bodies(RESOURCES[name], list(of_type))
            found |= {(name, each): body for each, body in zip(of_type, bodies, strict=True)}
    except FhirError:
        return {}
    return found


def _entry(service: Service, caller: Caller, written: Written, found: Found | None, room: int) -> tuple[Shown, int]:
    """Return the entry of what was written, and the size of the resource in it: none where there is no room for it."""
    url = at_face(service.site).url(written.type, written.id)
    response = {"status": str(written.status), "location": url}
    if found:
        response |= how(found)
    elif written.status == NEW:
        response["etag"] = etag(1)
    if found is None or not caller.may(written.type, "r"):
        return {"response": response}, 0
    body = acts.rendered(service, dump_json(resource_of(found, Asked()))) if len(found.body) <= room else b""
    if not body or len(body) > room:
        return {"response": response}, 0
    return {"fullUrl": url, "resource": orjson.Fragment(body), "response": response}, len(body)
