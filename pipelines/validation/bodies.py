"""Bodies of records: build them from values, and recognize sound ones by their cells, without reading the rest.

Items of responses are found by the ends of their rows: the part after the columns that all rows of a response share.
Exports of answers repeat a few choices again and again. An end from a sound response makes an equal item in every
other response to its questionnaire, so such rows need not be read. Free texts of people are not remembered.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import orjson

from fhir_service.interface.json_text import dump_json, parse_json
from fhir_service.interface.registry import RESOURCES
from pipelines.client.profiles import member
from pipelines.feeds.terms.columns import BuilderContext, BuiltRecord, RecordKind, Values
from pipelines.validation.content import dump
from pipelines.validation.records import MappedRow
from pipelines.validation.soundness import SoundByParts, are_plain


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
            self._seen[of, record[len(begin) :]] = KnownItem(item["linkId"], item, dump_json(item))

    def _begin(self, values: Values) -> str:
        """Return the beginning of a row's JSON with these values in the shared columns."""
        return f"{orjson.dumps([values[name] for name in self._shared])[:-1].decode()},"


class Bodies:
    """Builder of the bodies for one file's records."""

    def __init__(self, kind: RecordKind, around: BuilderContext) -> None:
        self._kind, self._around = kind, around
        resource = RESOURCES[kind.resource]
        of_items = resource.name == "QuestionnaireResponse"
        self._judged = [column for column in kind.columns[1:] if not of_items or column.element != kind.member]
        self._soundness = SoundByParts(resource, around.site, around.questionnaires, self._judged)
        self._by_cell = of_items or not kind.grouped
        self._ends = _ends_of(kind, [column.name for column in self._judged]) if of_items else None
        self._names = [column.name for column in kind.columns[1:]]
        self._is_plain = False

    def look_at(self, every: Sequence[Sequence[MappedRow]]) -> None:
        """Note if all cells of these records are plain, before the records are taken one by one."""
        self._is_plain = are_plain([row.record or "" for rows in every for row in rows])

    def values(self, row: MappedRow) -> Values:
        """Return the values of a row, by column."""
        record = row.record or ""
        whole = record[0] == "{"
        values: Values = parse_json(record) if whole else dict(zip(self._names, orjson.loads(record), strict=True))
        if row.faults:
            values["faulty"] = True
        return values

    def build(self, key: str | None, values: Sequence[Values]) -> BuiltRecord:
        return self._kind.build(key, values, self._around)

    def sound(self, built: BuiltRecord, rows: Sequence[MappedRow], values: Values) -> str | None:
        """Return the text of a sound body; None if the rules must check it. values: of its first row."""
        return self._soundness.text(built.body, self._cells(rows, values))

    def quick(self, rows: Sequence[MappedRow]) -> tuple[BuiltRecord, str] | None:
        """Return a record and its body as text if a quick look shows that there is nothing to report; else None."""
        first = rows[0]
        if first.first_line not in (None, first.line):
            return None
        if len(rows) > 1:
            return self._put_together(rows)
        if first.faults or first.differs or not first.record:
            return None
        values = self.values(first)
        built = self.build(first.key, (values,))
        text = None if built.faults else self.sound(built, rows, values)
        return None if text is None else (built, text)

    def _put_together(self, rows: Sequence[MappedRow]) -> tuple[BuiltRecord, str] | None:
        """Return a response and its text if it is sound by the items of earlier responses; else None.

        The built body does not say which rows its items come from.
        """
        make = self._kind.put_together
        if self._ends is None or make is None or not _is_list(rows[0]):
            return None
        values = self.values(rows[0])
        found = self._ends.known(rows, values)
        if found is None:
            return None
        built = make(rows[0].key, values, [each.item for each in found], self._around)
        if built.faults:
            return None
        text = self._soundness.put_together(built.body, [each.text for each in found], self._cells(rows, values))
        return (built, text) if text is not None else None

    def note(self, rows: Sequence[MappedRow], values: Values, built: BuiltRecord) -> None:
        """Remember the items of a sound response's rows. values: of its first row."""
        if self._ends and built.rows and _is_list(rows[0]):
            self._ends.note(rows, values, built)

    def as_sent(self, built: BuiltRecord, text: str | None) -> str:
        """Return a body's text in the target's words, without members added when it is sent. text: if it has one."""
        text, until_sent = text or dump(built.body), f"{{{self._kind.until_sent}"
        if text.startswith(until_sent):  # only at the beginning: a member with that text inside another one stays
            text = "{" + text.removeprefix(until_sent)
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

    def _cells(self, rows: Sequence[MappedRow], values: Values) -> list[Any] | None:
        """Return the cells by which a body may be judged; None if the whole body must be checked."""
        if not self._by_cell or "resource" in values:
            return None
        if not (self._is_plain or are_plain([row.record or "" for row in rows])):
            return None
        return [values[column.name] for column in self._judged]


def _is_list(row: MappedRow) -> bool:
    """True if a row has its values in the order of the columns, and is no whole resource."""
    return bool(row.record) and not row.faults and row.record[:1] == "["  # type: ignore[index]


def _ends_of(kind: RecordKind, shared: Sequence[str]) -> RowEnds | None:
    """Return the ends of rows for a kind whose records have a row for each answer; None for another kind."""
    begins = [column.name for column in kind.columns[1 : len(shared) + 1]] == list(shared)
    return RowEnds(shared, "questionnaire") if kind.put_together and begins else None


REWORDED = {"questionnaire", "payment", "recipient"}


def in_words(text: str, body: Mapping[str, Any], words: Mapping[str, str]) -> str:
    """Return a body's text with some members as the target has them. Until then the interface's rules apply to the
    body.

    No text in a body can be mistaken for a member, since quotes are escaped there.
    """
    for name in REWORDED & body.keys():
        ours = member(name, body[name])
        text = text.replace(ours, words.get(ours, ours), 1)
    return text
