"""Small cells of aggregate tables: which rows are left out so that no small count shows, or follows from a total.

A row is small if it counts fewer than some number of people or records. A total over any of the columns that a row is
about may be known from elsewhere. So where just one row of a total is left out, or those left out count too few
together, the smallest of the others is left out too; and on, until that holds of every total.
"""

from collections import defaultdict, deque
from collections.abc import Hashable, Sequence
from itertools import combinations


def left_out(cells: Sequence[tuple[Hashable, ...]], sizes: Sequence[int], smallest: int) -> set[int]:
    """Return the places of the rows to be left out.

    Args:
        cells: For each row, the values that it is about.
        sizes: For each row, its count.
        smallest: The least count that is shown.
    """
    return protect(cells, sizes, {row for row, size in enumerate(sizes) if size < smallest}, smallest)


def protect(cells: Sequence[tuple[Hashable, ...]], sizes: Sequence[int], small: set[int], smallest: int) -> set[int]:
    """Return `small` with the rows that must be left out beside them."""
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
    """Return the rows of every total: those that agree in some of the values, or in none."""
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
