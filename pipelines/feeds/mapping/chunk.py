"""The rows of a chunk, read by column: cells are texts, or None if they hold nothing."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipelines.feeds.terms.columns import UNCLEAR, ValueFault, amount
from pipelines.feeds.terms.numbers import PLAIN, NumberFormat, with_a_decimal
from pipelines.feeds.terms.paths import parse_path, walk_path
from pipelines.feeds.terms.schema import places_of
from pipelines.feeds.terms.texts import composed_text, folded_text, shows_nothing
from pipelines.feeds.terms.values import STEPS, Crosswalk, Test, Value

Cells = NDArray[np.object_]
FIGURES = 15
"""The number of digits that a program surely keeps in a number."""


class RowForm:
    """The format of a file's rows: the places of the columns (None for NDJSON), and texts that mean nothing."""

    def __init__(self, header: Sequence[str] | None, empty: Iterable[str] = (), numbers: NumberFormat = PLAIN) -> None:
        self.places = None if header is None else places_of(header)
        self.empty = frozenset(empty)
        self.numbers = numbers

    def objects(self) -> "RowForm":
        """Return the form of objects within a row."""
        return RowForm(None, self.empty, self.numbers)


class ChunkRows:
    """The rows of a chunk. form: their format. shortens: True to write numbers of JSON as those of Parquet."""

    def __init__(self, rows: Sequence[Any], form: RowForm, shortens: bool = False) -> None:
        self._rows = rows
        self.form = form
        self._written = form.numbers.of if shortens else form.numbers.written
        self._found: dict[str, Cells] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def shortened(self, places: Sequence[int]) -> "ChunkRows":
        """Return the rows in these places, with numbers of JSON written as those of Parquet."""
        return ChunkRows([self._rows[place] for place in places], self.form, shortens=True)

    def cells(self, name: str) -> Cells:
        """Return a column of single values. An array or object in it is a fault."""
        if name not in self._found:
            found = self._texts(name)
            if self.form.empty:
                found = self._without_empty(found)
            self._found[name] = array(found)
        return self._found[name]

    def _without_empty(self, texts: Iterable[object]) -> Iterator[object]:
        """Yield the cells, with None for texts that mean nothing."""
        empty = self.form.empty
        return (None if isinstance(text, str) and (text in empty or text.strip() in empty) else text for text in texts)

    def _texts(self, name: str) -> Iterable[object]:
        if self.form.places is None:
            return (single(found, self._written) for found in self.raw(name))
        place = self.form.places.get(name)
        if place is None:
            return [None] * len(self)
        texts = [row[place] for row in self._rows]
        return [(text if "!" <= text[0] <= "~" else if_seen(text)) if text else None for text in texts]

    def raw(self, name: str) -> list[Any]:
        """Return a column as it is in the source: in NDJSON also arrays and objects."""
        if self.form.places is None:
            path = parse_path(name)
            if len(path) == 1:
                return [row.get(name) for row in self._rows]
            return [walk_path(row, path) for row in self._rows]
        return list(self.cells(name))


def single(found: object, written: Callable[[Decimal], str] = PLAIN.written) -> object:
    """Return a JSON value as the text that a CSV would have. written: writes numbers in the feed's format."""
    if found is None or found == "":
        return None
    if isinstance(found, str):
        return if_seen(found)
    if isinstance(found, bool):
        return "true" if found else "false"
    if isinstance(found, Decimal):
        found = with_a_decimal(found) if found.adjusted() >= FIGURES else found
        return written(found) if abs(found.adjusted()) < 40 else str(found)
    return ValueFault("FEED-FILE-09", "an array or object instead of a single value")


def if_seen(text: str) -> str | None:
    """Return the text, or None if it has only blanks and characters that are invisible."""
    return None if shows_nothing(text) else text


def array(found: Iterable[object]) -> Cells:
    return np.fromiter(found, dtype=object)


def absent(cells: Cells) -> NDArray[np.bool_]:
    """Return a mask that is True for each cell that is None."""
    found: NDArray[np.bool_] = np.equal(cells, np.array(None))
    return found


UNASKED = "by-identifier"
"""The stand-in for ids from the target, if a feed is tried without a target."""


class ValueMeans(NamedTuple):
    """The means to compute values: the feed's crosswalks, and its number format."""

    crosswalks: Mapping[Crosswalk, Mapping[str, str | ValueFault]]
    numbers: NumberFormat


def evaluate(value: Value, rows: ChunkRows, means: ValueMeans) -> Cells:
    """Return the texts of a value, row by row; None if there is no text."""
    cells = _source(value, rows, means)
    if value.when:
        cells = _only(cells, all_true(rows, value.when))
    return _finished(value, cells, means)


def amounts(value: Value, rows: ChunkRows, means: ValueMeans) -> Cells:
    """Return a value as amounts, row by row.

    If a text could mean a thousand times as much as its JSON number, the row is read again with the number shortened. A
    number in a text, as in CSV, is a text.
    """
    convert = partial(amount, numbers=means.numbers)
    found = each_distinct(evaluate(value, rows, means), convert)
    unclear = [place for place, cell in enumerate(found) if cell is UNCLEAR] if rows.form.places is None else []
    if unclear:
        found[unclear] = each_distinct(evaluate(value, rows.shortened(unclear), means), convert)
    return found


def _finished(value: Value, cells: Cells, means: ValueMeans) -> Cells:
    """Return texts translated, scaled, and prefixed with the value's `before`, as the feed file says."""
    for step in _steps(value, is_part=False):
        cells = _step(step, value, cells, means)
    if value.scale is not None:
        cells = each_distinct(cells, partial(_scaled, value.scale, means.numbers))
    if value.before:
        cells = each_distinct(cells, lambda text: value.before + text)
    return cells


def _steps(value: Value, is_part: bool) -> Sequence[str]:
    """Return the steps for a value; is_part: True for the steps before the join, which apply to its parts."""
    steps = value.steps or STEPS
    place = steps.index("join") if "join" in steps else -1
    return steps[:place] if is_part and place >= 0 else () if is_part else steps[place + 1 :]


def _step(step: str, value: Value, cells: Cells, means: ValueMeans) -> Cells:
    if step == "values" and value.values:
        return each_distinct(cells, partial(_translated, value))
    if step == "crosswalk" and value.crosswalk:
        return each_distinct(cells, _entry_of(value.crosswalk, means))
    return cells


def _entry_of(walk: Crosswalk, means: ValueMeans) -> Callable[[str], object]:
    """Return the look-up of a crosswalk; without a target, a stand-in for every id that would be found there."""
    if walk.reference and walk not in means.crosswalks:
        return lambda _: f"{walk.type}/{UNASKED}"
    table, missing = (
        means.crosswalks[walk],
        ValueFault("TARGET-07" if walk.reference else "FEED-FILE-06", walk.not_found),
    )
    return lambda text: table.get(folded_text(composed_text(text.strip())), missing)


def _translated(value: Value, text: str) -> str | None:
    """Return the translation by the feed's values; an empty translation is no value."""
    return value.values.get(composed_text(text.strip()), text if value.otherwise is None else value.otherwise) or None


def _scaled(scale: Decimal, numbers: NumberFormat, text: str) -> object:
    plain = numbers.amount(text)
    return UNCLEAR if plain and numbers.could_be_thousands(plain) else numbers.scaled(text, scale)


def _only(cells: Cells, wanted: NDArray[np.bool_]) -> Cells:
    cells = cells.copy()
    cells[~wanted] = None
    return cells


def _source(value: Value, rows: ChunkRows, means: ValueMeans) -> Cells:
    if value.column is not None:
        return rows.cells(value.column) if value.each is None else _texts_of_each(value, rows, means)
    if value.constant is not None:
        return np.full(len(rows), value.constant, dtype=object)
    if value.first is not None:
        return _first([evaluate(part, rows, means) for part in value.first])
    return _join(value, rows, means)


def _join(value: Value, rows: ChunkRows, means: ValueMeans) -> Cells:
    """Return the texts of several values joined. If all parts but constants are absent, the result is absent."""
    parts, between = value.join or (), value.with_
    cells = [evaluate(part, rows, means) for part in parts]
    for step in _steps(value, is_part=True):
        cells = [_step(step, value, part, means) for part in cells]
    varying = [found for part, found in zip(parts, cells, strict=True) if part.constant is None]
    joined = array(_joined(found, between) for found in zip(*cells, strict=True))
    return _only(joined, ~np.all([absent(found) for found in varying], axis=0)) if varying else joined


def objects_of(value: Value, rows: ChunkRows) -> tuple[list[Any], ChunkRows]:
    """Return the arrays of objects in a value's column, by row, and all of their objects as rows."""
    whole = [objects(found) for found in rows.raw(value.column or "")]
    return whole, ChunkRows([part for found in whole if isinstance(found, list) for part in found], rows.form.objects())


def _texts_of_each(value: Value, rows: ChunkRows, means: ValueMeans) -> Cells:
    """Return the texts of an array's objects, joined."""
    whole, flat = objects_of(value, rows)
    texts = iter(evaluate((value.each or {})["text"], flat, means))
    return array(
        _joined([next(texts) for _ in found], value.with_) if isinstance(found, list) else found for found in whole
    )


def _first(parts: Sequence[Cells]) -> Cells:
    found = parts[0]
    for part in parts[1:]:
        found = np.where(absent(found), part, found)
    return found


def _joined(parts: Sequence[Any], between: str) -> object:
    wrong = next((part for part in parts if isinstance(part, ValueFault)), None)
    return wrong or between.join(part for part in parts if part is not None) or None


def evaluate_lists(value: Value, rows: ChunkRows, means: ValueMeans) -> Iterable[Any]:
    """Like `evaluate`, for columns that take lists: arrays, texts cut at `split`, or the feed file's `list`."""
    if value.list_ is not None:
        parts = [evaluate(part, rows, means) for part in value.list_]
        found = array(_listed(cells) for cells in zip(*parts, strict=True))
    elif value.column is not None and value.each is None:
        found = array(rows.raw(value.column))
    else:
        return evaluate(value, rows, means)
    if value.when:
        found = _only(found, all_true(rows, value.when))
    plain = not (value.values or value.crosswalk or value.scale is not None or value.before or value.split)
    return found if plain else _finished_lists(value, found, rows, means)


def _finished_lists(value: Value, cells: Cells, rows: ChunkRows, means: ValueMeans) -> Iterator[Any]:
    """Yield each list with every text finished separately. A list of one text becomes the text, unless it was split."""
    parts = [_cut(found, value.split, rows) for found in cells]
    flat = [text for found in parts if isinstance(found, list) for text in found]
    finished = iter(_finished(value, array(flat), means) if flat else ())
    for found in parts:
        if not isinstance(found, list):
            yield found
            continue
        done = _listed([next(finished) for _ in found])
        yield done[0] if isinstance(done, list) and len(done) == 1 and not value.split else done


def _cut(found: Any, sign: str, rows: ChunkRows) -> list[object] | ValueFault | None:
    """Return the content of a cell as a list: the parts of an array, or the pieces of a text."""
    empty = rows.form.empty
    if isinstance(found, list):
        texts = [single(part, rows.form.numbers.written) for part in found]
    else:
        text = single(found, rows.form.numbers.written)
        texts = list(text.split(sign)) if isinstance(text, str) and sign else [text]
    wrong = next((text for text in texts if isinstance(text, ValueFault)), None)
    return wrong or [text for text in texts if isinstance(text, str) and text.strip() and text not in empty] or None


def _listed(parts: Sequence[Any]) -> object:
    wrong = next((part for part in parts if isinstance(part, ValueFault)), None)
    return wrong or [part for part in parts if part is not None] or None


def all_true(rows: ChunkRows, tests: Mapping[str, Test]) -> NDArray[np.bool_]:
    found = np.ones(len(rows), dtype=bool)
    for name, test in tests.items():
        holds = each_distinct(rows.cells(name), test.holds, test.holds(None))
        found &= holds.astype(bool)
    return found


def each_distinct(cells: Cells, convert: Callable[[Any], object], of_none: object = None) -> Cells:
    """Apply `convert` to a column, once for each distinct value; keep faults, and replace None by `of_none`."""
    table = dict.fromkeys(cells)
    for found in table:
        table[found] = of_none if found is None else found if type(found) is ValueFault else convert(found)
    return array(map(table.__getitem__, cells))


def objects(found: Any) -> list[Any] | ValueFault | None:
    """Return an array of objects; None if it is empty, a fault if it holds anything else."""
    if found is None or found == []:
        return None
    if isinstance(found, list) and all(isinstance(part, dict) for part in found):
        return found
    return ValueFault("FEED-FILE-09", "this must be an array of objects")
