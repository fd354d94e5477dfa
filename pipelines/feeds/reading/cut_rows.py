"""Rows that an unquoted line break may have cut: the rest of their last text is on the next line."""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from pipelines.feeds.kinds.registry import kind_of
from pipelines.feeds.reading.chunks import Chunk, RowReader, SourceRow
from pipelines.feeds.reading.conditions import Conditions
from pipelines.feeds.reading.headings import is_value
from pipelines.feeds.terms.columns import ValueFault
from pipelines.feeds.terms.schema import FeedFile, values_of, walk
from pipelines.feeds.terms.totals import is_title

CUT = ValueFault(
    "FEED-FILE-02",
    "a line break may have cut the last text of this row, since the line below is not a row; put quotes around the "
    "whole text, or, if that line is no part of it, put the row in again unchanged ([skip] in the feed file leaves "
    "such lines out)",
)


class CutRows:
    """Rejects rows whose last text may go on in the line below.

    Such a row has all its fields, and the last one is a text. The line below has fewer fields, does not begin like a
    row with a key, and has words that are neither a total nor a page footer. After a blank line, or after the last row
    of a file, the line is more often a note. There it counts only if it begins with a lower-case word and has no
    digits. Nothing is rejected if the feed takes no text from the last column, or if the file answers rejects.

    prefix: the text before column names of the second of two joined files.
    """

    def __init__(self, reader: RowReader, file: FeedFile, prefix: str = "") -> None:
        self._reader, self._width = reader, len(reader.header or ())
        self._conditions = Conditions(file, reader.header, prefix)
        is_off = reader.header is None or reader.is_answer
        self._texts = set() if is_off else set(_places_of_texts(file, self._conditions))

    def among(self, chunks: Iterable[Chunk]) -> Iterator[Chunk]:
        """Yield each chunk once the next one is known, since the rest of its last text may be there."""
        held: Chunk | None = None
        for chunk in chunks:
            if held is not None:
                yield self._without_cut(held, chunk)
            held = chunk
        if held is not None:
            yield self._without_cut(held, Chunk())

    def _without_cut(self, chunk: Chunk, below: Chunk) -> Chunk:
        if not self._texts:
            return chunk
        every = [*chunk.rows, *below.rows]
        taken_out = [*chunk.dropped, *below.dropped, *self._reader.counted.repeats]
        cut = []
        for place, (row, rest) in enumerate(pairwise(every[: len(chunk.rows) + 1])):
            if row.fault is None and rest.fault and self._may_be_a_rest(rest):
                is_next = not any(row.end < line < rest.line for line in taken_out)
                is_in_doubt = row.end + 1 < rest.line or all(each.fault for each in every[place + 1 :])
                if is_next and self._ends_in_text(row.cells) and (not is_in_doubt or _goes_on(rest.cells or [])):
                    cut.append(place)
        for place in cut:
            chunk.set_aside(place, CUT, place + 1)
        return chunk

    def _may_be_a_rest(self, row: SourceRow) -> bool:
        cells = row.cells or []
        if not row.is_ragged or len(cells) >= self._width or (len(cells) > 1 and is_value(cells[0])):
            return False
        return is_title(cells) and not self._conditions.is_left_out(cells) and not self._conditions.is_trailer(cells)

    def _ends_in_text(self, cells: Sequence[str]) -> bool:
        """True if a row that the feed takes has a text in its last column."""
        place = len(cells) - 1
        is_text = place in self._texts and any(map(str.isalpha, cells[place])) and not is_value(cells[place])
        return is_text and self._conditions.is_taken(cells)


def _goes_on(cells: Sequence[str]) -> bool:
    """True if a text begins with a lower-case word, has more words, and has no digits."""
    text = " ".join(cells)
    first = _FIRST_WORD.match(text)
    return first is not None and first[1].islower() and not any(map(str.isdigit, text))


_FIRST_WORD = re.compile(r"\s*([^\W\d_]+)[,;]?\s+\w")


def _places_of_texts(file: FeedFile, conditions: Conditions) -> Iterator[int]:
    """Yield the places of the columns whose texts the feed takes unchanged."""
    columns = kind_of(file).by_name
    for key, value in values_of(file):
        section, _, name = key.partition(".")
        is_text = columns[name].shape == "text" if section == "columns" else name.endswith("text")
        if is_text or section == "questions":
            named = (part.column for part in walk(value) if part.column and not (part.values or part.crosswalk))
            yield from (conditions.places[column] for column in named if column in conditions.places)
