"""The tables of `sql/service/schema.sql`: the statements that make them, and their columns for all other statements."""

import re
from pathlib import Path
from typing import Any

from sqlalchemy import BigInteger, Column, DateTime, Integer, MetaData, Table, Text
from sqlalchemy.types import TypeEngine

from fhir_service.paths import is_folder

_INSIDE = Path(__file__).parents[1] / "sql"
_FOLDER = _INSIDE if is_folder(_INSIDE) else Path(__file__).parents[2] / "sql" / "service"
_MADE = re.compile(r"^CREATE TABLE (\w+) \(.*?\);$", re.DOTALL | re.MULTILINE)
STATEMENTS = {made[1]: made[0] for made in _MADE.finditer((_FOLDER / "schema.sql").read_text())}
"""By table, the statement that makes it in DuckDB."""

_TYPES: dict[str, TypeEngine[Any]] = {
    "TEXT": Text(),
    "BIGINT": BigInteger(),
    "INTEGER": Integer(),
    "TIMESTAMPTZ": DateTime(timezone=True),
}
_COLUMN = re.compile(rf"(\w+) ({'|'.join(_TYPES)})\b")
_METADATA = MetaData()
TABLES = {
    name: Table(name, _METADATA, *(Column(column, _TYPES[kind]) for column, kind in _COLUMN.findall(statement)))
    for name, statement in STATEMENTS.items()
}
"""By name, each table with its columns and their types."""
