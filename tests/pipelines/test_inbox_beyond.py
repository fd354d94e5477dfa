"""The inbox beyond the home: a folder, or a prefix of an object store, of which each object is taken once."""

import json
import os
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import dagster as dg
import pytest

from pipelines.dagster.stages.receiving import batches_of, receive_all
from pipelines.dagster.workplace import Workplace
from pipelines.definitions import build_definitions
from pipelines.feeds.files.catalog import load_feeds
from pipelines.home import objects, stores
from pipelines.home.objects import ObjectInbox
from pipelines.home.stores import StoreUnusable
from tests.support.emulated import SERVERS, Served, emulated
from tests.support.exports import PAYMENTS
from tests.support.fake_s3 import FakeBucket
from tests.support.machines import amounts

pytest.importorskip("obstore", reason="the extra `cluster` is not installed")


class Beyond:
    """A place where others put exports."""

    def __init__(self, place: str, bucket: FakeBucket) -> None:
        self.place, self.bucket = place, bucket
        self.puts, self.ago = 0, timedelta(hours=1)

    def put(self, name: str, *rows: str, text: str | None = None) -> None:
        body = (text or PAYMENTS + "".join(f"{row}\n" for row in rows)).encode()
        if "://" in self.place:
            self.puts += 1  # a second each, as if nobody puts twice within one
            at = datetime.now(UTC) - self.ago + timedelta(seconds=self.puts)
            self.bucket.objects[f"in/box/{name}"] = (body, at)
            return
        path = Path(self.place) / name
        path.parent.mkdir(exist_ok=True, parents=True)
        path.with_name("new").write_bytes(body)
        path.with_name("new").replace(path)

    def names(self) -> list[str]:
        if "://" in self.place:
            return sorted(name.removeprefix("in/box/") for name in self.bucket.objects if name.startswith("in/box/"))
        return sorted(str(path.relative_to(self.place)) for path in Path(self.place).rglob("*") if path.is_file())


def states(done: dict[str, Any]) -> list[tuple[str, str]]:
    return [(each["file"], each["state"]) for each in done["batches"]]


@pytest.fixture(params=["folder", "bucket"])
def beyond(request, home, bucket, tmp_path, monkeypatch) -> Beyond:
    assert home.exists()
    place = str(tmp_path / "exports") if request.param == "folder" else "s3://bucket/in/box"
    if request.param == "folder":
        Path(place).mkdir()
    monkeypatch.setenv("CHARTFERRY_INBOX", place)
    monkeypatch.setattr("pipelines.importing.objects.QUIET", timedelta(0))
    monkeypatch.setattr("pipelines.dagster.inbox.objects.QUIET", timedelta(0))
    return Beyond(place, bucket)


def test_each_object_is_taken_once_and_stays(beyond, target, asked):
    """SCALE-03: with its control totals; what lies deeper, or begins with a dot, is not looked at."""
    beyond.put("payments-1.csv", "k1,p1,1.00,2026-03-01,", "k2,p1,2.00,2026-03-01,")
    beyond.put("payments-1.csv.control.json", text=json.dumps({"rows": 2}))
    beyond.put("payments-2.csv", "k3,p1,3.00,2026-03-01,")
    for name in ("notes.txt", ".payments-3.csv", "deeper/payments-4.csv"):
        beyond.put(name, "k9,p1,9.00,2026-03-01,")
    there = beyond.names()
    done = asked("import")
    assert [each["file"] for each in done["batches"]] == ["payments-1.csv", "payments-2.csv"]
    assert (done["unmatched"], done["exit_code"]) == (["notes.txt"], 4)
    assert asked("import")["batches"] == []
    assert (beyond.names(), amounts(target)) == (there, [1.0, 2.0, 3.0])
    beyond.put("payments-2.csv", "k3,p1,3.00,2026-03-01,", "k4,p1,4.00,2026-03-01,")
    [again] = asked("import")["batches"]
    assert (again["counts"]["created"], again["counts"]["unchanged"]) == (1, 1)
    assert amounts(target) == [1.0, 2.0, 3.0, 4.0]


def test_control_totals_come_along_and_hold(beyond, target, asked):
    """SCALE-03"""
    beyond.put("payments-1.csv", "k1,p1,1.00,2026-03-01,")
    beyond.put("payments-1.csv.control.json", text=json.dumps({"rows": 2}))
    done = asked("import")
    assert done["batches"][0]["state"] in ("stopped", "failed")
    assert amounts(target) == []


def test_a_file_that_is_put_again_after_its_totals_were_mended_is_loaded(beyond, target, asked):
    """SCALE-03: an etag may be a hash of the bytes, so that the time tells the same file put again."""
    beyond.put("payments-2.csv", "k3,p1,3.00,2026-03-01,")
    beyond.put("payments-2.csv.control.json", text=json.dumps({"rows": 2}))
    assert states(asked("import")) == [("payments-2.csv", "stopped")]
    beyond.put("payments-2.csv", "k3,p1,3.00,2026-03-01,")
    assert states(asked("import")) == [("payments-2.csv", "stopped")]
    beyond.put("payments-2.csv.control.json", text=json.dumps({"rows": 1}))
    assert states(asked("import")) == [("payments-2.csv", "finished")]
    assert asked("import")["batches"] == []
    beyond.put("payments-2.csv", "k3,p1,3.00,2026-03-01,")
    [again] = asked("import")["batches"]
    assert (again["counts"]["created"], amounts(target)) == (0, [3.0])


def test_control_totals_that_come_late_are_compared_and_those_of_no_file_are_named(beyond, target, asked, chartferry):
    """SCALE-03"""
    beyond.put("payments-1.csv", "k1,p1,1.00,2026-03-01,")
    assert states(asked("import")) == [("payments-1.csv", "finished")]
    beyond.put("payments-1.csv.control.json", text=json.dumps({"rows": 3}))
    late = asked("import")
    assert ([each["file"] for each in late["batches"]], late["exit_code"]) == (["payments-1.csv"], 4)
    assert asked("import")["batches"] == []
    beyond.put("payments-9.csv.control.json", text=json.dumps({"rows": 1}))
    done = asked("import")
    assert (done["batches"], done["unmatched"], done["exit_code"]) == ([], ["payments-9.csv.control.json"], 4)
    _, out, err = chartferry("import")
    assert "control totals, and the file that they are of is not here" in out + err
    assert f"{beyond.place}: 1 files there were taken before, and have not changed" in out + err
    assert amounts(target) == [1.0]


def test_a_kill_before_the_run_takes_mended_totals_again(beyond, target, asked, monkeypatch):
    """SCALE-03: an object is noted once a run of its batch was begun."""
    beyond.put("payments-2.csv", "k3,p1,3.00,2026-03-01,")
    beyond.put("payments-2.csv.control.json", text=json.dumps({"rows": 2}))
    assert states(asked("import")) == [("payments-2.csv", "stopped")]
    beyond.put("payments-2.csv.control.json", text=json.dumps({"rows": 1}))
    with monkeypatch.context() as patched:
        patched.setattr("pipelines.importing.imports.import_all", lambda *_: None)
        asked("import")
    assert states(asked("import")) == [("payments-2.csv", "finished")]
    assert (asked("import")["batches"], amounts(target)) == ([], [3.0])


def test_each_target_takes_what_is_there(beyond, target, asked, tmp_path):
    """SCALE-03: and a note is an object of its own, whatever else was taken."""
    beyond.put("payments-1.csv", "k1,p1,1.00,2026-03-01,")
    notes = stores.Folder(tmp_path / "notes")
    one, other = (ObjectInbox(beyond.place, stores.store_at(beyond.place), notes, name) for name in ("one", "other"))
    [export] = one.look({}, datetime.now(UTC), 0.0).ready.values()
    one.note(export)
    one.note(export)
    found = one.look({}, datetime.now(UTC), 0.0)
    assert (found.before, list(found.ready)) == (1, [])
    assert list(other.look({}, datetime.now(UTC), 0.0).ready) == ["payments-1.csv"]
    assert [each.read_bytes() for each in (tmp_path / "notes" / "inbox").rglob("*") if each.is_file()] == [b"taken"]


def test_what_was_written_just_now_is_looked_at_twice(beyond, target, asked, monkeypatch):
    """SCALE-03: and waits where it has changed in between."""
    monkeypatch.setattr("pipelines.importing.objects.QUIET", timedelta(seconds=10))
    beyond.ago = timedelta(0)
    beyond.put("payments-1.csv", "k1,p1,1.00,2026-03-01,")
    beyond.put("payments-2.csv", "k2,p1,2.00,2026-03-01,")
    waited: list[float] = []

    def meanwhile(seconds: float) -> None:
        waited.append(seconds)
        beyond.put("payments-2.csv", "k2,p1,2.00,2026-03-01,", f"k{len(waited) + 2},p1,3.00,2026-03-01,")

    monkeypatch.setattr("pipelines.importing.objects.time.sleep", meanwhile)
    done = asked("import")
    assert [each["file"] for each in done["batches"]] == ["payments-1.csv"]
    assert (done["unmatched"], waited) == (["payments-2.csv"], [10.0])
    monkeypatch.setattr("pipelines.importing.objects.time.sleep", waited.append)
    assert asked("import")["totals"]["created"] == 2
    assert amounts(target) == [1.0, 2.0, 3.0]


def test_an_object_that_changes_while_it_is_fetched_is_taken_by_the_next_import(beyond, target, asked, monkeypatch):
    """SCALE-03"""
    beyond.put("payments-1.csv", "k1,p1,1.00,2026-03-01,")
    kind = stores.Bucket if "://" in beyond.place else stores.Folder
    fetch = kind.fetch

    def late(store, key, file):
        found = fetch(store, key, file)
        beyond.put("payments-1.csv", "k1,p1,1.00,2026-03-01,", "k2,p1,2.00,2026-03-01,")
        return found

    with monkeypatch.context() as patched:
        patched.setattr(kind, "fetch", late)
        assert asked("import")["batches"] == []
    assert asked("import")["totals"]["created"] == 2
    assert amounts(target) == [1.0, 2.0]


def test_a_kill_before_the_note_takes_it_into_the_same_batch(beyond, target, asked, chartferry, monkeypatch):
    """SCALE-03"""
    beyond.put("payments-1.csv", "k1,p1,1.00,2026-03-01,")

    def unusable(*_: object) -> None:
        raise StoreUnusable("the place: it does not answer")

    with monkeypatch.context() as patched:
        patched.setattr(ObjectInbox, "note", unusable)
        code, out, err = chartferry("import")
    said = f"{beyond.place}: not all that was taken is noted: the place: it does not answer; it is taken again"
    assert (code, said in out + err) == (0, True)
    [again] = asked("import")["batches"]
    assert (again["counts"]["created"], again["counts"]["unchanged"]) == (0, 1)
    assert asked("import")["batches"] == []
    assert amounts(target) == [1.0]


def test_a_purge_does_not_bring_it_back(beyond, target, asked, chartferry):
    """SCALE-03: what others keep there is theirs to remove."""
    beyond.put("payments-1.csv", "k1,p1,1.00,2026-03-01,")
    batch = asked("import")["batches"][0]["batch_id"]
    assert chartferry("purge", batch)[0] == 0
    assert asked("import")["batches"] == []
    assert beyond.names() == ["payments-1.csv"]
    assert amounts(target) == [1.0]


def test_a_dry_run_takes_nothing(beyond, target, chartferry, asked):
    """SCALE-03: and says so."""
    beyond.put("payments-1.csv", "k1,p1,1.00,2026-03-01,")
    assert f"{beyond.place}: not looked at by a dry run: name a copy of a file" in chartferry("import", "--dry-run")[2]
    assert amounts(target) == []
    assert asked("import")["totals"]["created"] == 1


def test_an_inbox_that_is_out_of_reach_is_one_sentence_and_nothing_is_lost(beyond, target, chartferry, asked, tmp_path):
    """SCALE-03"""
    beyond.put("payments-1.csv", "k1,p1,1.00,2026-03-01,")
    if "://" in beyond.place:
        beyond.bucket.wrong, said = 403, "s3://bucket/in/box: it refuses these credentials (403)"
    else:
        Path(beyond.place).rename(tmp_path / "aside")
        said = f"{beyond.place}: No such file or directory"
    code, out, err = chartferry("import")
    assert (code, f"the inbox is out of reach: {said}" in out + err) == (6, True)
    beyond.bucket.wrong = None
    if "://" not in beyond.place:
        (tmp_path / "aside").rename(beyond.place)
    assert asked("import")["totals"]["created"] == 1


@pytest.mark.parametrize("beyond", ["bucket"], indirect=True)
@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("half", "it does not answer, or the connection to it was lost"),
        pytest.param("lost", "it does not answer, or the connection to it was lost", marks=pytest.mark.long),
        pytest.param("expired", "these credentials have expired", marks=pytest.mark.long),
        pytest.param(503, "it answers with an error (503)", marks=pytest.mark.long),
        pytest.param(404, "there is no such bucket or container", marks=pytest.mark.long),
    ],
)
def test_an_export_that_comes_in_part_or_not_at_all_is_taken_whole_later(
    beyond, target, chartferry, asked, monkeypatch, wrong, said
):
    """SCALE-03: none of what came of it is a batch."""
    monkeypatch.setattr(stores, "TRIES", 1)
    beyond.put("payments-1.csv", *(f"k{number},p1,{number}.00,2026-03-01," for number in range(1, 9)))
    beyond.bucket.wrong = wrong
    code, out, err = chartferry("import")
    beyond.bucket.wrong = None
    assert (code, f"the inbox is out of reach: s3://bucket/in/box: {said}" in out + err) == (6, True)
    assert amounts(target) == []
    assert states(asked("import")) == [("payments-1.csv", "finished")]
    assert amounts(target) == [float(number) for number in range(1, 9)]


def test_an_inbox_is_no_place_of_batches(beyond, target, chartferry, monkeypatch):
    """SCALE-03"""
    monkeypatch.setenv("CHARTFERRY_BATCHES", beyond.place)
    code, out, err = chartferry("import")
    assert code == 6
    assert "CHARTFERRY_BATCHES and CHARTFERRY_INBOX name one place: give each a prefix of its own" in out + err


def test_notes_of_what_is_not_there_any_more_are_left_out_where_there_are_many(
    beyond, target, asked, home, monkeypatch
):
    """SCALE-03"""
    monkeypatch.setattr(objects, "MANY", 1)
    beyond.put("payments-1.csv", "k1,p1,1.00,2026-03-01,")
    asked("import")
    if "://" in beyond.place:
        beyond.bucket.objects.pop("in/box/payments-1.csv")
    else:
        (Path(beyond.place) / "payments-1.csv").unlink()
    beyond.put("payments-2.csv", "k2,p1,2.00,2026-03-01,")
    asked("import")
    beyond.put("payments-2.csv", "k2,p1,2.00,2026-03-01,")
    asked("import")
    assert [each["file"] for each in asked("import")["batches"]] == []
    assert amounts(target) == [1.0, 2.0]
    assert len([each for each in (home / "batches" / ".inbox" / "inbox").rglob("*") if each.is_file()]) == 1


def test_machines_that_share_ledger_and_batches_take_each_object_once(machines, target, bucket, tmp_path, monkeypatch):
    """SCALE-03"""
    monkeypatch.setattr("pipelines.importing.objects.QUIET", timedelta(0))
    place = str(tmp_path / "exports") if "://" not in machines.place else "s3://bucket/in/box"
    monkeypatch.setenv("CHARTFERRY_INBOX", place)
    Beyond(place, bucket).put("payments-1.csv", "k1,p1,1.00,2026-03-01,")
    assert machines.asked("one", "import")["totals"]["created"] == 1
    machines.loses("one")
    assert machines.asked("two", "import")["batches"] == []
    assert amounts(target) == [1.0]


def ticked(home: Path, cursor: str | None = None) -> dg.SensorResult | dg.SkipReason:
    repository = build_definitions({**os.environ, "CHARTFERRY_HOME": str(home)}).get_repository_def()
    with dg.DagsterInstance.ephemeral() as instance:
        context = dg.build_sensor_context(instance=instance, cursor=cursor, repository_def=repository)
        result = repository.get_sensor_def("inbox")(context)
    assert isinstance(result, dg.SensorResult | dg.SkipReason)
    return result


def test_the_sensor_asks_for_a_run_of_what_it_took_in(beyond, target, home):
    """SCALE-03: the run finds it in its batch."""
    beyond.put("payments-1.csv", "k1,p1,1.00,2026-03-01,")
    beyond.put("notes.txt", "x")
    result = ticked(home)
    assert isinstance(result, dg.SensorResult)
    [request] = result.run_requests or ()
    assert (request.job_name, request.tags["file"]) == ("import_payments", "payments-1.csv")
    feed = load_feeds().named("payments")
    assert feed
    assert request.partition_key
    with closing(Workplace(home, os.environ)) as place:
        outcome = receive_all(feed, home, [request.partition_key], place.inbox, batches_of(place, None))  # type: ignore[arg-type]
    assert (outcome.failed, list(outcome.done)) == ({}, [request.partition_key])


def run_of(instance: dg.DagsterInstance, request: dg.RunRequest, status: dg.DagsterRunStatus) -> None:
    tags = {"dagster/run_key": str(request.run_key)}
    run = dg.DagsterRun(job_name="import_payments", run_id=str(uuid4()), tags=tags, status=status)
    instance.run_storage.add_run(run)


def test_the_sensor_notes_what_a_run_was_begun_of_and_asks_again_where_none_was(
    beyond, target, home, asked, monkeypatch
):
    """SCALE-03: a process that ends in between, or a run that ends before it begins, loses nothing."""
    beyond.put("payments-1.csv", "k1,p1,1.00,2026-03-01,")

    def process() -> Callable[[], list[dg.RunRequest]]:
        repository = build_definitions({**os.environ, "CHARTFERRY_HOME": str(home)}).get_repository_def()

        def tick() -> list[dg.RunRequest]:
            result = repository.get_sensor_def("inbox")(dg.build_sensor_context(instance, repository_def=repository))
            assert isinstance(result, dg.SensorResult)
            return list(result.run_requests or ())

        return tick

    with dg.DagsterInstance.ephemeral() as instance:
        killed, tick = process(), process()
        assert [each.tags["file"] for each in killed()] == ["payments-1.csv"]
        [request] = tick()
        assert (tick(), tick()) == ([], [])  # no run yet, and no other one asked for
        monkeypatch.setattr("pipelines.dagster.inbox.objects.SECONDS_BEFORE_ANOTHER_TRY", 0.0)
        monkeypatch.setattr("pipelines.dagster.inbox.objects.pause", lambda _: timedelta(0))
        tick = process()
        [request] = tick()
        run_of(instance, request, dg.DagsterRunStatus.FAILURE)
        [request] = tick()
        monkeypatch.setattr("pipelines.dagster.inbox.objects.SECONDS_BEFORE_ANOTHER_TRY", 300.0)
        run_of(instance, request, dg.DagsterRunStatus.STARTED)
        assert tick() == []
        with monkeypatch.context() as patched:
            patched.setattr("pipelines.importing.objects.TakenIn.note", lambda *_: None)
            asked("import")
        assert tick() == []
        assert process()() == []
        beyond.put("payments-1.csv.control.json", text=json.dumps({"rows": 2}))
        assert len(tick()) == 1


def test_the_sensor_goes_on_where_the_inbox_beyond_is_out_of_reach(beyond, target, home, monkeypatch):
    """SCALE-03: with the files of the home."""
    monkeypatch.setattr("pipelines.dagster.inbox.files.QUIET", timedelta(0))
    beyond.bucket.wrong = 403
    if "://" not in beyond.place:
        Path(beyond.place).rmdir()
    (home / "inbox" / "payments-2.csv").write_text(PAYMENTS + "k2,p1,2.00,2026-03-01,\n")
    result = ticked(home)
    assert isinstance(result, dg.SensorResult)
    assert [each.tags["file"] for each in result.run_requests or ()] == ["payments-2.csv"]


def test_an_object_with_a_time_that_lies_ahead_waits_for_a_second_look(beyond, tmp_path):
    """SCALE-03: as where the clock of a store is ahead."""
    beyond.put("payments-1.csv", "k1,p1,1.00,2026-03-01,")
    store = stores.store_at(beyond.place)
    inbox = ObjectInbox(beyond.place, store, stores.Folder(tmp_path / "notes"), "here")
    early = datetime.now(UTC) - timedelta(hours=2)
    found = inbox.look({}, early, 10.0)
    assert (list(found.ready), len(found.still)) == ([], 1)
    assert list(inbox.look(found.still, early, 10.0).ready) == ["payments-1.csv"]


@pytest.mark.long
@pytest.mark.parametrize(("scheme", "serve"), SERVERS)
def test_each_object_of_a_server_that_speaks_a_clouds_protocol_is_taken_once(
    scheme: str, serve: Served, home, target, asked, tmp_path, monkeypatch
):
    """SCALE-03: of more names than a page has, with control totals, and again where it was put again."""
    assert home.exists()
    place = f"{scheme}://exports/in/box"
    monkeypatch.setenv("CHARTFERRY_INBOX", place)
    monkeypatch.setattr("pipelines.importing.objects.QUIET", timedelta(0))
    with emulated(serve, tmp_path / "served", "exports", monkeypatch):
        store = stores.store_at(place)

        def put(name: str, text: str) -> None:
            (tmp_path / "file").write_text(text)
            store.put(name, tmp_path / "file")

        for number in range(1, 13):
            put(f"payments-{number}.csv", f"{PAYMENTS}k{number},p1,{number}.00,2026-03-01,\n")
        put("payments-1.csv.control.json", json.dumps({"rows": 1}))
        put("deeper/payments-99.csv", f"{PAYMENTS}k99,p1,99.00,2026-03-01,\n")
        done = asked("import")
        assert ({state for _, state in states(done)}, done["exit_code"]) == ({"finished"}, 0)
        assert asked("import")["batches"] == []
        assert amounts(target) == [float(number) for number in range(1, 13)]
        put("payments-2.csv", f"{PAYMENTS}k2,p1,2.00,2026-03-01,\nk13,p1,13.00,2026-03-01,\n")
        [again] = asked("import")["batches"]
        assert (again["counts"]["created"], again["counts"]["unchanged"]) == (1, 1)
