"""The geometry of bar charts: the place of each bar, mark and word in an SVG that a template draws.

The page shows a table beside each chart, so that no information is in a chart alone.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import takewhile
from math import ceil, floor, log10

TOP, BOTTOM = 12.0, 34.0
COLUMNS_HEIGHT, BAR_HEIGHT = 260.0, 18.0
LEAST_LEFT = 14.0
"""The space left of horizontal bars with their labels above them: half of the first word of the scale."""

Told = Callable[[float], str]


@dataclass(frozen=True)
class Size:
    """The dimensions of a chart.

    * left, right: the space beside horizontal bars. Where `left` is 0, a label is above its bar.
    * axis: the space for the words at the axis of upright bars.
    * letters: the longest label.
    * labels: the number of labels that fit side by side.
    * ticks: the most ticks on the scale of horizontal bars.
    """

    width: float
    left: float
    right: float
    axis: float
    letters: int
    labels: int
    ticks: int

    @property
    def row(self) -> float:
        """Return the height of a row of horizontal bars."""
        return BAR_HEIGHT + (8 if self.left else 26)


WIDE = Size(width=760.0, left=236.0, right=72.0, axis=64.0, letters=34, labels=13, ticks=5)
NARROW = Size(width=330.0, left=0.0, right=64.0, axis=56.0, letters=46, labels=5, ticks=3)
"""The dimensions on a telephone, with words as large as on a wide screen."""


@dataclass(frozen=True)
class Series:
    """The bars of one colour: their name, and a value for each label, never below zero."""

    name: str
    values: Sequence[float]


@dataclass(frozen=True)
class Bar:
    """A rectangle. `series`: the number of its colour. `says`: the label, name and value that it shows."""

    x: float
    y: float
    width: float
    height: float
    series: int
    says: str


@dataclass(frozen=True)
class Word:
    """A text at a point. `end`: the part of the text at the point: start, middle or end."""

    x: float
    y: float
    text: str
    end: str = "middle"


@dataclass(frozen=True)
class Line:
    """A line of the grid, or a mark."""

    x1: float
    y1: float
    x2: float
    y2: float


@dataclass(frozen=True)
class Chart:
    """A chart, ready to draw. `marks`: short strokes over the bars. `mark`: the name of the marks in the legend."""

    width: float
    height: float
    bars: Sequence[Bar]
    words: Sequence[Word]
    grid: Sequence[Line]
    legend: Sequence[str]
    marks: Sequence[Line] = ()
    mark: str = ""


def columns(
    labels: Sequence[str], series: Sequence[Series], told: Told, stacked: bool = True, size: Size = WIDE
) -> Chart:
    """Return a chart of upright bars: one column per label, with its series stacked or side by side."""
    top = _highest(labels, series, stacked)
    ticks = _ticks(top)
    plot = size.width - size.axis - 8
    scale = (COLUMNS_HEIGHT - TOP - BOTTOM) / ticks[-1]
    floor_at = COLUMNS_HEIGHT - BOTTOM
    step = plot / max(len(labels), 1)
    bar = min(step * 0.72, 56.0) / (1 if stacked else len(series))
    bars = []
    for place, label in enumerate(labels):
        x, y = size.axis + step * (place + 0.5) - (bar if stacked else bar * len(series)) / 2, floor_at
        for number, each in enumerate(series):
            height = each.values[place] * scale
            if height:
                bars.append(Bar(x, y - height, bar, height, number, _said(label, each.name, told(each.values[place]))))
            x, y = (x, y - height) if stacked else (x + bar, y)
    every = ceil(len(labels) / size.labels) or 1
    words = [
        Word(size.axis + step * (place + 0.5), floor_at + 18, label)
        for place, label in enumerate(labels)
        if (len(labels) - 1 - place) % every == 0
    ]
    words += [Word(size.axis - 8, floor_at - tick * scale + 4, told(tick), "end") for tick in ticks]
    grid = [Line(size.axis, floor_at - tick * scale, size.width - 8, floor_at - tick * scale) for tick in ticks]
    return Chart(size.width, COLUMNS_HEIGHT, bars, words, grid, [each.name for each in series])


def rows(
    labels: Sequence[str],
    series: Sequence[Series],
    told: Told,
    shares: bool = False,
    mark: Series | None = None,
    size: Size = WIDE,
) -> Chart:
    """Return a chart of horizontal bars: one row per label, with its series end to end.

    `shares`: True if all rows have full length and bars show shares. `mark`: a value per row, shown as a stroke.
    """
    totals = [sum(each.values[place] for each in series) for place in range(len(labels))]
    top = 1.0 if shares else max([_highest(labels, series, stacked=True), *(mark.values if mark else ())])
    ticks = [0.0, 0.25, 0.5, 0.75, 1.0] if shares else _ticks(top)
    height = TOP + size.row * len(labels) + BOTTOM
    left = size.left or LEAST_LEFT
    scale = (size.width - left - size.right) / ticks[-1]
    bars, marks, words = [], [], []
    for place, label in enumerate(labels):
        x, y = left, TOP + size.row * place + (4 if size.left else 20)
        for number, each in enumerate(series):
            width = each.values[place] / ((totals[place] or 1) if shares else 1) * scale
            if width:
                bars.append(Bar(x, y, width, BAR_HEIGHT, number, _said(label, each.name, told(each.values[place]))))
            x += width
        at = left + mark.values[place] * scale if mark else x
        if mark:
            marks.append(Line(at, y - 2, at, y + BAR_HEIGHT + 2))
        said = _ends_of(label, size.letters)
        words.append(Word(left - 10, y + 13, said, "end") if size.left else Word(left, y - 5, said, "start"))
        end = told(totals[place]) if shares else told(mark.values[place] if mark else totals[place])
        words.append(Word(max(x, at) + 8, y + 13, end, "start"))
    floor_at = height - BOTTOM
    name = (lambda tick: f"{tick:.0%}") if shares else told
    every = ceil((len(ticks) - 1) / (size.ticks - 1))
    words += [Word(left + tick * scale, floor_at + 20, name(tick)) for tick in ticks[::every]]
    grid = [Line(left + tick * scale, TOP, left + tick * scale, floor_at) for tick in ticks]
    legend = [each.name for each in series]
    return Chart(size.width, height, bars, words, grid, legend, marks, mark.name if mark else "")


def shortened(label: str, letters: int = WIDE.letters) -> str:
    return label if len(label) <= letters else f"{label[: letters - 1]}…"


def _ends_of(label: str, letters: int) -> str:
    """Return a label; if too long, only its beginning and end, where the names of a feed's files differ."""
    end = letters // 3
    return label if len(label) <= letters else f"{label[: letters - end - 1]}…{label[-end:]}"


def _said(label: str, name: str, value: str) -> str:
    return f"{label}, {name}: {value}"


def _highest(labels: Sequence[str], series: Sequence[Series], stacked: bool) -> float:
    together = sum if stacked else max
    return max((float(together(each.values[place] for each in series)) for place in range(len(labels))), default=0.0)


def _ticks(top: float) -> list[float]:
    """Return ticks from 0 to the first one not below `top`: three to five steps of 1, 2 or 5 times a power of 10."""
    if top <= 0:
        return [0.0, 1.0]
    size = 10.0 ** floor(log10(top / 5))
    step = size * next(each for each in (1, 2, 5, 10) if each * size * 5 >= top)
    whole = list(takewhile(lambda tick: tick < top, (step * count for count in range(8))))
    return [*whole, step * len(whole)]
