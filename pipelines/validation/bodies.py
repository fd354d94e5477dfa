"""Bodies of records: built from their values, and known for sound by their cells, without a look at the rest."""

from collections.abc import Sequence
from typing import Any

import orjson

from fhir_service.interface.json_text import parse_json
from fhir_service.interface.registry import RESOURCES
from pipelines.feeds.terms.record import Around, Built, Kind, Values
from pipelines.validation.content import dump
from pipelines.validation.records import Row
from pipelines.validation.soundness import SoundByCell, SoundByItem, are_plain
from pipelines.validation.wording import in_words


class Bodies:
    """Builds the bodies of the records of one file."""

    def __init__(self, kind: Kind, around: Around) -> None:
        self._kind, self._around = kind, around
        resource = RESOURCES[kind.resource]
        of_items = resource.name == "QuestionnaireResponse"
        self._judged = [column for column in kind.columns[1:] if not of_items or column.element != kind.member]
        about = (resource, around.site, around.questionnaires, self._judged)
        self._soundness: SoundByItem | SoundByCell = SoundByItem(*about) if of_items else SoundByCell(*about)
        self._by_cell = of_items or not kind.grouped
        self._names = [column.name for column in kind.columns[1:]]
        self._is_plain = False

    def look_at(self, every: Sequence[Sequence[Row]]) -> None:
        """Look whether all cells of some records are plain, before they are taken one by one."""
        self._is_plain = are_plain([row.record or "" for rows in every for row in rows])

    def values(self, row: Row) -> Values:
        """What a row says, by column."""
        record = row.record or ""
        whole = record[0] == "{"
        values: Values = parse_json(record) if whole else dict(zip(self._names, orjson.loads(record), strict=True))
        if row.faults:
            values["faulty"] = True
        return values

    def build(self, key: str | None, values: Sequence[Values]) -> Built:
        return self._kind.build(key, values, self._around)

    def sound(self, built: Built, rows: Sequence[Row], values: Values) -> str | None:
        """The text of a body that is sound; None of one that the rules are to look at. values: of its first row."""
        return self._soundness.text(built.body, self._cells(rows, values))

    def as_sent(self, built: Built, text: str | None) -> str:
        """The text of a body as it is sent: in the target's words. text: where it has one already."""
        text = text or dump(built.body)
        return in_words(text, built.body, self._around.words) if self._around.words else text

    def stand_in(self, values: Sequence[Values]) -> set[str]:
        """Fill in required values that are missing, so that the rules can check the rest; return their columns."""
        filled = set()
        for row in values:
            for column in self._kind.columns:
                if column.stand_in and "resource" not in row and row[column.name] is None:
                    row[column.name] = column.stand_in
                    filled.add(column.name)
        return filled

    def _cells(self, rows: Sequence[Row], values: Values) -> list[Any] | None:
        """Return the cells by which a body may be judged; None where it is to be looked at as a whole."""
        if not self._by_cell or "resource" in values:
            return None
        if not (self._is_plain or are_plain([row.record or "" for row in rows])):
            return None
        return [values[column.name] for column in self._judged]
