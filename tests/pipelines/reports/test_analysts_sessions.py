"""Analysts at work while the tables are published again and again: nobody waits, fails, or reads half a publication."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import duckdb
import pytest

from tests.support.publishing import World, import_payments, publish_only, report

QUERIES = [
    "SELECT count(*) FROM diagnostic_report",
    "SELECT max(published_at)::VARCHAR FROM publication",
    "SELECT sum(amount)::VARCHAR FROM payment",
    "SELECT count(DISTINCT patient_id) FROM diagnostic_report JOIN report_by_patient USING (patient_id)",
]
READS = """
import duckdb, json, sys
file, queries = sys.argv[1], sys.argv[2:]
db = duckdb.connect(file, read_only=True)
for line in sys.stdin:
    if line == "anew\\n":
        db.close()
        db = duckdb.connect(file, read_only=True)
    try:
        print(json.dumps([db.sql(query).fetchall() for query in queries]), flush=True)
    except duckdb.Error as error:
        print(json.dumps(repr(error)), flush=True)
"""
WRITES = """
import duckdb, json, sys
db = duckdb.connect(sys.argv[1])
db.execute("PRAGMA disable_checkpoint_on_shutdown")
db.execute("CREATE TABLE mine (x INTEGER)")
for line in sys.stdin:
    try:
        db.execute("INSERT INTO mine VALUES (1)")
        print(json.dumps(db.sql("SELECT count(*) FROM mine").fetchall()), flush=True)
    except duckdb.Error as error:
        print(json.dumps(repr(error)), flush=True)
"""


class Analyst:
    """A process of its own over the published file, which does its work each time it is asked."""

    def __init__(self, script: str, *arguments: object) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", script, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()

    def asked(self, line: str = "") -> Any:
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """A home whose publications have the tables that analysts ask here."""
    publish_only(monkeypatch, "publication", "payment", "report_by_patient")
    made = World(tmp_path)
    import_payments(made)
    yield made
    made.ledger.close()


@contextmanager
def reading(file: Path) -> Iterator[Analyst]:
    with Analyst(READS, file, *QUERIES) as analyst:
        yield analyst


def publish_more(world: World, number: int) -> int:
    """Another publication, of one report more; gives how many there are."""
    world.reports.append(report(f"more-{number}"))
    return world.publish().rows["diagnostic_report"]


@pytest.mark.long
@pytest.mark.parametrize("publications", [1, pytest.param(20, marks=pytest.mark.long)])
def test_sessions_held_open_through_publications_never_fail_and_a_new_one_sees_the_new_data(
    world: World, publications: int
) -> None:
    """REPORT-04, REPORT-05: one writes all the while, and harms nobody: it is in no publication."""
    file = world.publish().path
    file.chmod(0o644)
    with Analyst(WRITES, file) as writer:
        assert writer.asked() == [[1]]
        world.publish()
        with reading(file) as held, reading(file) as returning:
            before = held.asked()
            assert before[0] == [[6]]
            for number in range(publications):
                assert writer.asked() == [[number + 2]]
                reports = publish_more(world, number)
                assert held.asked() == before
                assert returning.asked("anew")[0] == [[reports]]
            with reading(file) as new:
                assert new.asked()[0] == [[6 + publications]]
    assert {path.name for path in file.parent.iterdir() if path.suffix != ".wal"} == {
        *(".lock", "parquet", "report.html", "reports.duckdb", "reports.previous.duckdb"),
        *("datapackage.json", "sources.yml"),
    }
    assert world.rows("SELECT count(*) FROM duckdb_tables() WHERE table_name = 'mine'") == [(0,)]


def test_a_wal_that_a_killed_writer_left_is_moved_aside(world: World) -> None:
    """REPORT-05"""
    file = world.publish().path
    for number in range(2):
        file.chmod(0o644)
        with Analyst(WRITES, file) as writer:
            assert writer.asked() == [[1]]
        assert file.with_name("reports.duckdb.wal").exists()
        reports = publish_more(world, number)
        with reading(file) as new:
            assert new.asked()[0] == [[reports]]
    assert len(list(file.parent.glob("reports.foreign-*.wal"))) == 2
    assert world.rows("SELECT count(*) FROM duckdb_tables() WHERE table_name = 'mine'") == [(0,)]


@pytest.mark.long
def test_an_older_duckdb_can_open_the_file(world: World) -> None:
    """REPORT-04: the file is in the storage format of DuckDB 1.0, which every later version reads."""
    with duckdb.connect(world.publish().path, read_only=True) as db:
        query = "SELECT tags['storage_version'] FROM duckdb_databases() WHERE database_name = 'reports'"
        assert db.sql(query).fetchall() == [("v1.0.0+",)]
