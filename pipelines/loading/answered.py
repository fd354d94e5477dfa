"""The result of a row by the target's answer to it; a resource that was there is read back and compared."""

import json
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from pipelines.client.client import PAGE, FhirClient
from pipelines.client.comparison import same_content, taken_back
from pipelines.client.identifiers import has_names_of
from pipelines.client.replies import NoResult, Reply
from pipelines.loading.task_content import says

Bodies = dict[str, dict[str, Any] | None]
TOO_LARGE = 413
PLACE = re.compile(r"Bundle\.entry\[\d+\](?:\.resource)?\.?")


def outcome_of(code: str, text: str, expression: str | None = None) -> dict[str, Any]:
    """The first issue of a refusal that we say ourselves."""
    return {"code": code, "text": text, "diagnostics": None, "expression": expression}


KEY_TAKEN = outcome_of("KEY-TAKEN", "the target has another resource under this key")
NOT_ITS_OWN = outcome_of("KEY-TAKEN", "the target answered with a resource that does not have this key")
SEVERAL_THERE = outcome_of("KEY-TAKEN", "the target has several resources under this key")


class Result(NamedTuple):
    """The result of a row: its state, and of a refusal the first issue (`outcome`) and the other issues.

    is_other: of a task that was there, whether it says something else than the row in what the chart may change.
    """

    state: str
    resource_id: str | None = None
    status: int | None = None
    outcome: dict[str, Any] | None = None
    others: tuple[dict[str, Any], ...] = ()
    is_other: bool = False


class Posted(NamedTuple):
    """The result of one row, and why nothing more can be sent, if so."""

    result: Result
    unusable: str | None = None


def existing(kind: str, sent: str, reply: Reply, bodies: Bodies, unsure: bool) -> Result | None:
    """The result of a create that found a resource; None when that could not be read, or a read does not find it yet.

    unsure: an earlier attempt of ours may have made it.
    """
    resource_id = reply.resource_id or ""
    body = bodies.get(resource_id)
    return None if body is None else compared(kind, sent, body, resource_id, reply.status, unsure)


def read_existing(client: FhirClient, kind: str, sent: str, reply: Reply, unsure: bool) -> Result | None:
    """The result of one create that found a resource, which is read back; see `existing`."""
    return existing(kind, sent, reply, read_back(client, kind, [reply.resource_id or ""]), unsure)


def compared(kind: str, sent: str, body: dict[str, Any], resource_id: str, status: int | None, unsure: bool) -> Result:
    """The result of a row whose identifier a resource has, or should have by the target's answer. Equal content alone
    makes it no record's: that may be another payment of as much.

    unsure: an earlier attempt of ours may have made it.
    """
    ours = json.loads(sent)
    if not same_content(kind, ours, body):
        return Result("refused", None, status, KEY_TAKEN)
    if not has_names_of(ours, body):
        return Result("refused", None, status, NOT_ITS_OWN)
    if unsure:
        return Result("created", resource_id, status)
    if taken_back(kind, ours, body):
        return Result("undone", resource_id, status)
    return Result("adopted", resource_id, status, is_other=kind == "Task" and not says(body, ours))


def of_its_row(outcome: dict[str, Any] | None, kind: str) -> dict[str, Any] | None:
    """The outcome of a bundle of one row, which names a place in the bundle, as that of the row's own create."""
    place = PLACE.match((outcome or {}).get("expression") or "")
    if outcome is None or place is None:
        return outcome
    within = str(outcome["expression"])[place.end() :]
    return outcome | {"expression": f"{kind}.{within}" if within else None}


def read_back(client: FhirClient, kind: str, ids: Sequence[str], read_all: Callable[..., Any] = map) -> Bodies:
    """Resources by id: None for one that is not there, nothing for one that could not be read."""
    bodies: Bodies = {}
    parts = [ids[at : at + PAGE] for at in range(0, len(ids), PAGE)]
    for found in read_all(lambda some: _read_some(client, kind, some), parts):
        bodies |= found
    return bodies


def _read_some(client: FhirClient, kind: str, ids: Sequence[str]) -> Bodies:
    """Read resources by one search; each that it does not give by a read of its own."""
    found = Bodies()
    try:
        if len(ids) > 1:
            found |= client.read_many(kind, ids)
        for resource_id in (each for each in ids if each not in found):
            found[resource_id] = client.read(kind, resource_id)
    except NoResult:
        return found
    return found


def made(reply: Reply) -> Result:
    """The result of a row whose resource was made."""
    return Result("created", reply.resource_id, reply.status)


def refused(reply: Reply) -> Result:
    """The result of a row that was refused."""
    return Result("refused", None, reply.status, reply.outcome)


def settled(reply: Reply) -> Result | None:
    """The result of a reply that settles a row; None for one that does not."""
    if reply.kind == "created":
        return made(reply)
    return refused(reply) if reply.kind == "refused" or reply.status == TOO_LARGE else None
