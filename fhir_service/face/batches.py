"""The answer to a batch at the R4 face: entries have versions, times, absolute addresses, and the resources stored."""

from functools import partial
from typing import Any

import orjson

from fhir_service.batches.answering import Rendering
from fhir_service.face.batch_reads import fetched_at_face
from fhir_service.face.form_parameters import AnswerForm
from fhir_service.face.rendering import Shown
from fhir_service.face.written_resources import NEW, WrittenResource, entry_of, stored_versions
from fhir_service.interactions import batch, create, update
from fhir_service.interface.json_text import dump_json
from fhir_service.interface.outcomes import FhirError, outcome_of
from fhir_service.interface.scopes import Caller
from fhir_service.service import Service


def rendering(caller: Caller, form: AnswerForm, shows: bool) -> Rendering:
    """Return the form of a batch's answer. shows: True if it includes the stored resources."""
    return Rendering(partial(fetched_at_face, caller), partial(_answer, caller, form, shows))


def _answer(
    caller: Caller, form: AnswerForm, shows: bool, service: Service, bundle: batch.Bundle, results: list[Any]
) -> bytes:
    outcomes = [_outcome(one, result) for one, result in zip(bundle.requests, results, strict=True)]
    written = [one for one in outcomes if isinstance(one, WrittenResource)]
    # The version of what is new is known without a look at it.
    there = stored_versions(service, [one for one in written if shows or one.status != NEW])
    room = service.settings.max_batch if shows else 0
    entries, named = [], set[tuple[str, str]]()
    for one in outcomes:
        if isinstance(one, WrittenResource):
            key = (one.type, one.id)
            # A Bundle holds each version of a resource once (bdl-7).
            entry, size = entry_of(service, caller, one, there.get(key), 0 if key in named else room)
            named.add(key)
            room -= size
            entries.append(entry)
        else:
            entries.append(one)
    answer = {"resourceType": "Bundle", "type": f"{bundle.type}-response"} | ({"entry": entries} if entries else {})
    return dump_json(answer, form.pretty)


def _outcome(request: batch.Request, result: Any) -> WrittenResource | Shown:
    """Return the resource that an entry wrote, or else its entry in the answer."""
    if isinstance(result, FhirError):
        return {"response": {"status": str(result.outcome.status), "outcome": outcome_of(result)}}
    if isinstance(result, batch.FetchResult):
        return {"resource": orjson.Fragment(result.body), "response": {"status": "200"} | result.how}
    if isinstance(request, update.Update):
        return WrittenResource(request.resource.name, request.id, 200)
    if isinstance(request, create.Create):
        return WrittenResource(request.resource.name, result.id, batch.status(result))
    return {"response": {"status": "200"}}
