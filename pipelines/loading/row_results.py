"""Turn the target's answer to a row into the row's result. Read back and compare a resource that was there before."""

import json
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from pipelines.client.client import PAGE, FhirClient
from pipelines.client.comparison import same_content, taken_back
from pipelines.client.identifiers import has_names_of, is_named_alike
from pipelines.client.replies import TOO_LARGE, NoResult, Reply
from pipelines.loading.task_content import says

Bodies = dict[str, dict[str, Any] | None]
PLACE = re.compile(r"Bundle\.entry\[\d+\](?:\.resource)?\.?")


def outcome_of(code: str, text: str, expression: str | None = None) -> dict[str, Any]:
    """Return the first issue of a refusal by this program."""
    return {"code": code, "text": text, "diagnostics": None, "expression": expression}


KEY_TAKEN = outcome_of("KEY-TAKEN", "the target has a resource with this key, but with other content")
NOT_ITS_OWN = outcome_of("KEY-TAKEN", "the target answered with a resource that does not have this key")
LIKE_ITS_OWN = outcome_of(
    "KEY-TAKEN", "the target has a resource with a key that differs from this one only in case, blanks or accents"
)
SEVERAL_THERE = outcome_of("KEY-TAKEN", "the target has several resources with this key")


class RowResult(NamedTuple):
    """The result of a row: its state and, for a refusal, the first issue (`outcome`) and the other issues.

    is_other: True for a task that was there and differs from the row in elements that users of the chart may change.
    """

    state: str
    resource_id: str | None = None
    status: int | None = None
    outcome: dict[str, Any] | None = None
    others: tuple[dict[str, Any], ...] = ()
    is_other: bool = False


class PostResult(NamedTuple):
    """The result of one row. unusable: the reason why nothing more can be sent; None if more can be sent."""

    result: RowResult
    unusable: str | None = None


def existing(kind: str, sent: str, reply: Reply, bodies: Bodies, unsure: bool) -> RowResult | None:
    """Return the result of a create that found a resource; None if the resource could not be read, or is not readable
    yet.

    unsure: True if an earlier attempt of this importer may have made the resource.
    """
    resource_id = reply.resource_id or ""
    body = bodies.get(resource_id)
    return None if body is None else compared_result(kind, sent, body, resource_id, reply.status, unsure)


def read_existing(client: FhirClient, kind: str, sent: str, reply: Reply, unsure: bool) -> RowResult | None:
    """Return the result of one create that found a resource, which is read back; see `existing`."""
    return existing(kind, sent, reply, read_back(client, kind, [reply.resource_id or ""]), unsure)


def compared_result(
    kind: str, sent: str, body: dict[str, Any], resource_id: str, status: int | None, unsure: bool
) -> RowResult:
    """Return the result of a row whose identifier a resource has, or should have by the target's answer.

    Equal content without the identifier is not enough: it may be another payment of the same amount. unsure: True if
    an earlier attempt of this importer may have made the resource.
    """
    ours = json.loads(sent)
    if not has_names_of(ours, body):
        return RowResult("refused", None, status, LIKE_ITS_OWN if is_named_alike(ours, body) else NOT_ITS_OWN)
    if not same_content(kind, ours, body):
        return RowResult("refused", None, status, KEY_TAKEN)
    if unsure:
        return RowResult("created", resource_id, status)
    if taken_back(kind, ours, body):
        return RowResult("undone", resource_id, status)
    return RowResult("adopted", resource_id, status, is_other=kind == "Task" and not says(body, ours))


def of_its_row(outcome: dict[str, Any] | None, kind: str) -> dict[str, Any] | None:
    """Return the outcome of a bundle of one row as that of a single create, whose expression names no bundle entry."""
    place = PLACE.match((outcome or {}).get("expression") or "")
    if outcome is None or place is None:
        return outcome
    within = str(outcome["expression"])[place.end() :]
    return outcome | {"expression": f"{kind}.{within}" if within else None}


def read_back(client: FhirClient, kind: str, ids: Sequence[str], read_all: Callable[..., Any] = map) -> Bodies:
    """Return resources by id: None for a missing resource, no entry for one that could not be read."""
    bodies: Bodies = {}
    parts = [ids[at : at + PAGE] for at in range(0, len(ids), PAGE)]
    for found in read_all(lambda some: _read_some(client, kind, some), parts):
        bodies |= found
    return bodies


def _read_some(client: FhirClient, kind: str, ids: Sequence[str]) -> Bodies:
    """Read resources by one search, and each that the search does not return by a read of its own."""
    found = Bodies()
    try:
        if len(ids) > 1:
            found |= client.read_many(kind, ids)
        for resource_id in (each for each in ids if each not in found):
            found[resource_id] = client.read(kind, resource_id)
    except NoResult:
        return found
    return found


def created_result(reply: Reply) -> RowResult:
    """Return the result of a row whose resource was created."""
    return RowResult("created", reply.resource_id, reply.status)


def refused_result(reply: Reply) -> RowResult:
    """Return the result of a refused row."""
    return RowResult("refused", None, reply.status, reply.outcome)


def settled_result(reply: Reply) -> RowResult | None:
    """Return the result of a reply that settles a row; None if the reply does not settle it."""
    if reply.kind == "created":
        return created_result(reply)
    return refused_result(reply) if reply.kind == "refused" or reply.status == TOO_LARGE else None
