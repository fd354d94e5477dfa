"""Copies of a publication: all files of a version, then `latest.json`, at a folder and at object stores."""

import hashlib
import itertools
import json
import multiprocessing
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import cast

import pytest

from pipelines.home import stores
from pipelines.home.deployment_owner import deployment_of, own
from pipelines.home.stores import Bucket, HeldObject, SomebodyElse, Store, StoreUnusable, store_at
from pipelines.reports import copying
from pipelines.reports.copying import copy_publication
from pipelines.reports.publication import Publication
from tests.support.dying import at_call
from tests.support.emulated import SERVERS, Served, emulated
from tests.support.fake_s3 import FakeBucket

pytest.importorskip("obstore", reason="the extra `cluster` is not installed")
START = datetime(2026, 3, 1, 12, tzinfo=UTC)
CHILDREN = multiprocessing.get_context("forkserver")
CHILDREN.set_forkserver_preload([__name__])


def publication(home: Path, number: int) -> Publication:
    """Return a publication of the home that holds only its number, made at an hour of that number."""
    folder = home / "published"
    (folder / "parquet").mkdir(parents=True, exist_ok=True)
    for name in ("reports.duckdb", "report.html", "datapackage.json", "sources.yml", "parquet/payment.parquet"):
        (folder / name).write_text(f"{name} {number}")
    at = START + timedelta(hours=number)
    return Publication(folder / "reports.duckdb", folder / "report.html", at, "urn:t", {"payment": number})


@pytest.fixture(params=["folder", "bucket"])
def store(request: pytest.FixtureRequest, tmp_path: Path, bucket: FakeBucket) -> Store:
    assert bucket.url
    return store_at(str(tmp_path / "copies") if request.param == "folder" else "s3://bucket/pre/fix")


def latest(store: Store) -> dict[str, object]:
    held = store.read("latest.json")
    return dict(json.loads(held.content)) if held else {}


def test_latest_names_a_whole_version_and_the_two_before_stay(store: Store, tmp_path: Path) -> None:
    versions = []
    for number in range(4):
        versions.append(copy_publication(store, tmp_path, publication(tmp_path, number)))
        said = latest(store)
        assert said["version"] == versions[-1]
        assert said["before"] == versions[:-1][::-1][:2]
        files = said["files"]
        assert isinstance(files, dict)
        assert sorted(files) == [
            *("datapackage.json", "parquet/payment.parquet", "report.html", "reports.duckdb", "sources.yml")
        ]
        for name, about in files.items():
            held = store.read(f"{versions[-1]}/{name}")
            assert held
            assert (len(held.content), hashlib.sha256(held.content).hexdigest()) == (about["size"], about["sha256"])
            assert held.content == f"{name} {number}".encode()
    assert copy_publication(store, tmp_path, publication(tmp_path, -1)) is None
    assert latest(store)["version"] == versions[-1]
    assert not (tmp_path / "scratch").exists()


def test_copied_versions_that_are_no_longer_listed_are_removed_after_a_day_and_nothing_else(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = copy_publication(store, tmp_path, publication(tmp_path, 0))
    (tmp_path / "other").write_text("somebody's")
    store.put("others/2026/file", tmp_path / "other")
    copied = [copy_publication(store, tmp_path, publication(tmp_path, number)) for number in (1, 2, 3)]
    assert {key.partition("/")[0] for key in store.ages()} >= {first, *copied, "others"}
    monkeypatch.setattr(copying, "KEPT_FOR", timedelta(seconds=-5))
    copied.append(copy_publication(store, tmp_path, publication(tmp_path, 4)))
    kept = {"_owner.json", "latest.json", "others", *copied[1:]}
    assert {key.partition("/")[0] for key in store.ages()} == kept


def test_the_copies_of_another_deployment_are_refused_and_left_alone(store: Store, tmp_path: Path) -> None:
    copy_publication(store, tmp_path, publication(tmp_path, 0))
    before = store.ages().keys()
    other = tmp_path / "other"
    other.mkdir()
    with pytest.raises(StoreUnusable, match=r"another deployment publishes there \(_owner.json\)"):
        copy_publication(store, other, publication(other, 9))
    assert store.ages().keys() == before


def test_simultaneous_requests_for_the_id_of_a_new_home_get_the_same_id(tmp_path: Path) -> None:
    with ThreadPoolExecutor(20) as threads:
        assert len(set(threads.map(lambda _: deployment_of(tmp_path), range(20)))) == 1


@pytest.mark.alike
@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (500, "it answers with an error (500)"),
        pytest.param(503, "it answers with an error (503)", marks=pytest.mark.long),
        pytest.param(403, "it refuses these credentials (403)", marks=pytest.mark.long),
        (401, "it refuses these credentials (401)"),
        ("silent", "it does not answer, or the connection to it was lost"),
        ("lost", "it does not answer, or the connection to it was lost"),
    ],
)
def test_a_store_that_fails_is_reported_in_one_sentence_and_the_last_copy_stays(
    bucket: FakeBucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: int | str, said: str
) -> None:
    """At whatever step: the sentence has neither the store's words nor a secret."""
    good = copy_publication(store_at("s3://bucket/pre"), tmp_path, publication(tmp_path, 0))
    monkeypatch.setattr(stores, "SECONDS_OF_A_REQUEST", 0.2 if wrong == "silent" else 1)
    monkeypatch.setattr(stores, "TRIES", 1)
    objects = dict(bucket.objects)
    store = store_at("s3://bucket/pre")
    for step in range(3):
        puts: list[str] = []

        def put(key: str, file: Path, step: int = step, puts: list[str] = puts) -> None:
            puts.append(key)
            bucket.wrong = wrong if len(puts) == step * 2 + 1 else bucket.wrong
            Bucket.put(store, key, file)  # type: ignore[arg-type]

        failing = cast("Store", Failing(store, put))
        with pytest.raises(StoreUnusable) as raised:
            copy_publication(failing, tmp_path, publication(tmp_path, 1))
        assert str(raised.value) == f"s3://bucket/pre: {said}"
        bucket.wrong = None
        assert latest(store)["version"] == good
        assert {key: bucket.objects[key] for key in objects} == objects
    assert copy_publication(store, tmp_path, publication(tmp_path, 1)) == latest(store)["version"] != good


@pytest.mark.publishes("payment")
def test_an_import_copies_its_tables_and_says_where_that_failed(home, asked, chartferry, monkeypatch) -> None:
    """The tables of the home are published whatever becomes of the copy."""
    (home / "inbox" / "payments-1.csv").write_text("payment_id,patient_id,amount,paid_on\nU-1,p1,1.00,2026-03-02\n")
    copies = home.parent / "copies"
    monkeypatch.setenv("CHARTFERRY_COPIES", str(copies))
    done = asked("import")
    version = json.loads((copies / "latest.json").read_text())["version"]
    assert (done["exit_code"], done["published"]) == (0, str(home / "published" / "reports.duckdb"))
    copied = copies / version / "reports.duckdb"
    assert copied.read_bytes() == (home / "published" / "reports.duckdb").read_bytes()
    (home.parent / "file").write_text("")
    monkeypatch.setenv("CHARTFERRY_COPIES", str(home.parent / "file" / "copies"))
    before = (home / "published" / "reports.duckdb").stat().st_mtime_ns
    code, _, err = chartferry("reports")
    assert (code, (home / "published" / "reports.duckdb").stat().st_mtime_ns > before) == (6, True)
    where = home.parent / "file" / "copies"
    assert f"chartferry: the tables are published here, and were not copied: {where}: Not a directory\n" in err
    monkeypatch.setenv("CHARTFERRY_COPIES", "ftp://x/y")
    done = asked("import")
    assert done["error"] == (
        "the tables are published here, and were not copied: ftp:// is no store: name a folder, s3://, gs://, az://"
    )
    assert (done["exit_code"], bool(done["published"])) == (6, True)


class Failing:
    """A store that puts in a way of its own."""

    def __init__(self, store: Store, put: object) -> None:
        self.store, self.put = store, put

    def __getattr__(self, name: str) -> object:
        return getattr(self.store, name)


def test_an_unusable_place_of_copies_is_reported_in_one_sentence(
    bucket: FakeBucket, tmp_path: Path, monkeypatch
) -> None:
    bucket.wrong = 404
    with pytest.raises(StoreUnusable, match="s3://nobody/x: there is no such bucket or container"):
        store_at("s3://nobody/x").put("a", a_file_in(tmp_path))
    with pytest.raises(StoreUnusable, match="ftp:// is no store: name a folder, s3://, gs://, az://"):
        store_at("ftp://x/y")
    with pytest.raises(StoreUnusable, match="s3:///x: is not the address of a bucket"):
        store_at("s3:///x")
    with pytest.raises(StoreUnusable, match="there: Not a directory"):
        store_at(str(a_file_in(tmp_path) / "there")).put("a", a_file_in(tmp_path))
    monkeypatch.setitem(__import__("sys").modules, "obstore.store", None)
    with pytest.raises(StoreUnusable, match="needs obstore, which is not installed"):
        store_at("s3://bucket/x")


@pytest.mark.parametrize("place", ["s3://KEY:planted@bucket/x", "az://box/x?sig=planted", "s3://bucket/x#planted"])
def test_an_address_that_may_hold_a_password_is_refused_and_not_repeated(place: str) -> None:
    with pytest.raises(StoreUnusable, match="give credentials by the variables") as raised:
        store_at(place)
    assert "planted" not in str(raised.value)


def test_a_copy_whose_old_versions_cannot_be_removed_is_one(store: Store, tmp_path: Path, monkeypatch, caplog) -> None:
    def refused(_: Store) -> dict[str, datetime]:
        raise StoreUnusable("it refuses these credentials (403)")

    monkeypatch.setattr(type(store), "ages", refused)
    version = copy_publication(store, tmp_path, publication(tmp_path, 1))
    assert version == latest(store)["version"]
    assert "versions before it stay: it refuses these credentials (403)" in caplog.text


def test_files_of_others_beside_the_tables_are_not_copied(store: Store, tmp_path: Path) -> None:
    published = publication(tmp_path, 1)
    (tmp_path / "published" / "parquet" / "mine_with_names.parquet").write_text("mine")
    copy_publication(store, tmp_path, published)
    assert [name for name in latest(store)["files"] if "parquet/" in name] == ["parquet/payment.parquet"]  # type: ignore[attr-defined]


def test_a_copy_with_a_future_time_is_reported(store: Store, tmp_path: Path) -> None:
    copy_publication(store, tmp_path, replace(publication(tmp_path, 1), published_at=datetime(2999, 1, 1, tzinfo=UTC)))
    with pytest.raises(StoreUnusable, match="a time in the future: remove it if a clock was wrong"):
        copy_publication(store, tmp_path, publication(tmp_path, 2))


def test_the_remains_of_a_killed_copy_are_removed_after_a_day(tmp_path: Path) -> None:
    store = store_at(str(tmp_path / "copies"))
    left = tmp_path / "copies" / f"{START:%Y%m%dT%H%M%S%fZ}-{'0' * 12}" / ".reports.duckdb.part"
    left.parent.mkdir(parents=True)
    left.write_text("half")
    os.utime(left, (0, 0))
    copy_publication(store, tmp_path, publication(tmp_path, 1))
    assert not left.parent.exists()


def a_copy(place: str, home: str, environ: dict[str, str], number: int, step: int, after: bool) -> None:
    """Copy a publication, and end by a kill at a write: before it or after it."""
    os.environ.update(environ)
    dying = at_call(step, after)
    for kind in (stores.Folder, stores.Bucket):
        for name in ("put", "swap", "remove"):
            setattr(kind, name, dying(getattr(kind, name)))
    copy_publication(store_at(place), Path(home), publication(Path(home), number))


def whole(store: Store, number: int) -> bool:
    """True if readers are led to all files of a publication."""
    said = latest(store)
    files = said["files"]
    assert isinstance(files, dict)
    held = {name: store.read(f"{said['version']}/{name}") for name in files}
    return all(one and one.content == f"{name} {number}".encode() for name, one in held.items()) and len(held) == 5


@pytest.mark.parametrize("after", [False, True])
def test_latest_json_names_a_complete_version_at_whatever_write_a_copy_is_killed(
    store: Store, bucket: FakeBucket, tmp_path: Path, after: bool
) -> None:
    """The next publication is copied without any repair."""
    place = str(tmp_path / "copies") if isinstance(store, stores.Folder) else "s3://bucket/pre/fix"
    environ, number, led = bucket.environ(), 0, 0
    copy_publication(store, tmp_path, publication(tmp_path, number))
    for step in itertools.count(1):
        number += 1
        about = (place, str(tmp_path), environ, number, step, after)
        (child := CHILDREN.Process(target=a_copy, args=about)).start()
        child.join(120)
        swapped = whole(store, number)
        assert swapped or whole(store, led)
        if child.exitcode == 0:
            break
        assert child.exitcode == -signal.SIGKILL
        number += 1
        assert copy_publication(store, tmp_path, publication(tmp_path, number))
        assert whole(store, number)
        led = number
    assert (swapped, step > 6) == (True, True)


def a_file_in(folder: Path) -> Path:
    path = folder / "file"
    path.write_text("1")
    return path


def test_a_swap_whose_answer_was_lost_is_not_taken_for_another_writers(bucket: FakeBucket) -> None:
    """The library sends it again, and is told that the object has changed: by itself."""
    store = store_at("s3://bucket/pre")
    bucket.wrong = "unanswered"
    store.swap("latest.json", b"1", None)
    held = store.read("latest.json")
    assert held
    bucket.wrong = "unanswered"
    store.swap("latest.json", b"2", held)
    with pytest.raises(SomebodyElse):
        store.swap("latest.json", b"3", held)


def test_a_write_refused_as_simultaneous_is_retried(bucket: FakeBucket, monkeypatch) -> None:
    """S3 may refuse both of two writes at once: a new place was taken for another deployment's."""
    refused, put = [2], bucket.put

    def busy(key: str, body: bytes, none_match: str | None, match: str | None) -> int:
        refused[0] -= 1
        return 409 if refused[0] >= 0 else put(key, body, none_match, match)

    monkeypatch.setattr(bucket, "put", busy)
    store = store_at("s3://bucket/pre")
    since = own(store, "ours", "another's")
    assert own(store, "ours", "another's") == since
    refused[0] = 10**6
    with pytest.raises(StoreUnusable, match="refuses a write as one of two at once"):
        store.swap("latest.json", b"1", None)


def race(store: Store, before: HeldObject | None, turn: str = "") -> list[int]:
    """Return who of a hundred that swap at once has won."""

    def swap(number: int) -> bool:
        try:
            store.swap("latest.json", f"{turn}{number}".encode(), before)
        except SomebodyElse:
            return False
        return True

    with ThreadPoolExecutor(20) as threads:
        won = list(threads.map(swap, range(100)))
    return [number for number, has in enumerate(won) if has]


def race_twice(store: Store) -> None:
    """Of a hundred that create an object one wins, and of a hundred that replace it."""
    [first] = race(store, None)
    held = store.read("latest.json")
    assert held
    assert held.content == f"{first}".encode()
    [second] = race(store, held, "again ")
    now = store.read("latest.json")
    assert now
    assert now.content == f"again {second}".encode()


@pytest.mark.on_both
def test_of_a_hundred_simultaneous_swaps_exactly_one_succeeds(store: Store) -> None:
    race_twice(store)


def test_of_a_hundred_simultaneous_creates_in_a_local_store_exactly_one_succeeds(tmp_path: Path) -> None:
    """The library's own store of a folder, which replaces nothing on condition."""
    from obstore.store import LocalStore

    assert len(race(Bucket("local", LocalStore(tmp_path)), None)) == 1


@pytest.mark.long
@pytest.mark.parametrize(("scheme", "serve"), SERVERS)
def test_a_server_that_speaks_a_clouds_protocol_lets_one_of_a_hundred_swaps_succeed(
    scheme: str, serve: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One file of the publication is sent in many parts."""
    with emulated(serve, tmp_path / "served", "copies", monkeypatch):
        store = store_at(f"{scheme}://copies/pre")
        race_twice(store_at(f"{scheme}://copies/race"))
        made = publication(tmp_path, 0)
        (tmp_path / "published" / "reports.duckdb").write_bytes(os.urandom(12_000_000))
        version = copy_publication(store, tmp_path, made)
        held = store.read(f"{version}/reports.duckdb")
        assert held
        assert held.content == (tmp_path / "published" / "reports.duckdb").read_bytes()
        assert latest(store)["version"] == version
        later = copy_publication(store, tmp_path, publication(tmp_path, 1))
        assert latest(store)["before"] == [version]
        assert {key.partition("/")[0] for key in store.ages()} == {"_owner.json", "latest.json", version, later}
        with pytest.raises(StoreUnusable, match=f"{scheme}://nobody/x: there is no such bucket or container"):
            store_at(f"{scheme}://nobody/x").put("a", a_file_in(tmp_path))
