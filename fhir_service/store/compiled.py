"""The dialect of DuckDB for SQLAlchemy, with a cache of compiled statements, and without databases beside the store.

The one that it derives from opens two in memory with the first store of a process: it asks one for DuckDB's reserved
words, the other for the names of its settings. That is 75 ms, and their threads, for each start of a service and each
of its commands. A third, which it opens as it is imported, to ask whether tables take comments, stays.
"""

from typing import Any

import duckdb
from duckdb_engine import ConnectionWrapper, DuckDBIdentifierPreparer
from duckdb_engine import Dialect as DuckDbEngine
from sqlalchemy import Dialect
from sqlalchemy.dialects import registry
from sqlalchemy.dialects.postgresql.base import PGIdentifierPreparer

NAME = "duckdb+compiled"
"""What a URL of SQLAlchemy begins with that asks for this dialect."""
RESERVED = frozenset("describe lambda lateral pivot pivot_longer pivot_wider qualify show summarize unpivot".split())
"""DuckDB's reserved words that are none of PostgreSQL's."""


class Preparer(DuckDBIdentifierPreparer):
    """Quotes names where they have to be."""

    def __init__(self, dialect: Dialect, **kwargs: Any) -> None:
        PGIdentifierPreparer.__init__(self, dialect, **kwargs)
        self.reserved_words = {*self.reserved_words, *RESERVED}


class Compiled(DuckDbEngine):
    """The dialect of a store. What it connects to is a file, with settings of DuckDB's own."""

    supports_statement_cache = True
    preparer = Preparer

    def connect(self, *_: Any, **cparams: Any) -> Any:
        return ConnectionWrapper(duckdb.connect(cparams["database"], config=cparams["config"]))


registry.register(NAME.replace("+", "."), __name__, Compiled.__name__)
