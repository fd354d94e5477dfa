"""Comparisons that differ by database: text without case, and equality of texts of any length."""

from functools import cache
from typing import Any

from sqlalchemy import Boolean, ColumnElement, Text, and_, case, func, literal
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.types import TypeEngine

HEAD = 250
"""PostgreSQL's indexes hold the first so many characters of a text: an index row has at most a third of a page."""
ANY_CASE = "any_case"
"""The collation in PostgreSQL that knows the case of all of Unicode. All else is compared byte by byte."""


def _differing(duckdb: str, postgresql: str, returned: TypeEngine[Any]) -> type[FunctionElement[Any]]:
    """Return an element that is compiled to the text of its database, with its parts in the places of `{}`."""
    kind = type("_Differing", (FunctionElement,), {"type": returned, "inherit_cache": True})
    for text, databases in ((duckdb, ()), (postgresql, ("postgresql",))):

        @compiles(kind, *databases)
        def _(element: FunctionElement[Any], compiler: Any, text: str = text, **options: Any) -> str:
            return text.format(*(compiler.process(part, **options) for part in element.clauses))

    return kind


_Lower = _differing("lower({})", f"lower(({{}}) COLLATE {ANY_CASE})", Text())
"""Text in lower case, letter by letter in the whole of Unicode."""
_Equal = _differing("{} = {}", f"(left({{0}}, {HEAD}) = left({{1}}, {HEAD}) AND {{0}} = {{1}})", Boolean())
"""True if two texts are equal. It uses an index on their beginnings if there is one."""
_Contains = _differing("contains({}, {})", "(strpos({}, {}) > 0)", Boolean())
"""True if a text contains another. `LIKE` would take the product of both lengths."""
_Ascii = _differing("(strlen({0}) = length({0}))", "(octet_length({0}) = length({0}))", Boolean())
"""True if a text is only ASCII."""


class _Replaced(FunctionElement[str]):
    """Text in which letters are replaced, pair by pair. One element: nested functions would be compiled recursively."""

    type = Text()
    inherit_cache = False

    def __init__(self, column: ColumnElement[Any], pairs: list[tuple[str, str]]) -> None:
        super().__init__(column)
        self.pairs = pairs


def contains(column: ColumnElement[Any], text: str) -> ColumnElement[bool]:
    """True if the column contains the text, without regard to case."""
    return _Contains(*_folded_both(column, text))


def starts(column: ColumnElement[Any], text: str) -> ColumnElement[bool]:
    """True if the column starts with the text, without regard to case."""
    return func.starts_with(*_folded_both(column, text), type_=Boolean())


def equal(column: ColumnElement[Any], *texts: str) -> ColumnElement[bool]:
    """True if the column is exactly one of the texts, which may be of any length."""
    if len(texts) == 1:
        return _Equal(column, literal(texts[0], Text()))
    return and_(func.left(column, HEAD).in_({text[:HEAD] for text in texts}), column.in_(texts))


_SMALL, _FINAL = "\u03c3", "\u03c2"  # the two small letters sigma


def _folded_both(column: ColumnElement[Any], text: str) -> tuple[ColumnElement[Any], ColumnElement[Any]]:
    """Fold a column and a text by Unicode's full case folding.

    Lower case alone would leave the sharp s, the final sigma and ligatures.
    """
    wanted = text.casefold().lower().replace(_FINAL, _SMALL)
    shown: ColumnElement[Any] = _Lower(_folded(column, wanted))
    if _SMALL in wanted:
        # Some collations turn a sigma at the end of a word into the final one.
        shown = func.replace(shown, _FINAL, _SMALL)
    return shown, literal(wanted, Text())


def _folded(column: ColumnElement[Any], wanted: str) -> ColumnElement[Any]:
    """Replace letters whose folding is not their lower case, if they can be part of a match."""
    pairs = [pair for pair in _foldings() if wanted and _overlap(pair[1], wanted)]
    return case((_Ascii(column), column), else_=_Replaced(column, pairs)) if pairs else column


def _overlap(folded: str, wanted: str) -> bool:
    """True if a letter's folding and the wanted text can overlap: one within the other, or at one end."""
    ends = range(1, len(folded))
    within = folded in wanted or wanted in folded
    return within or any(wanted.startswith(folded[at:]) or wanted.endswith(folded[:at]) for at in ends)


@cache
def _foldings() -> list[tuple[str, str]]:
    """Return letters with their folding, if a database's lower case may give another. All are in the first plane."""
    pairs = ((letter, letter.casefold().lower()) for letter in map(chr, range(0x10000)))
    return [(letter, folded) for letter, folded in pairs if folded != letter.lower() or len(folded) > 1]


@compiles(_Replaced)
def _replaced(element: _Replaced, compiler: Any, **options: Any) -> str:
    text: str = compiler.process(element.clauses, **options)
    for letter, folded in element.pairs:
        text = f"replace({text}, '{letter}', '{folded}')"
    return text
