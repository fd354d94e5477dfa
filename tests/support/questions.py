"""The questions of docs/analysts.md, and their answers in plain Python from the Parquet files."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from tests.support.chart_answers import ABOUT_CHARTS
from tests.support.import_answers import ABOUT_IMPORTS
from tests.support.published_rows import Answer, Tables

BLOCK = re.compile(r"^([^\n]+\?[^\n]*)\n\n```sql\n(.*?)```", re.MULTILINE | re.DOTALL)
ANSWERS: tuple[Callable[[Tables], Answer], ...] = (*ABOUT_CHARTS, *ABOUT_IMPORTS)
"""In the order of the questions."""


def asked(document: str) -> list[tuple[str, str]]:
    """Return the questions of a document in order, each with its query."""
    return BLOCK.findall(document.partition("\n## Forty questions")[2].partition("\n## The tables")[0])


def same(found: Iterable[Sequence[Any]], expected: Iterable[Sequence[Any]]) -> bool:
    """True if both have the same rows in any order. Fractions must agree to six digits."""
    return Counter(map(_plain, found)) == Counter(map(_plain, expected))


def _plain(row: Sequence[Any]) -> tuple[str, ...]:
    return tuple(_text(value) for value in row)


def _text(value: Any) -> str:
    if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        return f"{float(value):.6g}"
    return str(value.astimezone(UTC)) if isinstance(value, datetime) else str(value)
