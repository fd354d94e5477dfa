"""The operators of expressions: logic, comparison and arithmetic. An empty operand gives an empty result, as in SQL."""

import re

import duckdb

from pipelines.reports.views.fhirpath import BadPath
from pipelines.reports.views.values import (
    DECIMAL,
    NUMBER,
    Value,
    as_list,
    as_number,
    as_text,
    each,
    let,
    let_both,
    quoted,
)

_MORE_THAN_ONE = "a path gives more than one value where one is allowed"
_NOT_BOOLEAN = "a path does not give true or false"
_TOLD = re.compile(rf"Invalid Input Error: ([^\n]+: (?:{_MORE_THAN_ONE}|{_NOT_BOOLEAN}))")


def told_by(error: duckdb.Error) -> str | None:
    """Return the message of a query that failed on an unsuitable value of a path; None for another failure."""
    match = _TOLD.match(str(error))
    return match[1] if match else None


def single(value: Value, place: str) -> Value:
    """Return the value as one that does not repeat. If it has more elements, the query fails and names the place."""
    if not value.many:
        return value
    failed = f"error({quoted(f'{place}: {_MORE_THAN_ONE}')})"
    return value.with_sql(let(value.sql, lambda v: f"CASE WHEN len({v}) > 1 THEN {failed} ELSE {v}[1] END"))


def as_boolean(value: Value, place: str) -> str:
    """Return the SQL of a boolean. Raises `BadPath` if the value is known to have another type."""
    one = single(value, place)
    if one.type == "boolean":
        return one.sql
    if one.type is not None:
        raise BadPath(f"gives the type {value.type}, where true or false is needed")
    failed = f"error({quoted(f'{place}: {_NOT_BOOLEAN}')})"
    return let(
        as_text(one, one.sql) if one.is_json else f"({one.sql})::VARCHAR",
        lambda v: (
            f"CASE {v} WHEN 'true' THEN true WHEN 'false' THEN false ELSE CASE WHEN {v} IS NOT NULL "
            f"THEN {failed} END END"
        ),
    )


def binary(operator: str, left: Value, right: Value, place: str) -> Value:
    """Return the value of `left operator right`. Raises `BadPath`."""
    if operator in ("and", "or"):
        return Value(f"({as_boolean(left, place)} {operator} {as_boolean(right, place)})", "boolean")
    if operator in ("=", "!=", "<", "<=", ">", ">="):
        return Value(_compared(operator, left, right, place), "boolean")
    return _computed(operator, single(left, place), single(right, place))


def _compared(operator: str, left: Value, right: Value, place: str) -> str:
    family = _common_family(operator, left, right)
    if family == "moment":
        return _moments(operator, single(left, place), single(right, place))
    if operator in ("=", "!=") and (left.many or right.many):
        # `nullif` writes its operand twice, so each operand gets a variable.
        one_list = each(as_list(left), lambda v: _as(family, left, v))
        other_list = each(as_list(right), lambda v: _as(family, right, v))
        return let_both(one_list, other_list, lambda v, w: f"(nullif({v}, []) {operator} nullif({w}, []))")
    one, other = single(left, place), single(right, place)
    return f"({_as(family, one, one.sql)} {operator} {_as(family, other, other.sql)})"


def _common_family(operator: str, left: Value, right: Value) -> str:
    for side in (left, right):
        if side.is_complex:
            raise BadPath(f"compares a whole {side.type}; `{operator}` compares single values such as a code")
    families = {left.family, right.family} - {None}
    if families == {"moment", "text"}:
        return "moment"
    if len(families) > 1:
        raise BadPath(f"`{operator}` compares the types {left.type} and {right.type}")
    family = next(iter(families), "text") or "text"
    if family == "boolean" and operator not in ("=", "!="):
        raise BadPath(f"`{operator}` compares true or false, which have no order")
    return family


def _as(family: str, value: Value, sql: str) -> str:
    if family == "number":
        return as_number(value, sql)
    return f"try_cast({as_text(value, sql)} AS BOOLEAN)" if family == "boolean" else as_text(value, sql)


def _moments(operator: str, left: Value, right: Value) -> str:
    """Compare dates and times. With a time of day they are moments; others need equal precision, else NULL."""

    def pair(v: str, w: str) -> str:
        moments = f"try_cast({v} AS TIMESTAMPTZ) {operator} try_cast({w} AS TIMESTAMPTZ)"
        clocks = f"try_cast({v} AS TIME) {operator} try_cast({w} AS TIME)"
        return (
            f"CASE WHEN contains({v}, 'T') AND contains({w}, 'T') THEN {moments} "
            f"WHEN contains({v}, ':') AND contains({w}, ':') AND NOT contains({v} || {w}, 'T') THEN {clocks} "
            f"WHEN length({v}) = length({w}) THEN {v} {operator} {w} END"
        )

    return let_both(as_text(left, left.sql), as_text(right, right.sql), pair)


def _computed(operator: str, left: Value, right: Value) -> Value:
    families = {left.family, right.family} - {None}
    if operator == "+" and families == {"text"}:
        return Value(f"({as_text(left, left.sql)} || {as_text(right, right.sql)})", "string")
    if not families <= {"number"}:
        told = next(side.type for side in (left, right) if side.family not in (None, "number"))
        raise BadPath(f"`{operator}` computes with the type {told}; it takes numbers")

    def of(v: str, w: str) -> str:
        if operator == "/":
            return f"TRY((({v})::DOUBLE / nullif(({w})::DOUBLE, 0))::{DECIMAL})"
        return f"TRY(({v} {operator} {w})::{DECIMAL})"

    # TRY takes no operand that may itself end the query, so each operand gets a variable.
    one, other = as_number(left, left.sql), as_number(right, right.sql)
    return Value(let_both(one, other, of), NUMBER)
