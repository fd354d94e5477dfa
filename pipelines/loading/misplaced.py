"""Find answers of a bundle that are not to the entries at whose places they are.

FHIR has them in the order of the entries. By the answers of a server that keeps another order, a row would get the
resource of another one, and one that is there would be set aside.
"""

from collections.abc import Callable, Sequence
from typing import Any

import orjson

from pipelines.client.client import Entry, FhirClient
from pipelines.client.identifiers import has_names_of_another
from pipelines.client.replies import Reply
from pipelines.loading.answered import compared, read_back
from pipelines.loading.identity import Identity
from pipelines.loading.lookup import by_identifier
from pipelines.loading.row import Row


def tell_of_others(entries: Sequence[Entry], replies: Sequence[Reply]) -> bool:
    """True if answers say so themselves: by the resource that one brings, or by one resource that two have made."""
    made = [reply.resource_id for reply in replies if reply.kind == "created"]
    brought = ((body, reply.body) for (body, _), reply in zip(entries, replies, strict=True) if reply.body)
    return len(set(made)) < len(made) or any(has_names_of_another(orjson.loads(sent), body) for sent, body in brought)


def are_of_others(
    client: FhirClient, kind: str, made: Sequence[tuple[Entry, str]], read_all: Callable[..., Any] = map
) -> bool:
    """True if a resource that an entry has made, by its answer, has another record's name. It is read by its id."""
    bodies = read_back(client, kind, [resource_id for _, resource_id in made], read_all)
    found = ((sent, bodies.get(resource_id)) for (sent, _), resource_id in made)
    return any(body is not None and has_names_of_another(orjson.loads(sent), body) for sent, body in found)


def are_there(client: FhirClient, identity: Identity, refused: Sequence[Row]) -> bool:
    """True if the target has a row that was refused, by its answer. It is searched for by its identifier."""
    found = by_identifier(client, identity, refused, None)
    return any(
        compared(identity.resource_type, row.body, body, str(body["id"]), None, False).state != "refused"
        for row in refused
        for body in found[row.key].there
    )
