"""Comparisons that the databases write differently: text in any case, and equality of text of any length."""

from functools import cache
from typing import Any

from sqlalchemy import Boolean, ColumnElement, Text, and_, case, func, literal
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

HEAD = 250
"""Characters of a text that PostgreSQL's indexes hold: they take no row above a third of a page."""
ANY_CASE = "any_case"
"""PostgreSQL's collation of the whole of Unicode; text is otherwise compared byte for byte."""


class _Lower(FunctionElement[str]):
    """Text in lower case, letter by letter in the whole of Unicode."""

    type = Text()
    inherit_cache = True


class _Equal(FunctionElement[bool]):
    """True where two texts are equal, by the index on their heads where there is one."""

    type = Boolean()
    inherit_cache = True


class _Contains(FunctionElement[bool]):
    """True where a text contains another. `LIKE` takes a text's length times that of what is sought."""

    type = Boolean()
    inherit_cache = True


class _Ascii(FunctionElement[bool]):
    """True if a text is ASCII alone."""

    type = Boolean()
    inherit_cache = True


class _Replaced(FunctionElement[str]):
    """Text with each letter of some pairs replaced. Written at once: nested functions are compiled by recursion."""

    type = Text()
    inherit_cache = False

    def __init__(self, column: ColumnElement[Any], pairs: list[tuple[str, str]]) -> None:
        super().__init__(column)
        self.pairs = pairs


def contains(column: ColumnElement[Any], text: str) -> ColumnElement[bool]:
    """True where the column contains the text, in any case."""
    return _Contains(*_folded_both(column, text))


def starts(column: ColumnElement[Any], text: str) -> ColumnElement[bool]:
    """True where the column starts with the text, in any case."""
    return func.starts_with(*_folded_both(column, text), type_=Boolean())


def equal(column: ColumnElement[Any], *texts: str) -> ColumnElement[bool]:
    """True where the column is one of the texts, letter for letter, however long they are."""
    if len(texts) == 1:
        return _Equal(column, literal(texts[0], Text()))
    return and_(func.left(column, HEAD).in_({text[:HEAD] for text in texts}), column.in_(texts))


_SMALL, _FINAL = "\u03c3", "\u03c2"  # the two small letters sigma


def _folded_both(column: ColumnElement[Any], text: str) -> tuple[ColumnElement[Any], ColumnElement[Any]]:
    """Fold a column and a text by Unicode's full case folding: lower case leaves sharp s, final sigma, ligatures."""
    wanted = text.casefold().lower().replace(_FINAL, _SMALL)
    shown: ColumnElement[Any] = _Lower(_folded(column, wanted))
    if _SMALL in wanted:
        # Some collations make a sigma at the end of a word the final one.
        shown = func.replace(shown, _FINAL, _SMALL)
    return shown, literal(wanted, Text())


def _folded(column: ColumnElement[Any], wanted: str) -> ColumnElement[Any]:
    """Replace the letters whose folding is not their lower case, as far as they can be part of what is wanted."""
    pairs = [pair for pair in _foldings() if wanted and _overlap(pair[1], wanted)]
    return case((_Ascii(column), column), else_=_Replaced(column, pairs)) if pairs else column


def _overlap(folded: str, wanted: str) -> bool:
    """True if the folding of a letter can be part of a match: within what is wanted, around it, or at an end of it."""
    ends = range(1, len(folded))
    within = folded in wanted or wanted in folded
    return within or any(wanted.startswith(folded[at:]) or wanted.endswith(folded[:at]) for at in ends)


@cache
def _foldings() -> list[tuple[str, str]]:
    """Return the letters whose folding a database's lower case may not give, with it. All are in the first plane."""
    pairs = ((letter, letter.casefold().lower()) for letter in map(chr, range(0x10000)))
    return [(letter, folded) for letter, folded in pairs if folded != letter.lower() or len(folded) > 1]


@compiles(_Lower)
def _lower(element: _Lower, compiler: Any, **options: Any) -> str:
    return f"lower({compiler.process(element.clauses, **options)})"


@compiles(_Lower, "postgresql")
def _lower_postgresql(element: _Lower, compiler: Any, **options: Any) -> str:
    return f"lower(({compiler.process(element.clauses, **options)}) COLLATE {ANY_CASE})"


@compiles(_Contains)
def _contains(element: _Contains, compiler: Any, **options: Any) -> str:
    return f"contains({compiler.process(element.clauses, **options)})"


@compiles(_Contains, "postgresql")
def _contains_postgresql(element: _Contains, compiler: Any, **options: Any) -> str:
    return f"(strpos({compiler.process(element.clauses, **options)}) > 0)"


@compiles(_Ascii)
def _ascii(element: _Ascii, compiler: Any, **options: Any) -> str:
    text = compiler.process(element.clauses, **options)
    return f"(strlen({text}) = length({text}))"


@compiles(_Ascii, "postgresql")
def _ascii_postgresql(element: _Ascii, compiler: Any, **options: Any) -> str:
    text = compiler.process(element.clauses, **options)
    return f"(octet_length({text}) = length({text}))"


@compiles(_Replaced)
def _replaced(element: _Replaced, compiler: Any, **options: Any) -> str:
    text: str = compiler.process(element.clauses, **options)
    for letter, folded in element.pairs:
        text = f"replace({text}, '{letter}', '{folded}')"
    return text


@compiles(_Equal)
def _equal(element: _Equal, compiler: Any, **options: Any) -> str:
    column, text = (compiler.process(part, **options) for part in element.clauses)
    return f"{column} = {text}"


@compiles(_Equal, "postgresql")
def _equal_postgresql(element: _Equal, compiler: Any, **options: Any) -> str:
    column, text = (compiler.process(part, **options) for part in element.clauses)
    return f"(left({column}, {HEAD}) = left({text}, {HEAD}) AND {column} = {text})"
