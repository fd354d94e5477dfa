"""The store's tables by what they hold, and the rows that a resource has there, by its search parameters."""

from collections.abc import Callable
from functools import cache
from hashlib import blake2b
from struct import Struct
from typing import Any

from sqlalchemy import Table

from fhir_service.interface.fast.forms import Column as Drawing
from fhir_service.interface.fast.forms import DrawnValues, Maker, Side, maker
from fhir_service.interface.registry import RESOURCES
from fhir_service.interface.times import period_of
from fhir_service.interface.vocabulary import Param, Resource
from fhir_service.store.schema import TABLES

SCHEMA_VERSION = 4

Draw = Callable[[dict[str, Any]], Any]
Row = tuple[Any, ...]


def snake(name: str) -> str:
    """Return a FHIR name in snake case: `payment_notice` for `PaymentNotice`."""
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("_")


def single(resource: Resource) -> list[Param]:
    """Return the search parameters that have a column of their own."""
    return [p for p in resource.params if p.kind not in ("id", "codes", "exact") and p.name != "modified"]


def repeating(resource: Resource) -> list[Param]:
    """Return the search parameters that have a side table."""
    return [p for p in resource.params if p.kind in ("codes", "exact") and not p.through]


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


BODIES: dict[str, Table] = {name: TABLES[snake(name)] for name in RESOURCES}
SIDES: dict[tuple[str, str], Table] = {
    (name, param.name): TABLES[f"{snake(name)}_{param.column}"]
    for name, resource in RESOURCES.items()
    for param in repeating(resource)
}
RECORD, DOCUMENT, NOTE, HISTORY = (TABLES[name] for name in ("record", "document", "note", "history"))
CHARGE, ACCOUNT, ALLOCATION = (TABLES[name] for name in ("charge", "account", "allocation"))
CLIENT, CLIENT_KEYS, ASSERTION, TOKEN = (TABLES[name] for name in ("client", "client_keys", "assertion", "token"))
STORE = TABLES["store"]
PROBE = "probe"
"""The name in the table `store` of the time of the last health probe that was stored."""
NOT_REVOKED = "client IN (SELECT id FROM client WHERE revoked_at IS NULL)"
"""The condition of a token whose client is not revoked. It may have expired all the same."""


def index_values(resource: Resource, stored: dict[str, Any]) -> dict[str, Any]:
    """Return the values of a stored resource's search columns, and of the columns that are kept beside them."""
    # The five columns of every resource come before them, and the body after them.
    return dict(zip(columns_of(BODIES[resource.name])[5:-1], index_row(resource, stored), strict=True))


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
