"""The inbox sensor takes each file once, when it has stopped growing. A feed's files are one run, by name."""

import os
import sys
from contextlib import closing
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from threading import Event

import dagster as dg
import pytest

from pipelines.dagster.inbox.files import LAIN_TOO_LONG, lain_for
from pipelines.dagster.inbox.look import FileRequests, Hashes, LookContext, SeenFiles, from_cursor, look, to_cursor
from pipelines.dagster.requests import stretches
from pipelines.dagster.stages.receiving import batch_id_of, waiting_files
from pipelines.definitions import build_definitions
from pipelines.feeds.files.catalog import Feed, load_feeds
from pipelines.home.objects import ObjectInbox
from pipelines.home.stores import Folder
from pipelines.ledger.ledger import Ledger
from pipelines.ledger.rows import Reject
from tests.support.publishing import few_tables

NOW = datetime(2026, 3, 29, 1, 30, tzinfo=UTC)
ROWS = "payment_id,patient_id,amount,paid_on\nA1,p1,10.00,2026-01-05\n"


@pytest.fixture
def inbox(tmp_path: Path) -> Path:
    folder = tmp_path / "home" / "inbox"
    folder.mkdir(parents=True)
    return folder


@pytest.fixture(autouse=True)
def nothing_is_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let files of a test count as just written, however slow the test is."""
    monkeypatch.setattr("pipelines.dagster.inbox.files.QUIET", timedelta(days=1))


def put(inbox: Path, name: str, text: str = ROWS) -> Path:
    path = inbox / name
    path.write_text(text)
    return path


class Sensor:
    """The sensor of a home, with its cursor and the partitions that its ticks added."""

    def __init__(self, home: Path) -> None:
        self.home = home
        with few_tables():
            self.repository = build_definitions({"CHARTFERRY_HOME": str(home)}).get_repository_def()
        self.instance = dg.DagsterInstance.ephemeral()
        self.cursor: str | None = None
        self.said = ""

    def tick(self) -> list[dg.RunRequest]:
        context = dg.build_sensor_context(instance=self.instance, cursor=self.cursor, repository_def=self.repository)
        result = self.repository.get_sensor_def("inbox")(context)
        assert isinstance(result, dg.SensorResult)
        self.said = str(result.skip_reason and result.skip_reason.skip_message)
        for added in result.dynamic_partitions_requests or ():
            self.instance.add_dynamic_partitions(added.partitions_def_name, list(added.partition_keys))
        self.cursor = result.cursor
        return list(result.run_requests or ())


def batch(home: Path, name: str) -> str:
    feed = load_feeds().match(name)
    assert feed
    return batch_id_of(feed, home / "inbox" / name)


def test_a_file_is_taken_up_when_two_looks_saw_the_same(inbox: Path) -> None:
    sensor = Sensor(inbox.parent)
    put(inbox, "payments-1.csv")
    assert sensor.tick() == []
    put(inbox, "payments-1.csv", ROWS + "A2,p1,5.00,2026-01-06\n")
    assert sensor.tick() == []
    [request] = sensor.tick()
    assert request.job_name == "import_payments"
    assert request.partition_key == batch(inbox.parent, "payments-1.csv")
    assert request.tags["chartferry/batch"] == request.partition_key
    assert request.tags["file"] == "payments-1.csv"
    assert sensor.tick() == []


def test_a_file_unchanged_for_the_quiet_time_is_taken_at_the_first_look(
    inbox: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipelines.dagster.inbox.files.QUIET", timedelta(seconds=10))
    path = put(inbox, "payments-1.csv")
    written = datetime.fromtimestamp(path.stat().st_ctime, UTC)
    for seconds, taken in ((9, 0), (11, 1), (-3600, 0)):
        by = LookContext(load_feeds(), written + timedelta(seconds=seconds))
        assert look(inbox, SeenFiles(), by).number == taken


@pytest.mark.parametrize("minutes", [5, -5])
@pytest.mark.parametrize("beyond", [False, True], ids=["of the home", "beyond"])
def test_a_growing_file_on_a_server_with_a_wrong_clock_is_not_taken(
    inbox: Path, monkeypatch: pytest.MonkeyPatch, minutes: int, beyond: bool
) -> None:
    """SCALE-03: if the server's clock is behind, the file looks minutes old."""
    monkeypatch.setattr("pipelines.dagster.inbox.files.QUIET", timedelta(seconds=10))
    (mounts := inbox.parent / "mounts").write_text(f"/dev/vda / ext4 rw 0 0\nserver:/ {inbox.resolve()} nfs4 rw 0 0\n")
    monkeypatch.setattr("pipelines.home.file_growth.MOUNTS", mounts)
    store = ObjectInbox(str(inbox), Folder(inbox), Folder(inbox.parent / "notes"), "here")
    still: tuple[SeenFiles, dict[str, str]] = SeenFiles(), {}

    def taken() -> int:
        nonlocal still
        by = LookContext(load_feeds(), datetime.now(UTC) + timedelta(minutes=minutes))
        ours, theirs = look(inbox, still[0], by), store.look(still[1], by.now, 10.0)
        still = ours, theirs.still
        return len(theirs.ready) if beyond else ours.number

    for rows in range(3):
        put(inbox, "payments-1.csv", ROWS + "A2,p1,5.00,2026-01-06\n" * rows)
        assert taken() == 0
    assert taken() == 1
    old = LookContext(load_feeds(), datetime.now(UTC) + timedelta(hours=2))
    assert look(inbox, SeenFiles(), old).number == 1  # more than any clock is wrong


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says whether a program has a file open to write")
def test_a_file_that_a_program_still_writes_is_not_still_however_long_it_pauses(inbox: Path) -> None:
    sensor = Sensor(inbox.parent)
    with put(inbox, "payments-1.csv").open("a"):
        assert [sensor.tick() for _ in range(3)] == [[], [], []]
    assert len(sensor.tick()) == 1


def test_a_file_that_may_not_be_read_is_named_at_each_look_until_it_may(
    inbox: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    by, path = LookContext(load_feeds(), NOW), put(inbox, "payments-1.csv")

    def refused(*_: object) -> str:
        raise PermissionError(13, "Permission denied")

    seen = look(inbox, SeenFiles(), by)
    with monkeypatch.context() as patched:
        patched.setattr("pipelines.dagster.inbox.look.batch_id_of", refused)
        for _ in range(2):
            found = look(inbox, seen, by)
            assert (found.unreadable, found.ready) == ({path.name: "Permission denied"}, {})
            seen = found
    assert list(look(inbox, seen, by).ready) == ["payments"]


def test_a_file_of_the_same_size_that_was_written_again_is_not_still(inbox: Path) -> None:
    sensor = Sensor(inbox.parent)
    path = put(inbox, "payments-1.csv")
    os.utime(path, ns=(1, 1))
    assert sensor.tick() == []
    os.utime(path, ns=(2, 2))
    assert sensor.tick() == []
    assert len(sensor.tick()) == 1


def test_the_waiting_files_of_a_feed_are_one_run_in_the_order_of_their_names(inbox: Path) -> None:
    sensor = Sensor(inbox.parent)
    for number in (2, 10, 1):
        put(inbox, f"payments-{number:02}.csv", ROWS + f"B{number},p1,1.00,2026-01-05\n")
    put(inbox, "tasks-1.csv", "task_id\n1\n")
    sensor.tick()
    payments, tasks = sensor.tick()
    in_order = [batch(inbox.parent, f"payments-{number:02}.csv") for number in (1, 2, 10)]
    assert payments.partition_key is None
    assert payments.tags["chartferry/batch"].split() == in_order
    assert payments.tags["dagster/asset_partition_range_start"] == in_order[0]
    assert payments.tags["dagster/asset_partition_range_end"] == in_order[-1]
    assert sensor.instance.get_dynamic_partitions("payments batches") == in_order
    assert tasks.job_name == "import_tasks"


def test_the_same_file_put_there_again_is_asked_for_again(inbox: Path) -> None:
    sensor = Sensor(inbox.parent)
    path = put(inbox, "payments-1.csv")
    sensor.tick()
    [first] = sensor.tick()
    path.unlink()
    assert sensor.tick() == []
    put(inbox, "payments-1.csv")
    sensor.tick()
    [second] = sensor.tick()
    assert second.partition_key == first.partition_key
    assert second.run_key != first.run_key


def test_controls_hidden_files_and_files_that_no_feed_takes_are_left_alone(inbox: Path) -> None:
    sensor = Sensor(inbox.parent)
    for name in ("payments-1.csv.control.json", ".payments-2.csv", "holiday.jpg"):
        put(inbox, name)
    assert sensor.tick() == []
    assert sensor.tick() == []
    assert sensor.said == "Nothing new. Files: 1 that no feed takes, left where they are."
    assert len(from_cursor(sensor.cursor).left) == 1


def test_an_entry_that_is_not_a_file_holds_no_file_up(inbox: Path) -> None:
    sensor = Sensor(inbox.parent)
    (inbox / "payments-1.csv").symlink_to("payments-1.csv")
    (inbox / "payments-2.csv").symlink_to("not-there.csv")
    os.mkfifo(inbox / "payments-3.csv")
    put(inbox, "payments-4.csv")
    assert sensor.tick() == []
    [request] = sensor.tick()
    assert request.partition_key == batch(inbox.parent, "payments-4.csv")


def test_hashing_that_takes_too_long_goes_on_at_the_next_look(inbox: Path) -> None:
    put(inbox, "payments-1.csv")
    by = LookContext(load_feeds(), NOW)
    seen = look(inbox, SeenFiles(), by)
    late = look(inbox, seen, by, seconds=-1.0)
    assert not late.ready
    assert list(look(inbox, late, by).ready) == ["payments"]


def test_a_file_that_takes_longer_than_a_look_to_hash_is_taken_up_by_a_later_one_and_holds_up_no_other(
    inbox: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, hashed, real = Event(), list[str](), batch_id_of

    def slow(feed: Feed, path: Path) -> str:
        hashed.append(path.name)
        if path.name == "payments-1.csv":
            assert read.wait(60)
        return real(feed, path)

    monkeypatch.setattr("pipelines.dagster.inbox.look.batch_id_of", slow)
    for number in (1, 2):
        put(inbox, f"payments-{number}.csv", ROWS + f"B{number},p1,1.00,2026-01-05\n")
    by = LookContext(load_feeds(), NOW, hashes=Hashes(patience=0.05))
    seen, ready = look(inbox, SeenFiles(), by), []
    for _ in range(3):
        found = look(inbox, seen, by)
        seen = found
        ready += list(found.ready.get("payments", {}).values())
    assert ready == [batch(inbox.parent, "payments-2.csv")]
    read.set()
    for _ in range(1_000):
        if found.ready:
            break
        found = look(inbox, seen, by)
    assert list(found.ready["payments"].values()) == [batch(inbox.parent, "payments-1.csv")]
    assert hashed == ["payments-1.csv", "payments-2.csv"]


def test_a_cursor_is_read_as_it_was_written(inbox: Path) -> None:
    put(inbox, "payments-1.csv")
    by = LookContext(load_feeds(), NOW)
    seen = look(inbox, look(inbox, SeenFiles(), by), by)
    assert to_cursor(from_cursor(to_cursor(seen))) == to_cursor(seen)
    assert (seen.asked, len(seen.asked)) == (from_cursor(to_cursor(seen)).asked, 1)
    assert from_cursor(None) == SeenFiles()


def test_a_file_that_was_not_received_is_asked_for_again_with_growing_pauses(inbox: Path) -> None:
    put(inbox, "payments-1.csv")
    catalog, seen, asked = load_feeds(), SeenFiles(), []
    for minute in range(4 * 24 * 60):
        now = NOW + timedelta(minutes=minute)
        found = look(inbox, from_cursor(to_cursor(seen)), LookContext(catalog, now))
        seen = found
        asked += [now] * len(found.ready)
    pauses = [after - before for before, after in pairwise(asked)]
    minutes = [pause.total_seconds() / 60 for pause in pauses]
    assert minutes[:6] == [5, 15, 45, 135, 405, 720]
    assert set(minutes[6:]) == {720}
    [each] = seen.asked.values()
    long_after = SeenFiles(asked={mark: FileRequests(10_000, 0) for mark in seen.asked})
    assert each.tries == len(asked)
    assert look(inbox, long_after, LookContext(catalog, NOW)).ready


def test_a_file_that_was_asked_for_while_the_clock_was_ahead_is_due_after_its_pause(inbox: Path) -> None:
    """STATE-HOME-01: otherwise it would wait until the clock reaches that time again."""
    put(inbox, "payments-1.csv")
    catalog, seen = load_feeds(), SeenFiles()
    for ahead in (timedelta(days=400), timedelta(days=400)):
        seen = look(inbox, seen, LookContext(catalog, NOW + ahead))
    assert [each.tries for each in seen.asked.values()] == [1]
    minutes = []
    for minute in range(30):
        found = look(inbox, from_cursor(to_cursor(seen)), LookContext(catalog, NOW + timedelta(minutes=minute)))
        seen = found
        minutes += [minute] * len(found.ready)
    assert minutes == [5, 20]


def test_a_file_whose_run_has_not_ended_is_not_asked_for_again_and_no_try_is_counted(inbox: Path) -> None:
    path, catalog, hours = put(inbox, "payments-1.csv"), load_feeds(), timedelta(hours=1)
    seen = look(inbox, look(inbox, SeenFiles(), LookContext(catalog, NOW)), LookContext(catalog, NOW))
    queued = {batch(inbox.parent, path.name)}
    for passed in (1, 2, 3):
        found = look(inbox, seen, LookContext(catalog, NOW + passed * hours, under_way=lambda: queued))
        seen = found
        assert not found.ready
        assert [each.tries for each in seen.asked.values()] == [1]
    queued.clear()
    assert look(inbox, seen, LookContext(catalog, NOW + 4 * hours)).ready


def test_files_that_have_lain_for_an_hour_are_found_whether_a_feed_takes_them_or_not(inbox: Path) -> None:
    for name in ("payments-1.csv", "holiday.jpg", ".part", "payments-1.csv.control.json"):
        put(inbox, name)
    came = datetime.fromtimestamp((inbox / "payments-1.csv").stat().st_ctime, UTC)
    assert lain_for(inbox, came + timedelta(minutes=59), LAIN_TOO_LONG) == {}
    assert set(lain_for(inbox, came + timedelta(minutes=61), LAIN_TOO_LONG)) == {"payments-1.csv", "holiday.jpg"}
    assert lain_for(inbox / "none", came, LAIN_TOO_LONG) == {}


def test_a_run_takes_only_batches_that_follow_each_other() -> None:
    assert stretches(["c", "d", "a", "f"], ["a", "b", "c", "d", "e", "f"]) == [["c", "d"], ["a"], ["f"]]


def test_a_file_that_no_feed_took_is_taken_up_when_its_feed_has_come(inbox: Path) -> None:
    put(inbox, "till-1.csv")
    sensor = Sensor(inbox.parent)
    for _ in range(3):
        assert sensor.tick() == []
    (inbox.parent / "feeds").mkdir()
    (inbox.parent / "feeds" / "till.toml").write_text(
        'kind = "payments"\nfiles = ["till*"]\n[columns]\npayment_id = "payment_id"\npatient_id = "patient_id"\n'
        'amount = "amount"\npaid_on = "paid_on"\n'
    )
    after = Sensor(inbox.parent)
    after.cursor = sensor.cursor
    after.tick()
    assert [request.job_name for request in after.tick()] == ["import_till"]


def test_a_renamed_file_is_the_same_batch_and_a_replaced_one_another(inbox: Path) -> None:
    sensor = Sensor(inbox.parent)
    path = put(inbox, "payments-1.csv")
    sensor.tick()
    [first] = sensor.tick()
    path = path.rename(inbox / "payments-2.csv")
    sensor.tick()
    [renamed] = sensor.tick()
    assert renamed.partition_key == first.partition_key
    about = path.stat()
    part = put(inbox, ".part", ROWS.replace("10.00", "20.00"))
    os.utime(part, ns=(about.st_atime_ns, about.st_mtime_ns))
    part.replace(path)
    assert path.stat().st_size == about.st_size
    sensor.tick()
    [replaced] = sensor.tick()
    assert replaced.partition_key != first.partition_key


@pytest.mark.parametrize("files", [2_000, pytest.param(10_000, marks=pytest.mark.long)])
def test_thousands_of_waiting_files_cost_a_short_cursor_and_no_second_hash(
    inbox: Path, monkeypatch: pytest.MonkeyPatch, files: int
) -> None:
    hashed: list[Path] = []

    def batch_id(_: object, path: Path) -> str:
        hashed.append(path)
        return path.stem

    monkeypatch.setattr("pipelines.dagster.inbox.look.batch_id_of", batch_id)
    for number in range(files):
        (inbox / f"payments-{number:05}.csv").touch()
    sensor = Sensor(inbox.parent)
    assert sensor.tick() == []
    for ticks in range(1, files // 1_000 + 1):
        requests = sensor.tick()
        assert [len(request.tags["chartferry/batch"].split()) for request in requests] == [200] * 5
        assert len(hashed) == ticks * 1_000
    assert [path.name for path in hashed] == sorted(path.name for path in inbox.iterdir())
    assert len(hashed) == files
    assert sensor.tick() == []
    assert len(hashed) == files
    assert len(sensor.cursor or "") < files * 9


def test_corrected_rejects_go_to_their_feed_whatever_their_name(inbox: Path) -> None:
    """CLI-CMD-05"""
    with closing(Ledger.open(inbox.parent / "ledger.db")) as ledger:
        ledger.start_batch("t", "payments-a", feed="payments")
        reject = Reject(2, 1, "A1", "rule", None, None, None, [])
        [name] = ledger.reject("t", "default", "PaymentNotice", "payments-a", [reject])
    sensor = Sensor(inbox.parent)
    path = put(inbox, "Book1.txt", f"_reject_id,{ROWS.replace('A1', f'{name},A1')}")
    assert sensor.tick() == []
    [request] = sensor.tick()
    payments = load_feeds().named("payments")
    assert payments
    assert request.partition_key == batch_id_of(payments, path)
    assert waiting_files(payments, inbox, {str(request.partition_key)}) == {str(request.partition_key): path}
