"""Detect dates with day and month in the other order than the feed file says: many days would be misread."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from pipelines.feeds.mapping.mapping import Mapper
from pipelines.feeds.reading.chunks import Chunk
from pipelines.feeds.terms.times import times_of

ERRORS, SHARE = 1, 10
"""Dates of the other order are typing errors if they are at most `ERRORS`, or fewer than one in `SHARE`."""
_OWN, _OTHER, _EITHER = "own", "other", "either"


class DayOrder:
    """The numbers of a file's dates, by column, that fit only the feed's formats, only the turned ones, or both."""

    def __init__(self, mapper: Mapper) -> None:
        # A local time that clocks skip or show twice still has this order.
        conventions = replace(mapper.feed.file.conventions, ambiguous="earlier")
        turned = {form: _turned(form) for form in conventions.dates}
        self._forms = {form: other for form, other in turned.items() if other not in turned}
        self._mapper, self._counts = mapper, Counter[tuple[str, str]]()
        other = tuple(self._forms.get(form, form) for form in conventions.dates)
        self._own, self._other = times_of(conventions), times_of(replace(conventions, dates=other))

    def take(self, chunk: Chunk) -> None:
        """Count the dates of a chunk's rows that the feed takes."""
        if not self._forms or not (good := chunk.good):
            return
        rows = self._mapper.rows([row.cells for row in good])
        taken = self._mapper.taken(rows)
        for column, cells in self._mapper.times(rows):
            for text, times in Counter(cells[taken].tolist()).items():
                if isinstance(text, str) and (order := self._order(text)):
                    self._counts[column, order] += times

    def _order(self, text: str) -> str | None:
        """Return the order that a date has; None if it is no date, or the same day in both orders."""
        own, other = self._own(text), self._other(text)
        if isinstance(own, str):
            return _OWN if not isinstance(other, str) else _EITHER if own != other else None
        return _OTHER if isinstance(other, str) else None

    def problems(self) -> Iterator[str]:
        """Yield, after the last row, a sentence for each column in which dates would be read as other days."""
        forms = " or ".join(self._forms)
        for column in dict.fromkeys(column for column, _ in self._counts):
            own, other, either = (self._counts[column, order] for order in (_OWN, _OTHER, _EITHER))
            if either and other > ERRORS and other * SHARE >= own + other:
                yield (
                    f"in {column}, {other:,} dates fit {forms} only with day and month exchanged, and {either:,} more"
                    " may therefore be read as wrong days; say in the feed file how dates are written (dates), or"
                    " correct those that are written differently"
                )


def _turned(form: str) -> str:
    """Return a format with day and month exchanged; a format without numbers for both is returned as it is."""
    if "%d" not in form or "%m" not in form:
        return form
    return form.replace("%d", "\0").replace("%m", "%d").replace("\0", "%m")
