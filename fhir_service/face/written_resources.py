"""Resources that the entries of a batch wrote, as the R4 face shows them in its answer."""

import logging
from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

import orjson

from fhir_service.face.form_parameters import AnswerForm
from fhir_service.face.rendering import Shown, at_face, resource_of
from fhir_service.interactions.update import etag
from fhir_service.interface.json_text import dump_json
from fhir_service.interface.outcomes import FhirError
from fhir_service.interface.registry import RESOURCES
from fhir_service.interface.scopes import Caller
from fhir_service.requests import showing
from fhir_service.requests.bundle import version_and_time
from fhir_service.service import Service
from fhir_service.store.bodies import StoredVersion

log = logging.getLogger(__name__)

NEW = 201
"""The status of an entry that created a resource."""


class WrittenResource(NamedTuple):
    """A resource that an entry wrote, or that a conditional create found."""

    type: str
    id: str
    status: int


def stored_versions(service: Service, written: Iterable[WrittenResource]) -> dict[tuple[str, str], StoredVersion]:
    """Return the current state of the written resources; or none if they cannot be read."""
    ids: dict[str, dict[str, None]] = defaultdict(dict)
    for one in written:
        ids[one.type][one.id] = None
    found: dict[tuple[str, str], StoredVersion] = {}
    try:
        for name, of_type in ids.items():
            with service.reader.state(several=False) as state:
                bodies = state.bodies(RESOURCES[name], list(of_type))
            found |= {(name, each): body for each, body in zip(of_type, bodies, strict=True)}
    except FhirError:
        return {}
    except Exception as error:  # noqa: BLE001 - the writes are answered as they are
        # The class only: exception texts may hold values.
        log.error("a batch was stored, and its resources could not be read for the answer: %s", type(error).__name__)  # noqa: TRY400
        return {}
    return found


def entry_of(
    service: Service, caller: Caller, written: WrittenResource, found: StoredVersion | None, room: int
) -> tuple[Shown, int]:
    """Return the entry of a written resource, and the bytes of that resource, which is left out if there is no room."""
    url = at_face(service.site).url(written.type, written.id)
    response = {"status": str(written.status), "location": url}
    if found:
        response |= version_and_time(found)
    elif written.status == NEW:
        response["etag"] = etag(1)
    if found is None or not caller.may(written.type, "r"):
        return {"response": response}, 0
    body = showing.rendered(service, dump_json(resource_of(found, AnswerForm()))) if len(found.body) <= room else b""
    if not body or len(body) > room:
        return {"response": response}, 0
    return {"fullUrl": url, "resource": orjson.Fragment(body), "response": response}, len(body)
