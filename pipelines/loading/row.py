"""A record on its way to the target, and the body that is sent for it."""

from typing import Any, NamedTuple

import orjson

from fhir_service.interface.json_text import parse_json
from pipelines.client.identifiers import IMPORTERS
from pipelines.client.shapes import objects_in
from pipelines.ledger.rows import KnownRecord
from pipelines.loading.answered import Posted
from pipelines.validation.content import dump

DATED = {"Task": "authoredOn", "QuestionnaireResponse": "authored", "PaymentNotice": "created"}
"""The element of a body that gets the moment of the first attempt if the source has none."""


class Row(NamedTuple):
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
    found: Posted | None = None

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


def dated(resource_type: str, row: Row) -> str:
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
