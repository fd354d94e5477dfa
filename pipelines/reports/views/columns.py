"""The SQL type of a view's columns, by FHIR type or the tag `ansi/type`, and the SQL that converts a value to it."""

import re

from pipelines.reports.views.boundaries import first_day
from pipelines.reports.views.definition import Column
from pipelines.reports.views.fhir_types import PRIMITIVES
from pipelines.reports.views.fhirpath import BadPath
from pipelines.reports.views.operators import single
from pipelines.reports.views.values import DECIMAL, INTEGERS, NUMBER, Value, as_list, as_text, each, let

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
