"""The dialect of DuckDB: what it knows without asking a database, and that with a store it opens no other."""

from pathlib import Path
from typing import Any

import duckdb
import pytest

from fhir_service.store.duckdb_dialect import Compiled
from fhir_service.store.store import Store


def test_every_reserved_word_of_duckdb_is_quoted() -> None:
    query = "SELECT keyword_name FROM duckdb_keywords() WHERE keyword_category = 'reserved'"
    with duckdb.connect() as database:
        words = {word for (word,) in database.execute(query).fetchall()}
    preparer = Compiled().identifier_preparer
    assert len(words) > 70
    assert {word for word in words if preparer.quote(word) != f'"{word}"'} == set()
    assert preparer.quote("patient") == "patient"


def test_a_store_is_opened_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A further database has threads and takes a thirtieth of a second. One that an import opens is not seen here."""
    opened, connect = list[Any](), duckdb.connect

    def connected(database: Any = ":memory:", *others: Any, **options: Any) -> duckdb.DuckDBPyConnection:
        opened.append(database)
        return connect(database, *others, **options)

    monkeypatch.setattr(duckdb, "connect", connected)
    monkeypatch.setattr(duckdb, "cursor", lambda *_: pytest.fail("the default database is asked"))
    Store.open(str(tmp_path / "s.duckdb"), create=True).close()
    assert set(opened) == {str(tmp_path / "s.duckdb")}
