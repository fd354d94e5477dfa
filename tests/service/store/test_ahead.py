"""Single creates are stored ahead of the tables: they are durable at once, every reader sees them, and no crash loses
one.
"""

import random
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pytest
from sqlalchemy import Connection, func, select, update

from fhir_service.admin.checks import check_store
from fhir_service.admin.table_data import tell
from fhir_service.chart import money
from fhir_service.chart.paging import ListPage
from fhir_service.ids import new_id
from fhir_service.interactions import create
from fhir_service.interactions.if_none_exist import condition as condition_in
from fhir_service.interactions.read import ResourceReader
from fhir_service.interactions.update import StatusUpdate, Update
from fhir_service.interface.checking import parse
from fhir_service.interface.json_text import dump_json, parse_json
from fhir_service.interface.outcomes import EXCEPTION, UNAVAILABLE, FhirError
from fhir_service.interface.registry import RESOURCES
from fhir_service.service import Service
from fhir_service.settings import Settings
from fhir_service.store import ahead, view
from fhir_service.store.ahead import file_of
from fhir_service.store.dialects import DuckDb
from fhir_service.store.frame_file import Frame, Frames
from fhir_service.store.rows import Rows
from fhir_service.store.tables import ACCOUNT, ALLOCATION, BODIES, CHARGE
from fhir_service.writing import commits, writer
from tests.conftest import Database, counted_ids
from tests.service.writing.test_writer import statements
from tests.support.bodies import payment, task
from tests.support.stored_tables import tables

PAYMENT = BODIES["PaymentNotice"]
NOW = datetime(2026, 3, 4, 5, 6, 7, 890, tzinfo=UTC)


SITE = Settings(store="-").site
Ids = Callable[[], str]


def response(number: int) -> dict[str, Any]:
    return {
        "resourceType": "QuestionnaireResponse",
        "identifier": {"system": "urn:test", "value": f"r{number}"},
        "questionnaire": f"{SITE.base_url}/Questionnaire/q-intake",
        "status": "completed",
        "subject": {"reference": "Patient/p1"},
    }


@contextmanager
def opened(store: Path, new_id: Ids = new_id) -> Iterator[Service]:
    service = Service.open(Settings(store=str(store)), clock=lambda: NOW, new_id=new_id)
    try:
        yield service
    finally:
        service.close()


@pytest.fixture
def store(ready: Database, tmp_path: Path) -> Iterator[Path]:
    """A store with the small reference data."""
    with ready(tmp_path) as made:
        yield Path(made)


@pytest.fixture
def restless(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the writer from copying creates into the tables when it is idle."""
    monkeypatch.setattr(writer, "REST", 3600)


def entry(service: Service, body: dict[str, Any], condition: str | None = None) -> create.Create:
    resource, raw = RESOURCES[body["resourceType"]], dump_json(body)
    model = parse(resource, parse_json(raw), service.site, additions=True)
    return create.Create(resource, model, "c", service.site, len(raw), condition_in(condition))


def created(service: Service, body: dict[str, Any], condition: str | None = None) -> Any:
    """Return the result of one create, or its error."""
    return service.writer.submit([entry(service, body, condition)]).result()[0]


def found(service: Service) -> dict[str, list[str]]:
    """Return the ids of stored resources, as readers see them."""
    with service.store.read() as connection:
        return {name: sorted(connection.exec_driver_sql(f"SELECT id FROM {name}").scalars()) for name in STORED}


STORED = ("task", "payment_notice", "questionnaire_response")


def crashed(store: Path, folder: Path) -> Path:
    """Copy the files in their current state, as a crash would leave them."""
    folder.mkdir()
    for path in store.parent.glob(f"{store.name}*"):
        shutil.copyfile(path, folder / path.name)
    return folder / store.name


@pytest.mark.parametrize("body", [task(1), payment(1), response(1)], ids=lambda body: body["resourceType"])
def test_a_single_create_takes_no_statement_and_one_flush_of_the_disk(
    store: Path, monkeypatch: pytest.MonkeyPatch, restless: None, body: dict[str, Any]
) -> None:
    with opened(store) as service:
        assert isinstance(created(service, body), create.CreateResult)
        put: list[int] = []
        frames = Frames.put

        def counted(self: Frames, number: int, content: bytes) -> None:
            put.append(number)
            frames(self, number, content)

        monkeypatch.setattr(Frames, "put", counted)
        with statements(monkeypatch) as seen:
            assert isinstance(created(service, body), create.CreateResult)
        assert (seen, len(put)) == ([], 1)


@pytest.mark.parametrize(("make", "statements_of"), [(task, 4), (lambda n: payment(1), 5)], ids=["task", "payment"])
def test_forty_creates_reach_the_tables_by_as_many_statements_as_one(
    store: Path, monkeypatch: pytest.MonkeyPatch, restless: None, make: Any, statements_of: int
) -> None:
    """One statement for each table, and one for the number of the last frame."""
    with opened(store) as service:
        for size in (1, 40):
            made = [created(service, make(size * 100 + n)) for n in range(size)]
            assert all(isinstance(one, create.CreateResult) for one in made)
            with statements(monkeypatch) as seen:
                service.store.catch_up()
            assert len(seen) == statements_of


def test_identifiers_of_what_is_ahead_are_kept_only_while_they_are_asked_for(store: Path, restless: None) -> None:
    """EXTRA-COND-07: without conditional creates a service would keep each of them for ever."""
    with opened(store) as service:
        dialect: Any = service.store.dialect
        for number in range(20):
            created(service, task(number))
        assert dialect._put_off == set()
        assert created(service, task(7), "identifier=urn:test|7").existed
        created(service, task(20))
        assert len(dialect._put_off) == 1
        assert created(service, task(20), "identifier=urn:test|20").existed
        assert dialect._put_off == set()


def test_every_reader_sees_what_was_acknowledged(store: Path, restless: None) -> None:
    """A read by id, a search, a condition, an update and a transaction of the writer see it."""
    with opened(store) as service:
        one = created(service, task(1)).id
        assert list(ResourceReader(service.store, service.reader.bodies).look_up([("Task", one)])) == [("Task", one)]
        two = created(service, task(2)).id
        assert found(service)["task"] == [one, two]
        assert created(service, task(2), "identifier=urn:test|2") == create.CreateResult(two, existed=True)
        three = created(service, task(3), "identifier=urn:test|3")
        assert created(service, task(3), "identifier=urn:test|3") == create.CreateResult(three.id, existed=True)
        made = created(service, response(1))
        withdrawn = Update(
            RESOURCES["QuestionnaireResponse"], made.id, StatusUpdate("entered-in-error"), "c", service.site, 1
        )
        assert service.writer.submit([withdrawn]).result() == [("p1",)]
        four = created(service, task(4)).id
        query = "SELECT count(*) FROM task WHERE id = ?"
        counted = service.writer.transact(lambda connection: connection.exec_driver_sql(query, (four,)).scalar())
        assert counted == 1


def test_a_read_waits_for_the_tables_only_where_they_lack_its_resource(store: Path, restless: None) -> None:
    with opened(store) as service:
        reader, old = ResourceReader(service.store, service.reader.bodies), created(service, task(1)).id
        service.store.catch_up()
        new = created(service, task(2)).id
        assert list(reader.look_up([("Task", old), ("Task", "nobody")])) == [("Task", old)]
        assert service.store.ahead is not None
        assert service.store.ahead.waits
        assert list(reader.look_up([("Task", old), ("Task", new)])) == [("Task", old), ("Task", new)]
        assert not service.store.ahead.waits


def test_a_crash_loses_nothing_that_was_acknowledged(store: Path, tmp_path: Path, restless: None) -> None:
    """A crash before the tables have the creates, after they have some, and two crashes in a row."""
    with opened(store) as service:
        made: dict[str, list[str]] = {name: [] for name in STORED}
        for number in range(3):
            made["task"].append(created(service, task(number)).id)
            made["payment_notice"].append(created(service, payment(10 + number)).id)
            if number == 1:
                service.store.catch_up()
            copy = crashed(store, tmp_path / f"crash{number}")
            for _ in range(2):
                with opened(copy) as again:
                    assert found(again) == {name: sorted(ids) for name, ids in made.items()}
                    assert [one for one in check_store(again.store, again.site) if not one.notice] == []
                assert not file_of(copy).exists()


def test_a_crash_between_the_tables_and_the_file_brings_nothing_twice(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, restless: None
) -> None:
    with opened(store) as service:
        made = [created(service, payment(100)).id for _ in range(3)]
        with monkeypatch.context() as patch:
            patch.setattr(Frames, "clear", lambda _: None)
            service.store.catch_up()
        copy = crashed(store, tmp_path / "crash")
    with opened(copy) as again:
        assert found(again)["payment_notice"] == sorted(made)
        assert [one for one in check_store(again.store, again.site) if not one.notice] == []
        more = created(again, payment(100)).id
        copy = crashed(copy, tmp_path / "again")
    with opened(copy) as again:
        assert found(again)["payment_notice"] == sorted([*made, more])


def test_a_crash_while_the_file_is_brought_into_the_tables_brings_nothing_twice(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, restless: None
) -> None:
    with opened(store) as service:
        made = [created(service, payment(100)).id for _ in range(3)]
        first = crashed(store, tmp_path / "crash")
    with monkeypatch.context() as patch:
        patch.setattr(Frames, "clear", lambda _: None)
        patch.setattr(Frames, "remove", lambda _: None)
        with opened(first):
            second = crashed(first, tmp_path / "again")
    assert file_of(second).exists()
    with opened(second) as again:
        assert found(again)["payment_notice"] == sorted(made)
        assert [one for one in check_store(again.store, again.site) if not one.notice] == []


def nothing(_: Service) -> None:
    """The first frame of the file is one number after the end of the copy: copying uses a number."""


def singles(service: Service) -> None:
    created(service, payment(5))
    service.store.catch_up()


def bundle(service: Service) -> None:
    """A bundle of so many payments that they go straight into the tables."""
    entries = [entry(service, payment(5)) for _ in range(commits.MOST_AHEAD + 1)]
    assert all(isinstance(one, create.CreateResult) for one in service.writer.submit(entries).result())


def load(service: Service) -> None:
    """A transaction that changes resources."""
    service.writer.transact(lambda connection: connection.execute(update(CHARGE).values(cents=CHARGE.c.cents + 1)))


@pytest.mark.alike
@pytest.mark.parametrize("between", [nothing, singles, bundle, load])
def test_a_store_put_back_from_a_copy_takes_nothing_from_a_later_file(
    store: Path,
    tmp_path: Path,
    restless: None,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    between: Callable[[Service], None],
) -> None:
    """Creates that the copy lacks are left out as a whole: the file is renamed, and the log says so.

    P3: balances hold no payments of the later store, whatever it stored in between.
    """
    monkeypatch.setattr(commits, "CALM", 0)
    older = tmp_path / "older.duckdb"
    with opened(store) as service:
        first = created(service, task(1)).id
        service.store.catch_up()
        service.writer.transact(lambda _: service.store.dialect.copy(older))  # type: ignore[attr-defined]
        between(service)
        created(service, payment(7))
        copy = crashed(store, tmp_path / "crash")
    for suffix in ("", ".wal"):
        shutil.copyfile(older.with_name(older.name + suffix), copy.with_name(copy.name + suffix))
    with opened(copy) as again:
        assert found(again) == {"task": [first], "payment_notice": [], "questionnaire_response": []}
        assert [one for one in check_store(again.store, again.site) if not one.notice] == []
    assert (copy.parent / f"{store.name}.ahead.1.unused").exists()
    assert "the store is an older copy" in caplog.text


def test_a_commit_to_the_tables_that_fails_keeps_no_reader_waiting_and_is_no_ground_for_frames(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, restless: None
) -> None:
    """The tables lack the number of that commit. A frame with the next number would seem to come from a later store."""
    with opened(store) as service:
        made = [created(service, response(1)).id]
        service.store.catch_up()
        service.writer.transact(lambda _: None, resources=False)  # waits for the copying into the tables

        def fails(*_: Any) -> None:
            with ThreadPoolExecutor() as reader:
                read.append(reader.submit(found, service).result(10)["questionnaire_response"])
            raise OSError

        read: list[list[str]] = []
        status = StatusUpdate("entered-in-error")
        withdrawn = Update(RESOURCES["QuestionnaireResponse"], made[0], status, "c", service.site, 1)
        with monkeypatch.context() as patch:
            patch.setattr(commits.Commits, "_committing", fails)
            with pytest.raises(FhirError):
                service.writer.submit([withdrawn]).result()
        assert read == [made]
        with statements(monkeypatch) as seen:
            assert found(service)["questionnaire_response"] == made
        assert seen == []
        made += [created(service, response(number)).id for number in (2, 3)]
        copy = crashed(store, tmp_path / "crash")
    with opened(copy) as again:
        assert found(again)["questionnaire_response"] == sorted(made)
    assert not list(copy.parent.glob("*.unused"))


def test_a_create_that_could_not_be_flushed_is_unknown_and_changes_nothing_after_it(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, restless: None
) -> None:
    """Its frame may be on the disk. No later start may overwrite balances of later payments by its balance."""
    with opened(store) as service:
        kept = [created(service, payment(100)).id]
        service.store.catch_up()

        def flushed_and_failed(self: Frames, number: int, content: bytes) -> None:
            put(self, number, content)
            raise OSError

        put = Frames.put
        with monkeypatch.context() as patch:
            patch.setattr(Frames, "put", flushed_and_failed)
            with pytest.raises(FhirError) as unknown:
                created(service, payment(900))
        assert unknown.value.outcome == EXCEPTION
        kept += [created(service, payment(200)).id, created(service, payment(300)).id]
        copy = crashed(store, tmp_path / "crash")
        service.store.catch_up()
        assert service.store.ahead
        assert not service.store.ahead.works, "a file that has failed once is not trusted again"
    with opened(copy) as again:
        assert found(again)["payment_notice"] == sorted(kept)
        with again.store.read() as connection:
            assert connection.execute(select(ACCOUNT.c.paid).where(ACCOUNT.c.patient == "p1")).scalar() == 600
        assert [one for one in check_store(again.store, again.site) if not one.notice] == []


def test_creates_that_cannot_get_into_the_tables_stay_stored_and_readers_get_an_error(
    store: Path, monkeypatch: pytest.MonkeyPatch, restless: None, caplog: pytest.LogCaptureFixture
) -> None:
    """Readers get a 503 rather than an answer without acknowledged creates."""
    with opened(store) as service:
        made = [created(service, task(1)).id]
        with monkeypatch.context() as patch:
            patch.setattr(Rows, "write", lambda *_: 1 / 0)
            with pytest.raises(FhirError) as refused, service.store.read():
                pass
            assert refused.value.outcome == UNAVAILABLE
            made.append(created(service, task(2)).id)
            with pytest.raises(FhirError) as refused:
                service.writer.submit([entry(service, task(n)) for n in range(300)]).result()
            assert refused.value.outcome == UNAVAILABLE
        assert found(service)["task"] == sorted(made)


def test_the_file_is_bounded(store: Path, monkeypatch: pytest.MonkeyPatch, restless: None) -> None:
    """After some hundred creates they are copied into the tables, and the file begins again."""
    monkeypatch.setattr("fhir_service.store.ahead.MOST_ENTRIES", 10)
    with opened(store) as service:
        assert service.store.ahead
        waited = []
        for number in range(25):
            created(service, task(number))
            service.writer.submit([]).result()
            waited.append(service.store.ahead.waits)
        assert waited == [number % 10 != 9 for number in range(25)]
        assert len(list(service.store.ahead._frames.read())) == 5
    assert not file_of(store).exists()


@pytest.mark.parametrize("seed", [*range(2), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 100))])
def test_the_tables_are_equal_whichever_way_creates_were_stored(
    ready: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """A law: creates ahead of the tables, late sums, reads and crashes leave the tables as if each create had been
    written to the tables at once.
    """
    monkeypatch.setattr(commits, "CALM", 0)
    histories = {}
    for way in ("at once", "straight", "ahead"):
        monkeypatch.setattr(commits, "MOST_AHEAD", 5 if way == "ahead" else -1)
        monkeypatch.setattr(ahead, "MOST_SUMS", 1 if way == "at once" else 9)
        folder = tmp_path / way
        folder.mkdir()
        with ready(folder) as store:
            histories[way] = _history(Path(store), random.Random(seed), crashes=way != "at once")
    assert histories["ahead"] == histories["straight"] == histories["at once"]


def _history(path: Path, dice: random.Random, crashes: bool) -> Any:
    ids, results = counted_ids(), list[Any]()
    for turn in range(4):
        service = Service.open(Settings(store=str(path)), clock=lambda: NOW, new_id=ids)
        for _ in range(8):
            bodies = [_body(dice) for _ in range(dice.choice((1, 1, 1, 3, 8)))]
            read = dice.random() < 0.3
            answers = service.writer.submit([entry(service, *body) for body in bodies]).result()
            results += [one.outcome.code if isinstance(one, FhirError) else one for one in answers]
            if read:
                results.append(found(service))
        if turn == 3:
            results.append(tables(service))
        if crashes:
            path = crashed(path, path.parent / f"crash{turn}")
        service.close()
    return results


def _body(dice: random.Random) -> tuple[dict[str, Any], str | None]:
    number = dice.randrange(12)
    identifier = {"system": "urn:test", "value": str(number)}
    body = dice.choice(
        (
            task(number, description=f"task {dice.random()}"),
            payment(dice.choice((1, 500, 4000, 90_000)), dice.choice(("p1", "p2"))) | {"identifier": [identifier]},
            response(number) | {"identifier": identifier},
        )
    )
    return body, f"identifier=urn:test|{number}" if dice.random() < 0.4 else None


# --- Sums ---------------------------------------------------------------------------------------------


def owing(store: Path) -> bool:
    """True if a closed store says that its tables lack sums."""
    with duckdb.connect(str(store)) as connection:
        said = connection.execute("SELECT value FROM store WHERE name = 'ahead'").fetchone()
    return said is not None and said[0].endswith("owing")


def sums(connection: Connection) -> tuple[int, ...]:
    """Return the sums paid of all accounts and charges, and the sums of payments and allocations."""
    columns = (ACCOUNT.c.paid, CHARGE.c.paid, PAYMENT.c.cents, ALLOCATION.c.cents)
    return tuple(int(connection.execute(select(func.sum(column))).scalar() or 0) for column in columns)


def test_many_large_commits_change_accounts_and_charges_once(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, restless: None
) -> None:
    """SCALE-01: after a crash before that, the sums are computed again."""
    changed: list[str] = []
    change = DuckDb.change
    with opened(store) as service:

        def noted(*given: Any) -> None:
            changed.append(given[2].name)
            change(*given)

        monkeypatch.setattr(DuckDb, "change", noted)
        for _ in range(3):
            bundle(service)
        assert not {"account", "charge"} & {*changed}
        copy = crashed(store, tmp_path / "crash")
    assert changed.count("account") == changed.count("charge") == 1
    assert not owing(store)
    assert owing(crashed(copy, tmp_path / "seen"))
    with opened(copy) as again, again.store.read() as connection:
        account, charge, payments, allocations = sums(connection)
        assert (account, charge) == (payments, allocations)
        assert payments == 3 * 5 * (commits.MOST_AHEAD + 1)
    assert not owing(copy)


def test_sums_that_are_written_later_are_bounded(store: Path, monkeypatch: pytest.MonkeyPatch, restless: None) -> None:
    monkeypatch.setattr(ahead, "MOST_SUMS", 2)
    with opened(store) as service:
        bundle(service)
        service.writer.submit([]).result()
        with service.store.read() as connection:
            account, charge, payments, allocations = sums(connection)
    assert (account, charge) == (payments, allocations)


@pytest.mark.long
def test_a_large_commit_whose_outcome_was_unknown_counts_in_the_sums_once_found_stored(
    store: Path, monkeypatch: pytest.MonkeyPatch, restless: None
) -> None:
    with opened(store) as service:
        bundle(service)
        committing = commits.Commits._committing

        def stored_and_lost(self: commits.Commits, commit: Callable[[], None]) -> None:
            committing(self, commit)
            raise commits.CommitFailed("lost")

        with monkeypatch.context() as patch:
            patch.setattr(commits.Commits, "_committing", stored_and_lost)
            with pytest.raises(FhirError):
                bundle(service)
        with service.store.read(sums=True) as connection:
            account, charge, payments, allocations = sums(connection)
            owed = int(connection.execute(select(ACCOUNT.c.charged).where(ACCOUNT.c.patient == "p1")).scalar() or 0)
        assert (account, charge) == (payments, allocations)
        assert payments == 2 * 5 * (commits.MOST_AHEAD + 1)
        assert isinstance(created(service, payment(owed - payments + 1)), FhirError)
        assert isinstance(created(service, payment(owed - payments)), create.CreateResult)


@pytest.mark.long
def test_an_account_that_left_the_cache_is_read_with_its_pending_sums(
    store: Path, monkeypatch: pytest.MonkeyPatch, restless: None
) -> None:
    monkeypatch.setattr(view, "MOST_KEPT", 0)
    with opened(store) as service:
        bundle(service)
        with service.store.read(sums=True) as connection:
            owed = int(connection.execute(select(ACCOUNT.c.charged).where(ACCOUNT.c.patient == "p1")).scalar() or 0)
        bundle(service)
        left = owed - 2 * 5 * (commits.MOST_AHEAD + 1)
        assert isinstance(created(service, payment(left + 1)), FhirError)
        assert isinstance(created(service, payment(left)), create.CreateResult)


@pytest.mark.long
def test_a_reader_of_sums_sees_one_moment_while_others_store(store: Path, restless: None) -> None:
    with opened(store) as service:
        for _ in range(2):
            bundle(service)
            with service.store.read(sums=True) as connection:
                bundle(service)
                account, charge, payments, allocations = sums(connection)
                assert (account, charge) == (payments, allocations)
        assert [one for one in check_store(service.store, service.site) if not one.notice] == []


def test_the_chart_shows_what_is_paid_before_it_is_summed_up(store: Path, restless: None) -> None:
    with opened(store) as service:
        bundle(service)
        with service.store.read() as connection:
            shown = money.account(connection, "p1", ListPage("receipts", 1, 1_000), ListPage("charges", 1, 1_000))
            assert sums(connection)[0] == 0
        told = tell(service.store, "charges", store.with_name("told"))
    paid = 5 * (commits.MOST_AHEAD + 1)
    assert shown.paid == sum(receipt.cents for receipt in shown.receipts) == paid
    assert sum(charge.paid for charge in shown.charges) == sum(
        parse_json(line)["paid_cents"] for line in store.with_name("told").read_bytes().splitlines()
    )
    assert told


# --- The file -----------------------------------------------------------------------------------------

KEY = b"k" * 32
CONTENTS = [b"first", b"", b"x" * 300, b"last"]


def written(path: Path, contents: list[bytes], number: int = 1) -> Frames:
    frames = Frames(path, KEY)
    for at, content in enumerate(contents, number):
        frames.put(at, content)
    return frames


def test_a_file_cut_or_changed_anywhere_gives_only_the_complete_frames_before_that(tmp_path: Path) -> None:
    whole = [Frame(number, content) for number, content in enumerate(CONTENTS, 1)]
    path = tmp_path / "f"
    frames = written(path, CONTENTS)
    stored = path.read_bytes()
    ends = [0, *(sum(28 + len(content) for content in CONTENTS[: n + 1]) for n in range(4))]
    for size in range(ends[-1] + 1):
        path.write_bytes(stored[:size])
        assert list(frames.read()) == whole[: sum(end <= size for end in ends[1:])]
    for at in range(ends[-1]):
        path.write_bytes(stored[:at] + bytes([stored[at] ^ 1]) + stored[at + 1 :])
        assert list(frames.read()) == whole[: sum(end <= at for end in ends[1:])]


def test_frames_of_an_earlier_round_or_another_store_are_ignored(tmp_path: Path) -> None:
    frames = written(tmp_path / "f", CONTENTS)
    frames.clear()
    assert list(frames.read()) == []
    frames.put(5, b"FIRST")
    assert list(frames.read()) == [Frame(5, b"FIRST")]
    assert list(Frames(tmp_path / "f", b"another").read()) == []


def test_rows_are_read_as_they_were_written() -> None:
    times = [
        datetime.min.replace(tzinfo=UTC),
        datetime.max.replace(tzinfo=UTC),
        NOW,
        datetime(1969, 12, 31, tzinfo=UTC),
    ]
    rows = Rows()
    rows.added["task"] += [(1, "a \u00e9\u4e2d", None, *times, -(2**63), 2**63 - 1), ()]
    rows.changed["account"] |= {"p1": -400, "p2": 2**53}
    assert Rows.decoded(rows.encoded()) == rows
