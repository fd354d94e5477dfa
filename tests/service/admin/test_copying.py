"""A store in a database server is copied into one DuckDB file: a whole store of the same id."""

import errno
import os
import subprocess
from pathlib import Path

import pytest
from sqlalchemy import func, select

from fhir_service.admin.actions import OPERATIONS
from fhir_service.admin.checks import check_store
from fhir_service.admin.copying import copy_out
from fhir_service.admin.running_service import CommandError
from fhir_service.service import Service
from fhir_service.settings import Settings
from fhir_service.store.dialects import DuckDb
from fhir_service.store.schema import TABLES
from tests.conftest import Running
from tests.support.postgres import Postgres

WORLD = Path(__file__).parents[2] / "spec" / "world"


def counted(service: Service) -> dict[str, int]:
    with service.store.read() as connection:
        counts = {name: select(func.count()).select_from(table) for name, table in TABLES.items()}
        return {name: connection.execute(count).scalar_one() for name, count in counts.items()}


def killed() -> int:
    """The number of a process that has ended."""
    with subprocess.Popen(["true"]) as process:
        process.wait()
    return process.pid


def test_a_copy_of_a_database_has_its_rows_its_id_and_its_clients(
    postgres: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fhir_service.admin.copying.ROWS", 3)
    target = tmp_path / "copy.duckdb"
    with postgres.database() as url:
        service = Service.open(Settings(url))
        try:
            OPERATIONS["load"](service, {"paths": [str(WORLD)], "refused": str(tmp_path / "refused.ndjson")})
            client = OPERATIONS["client-add"](service, {"name": "importer"})
            OPERATIONS["copy"](service, {"to": str(target)})
            with pytest.raises(CommandError, match="exists"):
                OPERATIONS["copy"](service, {"to": str(target)})
            there, name = counted(service), service.store.id
        finally:
            service.close()
    assert [path.name for path in tmp_path.glob("copy*")] == ["copy.duckdb"]
    copy = Service.open(Settings(str(target)), create=False)
    try:
        assert (copy.store.id, counted(copy)) == (name, there)
        assert there["patient" if "patient" in there else "record"] > 0
        assert client["client_id"] in {row["client_id"] for row in copy.auth.list_clients()}
        assert [finding for finding in check_store(copy.store, copy.site) if not finding.notice] == []
    finally:
        copy.close()


@pytest.mark.on_both
def test_a_copy_that_was_cut_short_has_not_the_name_of_a_copy(
    fresh_service: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cut behind the file and before its log, it would open as a store without the newest writes."""
    service, target = fresh_service.service, tmp_path / "copies" / "copy.duckdb"
    target.parent.mkdir()
    names: list[str] = []

    def full(path: Path) -> None:
        names.extend(sorted(found.name for found in path.parent.iterdir()))
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    with monkeypatch.context() as patched:
        patched.setattr(DuckDb, "fold", staticmethod(full))
        with pytest.raises(CommandError, match=r"copy\.duckdb cannot be written: there is no space left on its disk$"):
            OPERATIONS["copy"](service, {"to": str(target)})
    assert names[0].startswith(f"copy.duckdb.{os.getpid()}-")
    assert target.name not in names
    assert list(target.parent.iterdir()) == []
    for name in (f"copy.duckdb.{killed()}-0badcafe.part", f"copy.duckdb.{os.getpid()}-0badcafe.part"):
        (target.parent / name).write_bytes(b"of a copy")
    OPERATIONS["copy"](service, {"to": str(target)})
    assert sorted(path.name for path in target.parent.iterdir()) == ["copy.duckdb", name]


@pytest.mark.on_both
def test_of_two_simultaneous_copies_to_one_name_one_succeeds_and_is_complete(
    fresh_service: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one begins before the first one is complete."""
    service, target = fresh_service.service, tmp_path / "copy.duckdb"
    fold = DuckDb.fold

    def after_another(path: Path) -> None:
        monkeypatch.setattr(DuckDb, "fold", staticmethod(fold))
        OPERATIONS["copy"](service, {"to": str(target)})
        fold(path)

    monkeypatch.setattr(DuckDb, "fold", staticmethod(after_another))
    with pytest.raises(CommandError, match=r"copy\.duckdb exists: name a file that does not$"):
        OPERATIONS["copy"](service, {"to": str(target)})
    assert list(tmp_path.glob("copy*")) == [target]
    copy = Service.open(Settings(str(target)), create=False)
    try:
        assert copy.store.id == service.store.id
    finally:
        copy.close()


def test_a_copy_that_cannot_be_made_is_no_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything goes in one commit."""
    source = Service.open(Settings(str(tmp_path / "s.duckdb")))
    monkeypatch.setattr("fhir_service.store.dialects.DuckDb.append", lambda *_: 1 / 0)
    try:
        with pytest.raises(ZeroDivisionError):
            copy_out(source.store, tmp_path / "copy.duckdb")
    finally:
        source.close()
    with pytest.raises(FileNotFoundError):
        Service.open(Settings(str(tmp_path / "copy.duckdb")), create=False)
