"""The store's tables, derived from the search declarations, so that search and schema cannot disagree.

* A table for each resource, with a typed column for each search parameter that has one value. A date has two columns:
  the beginning and the end of the time that it covers.
* A side table for each search parameter with several values.
* Tables for charts, balances, clients and history.

Money is an integer of cents.
"""

from collections.abc import Callable
from datetime import datetime
from functools import cache
from hashlib import blake2b
from struct import Struct
from typing import Any

from sqlalchemy import BigInteger, Column, DateTime, Integer, MetaData, Table, Text
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.schema import CreateColumn

from fhir_service.interface.fast.forms import Column as Drawing
from fhir_service.interface.fast.forms import DrawnValues, Maker, Side, maker
from fhir_service.interface.registry import RESOURCES
from fhir_service.interface.times import period_of
from fhir_service.interface.vocabulary import Param, Resource

SCHEMA_VERSION = 4

metadata = MetaData()

Draw = Callable[[dict[str, Any]], Any]
Row = tuple[Any, ...]


def _text(name: str, **options: Any) -> Column[str]:
    return Column(name, Text, **options)


def _time(name: str, **options: Any) -> Column[datetime]:
    return Column(name, DateTime(timezone=True), **options)


def _body(compression: str) -> Column[str]:
    """Return the column of a resource's body, as JSON.

    compression: DuckDB's name. `zstd` needs a third of the space of `dict_fsst`, but unpacks some 2,000 bodies for one.
    """
    return _text("body", nullable=False, info={"compression": compression})


@compiles(CreateColumn, "duckdb")
def _compressed(element: CreateColumn, compiler: Any, **options: Any) -> str:
    """Name the compression of bodies for DuckDB, which would otherwise try all methods at each checkpoint."""
    made: str = compiler.visit_create_column(element, **options)
    compression = element.element.info.get("compression")
    return f"{made} USING COMPRESSION {compression}" if compression else made


def _number(name: str, **options: Any) -> Column[int]:
    return Column(name, BigInteger, autoincrement=False, **options)


def snake(name: str) -> str:
    """Return a FHIR name in snake case: `payment_notice` for `PaymentNotice`."""
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("_")


def single(resource: Resource) -> list[Param]:
    """Return the search parameters that have a column of their own."""
    return [p for p in resource.params if p.kind not in ("id", "codes", "exact") and p.name != "modified"]


def repeating(resource: Resource) -> list[Param]:
    """Return the search parameters that have a side table."""
    return [p for p in resource.params if p.kind in ("codes", "exact") and not p.through]


def _columns(param: Param) -> list[Column[Any]]:
    if param.kind == "date":
        return [_time(f"{param.column}_start"), _time(f"{param.column}_end")]
    return [_text(param.column)]


def _resource_table(resource: Resource) -> Table:
    return Table(
        snake(resource.name),
        metadata,
        _number("seq", nullable=False),
        _text("id", primary_key=True),
        Column("version", Integer, nullable=False),
        _time("updated_at", nullable=False),
        _text("client", nullable=False),
        *(column for param in single(resource) for column in _columns(param)),
        *(_number(name) if kind is int else _text(name) for name, (kind, _) in resource.kept.items()),
        _body("dict_fsst"),
    )


def _side_table(resource: Resource, param: Param) -> Table:
    name = f"{snake(resource.name)}_{param.column}"
    table = Table(name, metadata, _number("seq", nullable=False), _text("system"), _text("code"))
    if param.name == "identifier":
        table.append_column(_number("digest", nullable=False, comment="of the code: see `digest`"))
    return table


_hash = blake2b(digest_size=8).copy
"""Return an empty hash. Copying one takes half the time of making one."""
_number_in = Struct(">q").unpack


def digest(code: str) -> int:
    """Return 64 bits of hash of a text. One scan of such numbers looks up many, faster than an index of texts."""
    hashed = _hash()
    hashed.update(code.encode())
    number: int = _number_in(hashed.digest())[0]
    return number


GUARD = "guard"
"""A column of identifiers in PostgreSQL, unique, and set if a conditional create asked for the identifier."""


def guard_of(code: tuple[str | None, ...]) -> int:
    """Return the guard of an identifier, which is a pair of system and code."""
    return digest("|".join(part or "" for part in code))


BODIES: dict[str, Table] = {name: _resource_table(resource) for name, resource in RESOURCES.items()}
SIDES: dict[tuple[str, str], Table] = {
    (name, param.name): _side_table(resource, param)
    for name, resource in RESOURCES.items()
    for param in repeating(resource)
}

STORE = Table("store", metadata, _text("name", primary_key=True), _text("value", nullable=False))
PROBE = "probe"
"""The name in the table `store` of the time of the last health probe that was stored."""

RECORD = Table(
    "record",
    metadata,
    _text("reference", primary_key=True, comment="Type/id of a loaded record, of whatever type"),
    _text("type", nullable=False),
    _text("patient", comment="id of the patient to whom it belongs"),
    _text("display", comment="the name of a Group, Patient or Practitioner"),
    _text("note", comment="identifier of the note of an Encounter"),
    _text("last_updated", comment="meta.lastUpdated as loaded"),
    _text("digest", nullable=False, comment="SHA-256 of the record as loaded"),
    _text("body", nullable=False),
)
DOCUMENT = Table(
    "document",
    metadata,
    _text("report", nullable=False),
    Column("position", Integer, nullable=False),
    _text("content_type", nullable=False),
    _text("data", nullable=False, comment="base64"),
)
NOTE = Table(
    "note",
    metadata,
    _text("id", primary_key=True),
    _text("patient", nullable=False),
    _text("encounter", comment="id; empty for a data-import note"),
    _text("state", nullable=False, comment="open, cancelled or deleted"),
    _text("service_at", comment="date or datetime of service"),
)
CHARGE = Table(
    "charge",
    metadata,
    _text("claim", primary_key=True),
    _text("patient", nullable=False),
    _text("created", nullable=False, comment="date or datetime"),
    _number("cents", nullable=False),
    _number("paid", nullable=False, comment="cents allocated to it"),
)
ACCOUNT = Table(
    "account",
    metadata,
    _text("patient", primary_key=True),
    _number("charged", nullable=False),
    _number("paid", nullable=False),
)
ALLOCATION = Table(
    "allocation",
    metadata,
    _text("payment", nullable=False),
    _text("claim", nullable=False),
    _number("cents", nullable=False),
)
HISTORY = Table(
    "history",
    metadata,
    _text("reference", nullable=False),
    Column("version", Integer, nullable=False),
    _time("updated_at", nullable=False),
    _text("client", nullable=False),
    _body("zstd"),
)
CLIENT = Table(
    "client",
    metadata,
    _text("id", primary_key=True),
    _text("name", nullable=False),
    _text("secret_hash", nullable=False),
    _text("scope", nullable=False),
    _time("created_at", nullable=False),
    _time("revoked_at"),
)
CLIENT_KEYS = Table(
    "client_keys",
    metadata,
    _text("client", primary_key=True),
    _text("jwks"),
    _text("address"),
)
"""The public keys of clients without a secret: a JWKS, or the address to fetch it from."""
ASSERTION = Table(
    "assertion",
    metadata,
    _text("client", primary_key=True),
    _text("use", primary_key=True),
    _time("expires_at", nullable=False),
)
"""Assertions that were used, by the hash of their `jti`, until they expire: each may be used once."""
TOKEN = Table(
    "token",
    metadata,
    _text("hash", primary_key=True),
    _text("client", nullable=False),
    _text("scope", nullable=False),
    _time("expires_at", nullable=False),
)
NOT_REVOKED = "client IN (SELECT id FROM client WHERE revoked_at IS NULL)"
"""The condition of a token whose client is not revoked. It may have expired all the same."""


def index_values(resource: Resource, stored: dict[str, Any]) -> dict[str, Any]:
    """Return the values of a stored resource's search columns, and of the columns that are kept beside them."""
    return dict(zip(indexed(resource.name), index_row(resource, stored), strict=True))


def index_row(resource: Resource, stored: dict[str, Any]) -> list[Any]:
    """Return only the values of `index_values`, in the order of the table's columns."""
    draws, dates = _draws(resource.name)
    values = [draw(stored) for draw in draws]
    for place in dates:
        drawn = values[place]
        values[place : place + 1] = period_of(drawn) if drawn else _NO_PERIOD
    return values


_NO_PERIOD = (None, None)


def _maker(resource: Resource) -> Maker:
    """Return a function that makes the row of a new resource, and the rows of its side tables, in one pass.

    They have the values that `index_row` and `side_rows` take from the stored resource.
    """
    columns = [Drawing(_declared(param.values), param.kind == "date") for param in single(resource)]
    columns += [Drawing(_declared(draw)) for _, draw in resource.kept.values()]
    sides = [
        Side(_declared(draw), exact, digest if digested else None) for draw, exact, _, digested in _sides(resource.name)
    ]
    return maker(resource.stored or {}, columns, sides)


def _declared(draw: Draw) -> DrawnValues:
    """Return the declared path of a value. Only resources with a declared form have one."""
    assert isinstance(draw, DrawnValues)  # noqa: S101 - a declaration of ours
    return draw


@cache
def indexed(name: str) -> list[str]:
    """Return the names of the columns of `index_values`. A date has two."""
    resource = RESOURCES[name]
    return [*(column.name for param in single(resource) for column in _columns(param)), *resource.kept]


@cache
def _draws(name: str) -> tuple[list[Draw], list[int]]:
    """Return how the values of these columns are drawn from a body, and which of them are dates, the last first."""
    resource = RESOURCES[name]
    params = single(resource)
    dates = [place for place, param in enumerate(params) if param.kind == "date"]
    return [*(param.values for param in params), *(draw for _, draw in resource.kept.values())], dates[::-1]


@cache
def columns_of(table: Table) -> tuple[str, ...]:
    """Return the names of a table's columns, in order."""
    return tuple(table.c.keys())


def side_values(resource: Resource, stored: dict[str, Any]) -> dict[str, list[tuple[str | None, str | None]]]:
    """Return what the side tables hold of a stored resource: pairs of system and code, by parameter."""
    return {
        param.name: [(None, value) for value in drawn] if param.kind == "exact" else drawn
        for param in repeating(resource)
        if (drawn := param.values(stored))
    }


def side_rows(resource: Resource, number: int, stored: dict[str, Any]) -> list[list[Row]]:
    """Return the rows of a stored resource for each of its side tables."""
    found: list[list[Row]] = []
    for draw, exact, _, digested in _sides(resource.name):
        if exact:
            found.append([(number, None, value) for value in dict.fromkeys(draw(stored))])
        elif digested:
            found.append([(number, system, code, digest(code or "")) for system, code in draw(stored)])
        else:
            found.append([(number, system, code) for system, code in draw(stored)])
    return found


@cache
def side_tables(name: str) -> list[Table]:
    """Return the side tables of a resource, in the order of `side_rows`."""
    return [table for _, _, table, _ in _sides(name)]


@cache
def _sides(name: str) -> list[tuple[Draw, bool, Table, bool]]:
    """Return for each side table: the function that takes its values from a body, True if they are plain texts, the
    table, and True if it has a column of digests.
    """
    return [
        (param.values, param.kind == "exact", table, "digest" in table.c)
        for param in repeating(RESOURCES[name])
        for table in [SIDES[name, param.name]]
    ]


IDENTIFIERS = {
    name: [param.name for param in repeating(RESOURCES[name])].index("identifier")
    for name, kind in SIDES
    if kind == "identifier"
}
"""By type, the position of the table of identifiers among the side tables."""
MAKERS = {name: _maker(resource) for name, resource in RESOURCES.items() if resource.stored}
"""By type, how a new resource is made."""
