"""A record on its way to the target: its body, its identifier there, and its result by the answer of the target."""

import json
import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple
from urllib.parse import quote

import orjson

from fhir_service.interface.json_text import parse_json
from pipelines.client.client import PAGE, FhirClient
from pipelines.client.comparison import DATED, same_content, taken_back
from pipelines.client.identifiers import IMPORTERS, SPECIAL, has_names_of, identifier_value, is_named_alike
from pipelines.client.replies import TOO_LARGE, NoResult, Reply
from pipelines.client.shapes import objects_in
from pipelines.loading.task_content import says
from pipelines.validation.content import dump

PLAIN_KEY = re.compile(r"[A-Za-z0-9._~-]+")


class AcceptedRow(NamedTuple):
    """An accepted record on its way.

    known: the ledger has a record of its key. intended: an earlier intent may have reached the target. elsewhere: the
    record stays with the batch and line that it came with first. change: the row replaces an earlier version: `first`
    while the ledger has that as the record, `again` after this, `anew` if the earlier version was taken back. found:
    its outcome from a look-up at the target, so that it is not sent.
    """

    line: int
    lines: int
    key: str
    lane: str
    content_hash: str
    patient_id: str | None
    source_at: str | None
    amount_cents: int | None
    body: str
    first_attempt_at: str
    generation: int = 1
    known: bool = False
    intended: bool = False
    elsewhere: bool = False
    change: str = ""
    found: "PostResult | None" = None

    @property
    def left(self) -> str:
        """The row's state if it is not sent now."""
        return "in_doubt" if self.intended else "planned"

    @property
    def replaces(self) -> bool:
        """True if the row replaces a resource that the target has."""
        return self.change in ("first", "again")


def dated_body(resource_type: str, row: AcceptedRow) -> str:
    """Return the prepared body, with the moment of the first attempt if the source gives none."""
    name = DATED[resource_type]
    return row.body if _has(row.body, name) else f'{row.body[:-1]},"{name}":"{row.first_attempt_at}"}}'


def own_identifiers(body: str) -> tuple[str, list[Any]]:
    """Return a body without the source's own identifiers, and these. Leave out identifiers from importers elsewhere.

    A response can have only one identifier, which is the importer's.
    """
    if not _has(body, "identifier"):
        return body, []
    said = parse_json(body)
    shown = objects_in(said.pop("identifier"))
    return dump(said), [each for each in shown if not str(each.get("system")).startswith(IMPORTERS)]


def _has(body: str, name: str) -> bool:
    """True if a body has the element at its top level."""
    if f'"{name}":' not in body:
        return False
    try:
        return name in orjson.loads(body)
    except orjson.JSONDecodeError:  # a number too large for a double
        return name in parse_json(body)


class Identity(NamedTuple):
    """The identifiers of a source's records at the target: their system and resource type."""

    source: str
    resource_type: str

    @property
    def system(self) -> str:
        return f"{IMPORTERS}{self.source}:{self.resource_type}"

    def entry(self, row: AcceptedRow) -> tuple[str, str]:
        """Return the body as sent, and `ifNoneExist` as a JSON string.

        The body is the prepared JSON, with a date if the source has none, and with our identifier after the source's
        own.
        """
        before, after, condition = _around(self)
        body, own = own_identifiers(dated_body(self.resource_type, row))
        if own:
            before = before.replace('"identifier":[', f'"identifier":[{dump(own)[1:-1]},', 1)
        value = asked = identifier_value(row.key, row.generation)
        if PLAIN_KEY.fullmatch(value):
            shown = f'"{value}"'
        else:
            shown, asked = json.dumps(value), quote(SPECIAL.sub(r"\\\1", value), safe="")
        return f"{body[:-1]}{before}{shown}{after}", f'{condition}{asked}"'


@cache
def _around(identity: Identity) -> tuple[str, str, str]:
    """Return the texts around a key: before and after it in the body, and before it in the condition."""
    opening, closing = ("", "") if identity.resource_type == "QuestionnaireResponse" else ("[", "]")
    body = f',"identifier":{opening}{{"system":{json.dumps(identity.system)},"value":'
    return body, f"}}{closing}}}", json.dumps(f"identifier={quote(identity.system, safe=':')}|")[:-1]


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
