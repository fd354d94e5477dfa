"""The store: the schema file that shows its tables, older and newer versions, and copies while it is written to."""

import shutil
import threading
from pathlib import Path

import duckdb
import pytest
from click.testing import CliRunner
from sqlalchemy import BigInteger, Connection, DateTime, Text, select, text, update

from fhir_service.__main__ import main
from fhir_service.admin.checks import check_store
from fhir_service.interface.registry import RESOURCES
from fhir_service.interface.vocabulary import Param, Resource
from fhir_service.service import Service
from fhir_service.settings import Settings
from fhir_service.store import log_file
from fhir_service.store.dialect import Dialect
from fhir_service.store.migrations import StoreVersion, migrate
from fhir_service.store.store import Store
from fhir_service.store.tables import BODIES, DOCUMENT, SIDES, STORE, repeating, single
from tests.conftest import Running
from tests.support.bodies import task, total

HEAD, KINDS = "seq id version updated_at client".split(), {"date": DateTime, int: BigInteger}


@pytest.mark.parametrize("resource", RESOURCES.values(), ids=RESOURCES)
def test_the_tables_have_a_column_for_each_value_that_a_resource_declares(resource: Resource) -> None:
    declared = [(column, KINDS.get(one.kind, Text)) for one in single(resource) for column in columns_for(one)]
    declared += [(name, KINDS.get(kind, Text)) for name, (kind, _) in resource.kept.items()]
    table = BODIES[resource.name]
    assert list(table.c.keys()) == [*HEAD, *(name for name, _ in declared), "body"]
    assert all(isinstance(table.c[name].type, kind) for name, kind in declared)
    for param in repeating(resource):
        digest = ["digest"] if param.name == "identifier" else []
        assert list(SIDES[resource.name, param.name].c.keys()) == ["seq", "system", "code", *digest]


def columns_for(param: Param) -> list[str]:
    return [f"{param.column}_start", f"{param.column}_end"] if param.kind == "date" else [param.column]


def _set_version(store: Store, version: int) -> None:
    with store.engine.begin() as connection:
        connection.execute(update(STORE).where(STORE.c.name == "schema_version").values(value=str(version)))


@pytest.mark.parametrize("version", [0, 99])
def test_a_store_of_a_version_that_cannot_be_followed_is_refused(tmp_path: Path, version: int) -> None:
    path = str(tmp_path / "s.duckdb")
    store = Store.open(path)
    _set_version(store, version)
    store.close()
    with pytest.raises(StoreVersion, match=f"schema version {version}, .*of Chartferry"):
        Store.open(path)
    done = CliRunner().invoke(main, ["check", "--store", path])
    assert (done.exit_code, done.output.count("\n")) == (1, 1)


def test_a_store_is_at_its_path_whatever_signs_are_in_it(tmp_path: Path) -> None:
    """In a URL, `%` and `?` would make another path of it. With a `?` DuckDB itself would write its log elsewhere."""
    folder = tmp_path / "100%20 #;'c"
    folder.mkdir()
    Store.open(str(folder / "s.duckdb")).close()
    assert (folder / "s.duckdb").is_file()
    with pytest.raises(
        OSError, match=r"s\.duckdb\? cannot be a store: DuckDB takes a \? for the end of a file's path$"
    ):
        Store.open(str(tmp_path / "s.duckdb?"))
    assert list(tmp_path.iterdir()) == [folder]


def test_an_older_store_is_brought_to_the_present_in_one_transaction(tmp_path: Path) -> None:
    store = Store.open(str(tmp_path / "s.duckdb"))

    def add(connection: Connection, _: Dialect) -> None:
        connection.execute(text("CREATE TABLE further (id TEXT)"))

    def fail(*_: object) -> None:
        raise RuntimeError("planted")

    with pytest.raises(RuntimeError), store.engine.begin() as connection:
        migrate(connection, store.dialect, 1, {1: add, 2: fail}, goal=3)
    with store.engine.begin() as connection:
        assert not connection.execute(text("SELECT 1 FROM duckdb_tables() WHERE table_name = 'further'")).all()
        migrate(connection, store.dialect, 1, {1: add, 2: lambda *_: None}, goal=3)
        assert connection.execute(text("SELECT value FROM store WHERE name = 'schema_version'")).scalar() == "3"
        assert connection.execute(text("SELECT count(*) FROM further")).scalar() == 0
    store.close()


def test_a_copy_made_while_the_service_writes_is_a_whole_store(fresh_service: Running, tmp_path: Path) -> None:
    """The copy holds what was acknowledged before it, is clean, and lives on its own, in one file."""
    from fhir_service.admin.actions import OPERATIONS

    client = fresh_service.client
    for n in range(20):
        client.post("/Task", json=task(n))
    stop = threading.Event()

    def write() -> None:
        n = 100
        while not stop.is_set():
            client.post("/Task", json=task(n))
            n += 1

    writing = threading.Thread(target=write)
    writing.start()
    target = tmp_path / "copies" / "copy.duckdb"
    target.parent.mkdir()
    OPERATIONS["copy"](fresh_service.service, {"to": str(target)})
    stop.set()
    writing.join()
    assert [path.name for path in target.parent.iterdir()] == ["copy.duckdb"]
    copy = Service.open(Settings(store=str(target)), create=False)
    try:
        with copy.store.read() as connection:
            copied = connection.execute(text("SELECT count(*) FROM task")).scalar_one()
        assert 20 <= copied <= total(client, "/Task?_count=0")
        assert [finding for finding in check_store(copy.store, copy.site) if not finding.notice] == []
    finally:
        copy.close()


def _append(service: Service, rows: list[tuple[str, str, str, int]]) -> None:
    """Append rows, and wait until the writer has rested."""
    columns = ("report", "content_type", "data", "position")
    service.writer.transact(lambda connection: service.store.dialect.append(connection, [(DOCUMENT, rows, columns)]))
    service.writer.transact(lambda _: None, resources=False)


def test_a_large_log_is_merged_into_the_file_between_two_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once; if that fails, no write fails."""
    monkeypatch.setattr(log_file, "LARGE", 35_000)
    log = tmp_path / "s.duckdb.wal"
    service = Service.open(Settings(str(tmp_path / "s.duckdb")))

    def add(number: int) -> bool:
        """Add some 10,000 bytes. True if a log is left."""
        _append(service, [("1", "text/plain", f"{number}" * 10_000, number)])
        return log.exists() and log.stat().st_size > 0

    while add(0):
        pass
    assert [add(number) for number in range(1, 6)] == [True, True, True, False, True]
    with monkeypatch.context() as broken:
        broken.setattr(service.store.dialect, "settle", lambda _: 1 / 0)
        assert [add(number) for number in range(6, 9)] == [True, True, True]
    assert add(9) is False
    service.close()


def test_a_log_is_left_alone_while_the_disk_has_no_room_to_work_it_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To fail at it would end the database for the process."""
    monkeypatch.setattr(log_file, "LARGE", 1)
    log = tmp_path / "s.duckdb.wal"
    service = Service.open(Settings(str(tmp_path / "s.duckdb")))
    with monkeypatch.context() as full:
        full.setattr(log_file, "MOST_WRITTEN_ANEW", 1 << 60)
        full.setattr(log_file, "_size_of", lambda path: path.stat().st_size if path == log else 1 << 60)
        _append(service, [("1", "text/plain", "x", 0)])
        assert log.stat().st_size
    _append(service, [("1", "text/plain", "x", 1)])
    assert not log.exists()
    service.close()


def test_a_log_that_a_killed_process_left_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the log of a service that is killed again and again would grow without end."""
    monkeypatch.setattr(log_file, "LARGE", 35_000)
    service = Service.open(Settings(str(tmp_path / "s.duckdb")))
    service.store.dialect.settle(service.store.engine)
    for number in range(2):
        _append(service, [("1", "text/plain", f"{number}" * 10_000, number)])
    (tmp_path / "killed").mkdir()
    for path in tmp_path.glob("s.duckdb*"):
        shutil.copyfile(path, tmp_path / "killed" / path.name)
    service.close()
    log = tmp_path / "killed" / "s.duckdb.wal"
    assert log.stat().st_size > 20_000
    service = Service.open(Settings(str(tmp_path / "killed" / "s.duckdb")))
    for number in range(2, 4):
        _append(service, [("1", "text/plain", f"{number}" * 10_000, number)])
    assert not log.exists() or log.stat().st_size < 35_000
    service.close()


def test_row_groups_are_not_rewritten_when_the_log_is_merged_before_the_store_closes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To rewrite a full row group takes most of a second, in which nobody could write."""
    path = str(tmp_path / "s.duckdb")
    groups = text("SELECT count(DISTINCT row_group_id) FROM pragma_storage_info('document')")
    found = []
    for _ in range(2):
        service = Service.open(Settings(path))
        with monkeypatch.context() as small:
            small.setattr(log_file, "LARGE", 1)
            for number in range(5):
                _append(service, [("1", "text/plain", "x", number)] * 10)
        _append(service, [("1", "text/plain", "left in the log", 0)])
        with service.store.read() as connection:
            found.append(connection.execute(groups).scalar_one())
        service.close()
    with Store.open(path).read() as connection:
        found.append(connection.execute(groups).scalar_one())
        assert connection.execute(text("SELECT count(*) FROM document")).scalar_one() == 102
    assert found == [6, 7, 1]


def test_rows_of_an_append_that_failed_do_not_come_with_the_next(tmp_path: Path) -> None:
    service = Service.open(Settings(str(tmp_path / "s.duckdb")))
    columns = ("report", "content_type", "data", "position")

    def append(*positions: object) -> None:
        rows = [(f"report {position}", "text/plain", "", position) for position in positions]
        service.writer.transact(
            lambda connection: service.store.dialect.append(connection, [(DOCUMENT, rows, columns)])
        )

    append(1)
    with pytest.raises(duckdb.Error):
        append(2, 3, "no number")
    append(4)
    with service.store.read() as connection:
        found = connection.execute(select(DOCUMENT.c.position)).scalars().all()
    assert sorted(found) == [1, 4]
    service.close()


def test_duckdb_uses_one_thread_for_a_statement(tmp_path: Path) -> None:
    store = Store.open(str(tmp_path / "s.duckdb"))
    with store.read() as connection:
        assert connection.exec_driver_sql("SELECT current_setting('threads')").scalar() == 1
    store.close()


def test_the_log_of_the_file_that_a_copy_replaced_is_named(tmp_path: Path) -> None:
    """DuckDB says only that it cannot be played."""
    path, wal = tmp_path / "s.duckdb", tmp_path / "s.duckdb.wal"
    with duckdb.connect(str(path)) as database:
        database.execute("CREATE TABLE one (i INTEGER); CHECKPOINT")
    copy = path.read_bytes()
    with duckdb.connect(str(path)) as database:
        database.execute("CREATE TABLE two (i INTEGER); CHECKPOINT")
        database.execute("INSERT INTO two VALUES (1)")
        log = wal.read_bytes()
    path.write_bytes(copy)
    wal.write_bytes(log)
    with pytest.raises(OSError, match=r"s\.duckdb\.wal beside it is of the file that it replaced; move that away"):
        Store.open(str(path))
