"""How a publication takes the place of the one before: whoever reads or writes the file, and whatever stops it."""

import subprocess
import sys
from errno import EPERM
from pathlib import Path
from unittest.mock import Mock

import duckdb
import pytest
from sqlalchemy import update

from pipelines.ledger import tables as ledger_tables
from pipelines.reports.publication import PublicationError
from tests.support.publishing import (
    World,
    publish_only,
    report,
)


@pytest.mark.parametrize("links", [True, False])
def test_a_reader_keeps_the_old_file_and_a_new_process_sees_the_new_one(
    world: World, monkeypatch: pytest.MonkeyPatch, links: bool
) -> None:
    """REPORT-04: and the publication before is kept beside the new one, on file systems without links, too."""
    publish_only(monkeypatch)
    if not links:
        monkeypatch.setattr(Path, "hardlink_to", Mock(side_effect=OSError(EPERM, "no links")))
    old = world.publish()
    reader = duckdb.connect(old.path, read_only=True)
    assert reader.sql("SELECT count(*) FROM diagnostic_report").fetchall() == [(6,)]
    world.reports.append(report("r7"))
    world.publish()
    assert reader.sql("SELECT count(*) FROM diagnostic_report").fetchall() == [(6,)]
    count = (
        "import duckdb, sys; print(duckdb.connect(sys.argv[1], read_only=True).sql('FROM diagnostic_report').shape[0])"
    )

    def seen(path: Path) -> str:
        return subprocess.run([sys.executable, "-c", count, path], capture_output=True, text=True, check=True).stdout

    assert seen(old.path) == "7\n"
    assert seen(old.path.with_name("reports.previous.duckdb")) == "6\n"
    reader.close()
    assert {path.stat().st_mode & 0o777 for path in old.path.parent.glob("**/*.[dp]*") if path.is_file()} == {0o444}
    left = {path.name for path in old.path.parent.iterdir()}
    dictionary = {"datapackage.json", "sources.yml"}
    assert left == {".lock", "parquet", "report.html", "reports.duckdb", "reports.previous.duckdb"} | dictionary


WRITER = """
import duckdb, sys
db = duckdb.connect(sys.argv[1])
db.execute("CREATE TABLE mine AS SELECT 1 AS x")
print("open", flush=True)
sys.stdin.readline()
db.execute("INSERT INTO mine VALUES (2)")
db.close()
print("closed", flush=True)
"""


def test_a_writer_with_the_file_open_neither_blocks_nor_breaks_a_publication(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """REPORT-05: a foreign .wal is moved aside, before and after the writer ends."""
    publish_only(monkeypatch)
    path = world.publish().path
    path.chmod(0o644)
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdin
        assert writer.stdout
        assert writer.stdout.readline() == "open\n"
        assert path.with_name("reports.duckdb.wal").exists()
        world.reports.append(report("r7"))
        world.publish()
        assert not path.with_name("reports.duckdb.wal").exists()
        assert len(list(path.parent.glob("reports.foreign-*.wal"))) == 1
        assert world.rows("SELECT count(*) FROM diagnostic_report") == [(7,)]
        writer.stdin.write("\n")
        writer.stdin.flush()
        writer.wait(30)
    world.reports.append(report("r8"))
    world.publish()
    assert world.rows("SELECT count(*) FROM diagnostic_report") == [(8,)]
    assert world.rows("SELECT table_name FROM duckdb_tables() WHERE table_name = 'mine'") == []


def test_tables_that_do_not_agree_are_not_published(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """REPORT-23: every statement that is not true is named, and what was published stays."""
    publish_only(monkeypatch, "import_row", "publication")
    world.publish()
    before = world.rows("FROM publication")
    world.run("payments-b", {"records": 3, "accepted": 2, "rejected": 0, "created": 1})
    with pytest.raises(PublicationError) as caught:
        world.publish()
    assert str(caught.value) == (
        "not published, because these are not true: records = accepted + rejected, "
        "and accepted = the sum of the outcomes; a batch of one finished run has as many rows as accepted records"
    )
    assert world.rows("FROM publication") == before
    left = {path.name for path in (world.home / "published").iterdir()}
    assert left == {".lock", "datapackage.json", "parquet", "report.html", "reports.duckdb", "sources.yml"}
    assert not list((world.home / "published").glob("parquet/*.part"))


@pytest.mark.by_hand
def test_no_value_shows_when_a_table_cannot_be_built(world: World) -> None:
    """REPORT-25"""
    world.run("payments-b", {})
    with world.ledger.transaction() as connection:
        connection.execute(update(ledger_tables.batch).values(received_at="Quill, no time"))
    with pytest.raises(PublicationError, match=r"^the tables could not be built \(\w+\)$") as caught:
        world.publish()
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


def test_a_folder_that_cannot_be_written_is_named(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """REPORT-25"""

    def refused(*_: object) -> None:
        raise duckdb.IOException('IO Error: Cannot open file "x": Permission denied')

    monkeypatch.setattr("pipelines.reports.publish._build", refused)
    with pytest.raises(PublicationError, match=r"/published: this user may not write there$"):
        world.publish()


def test_the_files_of_a_killed_publication_are_removed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    publish_only(monkeypatch)
    published = world.home / "published"
    (published / "parquet").mkdir(parents=True)
    for name in (".reports.99.duckdb", ".reports.99.duckdb.wal", ".reports.previous", "parquet/reject.parquet.part"):
        (published / name).write_bytes(b"half")
    world.publish()
    assert not [path for path in published.glob("**/*") if path.name.startswith(".reports") or path.suffix == ".part"]
