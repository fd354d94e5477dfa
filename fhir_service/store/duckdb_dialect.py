"""A SQLAlchemy dialect for DuckDB that caches compiled statements and opens no database beside the store.

The dialect of duckdb-engine opens two databases in memory with the first store of a process: one to read DuckDB's
reserved words, one to read the names of its settings. That costs 75 ms and some threads at each start. It opens a third
one on import, to find out if tables can have comments; that one stays.
"""

from typing import Any

import duckdb
from duckdb_engine import ConnectionWrapper, DuckDBIdentifierPreparer
from duckdb_engine import Dialect as DuckDbEngine
from sqlalchemy import Dialect
from sqlalchemy.dialects import registry
from sqlalchemy.dialects.postgresql.base import PGIdentifierPreparer

NAME = "duckdb+compiled"
"""The name of this dialect in URLs of SQLAlchemy."""
RESERVED = frozenset("describe lambda lateral pivot pivot_longer pivot_wider qualify show summarize unpivot".split())
"""The words that DuckDB reserves and PostgreSQL does not."""


class Preparer(DuckDBIdentifierPreparer):
    """Quote names that are reserved words."""

    def __init__(self, dialect: Dialect, **kwargs: Any) -> None:
        PGIdentifierPreparer.__init__(self, dialect, **kwargs)
        self.reserved_words = {*self.reserved_words, *RESERVED}


class Compiled(DuckDbEngine):
    """The dialect of a store in a DuckDB file. `config` holds DuckDB's own settings."""

    supports_statement_cache = True
    preparer = Preparer

    def connect(self, *_: Any, **cparams: Any) -> Any:
        return ConnectionWrapper(duckdb.connect(cparams["database"], config=cparams["config"]))


registry.register(NAME.replace("+", "."), __name__, Compiled.__name__)
