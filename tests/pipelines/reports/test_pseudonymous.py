"""The pseudonymous publication, looked at as somebody who wants to find people in it."""

import json
import re
import secrets
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime
from itertools import combinations
from pathlib import Path
from typing import Any

import duckdb
import pytest

from pipelines.home.unknown_patients import _key
from pipelines.reports.pseudonymous import key_of, set_key
from pipelines.reports.publication import PublicationError
from pipelines.reports.service_data import CHARGES, keep_told
from pipelines.reports.tables import KIND, KINDS, report_tables, sql_folder
from pipelines.reports.views.definition import columns_of
from tests.pipelines.reports.test_claim_balance import telling
from tests.support.pseudonymity import Tables, publish, with_a_form
from tests.support.publishing import BATCH, START, TARGET, World, carry_over, import_payments, publish_only
from tests.support.responses_of_others import STORY, items, response

SECRETS = (
    *("p1", "p2", "p7", "r1", "r2", "id-2", "id-t1", "c1", "d1", "o1", "e1", "theirs", "k2", BATCH, "payments.csv"),
    *("SECRET", "PLANTED-TEXT", "Complete blood count", "call the patient", "Dr. Known"),
)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = with_a_form(tmp_path)
    yield made
    made.ledger.close()


def fill(world: World) -> None:
    """Something in every table, with what must not be seen."""
    import_payments(world)
    own: dict[str, Any] = {"questionnaire": "http://chart/Questionnaire/q1", "item": [*items(low="yes"), STORY]}
    carry_over(world, "QuestionnaireResponse", {"r1": (START, own)})
    task: dict[str, Any] = {"status": "requested", "requester": {"reference": "Practitioner/d1"}}
    task |= {"input": [{"type": {"text": "label"}, "valueString": "call the patient"}]}
    carry_over(world, "Task", {"t1": (None, task), "t2": (START, task)})
    at_target = response("id-r1", *items(low="yes"), STORY, subject={"reference": "Patient/p1"})
    world.responses = [response("theirs", *items(low="yes", tired="no"), STORY), at_target]
    result: dict[str, Any] = {"resourceType": "Observation", "id": "o1", "status": "final"}
    result |= {"subject": {"reference": "Patient/p1"}, "code": {"text": "SECRET"}}
    world.results = [result | {"effectiveDateTime": "2026-01-31", "valueString": "SECRET"}]
    charge = {"claim_id": "c1", "patient_id": "p1", "created": "2026-01-05", "cents": 10050}
    keep_told(telling(charge | {"paid_cents": 0, "copaid_cents": 0}), world.home, TARGET, CHARGES)
    (world.home / "reports.toml").write_text("publish_free_text = true\n")
    world.read()


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[World, Tables]]:
    """A home with something in every table, and its pseudonymous tables. Tests leave both as they are."""
    made = with_a_form(tmp_path_factory.mktemp("home"))
    fill(made)
    yield made, publish(made)
    made.ledger.close()


def test_every_published_column_says_of_which_kind_it_is() -> None:
    """REPORT-30: else a new table could be forgotten; without a kind a column is left out."""
    kinds = "|".join(KINDS)
    for path in sql_folder().glob("*.sql"):
        for line in re.findall(r"^-- column .*", path.read_text(), re.MULTILINE):
            assert re.match(rf"-- column \w+ [\w(),\[\]]+ ({kinds})( of \w+)?: ", line), f"{path.name}: {line}"
    for table in report_tables():
        for column in columns_of(table.view.select) if table.view else ():
            assert column.tags.get(KIND, "").split(" of ")[0] in KINDS, f"{table.file}: {column.name}"
        of = {column.kind for column in table.columns}
        assert "patient" in of or "time" not in of, table.name
        assert ("count" in of) >= bool(of & {"cell", "part", "rate"}), table.name


def test_nothing_that_names_a_person_a_file_or_a_record_is_in_the_folder(filled: tuple[World, Tables]) -> None:
    """REPORT-30"""
    world, tables = filled
    values = {str(value) for rows in tables.values() for row in rows for value in row.values()}
    assert not {secret for secret in SECRETS for value in values if secret == value}
    for path in (world.home / "pseudonymous").rglob("*"):
        content = path.read_bytes() if path.is_file() else b""
        assert not [secret for secret in SECRETS if len(secret) > 4 and secret.encode() in content], path.name
    assert not {name for name in tables if name.startswith(("import_", "reject", "calendar_", "practitioner"))}
    assert {path.name for path in (world.home / "pseudonymous").iterdir() if path.name != ".lock"} == {
        *("reports.duckdb", "parquet", "datapackage.json", "sources.yml")
    }
    assert "publication" not in tables
    package = json.loads((world.home / "pseudonymous" / "datapackage.json").read_text())
    assert package["created"] == "2026-03-01T00:00:00Z"
    files = [path for path in (world.home / "pseudonymous").rglob("*") if path.is_file()]
    assert {path.stat().st_mtime for path in files} == {datetime(2026, 3, 1, tzinfo=UTC).timestamp()}
    assert not list(world.home.glob("scratch/*"))


def test_an_id_has_one_pseudonym_in_all_tables(filled: tuple[World, Tables]) -> None:
    """REPORT-30: tables join as before."""
    _, tables = filled
    assert {row["response_id"] for row in tables["answer"]} == {
        row["resource_id"] for row in tables["questionnaire_response"]
    }
    patients = {row["patient_id"] for row in tables["payment"]}
    assert len(patients) == 2
    assert {row["patient_id"] for row in tables["diagnostic_report"]} == patients
    assert {row["patient_id"] for row in tables["claim_balance"]} < patients
    assert all(re.fullmatch("[0-9a-f]{32}", each) for each in patients)


@pytest.mark.long
def test_an_id_has_the_same_pseudonym_again_and_another_in_another_home(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """REPORT-30"""
    publish_only(monkeypatch)
    world.read()
    patients = patients_of(world)
    assert patients_of(world) == patients
    (world.home / "pseudonym.key").unlink()
    assert not patients_of(world) & patients


def patients_of(world: World) -> set[str]:
    """The pseudonyms of those who have reports, in a new publication."""
    return {row["patient_id"] for row in publish(world)["diagnostic_report"]}


def test_two_studies_have_no_pseudonym_and_no_shift_in_common(tmp_path: Path) -> None:
    """REPORT-30: so that two folders cannot be laid side by side; what a study had before it has again."""
    (tmp_path / "pseudonym.key").write_text("5" * 64)
    seen: list[list[tuple[str, int]]] = []
    for study in ("", "first", "second", "first"):
        with duckdb.connect() as db:
            set_key(db, key_of(tmp_path, study))
            seen.append(
                db.execute("SELECT pseudonym('p' || n), shift_of('p' || n) FROM range(200) AS t (n)").fetchall()
            )
    assert seen[1] == seen[3]
    for one, other in combinations(seen[:3], 2):
        assert not {name for name, _ in one} & {name for name, _ in other}
        differences = {mine - theirs for (_, mine), (_, theirs) in zip(one, other, strict=True)}
        assert len(differences) > 50  # one shift does not follow from the other


@pytest.mark.parametrize("key", [key_of, _key], ids=["pseudonyms", "unknown ids"])
def test_publications_of_a_new_home_that_begin_at_once_have_one_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: Callable[[Path], str]
) -> None:
    """REPORT-30: a study that had another would name everybody anew in its next publication."""
    drawn = secrets.token_hex

    def slowly(length: int) -> str:
        time.sleep(0.05)
        return drawn(length)

    monkeypatch.setattr(secrets, "token_hex", slowly)
    with ThreadPoolExecutor(4) as threads:
        assert len(set(threads.map(key, [tmp_path] * 4))) == 1


@pytest.mark.long
def test_a_study_has_a_folder_of_its_own(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """REPORT-30"""
    publish_only(monkeypatch)
    world.read()
    publish(world, study="first-1")
    assert {path.name for path in world.home.glob("pseudonymous*")} == {"pseudonymous-first-1"}


@pytest.mark.long
def test_a_table_that_a_reader_wrote_into_the_file_is_not_in_the_next_publication(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """REPORT-30: it may hold names, and DuckDB would replay it from the log."""
    publish_only(monkeypatch)
    world.read()
    publish(world)
    path = world.home / "pseudonymous" / "reports.duckdb"
    path.chmod(0o600)
    with duckdb.connect(path) as db:
        db.execute("PRAGMA disable_checkpoint_on_shutdown")
        db.execute("CREATE TABLE known AS SELECT 'SECRET' AS name")
    wal = path.with_name("reports.duckdb.wal")
    assert b"SECRET" in wal.read_bytes()
    assert "known" not in publish(world)
    assert not wal.exists()


def days(rows: list[dict[str, Any]]) -> dict[str, set[date]]:
    """The days of each patient in the rows of a table."""
    found = defaultdict[str, set[date]](set)
    for row in rows:
        for value in row.values():
            if isinstance(value, datetime):
                assert value.time().isoformat() == "00:00:00"
                found[row["patient_id"]].add(value.date())
            elif isinstance(value, date):
                found[row["patient_id"]].add(value)
    return found


def test_the_days_of_a_patient_are_moved_together_by_whole_weeks(filled: tuple[World, Tables]) -> None:
    """REPORT-30: in every table alike, so that no join tells how far; a time of sending is in none."""
    _, tables = filled
    [own, *_] = [row for row in tables["task"] if row["authored_is_own"]]
    [sent] = [row for row in tables["task"] if not row["authored_is_own"]]
    moved = START.date() - own["authored_at"].date()
    assert (moved.days % 7, 7 <= moved.days <= 728) == (0, True)
    assert sent["authored_at"] is None
    work = {"completed_at", "last_changed_at", "first_sent_at", "finished_at", "received_at"}
    assert work.isdisjoint(name for rows in tables.values() for row in rows for name in row)
    patient = own["patient_id"]
    true = {
        "payment": {date(2026, 2, 1), date(2026, 2, 2)},
        "claim_balance": {date(2026, 1, 5)},
        "observation": {date(2026, 1, 31)},
        "questionnaire_response": {START.date()},
    }
    for table, expected in true.items():
        assert {day + moved for day in days(tables[table])[patient]} <= expected, table
        assert days(tables[table])[patient], table
    assert len({row["patient_id"] for row in tables["payment"]}) == len({"p1", "p2"})


def test_pseudonymous_rows_are_sorted_so_that_their_order_shows_nothing_of_a_file(filled: tuple[World, Tables]) -> None:
    """REPORT-30"""
    rows = [tuple(row.values()) for row in filled[1]["diagnostic_report"]]
    assert [row[0] for row in rows] == sorted(row[0] for row in rows)


def test_a_response_names_no_column_and_no_table_that_no_form_has(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """REPORT-30: else a linkId, or the id of a questionnaire, that is a text would be the name of one."""
    publish_only(monkeypatch, wide=True)
    world.responses = [
        response("theirs", *items(low="yes"), {"linkId": "anna-smith", "answer": [{"valueBoolean": True}]}),
        response("more", *items(low="yes"), questionnaire="Questionnaire/anna-smith"),
    ]
    world.publish()
    [(columns,)] = world.rows("SELECT count(*) FROM duckdb_columns() WHERE contains(table_name || column_name, 'anna')")
    assert columns  # they are in the ordinary tables
    tables = publish(world)
    folder = world.home / "pseudonymous"
    assert "anna" not in str(tables)
    assert not [path for path in folder.rglob("*") if path.is_file() and b"anna" in path.read_bytes()]
    assert not [name for name in tables if "anna" in name]


@pytest.mark.parametrize(
    ("column", "why"),
    [
        (
            {"name": "on", "path": "effective.ofType(dateTime)", "type": "dateTime", "tag": "time"},
            (
                "of_home.view.json: the column on is of the kind time: it has to be a DATE or TIMESTAMPTZ, "
                "in a table with a column of the kind patient"
            ),
        ),
        (
            {"name": "on", "path": "status", "type": "code", "tag": "part of nothing"},
            (
                "of_home.view.json: the column on is declared as `part of nothing`: "
                "it has to be `part of` a count, or of a part, that is declared before it"
            ),
        ),
        *(
            (
                {"name": "on", "path": "status", "type": "code", "tag": kind, **more},
                f"of_home.view.json: the column on is of the kind {kind}: it has to be {needed}",
            )
            for kind, more, needed in (
                ("count", {}, "a number"),
                ("hours", {}, "a number"),
                ("patient", {"collection": True}, "one id"),
            )
        ),
        (
            {"name": "on", "path": "status", "type": "code", "tag": "secret"},
            f"of_home.view.json: select[0].column[0].tag: {KIND} must be one of {', '.join(KINDS)}",
        ),
    ],
)
def test_an_impossible_kind_of_column_is_reported_in_one_sentence(
    world: World, monkeypatch: pytest.MonkeyPatch, column: dict[str, Any], why: str
) -> None:
    publish_only(monkeypatch)
    world.read()
    of_view(world, column | {"tag": [{"name": KIND, "value": column["tag"]}]})
    with pytest.raises(PublicationError) as caught:
        publish(world)
    assert str(caught.value) == f"not published: {why}"


def of_view(world: World, *columns: dict[str, Any]) -> None:
    view = {"resourceType": "ViewDefinition", "name": "of_home", "status": "active", "resource": "DiagnosticReport"}
    (world.home / "views").mkdir()
    path = world.home / "views" / "of_home.view.json"
    path.write_text(json.dumps(view | {"select": [{"column": list(columns)}]}))


def test_a_column_of_a_view_has_the_name_of_none_of_ours(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """REPORT-30"""
    publish_only(monkeypatch)
    patient = {"path": "subject.getReferenceKey(Patient)", "type": "id"}
    kinds = {"patient_id": "patient", "status": "quasi", "is_shown": "code"}
    paths = {"path": "status", "type": "code"}
    of_view(
        world,
        *(
            {"name": name, **(patient if kind == "patient" else paths), "tag": [{"name": KIND, "value": kind}]}
            for name, kind in kinds.items()
        ),
    )
    world.read()
    shown = {(row["status"], row["is_shown"]) for row in publish(world)["of_home"]}
    assert shown == {(None, "final"), (None, "entered-in-error")}


@pytest.mark.long
def test_a_view_without_declared_kinds_is_not_in_the_pseudonymous_publication(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """REPORT-30: columns that nobody has classified are not published."""
    publish_only(monkeypatch)
    of_view(world, {"name": "words", "path": "code.text", "type": "string"})
    world.publish()
    assert world.rows("SELECT count(*) > 0 FROM of_home") == [(True,)]
    assert "of_home" not in publish(world)


@pytest.mark.publishes("payment")
def test_the_command_publishes_them_alone(home: Path, chartferry: Any) -> None:
    code, out, _ = chartferry("reports", "--pseudonymous", "--smallest-cell", "5")
    assert code == 0, out
    assert (home / "pseudonymous" / "reports.duckdb").stat().st_mode & 0o777 == 0o444
    assert (home / "pseudonym.key").stat().st_mode & 0o777 == 0o600
    assert not (home / "published" / "reports.duckdb").exists()


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (["--pseudonymous", "--study", "../x"], "--study takes a name of 1 to 40 small letters, digits, `_` and `-`"),
        (["--pseudonymous", "--study", ""], "--study takes a name of 1 to 40 small letters"),
        (["--study", "x"], "--study goes with --pseudonymous"),
    ],
)
def test_an_impossible_name_of_a_study_is_named(chartferry: Any, asked: list[str], why: str) -> None:
    code, _, err = chartferry("reports", *asked)
    assert (code, why in err) == (2, True), err
