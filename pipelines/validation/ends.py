"""Items of responses by the ends of their rows: what a row says beyond the columns in which the rows of a response
agree.

Exports of answers say the same few choices again and again. An end that stood in a sound response makes the same item
in every other response to its questionnaire, so that such rows need not be read. What a person wrote in own words is
not remembered.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import orjson

from pipelines.feeds.terms.record import Built, Values
from pipelines.validation.content import to_json
from pipelines.validation.records import Row


class Known(NamedTuple):
    """An item that a row makes by itself, and its JSON. It is shared, and so never changed."""

    link: str
    item: dict[str, Any]
    text: bytes


class Ends:
    """Remembers ends of rows. shared: the columns in which rows agree, which stand before all others.

    questionnaire: the one of them by which it is known what an end means.
    """

    MOST = 4_000

    def __init__(self, shared: Sequence[str], questionnaire: str) -> None:
        self._shared, self._questionnaire = shared, questionnaire
        self._seen: dict[tuple[str, str], Known] = {}

    def known(self, rows: Sequence[Row], first: Values) -> list[Known] | None:
        """Return the item of each row. None if an end is not known, the rows do not agree, or two answer one question.

        first: what the first row says.
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

    def note(self, rows: Sequence[Row], first: Values, built: Built) -> None:
        """Remember the ends of the rows of a sound response that make a choice each."""
        begin, of = self._begin(first), first[self._questionnaire]
        for item, answered in zip(built.body["item"], built.rows, strict=True):
            record = rows[answered[0]].record or ""
            if len(answered) > 1 or "valueCoding" not in item["answer"][0] or not record.startswith(begin):
                continue
            if len(self._seen) >= self.MOST:
                self._seen.clear()
            self._seen[of, record[len(begin) :]] = Known(item["linkId"], item, to_json(item))

    def _begin(self, values: Values) -> str:
        """Return how the JSON of a row begins that has these values in the shared columns."""
        return f"{orjson.dumps([values[name] for name in self._shared])[:-1].decode()},"
