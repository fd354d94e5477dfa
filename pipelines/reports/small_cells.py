"""Small cells of aggregate tables: choose the rows to leave out, so that no small count can be seen or computed.

A row is small if it counts fewer than a given number of people or records. A reader may know a total over any of the
columns that describe a row. If just one row of a total is left out, its count follows from the others. So the smallest
of the other rows is left out too. The step is also taken if the rows left out count too few together. It is repeated
until every total is safe.
"""

from collections import defaultdict, deque
from collections.abc import Hashable, Sequence
from itertools import combinations


def left_out(cells: Sequence[tuple[Hashable, ...]], sizes: Sequence[int], smallest: int) -> set[int]:
    """Return the places of the rows to leave out.

    Args:
        cells: For each row, the values that describe it.
        sizes: For each row, its count.
        smallest: The least count that is shown.
    """
    return protect(cells, sizes, {row for row, size in enumerate(sizes) if size < smallest}, smallest)


def protect(cells: Sequence[tuple[Hashable, ...]], sizes: Sequence[int], small: set[int], smallest: int) -> set[int]:
    """Return `small` with the rows that must be left out besides."""
    totals = _totals(cells)
    of_row = defaultdict[int, list[int]](list)
    for number, rows in enumerate(totals):
        rows.sort(key=lambda row: (sizes[row], row), reverse=True)  # the smallest is last
        for row in rows:
            of_row[row].append(number)
    out, hidden = set(small), [[row for row in rows if row in small] for rows in totals]
    waiting = deque(number for number, rows in enumerate(hidden) if rows)
    while waiting:
        number = waiting.popleft()
        rows = totals[number]
        while len(hidden[number]) == 1 or sum(sizes[row] for row in hidden[number]) < smallest:
            while rows and rows[-1] in out:
                rows.pop()
            if not rows:
                break
            row = rows.pop()
            out.add(row)
            for other in of_row[row]:
                hidden[other].append(row)
                waiting.append(other)
    return out


def _totals(cells: Sequence[tuple[Hashable, ...]]) -> list[list[int]]:
    """Return the rows of every total: rows that agree in some of the values, or in none."""
    if not cells:
        return []
    found = list[list[int]]()
    width = len(cells[0])
    for kept in (places for count in range(width) for places in combinations(range(width), count)):
        rows = defaultdict[tuple[Hashable, ...], list[int]](list)
        for row, cell in enumerate(cells):
            rows[tuple(cell[place] for place in kept)].append(row)
        found += rows.values()
    return found
