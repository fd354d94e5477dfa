"""The inbox outside the home: a folder, or a prefix of an object store. Each object is taken once."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pipelines.home import objects, stores
from pipelines.home.objects import ObjectInbox
from pipelines.home.stores import StoreUnusable
from tests.support.beyond import Beyond
from tests.support.emulated import SERVERS, Served, emulated
from tests.support.exports import PAYMENTS
from tests.support.machines import amounts

pytest.importorskip("obstore", reason="the extra `cluster` is not installed")


def states(done: dict[str, Any]) -> list[tuple[str, str]]:
    return [(each["file"], each["state"]) for each in done["batches"]]


def test_each_object_is_taken_once_and_stays(beyond, target, asked):
    """SCALE-03: with its control totals. Objects in subfolders, and names that begin with a dot, are ignored."""
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
    """SCALE-03: an etag may be a hash of the bytes, so that only the time shows that a file was put again."""
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


@pytest.mark.long
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
    assert f"{beyond.place}: 1 file there was received before, and has not changed" in out + err
    assert amounts(target) == [1.0]


def test_a_kill_before_the_run_takes_mended_totals_again(beyond, target, asked, monkeypatch):
    """SCALE-03: an object counts as taken when a run of its batch has begun."""
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
    """SCALE-03: the note about each taken object is a separate object."""
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


def test_an_object_written_just_now_is_taken_only_if_it_is_unchanged_at_a_second_look(
    beyond, target, asked, monkeypatch
):
    """SCALE-03"""
    monkeypatch.setattr("pipelines.importing.objects.QUIET", timedelta(seconds=10))
    beyond.ago = timedelta(0)
    beyond.put("payments-1.csv", "k1,p1,1.00,2026-03-01,")
    beyond.put("payments-2.csv", "k2,p1,2.00,2026-03-01,")
    waited: list[float] = []

    def meanwhile(seconds: float) -> None:
        waited.append(seconds)
        beyond.put("payments-2.csv", "k2,p1,2.00,2026-03-01,", f"k{len(waited) + 2},p1,3.00,2026-03-01,")

    monkeypatch.setattr("pipelines.importing.objects.time", SimpleNamespace(sleep=meanwhile))
    done = asked("import")
    assert [each["file"] for each in done["batches"]] == ["payments-1.csv"]
    assert (done["unmatched"], waited) == (["payments-2.csv"], [10.0])
    monkeypatch.setattr("pipelines.importing.objects.time", SimpleNamespace(sleep=waited.append))
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
    said = (
        f"{beyond.place}: some files that were received could not be marked as received (the place: it does not"
        " answer): the next import receives them again"
    )
    assert (code, said in out + err) == (0, True)
    [again] = asked("import")["batches"]
    assert (again["counts"]["created"], again["counts"]["unchanged"]) == (0, 1)
    assert asked("import")["batches"] == []
    assert amounts(target) == [1.0]


def test_a_purge_does_not_bring_it_back(beyond, target, asked, chartferry):
    """SCALE-03: the objects belong to others, who remove them."""
    beyond.put("payments-1.csv", "k1,p1,1.00,2026-03-01,")
    batch = asked("import")["batches"][0]["batch_id"]
    assert chartferry("purge", batch)[0] == 0
    assert asked("import")["batches"] == []
    assert beyond.names() == ["payments-1.csv"]
    assert amounts(target) == [1.0]


def test_a_dry_run_takes_nothing(beyond, target, chartferry, asked):
    """SCALE-03: and says so."""
    beyond.put("payments-1.csv", "k1,p1,1.00,2026-03-01,")
    assert (f"{beyond.place}: a dry run does not read this inbox; to check a file, name a copy of it") in chartferry(
        "import", "--dry-run"
    )[2]
    assert amounts(target) == []
    assert asked("import")["totals"]["created"] == 1


def test_an_inbox_that_is_out_of_reach_is_reported_in_one_sentence_and_nothing_is_lost(
    beyond, target, chartferry, asked, tmp_path
):
    """SCALE-03"""
    beyond.put("payments-1.csv", "k1,p1,1.00,2026-03-01,")
    if "://" in beyond.place:
        beyond.bucket.wrong, said = 403, "s3://bucket/in/box: it refuses these credentials (403)"
    else:
        Path(beyond.place).rename(tmp_path / "aside")
        said = f"{beyond.place}: No such file or directory"
    code, out, err = chartferry("import")
    assert (code, f"the inbox cannot be reached: {said}" in out + err) == (6, True)
    beyond.bucket.wrong = None
    if "://" not in beyond.place:
        (tmp_path / "aside").rename(beyond.place)
    assert asked("import")["totals"]["created"] == 1


@pytest.mark.parametrize("beyond", ["bucket"], indirect=True)
@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("half", "payments-1.csv: cannot be fetched: it does not answer, or the connection to it was lost"),
        pytest.param("lost", "it does not answer, or the connection to it was lost", marks=pytest.mark.long),
        ("page", "what answers there is no object store: check the address"),
        pytest.param("expired", "these credentials have expired", marks=pytest.mark.long),
        pytest.param(503, "it answers with an error (503)", marks=pytest.mark.long),
        pytest.param(404, "there is no such bucket or container", marks=pytest.mark.long),
    ],
)
def test_an_export_that_comes_in_part_or_not_at_all_is_taken_whole_later(
    beyond, target, chartferry, asked, monkeypatch, wrong, said
):
    """SCALE-03: the received part does not become a batch."""
    monkeypatch.setattr(stores, "TRIES", 1)
    beyond.put("payments-1.csv", *(f"k{number},p1,{number}.00,2026-03-01," for number in range(1, 9)))
    beyond.bucket.wrong = wrong
    code, out, err = chartferry("import")
    beyond.bucket.wrong = None
    away = wrong != "half"  # `half` cuts objects, not the listing
    place = "" if wrong == "page" else "s3://bucket/in/box: "
    wanted = f"the inbox cannot be reached: {place}{said}" if away else said
    assert (code, wanted in out + err) == (6 if away else 4, True)
    assert amounts(target) == []
    assert states(asked("import")) == [("payments-1.csv", "finished")]
    assert amounts(target) == [float(number) for number in range(1, 9)]


@pytest.mark.parametrize("beyond", ["bucket"], indirect=True)
def test_the_mark_of_the_folder_itself_is_no_export(beyond, target, asked):
    """SCALE-03: web consoles create an empty object with the name of the prefix."""
    beyond.bucket.objects["in/box/"] = (b"", datetime.now(UTC) - timedelta(hours=1))
    beyond.put("payments-1.csv", "k1,p1,1.00,2026-03-01,")
    done = asked("import")
    assert (states(done), done["unmatched"], done["exit_code"]) == ([("payments-1.csv", "finished")], [], 0)


@pytest.mark.parametrize("beyond", ["bucket"], indirect=True)
def test_an_object_that_is_not_given_out_holds_up_no_other_and_is_named(beyond, target, chartferry, asked):
    """SCALE-03: it may be archived, or not readable with these credentials."""
    beyond.put("payments-1.csv", "k1,p1,1.00,2026-03-01,")
    beyond.put("payments-2.csv", "k2,p1,2.00,2026-03-01,")
    beyond.bucket.closed = {"in/box/payments-1.csv"}
    for taken in ([2.0], [2.0]):
        code, out, err = chartferry("import")
        said = "payments-1.csv: cannot be fetched: it refuses these credentials (403)"
        assert (code, said in out + err, amounts(target)) == (4, True, taken)
    beyond.bucket.closed.clear()
    assert states(asked("import")) == [("payments-1.csv", "finished")]
    assert amounts(target) == [1.0, 2.0]


@pytest.mark.alike
@pytest.mark.parametrize("beyond", ["bucket"], indirect=True)
@pytest.mark.parametrize("name", ["/payments-1.csv", "./payments-1.csv", "../payments-1.csv"])
def test_an_object_that_a_program_put_below_no_name_holds_up_no_other_and_is_named(
    beyond, target, chartferry, asked, name
):
    """SCALE-03: a program joined prefix and name wrongly. The library then lists no other object."""
    beyond.put(name, "k1,p1,1.00,2026-03-01,")
    for number in (2, 3):
        beyond.put(f"payments-{number}.csv", f"k{number},p1,{number}.00,2026-03-01,")
    beyond.put("older/payments-5.csv", "k5,p1,5.00,2026-03-01,")
    for _ in range(2):
        code, out, err = chartferry("import")
        said = "its name is not a path, and may hide objects whose names sort before it: rename or remove it"
        assert (code, said in out + err, amounts(target)) == (4, True, [2.0, 3.0])
    del beyond.bucket.objects[f"in/box/{name}"]
    beyond.put("payments-6.csv", "k6,p1,6.00,2026-03-01,")
    assert states(asked("import")) == [("payments-6.csv", "finished")]


@pytest.mark.alike
@pytest.mark.parametrize("beyond", ["bucket"], indirect=True)
@pytest.mark.parametrize(
    ("name", "shown", "seen"),
    [
        ("payments-2\t.csv", r"payments-2\t.csv", [2.0, 3.0, 4.0]),
        ('payments-2\\\x7f/"é.csv', r"payments-2\\\u{7f}/", [3.0, 4.0]),
    ],
)
def test_an_object_whose_name_has_a_control_character_is_named_and_what_sorts_behind_it_is_taken(
    beyond, target, chartferry, asked, name, shown, seen
):
    """SCALE-03: objects before it on its page cannot be listed, and are taken when it is removed."""
    beyond.put(name, "k9,p1,9.00,2026-03-01,")
    for number, each in enumerate(("1", "2", "3", "2a"), 1):
        beyond.put(f"payments-{each}.csv", f"k{number},p1,{number}.00,2026-03-01,")
    for _ in range(2):
        code, out, err = chartferry("import")
        said = f"in/box/{shown}"
        why = "its name is not a path, and may hide objects whose names sort before it"
        assert (code, said in out + err, why in out + err, amounts(target)) == (4, True, True, seen)
    del beyond.bucket.objects[f"in/box/{name}"]
    asked("import")
    assert amounts(target) == [1.0, 2.0, 3.0, 4.0]


@pytest.mark.parametrize("beyond", ["bucket"], indirect=True)
def test_an_unreadable_name_that_no_listing_gets_past_is_named_and_nothing_is_lost(
    beyond, target, chartferry, asked, monkeypatch
):
    """SCALE-03: for example, in a store that cannot list from a name on."""
    listing = type(beyond.bucket).listing
    monkeypatch.setattr(type(beyond.bucket), "listing", lambda *said: listing(*said[:-1], ""))
    beyond.put("a\tb.csv", "k1,p1,1.00,2026-03-01,")
    beyond.put("payments-2.csv", "k2,p1,2.00,2026-03-01,")
    code, out, err = chartferry("import")
    said = r"s3://bucket/in/box: the name of an object is not a path (in/box/a\tb.csv), so no object can be listed"
    assert (code, said in out + err) == (6, True)
    del beyond.bucket.objects["in/box/a\tb.csv"]
    assert states(asked("import")) == [("payments-2.csv", "finished")]


def test_batches_and_inbox_cannot_be_the_same_place(beyond, target, chartferry, monkeypatch):
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


def test_an_object_with_a_time_that_lies_ahead_waits_for_a_second_look(beyond, tmp_path):
    """SCALE-03: for example, if the clock of the store is ahead."""
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
    """SCALE-03: more objects than a page holds, with control totals; an object that is put again is taken again."""
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
