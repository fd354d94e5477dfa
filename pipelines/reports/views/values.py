"""The values of expressions in SQL, and the tree of the elements that a view reads from a resource."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

from pipelines.reports.views.fhir_types import PRIMITIVES, Element, elements

NUMBER = "number"
"""The type of a computed number. A decimal in a resource is text, since its digits must be kept."""
DECIMAL = "DECIMAL(38,9)"
INTEGERS = {"integer", "positiveInt", "unsignedInt", "integer64"}
TEMPORAL = {"date", "dateTime", "instant", "time"}
_FAMILIES = (
    dict.fromkeys([*INTEGERS, "decimal", NUMBER], "number") | dict.fromkeys(TEMPORAL, "moment") | {"boolean": "boolean"}
)


class Shape:
    """The elements that are read from a complex element, to be taken from the JSON in one pass.

    whole: True if the JSON of the element itself is needed. Its elements are then read from that JSON one by one.
    """

    def __init__(self, type_name: str | None) -> None:
        self.type, self.whole = type_name, False
        self.members: dict[str, tuple[Element, Shape | None]] = {}

    def member(self, name: str) -> tuple[Element, "Shape | None"]:
        """Return an element, and its own tree if it is complex; note that it is read."""
        if name not in self.members:
            element = elements(self.type or "").get(name, Element(None, False))
            is_complex = element.type is not None and element.type not in PRIMITIVES
            self.members[name] = element, Shape(element.type) if is_complex else None
        return self.members[name]

    def structure(self) -> Any:
        """Return the structure for `json_transform`."""
        if self.whole or not self.members:
            return "JSON"
        return {name: _structure(*member) for name, member in self.members.items()}


def _structure(element: Element, shape: Shape | None) -> Any:
    one = shape.structure() if shape else sql_type(element.type)
    return [one] if element.many else one


def sql_type(type_name: str | None) -> str:
    """Return the SQL type in which an element of a primitive type is read."""
    if type_name is None:
        return "JSON"
    return "BOOLEAN" if type_name == "boolean" else "BIGINT" if type_name in INTEGERS else "VARCHAR"


@dataclass(frozen=True)
class Value:
    """An expression in SQL.

    * type: its FHIR type, None if unknown.
    * many: True if the SQL is a list, without NULL.
    * shape: the elements read from it, if it is a struct.
    * is_json: True if the SQL is JSON, or a list of JSON.
    * raw: the list before NULLs were removed, from which lists of its elements are made.
    """

    sql: str
    type: str | None
    many: bool = False
    shape: Shape | None = None
    is_json: bool = False
    raw: str | None = None

    @property
    def family(self) -> str | None:
        """Return the kind of values that it can be compared with: number, moment, boolean or text; None if unknown."""
        return _FAMILIES.get(self.type, "text") if self.type else None

    @property
    def is_complex(self) -> bool:
        return self.type is not None and self.type != NUMBER and self.type not in PRIMITIVES

    def with_sql(self, sql: str, many: bool = False) -> "Value":
        return replace(self, sql=sql, many=many, raw=None)


NOTHING = Value("NULL::JSON", None, is_json=True)
_numbers = count()


def fresh() -> str:
    """Return a name for a variable that no other lambda uses."""
    return f"v{next(_numbers)}"


def let(sql: str, body: Callable[[str], str]) -> str:
    """Return the SQL of `body` with a variable for `sql`, which is then written and computed only once."""
    return f"{each(f'[{sql}]', body)}[1]"


def let_both(one: str, other: str, body: Callable[[str, str], str]) -> str:
    """Return the SQL of `body` with variables for two values. Neither value is computed inside a lambda."""
    return let(f"{{'one': {one}, 'other': {other}}}", lambda v: body(f"{v}.one", f"{v}.other"))


def each(sql: str, body: Callable[[str], str]) -> str:
    """Return the SQL of a list in which `body` replaces each element."""
    name = fresh()
    return f"list_transform({sql}, lambda {name}: {body(name)})"


def kept_elements(sql: str, body: Callable[[str], str]) -> str:
    """Return the SQL of a list with the elements for which `body` is true."""
    name = fresh()
    return f"list_filter({sql}, lambda {name}: {body(name)})"


def present(sql: str) -> str:
    """Return the SQL of a list without NULL, from SQL that may be NULL or hold NULL."""
    return f"coalesce({kept_elements(sql, lambda v: f'{v} IS NOT NULL')}, [])"


def as_list(value: Value) -> str:
    return value.sql if value.many else present(f"[{value.sql}]")


def mapped_elements(value: Value, body: Callable[[str], str]) -> str:
    """Return the SQL of the value with `body` applied to it, or to each of its elements."""
    return present(each(value.sql, body)) if value.many else let(value.sql, body)


def quoted(text: str) -> str:
    """Return the text as an SQL literal."""
    return "'" + text.replace("'", "''") + "'"


def quoted_name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def as_text(value: Value, sql: str) -> str:
    """Return the SQL of one element as text."""
    if value.is_json:
        return f"({sql} ->> '$')"
    return f"({sql})::VARCHAR" if value.family in ("number", "boolean") else sql


def as_number(value: Value, sql: str) -> str:
    """Return the SQL of one element as a number; NULL if it is not a number."""
    return sql if value.type == NUMBER else f"try_cast({as_text(value, sql)} AS {DECIMAL})"


EARLIEST, LATEST = "+14:00", "-12:00"
"""The zones in which a time without a zone is earliest and latest."""
_ZONE = "(Z|[+-][0-9]{2}:[0-9]{2})$"


def boundary(value: Value, high: bool) -> Value | None:
    """Return the boundary of a value or of each of its elements; None if its type has none."""
    if value.type in {*INTEGERS, "decimal", NUMBER}:
        return Value(mapped_elements(value, lambda v: _number(value, v, high)), NUMBER, value.many)
    of: dict[str, Callable[[str, bool], str]] = {
        "date": _date, "dateTime": _moment, "instant": _moment, "time": _clock,
    }  # fmt: skip
    if value.type not in of:
        return None
    kind = of[value.type]
    return Value(mapped_elements(value, lambda v: kind(v, high)), value.type, value.many)


def _number(value: Value, v: str, high: bool) -> str:
    digits = f"length(split_part({as_text(value, v)}, '.', 2))"
    return f"TRY({as_number(value, v)} {'+' if high else '-'} (0.5 / pow(10, {digits}))::{DECIMAL})"


def first_day(v: str) -> str:
    """Return the SQL of a date or time; a year or month alone becomes its first day."""
    return f"CASE length({v}) WHEN 4 THEN {v} || '-01-01' WHEN 7 THEN {v} || '-01' ELSE {v} END"


def _date(v: str, high: bool) -> str:
    if not high:
        return first_day(v)
    last = f"last_day(try_cast({v} || '-01' AS DATE))::VARCHAR"
    return f"CASE length({v}) WHEN 4 THEN {v} || '-12-31' WHEN 7 THEN {last} ELSE {v} END"


def _clock(v: str, high: bool) -> str:
    seconds, fraction, digit = (":59", ".999", "9") if high else (":00", ".000", "0")
    return (
        f"CASE length({v}) WHEN 2 THEN {v} || ':{'59' if high else '00'}{seconds}{fraction}' "
        f"WHEN 5 THEN {v} || '{seconds}{fraction}' WHEN 8 THEN {v} || '{fraction}' "
        f"ELSE rpad({v}, greatest(12, length({v}))::INTEGER, '{digit}') END"
    )


def _moment(v: str, high: bool) -> str:
    day, rest = f"split_part({v}, 'T', 1)", f"split_part({v}, 'T', 2)"
    clock, zone = f"regexp_replace({rest}, '{_ZONE}', '')", f"regexp_extract({rest}, '{_ZONE}')"
    unknown = LATEST if high else EARLIEST
    whole_day = "T23:59:59.999" if high else "T00:00:00.000"
    return (
        f"CASE WHEN contains({v}, 'T') THEN {day} || 'T' || ({_clock(clock, high)}) || "
        f"coalesce(nullif({zone}, ''), '{unknown}') ELSE ({_date(v, high)}) || '{whole_day}{unknown}' END"
    )
