"""The SQL of `lowBoundary` and `highBoundary`: the least and the greatest value within the precision of a value."""

from collections.abc import Callable

from pipelines.reports.views.values import DECIMAL, INTEGERS, NUMBER, Value, as_number, as_text, mapped_elements

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
