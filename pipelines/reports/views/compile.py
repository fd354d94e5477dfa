"""Compile a view to one SELECT of DuckDB over a relation with a column `body` of JSON.

The elements that the view reads are taken from a body in one pass. Then each `forEach`, `repeat` and `unionAll` adds a
step: a subquery that makes several rows of one by UNNEST and keeps the columns found so far.
"""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pipelines.reports.views.definition import BadView, Column, PathAt, Select, View
from pipelines.reports.views.expressions import Context, Expressions, descends
from pipelines.reports.views.fhir_types import PRIMITIVES
from pipelines.reports.views.fhirpath import BadPath
from pipelines.reports.views.operators import single
from pipelines.reports.views.values import (
    DECIMAL,
    INTEGERS,
    NUMBER,
    Shape,
    Value,
    as_list,
    as_text,
    each,
    first_day,
    fresh,
    let,
    quoted,
    quoted_name,
)

TAG = "ansi/type"
_OF_TAG = {
    "BOOLEAN": "BOOLEAN", "SMALLINT": "SMALLINT", "INTEGER": "INTEGER", "INT": "INTEGER", "BIGINT": "BIGINT",
    "REAL": "FLOAT", "DOUBLE": "DOUBLE", "DOUBLE PRECISION": "DOUBLE", "VARCHAR": "VARCHAR",
    "CHARACTER VARYING": "VARCHAR", "CHARACTER": "VARCHAR", "DATE": "DATE", "TIME": "TIME",
    "TIMESTAMP WITH TIME ZONE": "TIMESTAMPTZ",
}  # fmt: skip
_SIZED = re.compile(
    r"(?:DECIMAL|NUMERIC)\(([0-9]{1,2}),([0-9]{1,2})\)|(?:VARCHAR|CHARACTER VARYING|CHARACTER)\([0-9]{1,9}\)"
)
_FIRST = {
    "DATE": ("0001-01-01", "9999-12-31"),
    "TIMESTAMPTZ": ("0001-01-01 00:00:00+00", "9999-12-31 23:59:59.999999+00"),
}
"""The first and the last value of a type that all readers support."""
_BINARY = ("DOUBLE", "FLOAT")
"""Types that can hold infinity and NaN, which are no numbers in FHIR."""
_NUMERIC = re.compile(r"SMALLINT|INTEGER|BIGINT|FLOAT|DOUBLE|DECIMAL.*")


def declared_type(column: Column) -> str | None:
    """Return the SQL type that the column declares; None without a type. Raises `BadPath` for an unknown tag."""
    one = _tagged(column.tags[TAG]) if TAG in column.tags else _of_fhir(column.type) if column.type else None
    return f"{one}[]" if one and column.collection else one


def _tagged(tag: str) -> str:
    said = " ".join(tag.upper().split()).replace(", ", ",").replace(" (", "(")
    sized = _SIZED.fullmatch(said)
    if said in _OF_TAG:
        return _OF_TAG[said]
    if sized is not None and sized[1] is None:
        return "VARCHAR"
    if sized is not None and int(sized[2]) <= int(sized[1]) and 1 <= int(sized[1]) <= 38:
        return f"DECIMAL({int(sized[1])},{int(sized[2])})"
    raise BadPath(f"the tag {TAG} is `{tag[:50]}`; allowed are DECIMAL(p,s), {', '.join(_OF_TAG)}")


def _of_fhir(name: str) -> str:
    if name in INTEGERS:
        return "BIGINT" if name == "integer64" else "INTEGER"
    if name in ("decimal", NUMBER):
        return DECIMAL
    return "BOOLEAN" if name == "boolean" else "VARCHAR" if name in PRIMITIVES else "JSON"


def column_sql(column: Column, value: Value, place: str) -> tuple[str, str]:
    """Return the SQL of a column and its type. Raises `BadPath` if the value cannot be of the declared type."""
    declared = declared_type(column) or (_of_fhir(value.type or "string") + ("[]" if column.collection else ""))
    one = declared.removesuffix("[]")
    _fits(value, one)
    if column.collection:
        return f"{each(as_list(value), lambda v: _cast(value, v, one))}::{declared}", declared
    alone = single(value, place)
    return _cast(alone, alone.sql, one), declared


def _fits(value: Value, kind: str) -> None:
    if value.is_complex and kind not in ("JSON", "VARCHAR"):
        raise BadPath(f"gives the type {value.type}, where the column is {kind}")
    needed = "boolean" if kind == "BOOLEAN" else "number" if _NUMERIC.fullmatch(kind) else None
    if needed and value.family not in (None, needed):
        raise BadPath(f"gives the type {value.type}, where the column is {kind}")
    if needed is None and kind not in ("VARCHAR", "JSON") and value.family in ("boolean", "number"):
        raise BadPath(f"gives the type {value.type}, where the column is {kind}")


def _cast(value: Value, sql: str, kind: str) -> str:
    if kind == "JSON":
        return f"({sql})::JSON" if value.is_json or value.is_complex else f"to_json({sql})"
    text = as_text(value, sql)
    if kind in _FIRST:
        return let(text, lambda v: _readable(v, kind))
    cast = f"try_cast({text if value.is_json else sql} AS {kind})"
    return let(cast, lambda v: f"CASE WHEN isfinite({v}) THEN {v} END") if kind in _BINARY else cast


def _readable(v: str, kind: str) -> str:
    """Return the SQL of a date or moment; NULL for `infinity` or a year not of four digits: they break readers."""
    first, last = _FIRST[kind]
    said = f"left({first_day(v)}, 10)" if kind == "DATE" else first_day(v)
    cast = f"CASE WHEN regexp_matches({v}, '^[0-9]{{4}}(-|$)') THEN try_cast({said} AS {kind}) END"
    return let(cast, lambda w: f"CASE WHEN {w} BETWEEN {kind} '{first}' AND {kind} '{last}' THEN {w} END")


ROOT = "f0"


@dataclass(frozen=True)
class CompiledView:
    """The SELECT of a view, and the names and SQL types of its columns."""

    sql: str
    columns: tuple[tuple[str, str], ...]


@dataclass
class OutColumn:
    """A column while rows are made. sql: its expression; its name once a step has computed it."""

    name: str
    place: str
    sql: str
    type: str


@dataclass(frozen=True)
class Focus:
    """The element that a select reads, and the number of the step that made its rows."""

    value: Value
    step: int


def compile_view(view: View, source: str, is_alone: bool = False) -> CompiledView:
    """Return the SELECT of the view. Raises `BadView`.

    Args:
        view: The definition.
        source: A relation in SQL with the column `body`.
        is_alone: True if the relation holds only resources of the view's type.
    """
    expressions, root, indexed = Expressions(view.constants), Shape(view.resource), set[int]()
    shapes: dict[int, Shape] = {}
    while True:
        expressions.again = False
        compiled = _Compilation(view, expressions, root, indexed, shapes).compiled(source, is_alone)
        if not expressions.again:
            return compiled


class _Compilation:
    """One pass over a view: the steps made so far, and the columns that the next step computes.

    indexed: the steps whose rows are counted. shapes: by step, the elements that are read from rows of JSON.
    """

    def __init__(
        self, view: View, expressions: Expressions, root: Shape, indexed: set[int], shapes: dict[int, Shape]
    ) -> None:
        self.view, self.expressions, self.root = view, expressions, root
        self.indexed, self.shapes = indexed, shapes
        self.steps: list[Callable[[], str]] = []
        self.unnested = 0
        self.waiting: list[OutColumn] = []

    def compiled(self, source: str, is_alone: bool) -> CompiledView:
        root = Value(ROOT, self.view.resource, shape=self.root, is_json=self.root.whole)
        focus = Focus(root, 0)
        self._step(lambda: f"SELECT {_taken('body', self.root)} AS {ROOT} FROM {source}")
        conditions = [self._condition(path, focus) for path in self.view.where]
        if not is_alone:
            conditions.insert(0, f"{self.expressions.member(root, 'resourceType').sql} = {quoted(self.view.resource)}")
        if conditions:
            # DuckDB would move a WHERE below the first step, and read the body once more for it.
            taken = f"CASE WHEN {' AND '.join(f'({each})' for each in conditions)} THEN [{ROOT}] ELSE [] END"
            self._step(lambda: f"SELECT unnest({taken}) AS {ROOT} FROM s0")
        columns = [each for select in self.view.select for each in self._select(select, focus, None)]
        chosen = ", ".join(f"{each.sql} AS {quoted_name(each.name)}" for each in columns)
        steps = ",\n".join(f"s{at} AS NOT MATERIALIZED (\n    {step()}\n)" for at, step in enumerate(self.steps))
        sql = f"WITH {steps}\nSELECT {chosen} FROM {self._last()}"
        return CompiledView(sql, tuple((each.name, each.type) for each in columns))

    def _step(self, select: Callable[[], str]) -> None:
        self.steps.append(select)

    def _last(self) -> str:
        return f"s{len(self.steps) - 1}"

    def _condition(self, path: PathAt, focus: Focus) -> str:
        try:
            return self.expressions.condition(path.node, self._context(path, focus))
        except BadPath as error:
            raise self._bad(path, error) from None

    def _value(self, path: PathAt, focus: Focus) -> Value:
        try:
            return self.expressions.value(path.node, self._context(path, focus))
        except BadPath as error:
            raise self._bad(path, error) from None

    def _context(self, path: PathAt, focus: Focus) -> Context:
        def index() -> str:
            if focus.step and focus.step not in self.indexed:
                self.indexed.add(focus.step)
                self.expressions.again = True
            return f"i{focus.step}" if focus.step else "0"

        return Context(focus.value, index, f"{self.view.file}: {path.place}")

    def _bad(self, path: PathAt, error: BadPath) -> BadView:
        return BadView(f"{self.view.file}: {path.place} `{path.text[:200]}`: {error}")

    def _select(self, select: Select, focus: Focus, guard: str | None) -> list[OutColumn]:
        """Return the columns of a select. guard: a condition that is true for the select's own rows."""
        if select.rows_as is not None:
            focus = self._rows(select, focus, guard)
        columns = [self._column(column, focus) for column in select.columns]
        if guard is None:
            self.waiting += columns
        for inner in select.selects:
            columns += self._select(inner, focus, guard)
        return columns + (self._union(select.union, focus, guard) if select.union else [])

    def _column(self, column: Column, focus: Focus) -> OutColumn:
        value = self.expressions.whole(self._value(column.path, focus))
        try:
            sql, kind = column_sql(column, value, f"{self.view.file}: {column.place}")
        except BadPath as error:
            raise self._bad(column.path, error) from None
        return OutColumn(column.name, column.place, sql, kind)

    def _union(self, parts: Sequence[Select], focus: Focus, guard: str | None) -> list[OutColumn]:
        """Make one row for each part, then return columns that choose among those of the parts."""
        chosen = self._unnest(str(list(range(len(parts)))), guard)
        by_part = [self._select(part, focus, f"{chosen} = {at}") for at, part in enumerate(parts)]
        columns = []
        for alike in zip(*by_part, strict=True):
            if other := next((each for each in alike if each.type != alike[0].type), None):
                raise BadView(
                    f"{self.view.file}: {other.place}: the column `{other.name}` is {other.type}, "
                    f"and in the union's first part {alike[0].type}"
                )
            cases = " ".join(f"WHEN {at} THEN {each.sql}" for at, each in enumerate(alike))
            columns.append(OutColumn(alike[0].name, alike[0].place, f"CASE {chosen} {cases} END", alike[0].type))
        if guard is None:
            self.waiting += columns
        return columns

    def _rows(self, select: Select, focus: Focus, guard: str | None) -> Focus:
        """Make the rows of `forEach`, `forEachOrNull` or `repeat`; return the element of each."""
        if select.rows_as == "repeat":
            value = self._repeated(select.rows_by, focus)
        else:
            value = self._value(select.rows_by[0], focus)
        rows = as_list(value)
        if select.rows_as == "forEachOrNull":
            rows = let(rows, lambda v: f"CASE WHEN len({v}) = 0 THEN [NULL] ELSE {v} END")
        name = self._unnest(rows, guard)
        return Focus(self._element(value, name), self.unnested)

    def _unnest(self, rows: str, guard: str | None) -> str:
        """Make a row of each element of a list; return the name of the element.

        Rows for which the guard is false stay one row each. Columns that are complete are computed before, once.
        """
        before = self._last()
        self.unnested += 1
        number, computed = self.unnested, []
        for at, column in enumerate(self.waiting):
            computed.append(f", {column.sql} AS c{number}_{at}")
            column.sql = f"c{number}_{at}"
        self.waiting = []
        own = f"CASE WHEN {guard} THEN {rows} ELSE [NULL] END" if guard is not None else rows
        self._step(lambda: f"SELECT *{''.join(computed)}, {own} AS l{number} FROM {before}")
        lists = self._last()
        index = f", unnest(range(len(l{number}))) AS i{number}" if number in self.indexed else ""
        self._step(lambda: f"SELECT * EXCLUDE (l{number}), unnest(l{number}) AS f{number}{index} FROM {lists}")
        return f"f{number}"

    def _element(self, value: Value, name: str) -> Value:
        """Return the element of the rows just made. JSON of a known type is read in one pass, like a body."""
        if not (value.is_json and value.is_complex):
            return value.with_sql(name)
        shape = self.shapes.setdefault(self.unnested, Shape(value.type))
        before = self._last()
        self._step(lambda: f"SELECT * REPLACE ({_taken(name, shape)} AS {name}) FROM {before}")
        return Value(name, value.type, shape=shape, is_json=shape.whole)

    def _repeated(self, paths: Sequence[PathAt], focus: Focus) -> Value:
        """Return the list of all elements that the paths give, at any depth, with parents before their children."""
        given = [self._elements(path, focus) for path in paths]
        types = {value.type for value in given if value.type is not None}
        kind = types.pop() if len(types) == 1 else None
        table, v = fresh(), fresh()
        element = Focus(Value(v, kind, is_json=True), focus.step)
        first = [_as_json(value) for value in given]
        below = [_as_json(self._elements(path, element)) for path in paths]
        sql = f"""coalesce((WITH RECURSIVE {table}({v}, place) AS (
        SELECT unnest(found), unnest(list_transform(range(len(found)), lambda i: [i]))
        FROM (SELECT {_joined(first)} AS found)
        UNION ALL
        SELECT unnest(found), unnest(list_transform(range(len(found)), lambda i: list_append(place, i)))
        FROM (SELECT place, {_joined(below)} AS found FROM {table})
    ) SELECT list({v} ORDER BY place) FROM {table}), [])"""
        return Value(sql, kind, many=True, is_json=True)

    def _elements(self, path: PathAt, focus: Focus) -> Value:
        """Return the elements that a path of `repeat` gives."""
        if not descends(path.node):
            raise self._bad(path, BadPath("repeat takes a path to elements below, such as `item`"))
        value = self.expressions.whole(self._value(path, focus))
        if value.type in PRIMITIVES:
            raise self._bad(path, BadPath(f"gives the type {value.type}, which has no elements to repeat for"))
        return value


def _as_json(value: Value) -> str:
    return f"({as_list(value)})::JSON[]"


def _taken(json_sql: str, shape: Shape) -> str:
    """Return the SQL that takes the elements of a shape from JSON."""
    structure = shape.structure()
    return json_sql if structure == "JSON" else f"json_transform({json_sql}, {quoted(json.dumps(structure))})"


def _joined(lists: Sequence[str]) -> str:
    return lists[0] if len(lists) == 1 else f"flatten([{', '.join(lists)}])"
