"""Find items of responses by the ends of their rows: the part of a row after the columns that all rows of a response
share.

Exports of answers repeat a few choices again and again. An end from a sound response makes an equal item in every
other response to its questionnaire, so such rows need not be read. Free texts of people are not remembered.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import orjson

from pipelines.feeds.terms.record import BuiltRecord, Values
from pipelines.validation.content import to_json
from pipelines.validation.records import MappedRow


class KnownItem(NamedTuple):
    """The item that a row makes, and its JSON. It is shared, and so must not be changed."""

    link: str
    item: dict[str, Any]
    text: bytes


class RowEnds:
    """Remembered ends of rows. shared: the columns that all rows of a response share, which come first.

    questionnaire: the shared column that decides the meaning of an end.
    """

    MOST = 4_000

    def __init__(self, shared: Sequence[str], questionnaire: str) -> None:
        self._shared, self._questionnaire = shared, questionnaire
        self._seen: dict[tuple[str, str], KnownItem] = {}

    def known(self, rows: Sequence[MappedRow], first: Values) -> list[KnownItem] | None:
        """Return the item of each row. None if an end is unknown, the rows do not agree, or two answer one question.

        first: the values of the first row.
        """
        begin, of = self._begin(first), first[self._questionnaire]
        if of is None:
            return None
        size, found, links = len(begin), [], set()
        for row in rows:
            record = row.record
            if record is None or row.faults or not record.startswith(begin):
                return None
            known = self._seen.get((of, record[size:]))
            if known is None:
                return None
            found.append(known)
            links.add(known.link)
        return found if len(links) == len(found) else None

    def note(self, rows: Sequence[MappedRow], first: Values, built: BuiltRecord) -> None:
        """Remember the ends of a sound response's rows that are one choice each."""
        begin, of = self._begin(first), first[self._questionnaire]
        for item, answered in zip(built.body["item"], built.rows, strict=True):
            record = rows[answered[0]].record or ""
            if len(answered) > 1 or "valueCoding" not in item["answer"][0] or not record.startswith(begin):
                continue
            if len(self._seen) >= self.MOST:
                self._seen.clear()
            self._seen[of, record[len(begin) :]] = KnownItem(item["linkId"], item, to_json(item))

    def _begin(self, values: Values) -> str:
        """Return the beginning of a row's JSON with these values in the shared columns."""
        return f"{orjson.dumps([values[name] for name in self._shared])[:-1].decode()},"
