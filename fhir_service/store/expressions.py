"""Comparisons that the databases write differently: text in any case, and equality of text of any length."""

from typing import Any

from sqlalchemy import Boolean, ColumnElement, Text, literal
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

HEAD = 250
"""How much of a text PostgreSQL's indexes hold: they take no row above a third of a page."""
ANY_CASE = "any_case"
"""PostgreSQL's collation of the whole of Unicode; text is otherwise compared byte for byte."""


class _Lower(FunctionElement[str]):
    """Text in lower case, letter by letter in the whole of Unicode."""

    type = Text()
    inherit_cache = True


class _Equal(FunctionElement[bool]):
    """Whether two texts are the same, by the index on their heads where there is one."""

    type = Boolean()
    inherit_cache = True


def contains(column: ColumnElement[Any], text: str) -> ColumnElement[bool]:
    """Whether the column holds the text, in any case."""
    return _like(column, f"%{_escaped(text)}%")


def starts(column: ColumnElement[Any], text: str) -> ColumnElement[bool]:
    """Whether the column starts with the text, in any case."""
    return _like(column, f"{_escaped(text)}%")


def equal(column: ColumnElement[Any], text: str) -> ColumnElement[bool]:
    """Whether the column is the text, letter for letter, however long it is."""
    return _Equal(column, literal(text, Text()))


def _like(column: ColumnElement[Any], pattern: str) -> ColumnElement[bool]:
    return _Lower(column).like(_Lower(literal(pattern, Text())), escape="/")


def _escaped(text: str) -> str:
    return text.replace("/", "//").replace("%", "/%").replace("_", "/_")


@compiles(_Lower)
def _lower(element: _Lower, compiler: Any, **options: Any) -> str:
    return f"lower({compiler.process(element.clauses, **options)})"


@compiles(_Lower, "postgresql")
def _lower_postgresql(element: _Lower, compiler: Any, **options: Any) -> str:
    return f"lower({compiler.process(element.clauses, **options)} COLLATE {ANY_CASE})"


@compiles(_Equal)
def _equal(element: _Equal, compiler: Any, **options: Any) -> str:
    column, text = (compiler.process(part, **options) for part in element.clauses)
    return f"{column} = {text}"


@compiles(_Equal, "postgresql")
def _equal_postgresql(element: _Equal, compiler: Any, **options: Any) -> str:
    column, text = (compiler.process(part, **options) for part in element.clauses)
    return f"(left({column}, {HEAD}) = left({text}, {HEAD}) AND {column} = {text})"
