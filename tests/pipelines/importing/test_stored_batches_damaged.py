"""Batches at a damaged store: missing, cut, strange or obstructing files."""

import contextlib
import hashlib
import json
import logging
import os
import shutil
from pathlib import Path

import pytest

from pipelines.dagster.results import file_of
from pipelines.dagster.run_resource import RunWorkplace
from pipelines.home import stores
from pipelines.home.batch import SOURCE
from pipelines.home.stores import Folder, store_at
from pipelines.ledger.batch_store import BatchesUnusable, StoredBatches
from pipelines.ledger.tables import LedgerError
from pipelines.receiving.stage import receive
from pipelines.runs.beginning import begin
from pipelines.session.opening import open_session
from tests.support.machines import ROWS, a_batch, amounts, batches_at, has_rows, rows_at

pytest.importorskip("obstore", reason="the extra `cluster` is not installed")
FOLDER = pytest.mark.parametrize("machines", ["folder"], indirect=True)
PAID = ROWS.partition("k3")[0]


@pytest.mark.long
@FOLDER
def test_stray_files_beside_log_entries_and_journal_copies_are_ignored(machines, target):
    """SCALE-03: parts of a copy that was killed, and files that people put there."""
    machines.put("one")
    machines.asked("one", "import")
    shared = Path(machines.place)
    [copy] = (shared / "journal").iterdir()
    (shared / "journal" / f".{copy.name}-1.part").write_bytes(b"cut")
    (shared / "journal" / "README.txt").write_text("a word")
    (shared / "log" / ".DS_Store").write_bytes(b"")
    (shared / "log" / "a" / "b").mkdir(parents=True)
    (shared / "log" / "a" / "b" / "1.json").write_text("{}")
    [log] = (shared / "log").glob("payments-*")
    (log / "9.json.part").write_bytes(b"cut")
    machines.put("one", "k4,p1,4.00,2026-03-01,\n")
    assert machines.asked("one", "import")["totals"]["created"] == 1
    machines.put("two", "k5,p1,5.00,2026-03-01,\n")
    assert machines.asked("two", "import")["totals"]["created"] == 1
    assert amounts(target) == [1.0, 2.0, 4.0, 5.0]
    assert all(name.endswith(".ndjson.gz") for name in store_at(machines.place).names("journal/") if name[0] == "0")


def test_a_file_that_goes_while_a_folder_is_listed_is_passed_over(tmp_path, monkeypatch):
    """SCALE-03"""
    for name in ("a/1.json", "a/2.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("{}")
    stat = Path.stat

    def late(path: Path, **how: bool) -> os.stat_result:
        found = stat(path, **how)
        if path.name == "1.json":
            path.unlink()
        return found

    monkeypatch.setattr(Path, "stat", late)
    assert "a/2.json" in Folder(tmp_path).ages()
    assert list(Folder(tmp_path).ages()) == ["a/2.json"]
    assert Folder(tmp_path).ages("gone/") == {}


def test_a_log_with_a_gap_is_not_written_into(place, tmp_path):
    """SCALE-03: the log does not count as one that ends at the gap either."""
    one = batches_at(place, tmp_path / "one")
    folder = a_batch(one)
    one.keep("payments-1", *SOURCE)
    for run in ("run-1", "run-2"):
        assert one.claim("payments-1", run)
    store_at(place).remove(["log/payments-1/2.json"])
    for ask in (
        lambda two: two.claim("payments-1", "run-1"),
        lambda two: two.bring(["payments-1", *(f"b-{number}" for number in range(20))]),
    ):
        with pytest.raises(LedgerError, match=r"log/payments-1/2\.json is not there any more: restore it"):
            ask(batches_at(place, tmp_path / "two"))
    assert store_at(place).names("log/payments-1/") == ["1.json", "3.json"]
    assert folder.exists()


@pytest.mark.parametrize("file", ["manifest.json", "warnings.parquet", "sha256"])
def test_a_file_of_any_name_is_purged(place, tmp_path, file):
    """SCALE-03: also if its name is one that a purge keeps in the folder of a run."""
    one = batches_at(place, tmp_path / "one")
    folder = a_batch(one, file=file)
    (folder / "run-1").mkdir()
    for name in ("manifest.json", "accepted.parquet"):
        (folder / "run-1" / name).write_text(f"{name} of p1")
    one.keep("payments-1", *SOURCE, "run-1/*")
    one.remove("payments-1")
    two = batches_at(place, tmp_path / "two")
    found = two.renew("payments-1")
    assert sorted(path.name for path in found.rglob("*") if path.is_file()) == ["manifest.json", "sha256"]
    assert not two.has_source("payments-1")


def test_a_batch_whose_late_run_kept_rows_after_a_purge_does_not_count_as_purged(place, tmp_path):
    """SCALE-03"""
    one = batches_at(place, tmp_path / "one")
    folder = a_batch(one)
    one.keep("payments-1", *SOURCE)
    one.remove("payments-1")
    assert not one.has_source("payments-1")
    (folder / "run-1").mkdir()
    (folder / "run-1" / "accepted.parquet").write_text("rows of p1")
    one.keep("payments-1", "run-1/*")
    two = batches_at(place, tmp_path / "two")
    assert two.has_source("payments-1")
    two.remove("payments-1")
    assert not two.has_source("payments-1")
    assert not has_rows(store_at(place), "payments-1")


@pytest.mark.long
def test_a_file_stored_just_after_a_purge_is_removed_by_the_next_one(machines, target, tmp_path):
    """SCALE-03: the machine that put the file was killed before it wrote the entry for it."""
    machines.put("one", PAID)
    batch = machines.asked("one", "import")["batches"][0]["batch_id"]
    machines.asked("one", "import")
    assert machines.does("one", "purge", batch)[0] == 0
    late = tmp_path / "late"
    late.write_text("a row of p1")
    store = store_at(machines.place)
    store.put(f"files/{batch}/0-{hashlib.sha256(b'late').hexdigest()}", late)
    assert has_rows(store, batch)
    assert "its source rows were removed before" in machines.does("two", "purge", batch)[1]
    assert not has_rows(store, batch)
    assert rows_at(machines, "one", batch) == []


def test_a_failure_of_the_local_disk_is_not_reported_as_one_of_the_store(place, tmp_path, monkeypatch):
    """SCALE-03"""
    store = store_at(place)
    (tmp_path / "file").write_text("rows of p1")
    store.put("files/b-1/0-a", tmp_path / "file")
    with pytest.raises(FileNotFoundError, match="gone"):
        store.put("files/b-1/0-b", tmp_path / "gone")
    with pytest.raises(FileNotFoundError, match="no folder"):
        store.fetch("files/b-1/0-a", tmp_path / "no folder" / "file")
    assert store.fetch("files/b-1/0-a", tmp_path / "again")
    assert (tmp_path / "again").read_text() == "rows of p1"
    assert not store.fetch("files/b-1/0-none", tmp_path / "none")
    assert sorted(store.ages()) == ["files/b-1/0-a"]


@FOLDER
def test_a_batch_that_the_ledger_does_not_know_is_not_looked_for(machines, target, monkeypatch):
    """SCALE-03"""
    asked: list[str] = []
    read = Folder.read
    machines.put("one")
    machines.asked("one", "import")

    def noting(store: Folder, key: str) -> stores.HeldObject | None:
        asked.append(key)
        return read(store, key)

    monkeypatch.setattr(Folder, "read", noting)
    assert machines.does("one", "import", "--again", "payments-000000000000")[0] != 0
    assert not [key for key in asked if "000000000000" in key]


@FOLDER
def test_dagster_names_a_file_that_another_machine_took_in(machines, target):
    """SCALE-03: if the store cannot be reached, it names the batch only."""
    machines.put("one")
    batch = machines.asked("one", "import")["batches"][0]["batch_id"]
    log, place = logging.getLogger("test"), RunWorkplace(machines.home("two"), os.environ)
    with contextlib.closing(place):
        found = file_of(batch, place, log)
        assert found
        assert found.file_name == "payments.csv"
    shutil.rmtree(Path(machines.place) / "log" / batch)
    place = RunWorkplace(machines.home("three"), {**os.environ, "CHARTFERRY_BATCHES": "ftp://nowhere"})
    with contextlib.closing(place):
        assert file_of(batch, place, log) is None


@pytest.mark.long
@FOLDER
def test_another_machine_fetches_the_map_of_lines_together_with_the_rows(machines, target, monkeypatch):
    """SCALE-03"""
    target.additions = False
    target.faults = ["lost_before"]
    machines.put("one")
    assert machines.asked("one", "import")["totals"]["in_doubt"] == 1
    brought: list[tuple[str, ...]] = []
    bring = StoredBatches.bring

    def noting(batches: StoredBatches, batch_ids: list[str], *files: str) -> None:
        brought.append(files)
        bring(batches, batch_ids, *files)

    monkeypatch.setattr(StoredBatches, "bring", noting)
    machines.put("two", "k4,p1,4.00,2026-03-01,\n")
    machines.asked("two", "import")
    assert ("run-*/accepted.parquet", "run-*/places.json") in brought


def test_rows_that_a_killed_run_never_kept_go_with_a_purge_elsewhere(place, tmp_path):
    """SCALE-03: also if a command was killed after it had read of the purge. Later runs keep their rows."""
    one, two = (batches_at(place, tmp_path / name) for name in ("one", "two"))
    folder = a_batch(one)
    one.keep("payments-1", *SOURCE)
    assert one.claim("payments-1", "run-1")
    (folder / "run-1").mkdir()
    for name in ("accepted.parquet", "manifest.json"):
        (folder / "run-1" / name).write_text("never kept, of p1")
    two.remove("payments-1")
    again = batches_at(place, tmp_path / "one")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("pipelines.ledger.batch_store._Folder.drop", killed)
        with pytest.raises(KeyboardInterrupt):
            again.agree()
    assert (folder / "source" / "payments.csv").exists()
    batches_at(place, tmp_path / "one").agree()
    assert sorted(path.name for path in folder.rglob("*") if path.is_file()) == ["manifest.json", "sha256"]
    later = batches_at(place, tmp_path / "one")
    assert later.claim("payments-1", "run-2")
    (folder / "run-2").mkdir()
    (folder / "run-2" / "accepted.parquet").write_text("of p1")
    later.agree()
    assert (folder / "run-2" / "accepted.parquet").exists()


def killed(*_: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.long
@FOLDER
def test_a_shared_folder_that_is_not_mounted_is_not_made_anew(machines, target):
    """SCALE-03: otherwise a machine would go on with a store of its own."""
    machines.put("one")
    machines.asked("one", "import")
    shared, aside = Path(machines.place), Path(f"{machines.place}.aside")
    shared.rename(aside)
    for empty in (False, True):
        if empty:
            shared.mkdir()
        machines.put("one", "k4,p1,4.00,2026-03-01,\n")
        code, out, err = machines.does("one", "import")
        assert code == 6
        assert "nothing of what this deployment kept is there any more: mount it" in out + err
        assert not list(shared.glob("*"))
    shared.rmdir()
    aside.rename(shared)
    assert machines.asked("one", "import")["totals"]["created"] == 1
    (shared / "_owner.json").unlink()
    assert machines.asked("one", "import")["batches"] == []
    assert amounts(target) == [1.0, 2.0, 4.0]


@FOLDER
def test_a_place_that_gets_another_name_is_not_begun_anew_without_its_batches(machines, target, monkeypatch):
    """SCALE-03: for example, if a clinic is renamed. The files that a lost machine received would be lost unseen."""
    machines.put("one")
    machines.asked("one", "import")
    machines.put("two", "k4,p1,4.00,2026-03-01,\n")
    with monkeypatch.context() as patched:
        patched.setattr("pipelines.runs.beginning.note_batch", killed)
        machines.does("two", "import")
    machines.loses("two")
    place, other = Path(machines.place), Path(f"{machines.place}-other")
    monkeypatch.setenv("CHARTFERRY_BATCHES", str(other))
    code, out, err = machines.does("one", "import")
    assert (code, amounts(target)) == (6, [1.0, 2.0])
    assert "copy it there from where it was" in out + err
    assert not list(other.glob("*"))
    shutil.copytree(place, other, dirs_exist_ok=True)
    assert machines.asked("one", "import")["totals"]["created"] == 1
    assert amounts(target) == [1.0, 2.0, 4.0]


def test_the_manifest_of_a_run_is_kept_before_the_copy_of_the_journal(machines, target, monkeypatch):
    """SCALE-03: the ledger would have a finished run whose manifest is never stored."""
    machines.put("one")
    with monkeypatch.context() as patched:
        patched.setattr(StoredBatches, "keep_journal", out_of_reach)
        assert machines.does("one", "import")[0] == 6
    machines.loses("one")
    assert machines.asked("two", "verify")["differences"] == []
    batches = list(machines.home("two").glob("batches/payments-*/run-1/manifest.json"))
    assert [json.loads(path.read_bytes())["ended_at"] is not None for path in batches] == [True]


def out_of_reach(*_: object) -> None:
    raise BatchesUnusable("the batches are out of reach")


@pytest.mark.alike
@FOLDER
@pytest.mark.parametrize("damage", ["changed", "gone"])
@pytest.mark.parametrize("name", ["payments.csv", "payments-2.csv"])
def test_a_second_import_of_a_file_repairs_its_damaged_copy_at_the_store(machines, target, damage, name):
    """SCALE-03: also under another name."""
    machines.put("one")
    batch = machines.asked("one", "import")["batches"][0]["batch_id"]
    machines.loses("one")
    [content] = [path for path in Path(machines.place).glob(f"files/{batch}/*") if b"k1,p1" in path.read_bytes()[:200]]
    whole = content.read_bytes()
    content.unlink()
    if damage == "changed":
        content.write_bytes(whole.replace(b"1.00", b"9.00"))
    assert machines.does("two", "rejects", "retry")[0] == 6
    machines.put("two", file=name)
    assert machines.asked("two", "import")["totals"]["unchanged"] == 2
    assert content.read_bytes() == whole
    machines.loses("two")
    assert machines.asked("three", "rejects", "retry")["totals"]["rejected"] == 1
    assert amounts(target) == [1.0, 2.0]


def test_control_totals_stay_where_the_same_bytes_come_to_two_machines_at_once(place, tmp_path):
    """SCALE-03: under two names, one of them with control totals beside it."""
    one, two = (batches_at(place, tmp_path / name) for name in ("one", "two"))
    folder = a_batch(one, file="a.csv")
    (folder / "source" / "a.csv.control.json").write_text("{}")
    a_batch(two, file="b.csv")
    one.keep("payments-1", *SOURCE)
    two.keep("payments-1", *SOURCE)
    for name in ("one", "two", "three"):
        batches = batches_at(place, tmp_path / name)
        found = batches.renew("payments-1") / "source"
        assert sorted(path.name for path in found.iterdir()) == ["b.csv", "b.csv.control.json"]
        received = batches.received("payments-1")
        assert received
        assert received.path_in_batch.name == "b.csv"


@pytest.mark.long
@FOLDER
def test_a_run_reports_the_file_name_that_its_own_machine_received(machines, target, monkeypatch):
    """SCALE-03: another machine receives the same bytes under another name at once."""
    machines.put("one", file="payments-a.csv")
    machines.put("two", file="payments-b.csv")

    def late(session, *arguments, **how):
        monkeypatch.setattr("pipelines.runs.batch.begin", begin)
        [feed] = [feed for feed in session.catalog.feeds if feed.name == "payments"]
        with open_session(machines.home("two"), os.environ) as other:
            path = machines.home("two") / "inbox" / "payments-b.csv"
            batches = other.ledger.batches_in(other.home)
            monkeypatch.setattr(batches, "received", lambda _: None)
            receive(path, feed, other.home, inbox=other.inbox, batches=batches)
        return begin(session, *arguments, **how)

    monkeypatch.setattr("pipelines.runs.batch.begin", late)
    found = machines.asked("one", "import")
    assert (found["totals"]["created"], [each["file"] for each in found["batches"]]) == (2, ["payments-a.csv"])
    assert amounts(target) == [1.0, 2.0]
    [row] = json.loads(machines.does("one", "status", "--json")[1])["batches"]
    assert row["file_name"] == "payments-a.csv"
    assert [each["file"] for each in machines.asked("one", "rejects", "retry")["batches"]] == ["payments-a.csv"]
    [manifest] = machines.home("one").glob("batches/*/run-2/manifest.json")
    assert json.loads(manifest.read_text())["file"] == "payments-a.csv"


@FOLDER
def test_batches_and_copies_have_places_of_their_own(machines, target, monkeypatch):
    """SCALE-03"""
    monkeypatch.setenv("CHARTFERRY_COPIES", f"{machines.place}/")
    code, out, err = machines.does("one", "import")
    assert code == 6
    assert "CHARTFERRY_BATCHES and CHARTFERRY_COPIES name one place: give each a prefix of its own" in out + err
    monkeypatch.setenv("CHARTFERRY_COPIES", f"{machines.place}/tables")
    _, out, err = machines.does("one", "import")
    assert "CHARTFERRY_COPIES lies within CHARTFERRY_BATCHES: give each a prefix of its own" in out + err


@pytest.mark.parametrize("within", ["in", "in/deep/er", "log"])
def test_a_place_within_another_is_refused(place, tmp_path, within):
    """SCALE-03: in either order, and nothing is written there."""
    if "://" not in place:
        (Path(place) / within).mkdir(parents=True)
        (Path(place) / "one" / within).mkdir(parents=True)
    a_batch(one := batches_at(f"{place}/one", tmp_path / "one"))
    one.keep("payments-1", *SOURCE)
    before = store_at(place).ages().keys()
    inner, outer = batches_at(f"{place}/one/{within}", tmp_path / "in"), batches_at(place, tmp_path / "out")
    with pytest.raises(BatchesUnusable, match=r"are kept above it \(.*/one/_owner\.json\): name a prefix that neither"):
        inner.keep("payments-1")
    with pytest.raises(BatchesUnusable, match=r"are kept below it \(one/_owner\.json\): name a prefix that neither"):
        outer.keep("payments-1")
    assert store_at(place).ages().keys() == before


def test_a_folder_whose_parent_is_not_there_is_not_made(tmp_path):
    """SCALE-03: its disk may not be mounted."""
    batches = batches_at(str(tmp_path / "mnt" / "batches"), tmp_path / "one")
    with pytest.raises(
        BatchesUnusable, match="batches: the folder that it is to lie in is not there: make it, or mount"
    ):
        batches.names()
    assert not (tmp_path / "mnt").exists()
