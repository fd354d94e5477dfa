"""A record on its way to the target, the body that is sent for it, and the identifier that it has at the target."""

import json
import re
from functools import cache
from typing import Any, NamedTuple
from urllib.parse import quote

import orjson

from fhir_service.interface.json_text import parse_json
from pipelines.client.comparison import DATED
from pipelines.client.identifiers import IMPORTERS, SPECIAL, identifier_value
from pipelines.client.shapes import objects_in
from pipelines.ledger.rows import KnownRecord
from pipelines.loading.row_results import PostResult
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
    text_hash: str | None = None
    found: PostResult | None = None

    def is_held_by(self, record: KnownRecord) -> bool:
        """True if a record has the row's content; an older version may have recorded another hash of it."""
        return record.holds(self.content_hash) or (
            self.text_hash is not None and any(map(record.holds, self.text_hash.split()))
        )

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
