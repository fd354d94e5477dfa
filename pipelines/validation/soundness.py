"""Check quickly if a body can be sent as it is: read it as a struct, and stop at the first rule that finds a fault.

For all other bodies, the models and the rules name the faults.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from fhir_service.interface.fast.structs import StructReader, is_unplain, struct_of
from fhir_service.interface.json_text import dump_json
from fhir_service.interface.outcomes import BUSINESS_RULE, INVALID
from fhir_service.interface.site import Site
from fhir_service.interface.vocabulary import Lookup, Needs, Resource, World
from pipelines.feeds.terms.columns import Column

KNOWABLE: tuple[Needs, ...] = ("payload", "reference")
OUTCOMES = (INVALID, BUSINESS_RULE)
COMPARED = {"code", "amount", "number"}
"""Shapes of cells that may be converted and still break a rule."""
ALONE = {"time", "text", "labels", *COMPARED}
"""Shapes of cells that are judged alone, like references. A list of comments is not among them."""


class SoundCells:
    """Cells of sound records: such a cell is sound in every other record with the same columns filled.

    A verdict on a cell depends only on that cell. Times and ids are sound once they are converted, and texts if they
    are plain. Other cells are compared with those seen before.
    """

    MOST = 10_000

    def __init__(self, columns: Sequence[Column]) -> None:
        self._columns = columns
        self._seen: list[set[Any]] = [set() for _ in columns]
        self._compared: dict[tuple[type, ...], tuple[int, ...]] = {}

    def have(self, cells: Sequence[Any]) -> bool:
        """True if all these cells are sound. They must be plain (see `are_plain`), and in the order of the columns."""
        compared = self._compared.get(tuple(map(type, cells)))
        return compared is not None and all(cells[place] in self._seen[place] for place in compared)

    def note(self, cells: Sequence[Any]) -> None:
        """Remember the cells of a sound record, and which columns it fills."""
        there = [place for place, cell in enumerate(cells) if cell is not None]
        shapes = {place: self._columns[place].shape for place in there}
        if not all(isinstance(shape, tuple) or shape in ALONE for shape in shapes.values()):
            return
        compared = tuple(place for place, shape in shapes.items() if shape in COMPARED)
        self._compared[tuple(map(type, cells))] = compared
        for place in compared:
            if len(self._seen[place]) >= self.MOST:
                self._seen[place].clear()
            self._seen[place].add(cells[place])


class Soundness:
    """A check of a resource's bodies. `text` returns a sound body as JSON, None for one that the models must check."""

    def __init__(self, resource: Resource, site: Site, lookup: Lookup) -> None:
        self._site, self._lookup = site, lookup
        self._reader = StructReader(struct_of(resource.model))
        every = [part for outcome in OUTCOMES for part in resource.ordered_rules[outcome.code]]
        self._of_payload, self._of_references = (
            [rule.function for needs, rules in every for rule in rules if needs == wanted] for wanted in KNOWABLE
        )

    def text(self, body: Mapping[str, Any]) -> str | None:
        try:
            text = dump_json(body)
        except TypeError:
            return None
        return text.decode() if self._is_sound(text) else None

    def _is_sound(self, text: bytes) -> bool:
        plain = self._reader.read(text)
        return plain is not None and not self._breaks_a_rule(plain)

    def _breaks_a_rule(self, plain: Any) -> bool:
        for function in self._of_payload:
            for _ in function(plain, self._site):
                return True
        world = World(self._site, self._lookup, {})
        for function in self._of_references:
            for _ in function(plain, world):
                return True
        return False


class SoundByParts(Soundness):
    """A check of bodies by parts that sound bodies had before: cells of the same columns, and items of responses.

    A rule's verdict on an item depends only on that item and the questionnaire, except that no linkId occurs twice.
    cells: the values of everything but the items; None if they may not be plain.
    """

    MOST = 2_000
    LONGEST = 1_000
    """The most bytes of a remembered item: longer ones seldom come again."""
    _HOLDS_ITEMS = b'"item"'

    def __init__(self, resource: Resource, site: Site, lookup: Lookup, columns: Sequence[Column] = ()) -> None:
        super().__init__(resource, site, lookup)
        self._has_items = resource.name == "QuestionnaireResponse"
        self._seen: set[tuple[str, bytes]] = set()
        self._sound = SoundCells(columns)

    def text(self, body: Mapping[str, Any], cells: Sequence[Any] | None = None) -> str | None:
        try:
            return self._by_item(body, cells) if self._has_items else self._text(body, [], [], cells)
        except (TypeError, KeyError):
            return super().text(body)

    def put_together(
        self, body: Mapping[str, Any], items: list[bytes], cells: Sequence[Any] | None = None
    ) -> str | None:
        """Return a body as JSON with these items, which must be sound and answer different questions.

        Return None if the rest is not sound.
        """
        return self._text(body, items, [], cells)

    def _by_item(self, body: Mapping[str, Any], cells: Sequence[Any] | None) -> str | None:
        address, items = body["questionnaire"], body["item"]
        texts = [*map(dump_json, items)]
        named = [(address, text) for text in texts]
        new = [one for one in named if one not in self._seen]
        are_apart = len({item["linkId"] for item in items}) == len(items) > 0
        if not are_apart or any(self._HOLDS_ITEMS in text for _, text in new):
            return super().text(body)
        return self._text(body, texts, new, cells)

    def _text(
        self, body: Mapping[str, Any], items: list[bytes], new: list[tuple[str, bytes]], cells: Sequence[Any] | None
    ) -> str | None:
        """Return a body with these items as JSON; None if its cells or its new items are not sound."""
        if new or cells is None or not self._sound.have(cells):
            if not self._is_sound(_with_items(body, [text for _, text in new])):
                return None
            self._note(new, cells)
        return _with_items(body, items).decode()

    def _note(self, items: Sequence[tuple[str, bytes]], cells: Sequence[Any] | None) -> None:
        if len(self._seen) > self.MOST:
            self._seen.clear()
        self._seen.update(one for one in items if len(one[1]) <= self.LONGEST)
        if cells is not None:
            self._sound.note(cells)


def are_plain(records: Sequence[str]) -> bool:
    """True if no cell of these records, as JSON arrays, can be empty or contain a control character."""
    together = "\n".join(records)
    return '[""' not in together and ',""' not in together and not is_unplain(together.encode())


def _with_items(body: Mapping[str, Any], texts: list[bytes]) -> bytes:
    """Return a body as JSON, with these items instead of its own."""
    given = {name: value for name, value in body.items() if texts or name != "item"}
    return dump_json(given | {"item": [*map(orjson.Fragment, texts)]} if texts else given)
