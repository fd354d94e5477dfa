"""The import of the samples by a user's commands: counts, cents, a second import, and readers during it."""

import csv
import gzip
import json
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from decimal import Decimal
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Self

import duckdb
import pytest

from pipelines.rehearsing.report import accounts
from tests.support.called import called
from tests.support.commands import (
    OUTCOMES,
    command,
    environment,
    home_with,
    resources,
    run,
    serving,
    totals,
)
from tests.support.ledgers import read_ledger
from tests.support.practice import samples_store
from tests.support.published_rows import Tables
from tests.support.questions import ANSWERS, asked, same
from tests.support.starting import start

SAMPLES = Path(__file__).parents[1] / "data" / "samples"
EXPECTED: dict[str, dict[str, Any]] = json.loads((SAMPLES / "expected.json").read_text(encoding="utf-8"))
FILES, REFERENCE = EXPECTED["files"], EXPECTED["reference"]
SET_ASIDE = 3
PANDAS = "pandas was looked for"
LOADED = ("Task", "PaymentNotice", "QuestionnaireResponse")

ANALYST = """
import duckdb, subprocess, sys
QUERY = "SELECT count(*) FROM import_row JOIN import_batch USING (batch_id)"
SECOND = "import duckdb, sys; print(*duckdb.connect(sys.argv[1], read_only=True).execute(sys.argv[2]).fetchone())"
held = duckdb.connect(sys.argv[1], read_only=True)
for _ in sys.stdin:
    new = subprocess.run([sys.executable, "-c", SECOND, sys.argv[1], QUERY], capture_output=True, check=True)
    assert held.execute(QUERY).fetchone()[0] == int(new.stdout)
    print(int(new.stdout), flush=True)
"""


@pytest.fixture(scope="module")
def store() -> Path:
    """A store with the reference data of the samples."""
    store = samples_store()
    told = store.with_name("loaded.txt").read_text(encoding="utf-8")
    rows = {line.split()[0]: line.split()[1:] for line in told.splitlines()[1:]}
    expected = {kind: [counts["records"] - counts["refused"], counts["refused"]] for kind, counts in REFERENCE.items()}
    assert {kind: [int(row[0]), int(row[3])] for kind, row in rows.items()} == expected
    return store


@pytest.fixture(scope="module")
def home(store, tmp_path_factory) -> Path:
    return home_with(store, tmp_path_factory.mktemp("home") / "var")


@pytest.fixture(scope="module")
def rehearsed(store, tmp_path_factory) -> dict[str, Any]:
    """The report of a rehearsal of the first import, made in another home."""
    home = home_with(store, tmp_path_factory.mktemp("rehearsed") / "var")
    return dict(json.loads(run("chartferry", "--home", home, "rehearse", "--json", SAMPLES / "inbox").stdout))


@pytest.fixture(scope="module")
def first(home, tmp_path_factory) -> subprocess.CompletedProcess[str]:
    """The first import of the samples, in a process where importing pandas only leaves a note."""
    pandas = tmp_path_factory.mktemp("modules") / "pandas.py"
    pandas.write_text(f"import sys\nsys.stderr.write({PANDAS!r})\nraise ImportError\n", encoding="utf-8")
    given = command("chartferry", "--home", home, "import", "--json", SAMPLES / "inbox")
    own = environment(PYTHONPATH=str(pandas.parent))
    return subprocess.run(given, env=own, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def in_service(home, first) -> dict[str, int]:
    """The number of resources of each type after the first import."""
    with serving(home) as client:
        return totals(client, *LOADED)


@pytest.fixture
def published(home, first) -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(str(home / "published" / "reports.duckdb"), read_only=True) as connection:
        yield connection


def rows(connection: duckdb.DuckDBPyConnection, query: str) -> list[dict[str, Any]]:
    found = connection.execute(query)
    names = [column[0] for column in found.description]
    return [dict(zip(names, row, strict=True)) for row in found.fetchall()]


# --- One import ------------------------------------------------------------------------------------


def test_an_import_with_its_publication_loads_no_pandas(first):
    """It would take half a second and 60 MB, more than a small file."""
    assert PANDAS not in first.stderr


def test_an_import_of_messy_files_ends_with_3_and_one_json_document(first):
    """CLI-IMPORT-01, CLI-IMPORT-03, CLI-IMPORT-05"""
    summary = json.loads(first.stdout)
    assert first.returncode == summary["exit_code"] == SET_ASIDE, first.stderr
    assert [batch["state"] for batch in summary["batches"]] == ["finished"] * len(FILES)
    assert {batch["file"] for batch in summary["batches"]} == set(FILES)
    assert summary["unmatched"] == []


@pytest.mark.parametrize("name", FILES)
def test_a_file_gives_the_counts_and_cents_that_were_planted(published, name):
    """REPORT-14, REPORT-16: `import_batch` and `reject` against `expected.json`."""
    expected = FILES[name]
    (batch,) = rows(published, f"SELECT * FROM import_batch WHERE file_name = '{name}'")
    same = "feed lines not_taken records accepted created unchanged skipped refused".split()
    assert {column: batch[column] for column in same} == {column: expected[column] for column in same}
    assert batch["rejected"] == sum(expected["rejected"].values())
    assert batch["amount_created"] == Decimal(expected.get("amount_created", 0))
    stages = published.execute("SELECT stage FROM reject WHERE batch_id = ?", [batch["batch_id"]]).fetchall()
    assert Counter(stage for (stage,) in stages) == Counter(expected["rejected"] | {"load": expected["refused"]})


@pytest.mark.parametrize("name", FILES)
def test_lines_records_and_outcomes_add_up(home, published, name):
    """REPORT-23: the identities of the published counts; lines of records are counted in the stages' files."""
    (batch,) = rows(published, f"SELECT * FROM import_batch WHERE file_name = '{name}'")
    run_folder = home / "batches" / batch["batch_id"] / "run-1"
    parts = [run_folder / f"{part}.parquet" for part in ("accepted", "skipped", "rejects")]
    lines = [duckdb.execute(f"SELECT coalesce(sum(lines), 0) FROM '{part}'").fetchall()[0][0] for part in parts]
    assert batch["lines"] == FILES[name]["header"] + batch["not_taken"] + sum(lines)
    assert batch["records"] == batch["accepted"] + batch["rejected"]
    assert batch["accepted"] == sum(batch[outcome] for outcome in OUTCOMES)
    assert batch["amount_created"] <= batch["amount_accepted"] <= batch["amount_received"]


@pytest.mark.long
def test_the_import_does_with_every_row_and_balance_what_was_rehearsed(home, rehearsed, published, tmp_path):
    """CLI-CMD-01: row by row, and to the cent for every patient who pays. Outcomes by our own decisions are marked."""
    at = "file_name || ':' || line"
    found = published.execute(f"SELECT {at}, state FROM import_row").fetchall()
    rejected = f"SELECT {at}, 'rejected' FROM reject WHERE stage <> 'load'"
    imported = {**dict(found), **dict(published.execute(rejected).fetchall())}
    foretold = {f"{row['file']}:{row['line']}": row["state"] for row in rehearsed["rows"]}
    assert len(foretold) == sum(counts["records"] for counts in FILES.values())
    assert foretold == imported
    owed = accounts(home / "service.duckdb", tmp_path)
    assert {each["patient"]: each["after_cents"] for each in rehearsed["balances"]} == {
        each["patient"]: owed.get(each["patient"], 0) for each in rehearsed["balances"]
    }
    assert any(each["before_cents"] != each["after_cents"] for each in rehearsed["balances"])
    assert any(row["rests_on_decision"] for row in rehearsed["rows"])


def test_the_service_holds_what_was_created_to_the_cent(home, first, in_service):
    """LEDGER-01: there are as many resources as created rows, with the same sum."""
    feeds = {"Task": "tasks", "PaymentNotice": "payments", "QuestionnaireResponse": "answers"}
    created = {kind: sum(f["created"] for f in FILES.values() if f["feed"] == feeds[kind]) for kind in LOADED}
    assert in_service == created
    with serving(home) as client:
        payments = resources(client, "PaymentNotice")
    paid = sum(Decimal(str(payment["amount"]["value"])) for payment in payments)
    assert paid == sum(Decimal(counts.get("amount_created", 0)) for counts in FILES.values())


def test_the_store_is_sound_afterwards(home, first):
    """CLI-SVC-10: balances, references and indexes agree."""
    checked = called("check", "--store", home / "service.duckdb")
    assert (checked.exit_code, checked.output.splitlines()[-1].split(",")[0]) == (0, "nothing wrong")


STATE, PATIENT = 4, 7


def without_patient(row):
    return (*row[:PATIENT], *row[PATIENT + 1 :])


def fits(reason, shown):
    """True if a reason equals the published one, which hides ids of unknown patients."""
    return reason[:2] == shown[:2] and fnmatchcase(reason[2], shown[2].replace("[", "[[]"))


def test_the_published_rows_agree_with_the_ledger(home, published):
    """REPORT-15, REPORT-16, REPORT-17: every row of the ledger is published once, with state, resource and cents."""
    with read_ledger(home) as ledger:
        columns = "batch_id, line, source, key, state, resource_type, resource_id, patient_id, amount_cents"
        record = ledger.execute(f"SELECT {columns} FROM record").fetchall()
        first_there = {(row[0], row[1]) for row in record}
        repeat = [row for row in ledger.execute(f"SELECT {columns} FROM repeat") if (row[0], row[1]) not in first_there]
        rejects = ledger.execute("SELECT reject_id, batch_id, line, source_key, stage, state FROM reject").fetchall()
        reasons = ledger.execute("SELECT reject_id, rule_id, message FROM reject_reason").fetchall()
    mirrored = columns.replace(" key", " source_key").replace(
        "amount_cents", "CAST(CAST(amount AS DECIMAL(38, 2)) * 100 AS BIGINT)"
    )
    found = published.execute(f"SELECT {mirrored} FROM import_row").fetchall()
    assert Counter(map(without_patient, found)) == Counter(map(without_patient, record + repeat))
    own = {row[:4]: row[PATIENT] for row in record + repeat}
    hidden = [row for row in found if row[PATIENT] != own[row[:4]]]
    assert all(row[STATE] == "refused" and row[PATIENT].startswith("unknown-") for row in hidden)
    names = "reject_id, batch_id, line, source_key, stage, state"
    assert Counter(published.execute(f"SELECT {names} FROM reject").fetchall()) == Counter(rejects)
    published_reasons = published.execute("SELECT reject_id, rule_id, message FROM reject_reason").fetchall()
    shown = {(*row[:2], re.sub("unknown-[0-9a-f]{16}", "*", row[2])) for row in published_reasons}
    assert len(published_reasons) == len(reasons)
    assert all(row in shown or any(fits(row, each) for each in shown) for row in reasons)
    assert all(message for _, _, message in reasons)


def exported_payments() -> dict[str, tuple[str, str, int]]:
    """Return patient, UTC day and cents of the samples' payments by key, read without our code."""
    found: dict[str, tuple[str, str, int]] = {}
    for path in sorted((SAMPLES / "inbox").glob("payments*[vzn]")):
        text = (gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()).decode("utf-8-sig")
        if path.suffix == ".ndjson":
            read = [json.loads(line, parse_float=str) for line in text.splitlines() if line.endswith("}")]
        else:
            read = list(csv.DictReader(text.splitlines()))
        for row in read:
            with suppress(ArithmeticError, KeyError, TypeError, ValueError):
                cents = Decimal(str(row["amount"])) * 100
                paid = datetime.fromisoformat(row["paid_on"])
                day = (paid.astimezone(UTC) if paid.tzinfo else paid).date().isoformat()
                found.setdefault(row["payment_id"], (row["patient_id"].removeprefix("Patient/"), day, int(cents)))
    return found


def by_day(payments: Iterable[tuple[str, str, int]]) -> dict[str, dict[str, int]]:
    days: dict[str, list[tuple[str, str, int]]] = {}
    for payment in payments:
        days.setdefault(payment[1], []).append(payment)
    return {
        day: {
            "records": len(these),
            "patients": len({patient for patient, _, _ in these}),
            "cents": sum(cents for _, _, cents in these),
        }
        for day, these in days.items()
    }


def test_the_evidence_equals_an_independent_count_of_files_and_service(home, first):
    """EVID-01: by day and patient, to the cent."""
    done = run("chartferry", "--home", home, "evidence", "--json")
    found = json.loads(done.stdout)
    exported = exported_payments()
    with serving(home) as client:
        there = resources(client, "PaymentNotice")
    keys = [payment["identifier"][0]["value"] for payment in there]
    assert all(
        exported[key][2] == round(payment["amount"]["value"] * 100) for key, payment in zip(keys, there, strict=True)
    )
    expected = by_day(exported[key] for key in keys)
    days = {day["day"]: day for day in found["days"] if day["feed"] == "payments" and day["target"]["records"]}
    for side in ("expected", "ledger", "target"):
        assert {day: it[side] for day, it in days.items()} == expected
    with read_ledger(home) as ledger:
        [(records, patients, cents)] = ledger.execute(
            "SELECT count(*), count(DISTINCT patient_id), sum(amount_cents) FROM record"
            " WHERE resource_type = 'PaymentNotice' AND state = 'created'"
        ).fetchall()
    [payments] = [feed for feed in found["feeds"] if feed["feed"] == "payments"]
    assert payments["ledger"] == {"records": records, "patients": patients, "cents": cents}
    repeats = {"payments": 0, "answers": 0, "tasks": 0}
    for counts in FILES.values():
        repeats[counts["feed"]] += counts["unchanged"] + counts["skipped"]
    for feed in found["feeds"]:
        of_feed = [counts for counts in FILES.values() if counts["feed"] == feed["feed"]]
        assert feed["export"]["records"] == sum(counts["records"] for counts in of_feed) - repeats[feed["feed"]]
        aside = sum(counts["refused"] + sum(counts["rejected"].values()) for counts in of_feed)
        assert {fate: it["records"] for fate, it in feed["apart"].items()} == {"set aside": aside}
    assert (found["agrees"], found["exit_code"], done.returncode) == (True, 0, 0)
    assert {each["hash_now"] for each in found["files"]} == {"the same"}


def test_received_created_and_refused_leave_no_difference(published):
    """REPORT-18, REPORT-24: per patient and day, and in all."""
    open_days = rows(published, "SELECT * FROM payment_reconciliation WHERE difference <> 0")
    assert open_days == []
    (sums,) = rows(published, "SELECT sum(created) AS created FROM payment_reconciliation")
    assert sums["created"] == sum(Decimal(counts.get("amount_created", 0)) for counts in FILES.values())


def test_every_report_is_published(published):
    """REPORT-06"""
    counts = REFERENCE["DiagnosticReport"]
    (found,) = rows(published, "SELECT count(*) AS reports FROM diagnostic_report")
    assert found["reports"] == counts["records"] - counts["refused"]


# --- The same again, with readers -------------------------------------------------------------------


NOT_IN_THE_SAMPLES = {
    "What was corrected or taken away at the target in the last 30 days?",
    "Which results of reports could not be read, or are of another patient?",
    "How many days passed from the making of tasks to the file that told of their completion?",
    "Which records were changed by a later file?",
}


def test_forty_questions_of_analysts_have_the_answers_that_the_rows_give(home: Path, published: Any) -> None:
    """REPORT-03: each query of docs/analysts.md, held against an answer in plain Python."""
    questions = asked((SAMPLES.parents[1] / "docs" / "analysts.md").read_text(encoding="utf-8"))
    assert len(questions) == len(ANSWERS) == 40
    tables = Tables(home / "published" / "parquet")
    published.execute("SET TimeZone = 'UTC'")
    for (question, query), answer in zip(questions, ANSWERS, strict=True):
        found, expected = published.execute(query).fetchall(), answer(tables)
        assert same(found, expected), question
        assert bool(found) != (question in NOT_IN_THE_SAMPLES), question
        assert query.strip().count("\n") < 12, question


@pytest.mark.long
def test_a_second_import_of_the_files_creates_nothing_and_disturbs_no_reader(home, first, in_service):
    """LEDGER-02, REPORT-04, REPORT-05: while the import runs, one reader keeps the file open and others come and go."""
    database = home / "published" / "reports.duckdb"
    before = batches_in(database)
    importer = start(
        command("chartferry", "--home", home, "import", "--json", SAMPLES / "inbox"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    with Reader(database) as reader:
        reads = [reader.count()]
        while importer.poll() is None:
            reads.append(reader.count())
            time.sleep(1.5)  # each read is a separate process, during the import
        out, err = importer.communicate()
        reads.append(reader.count())
    assert importer.returncode == SET_ASIDE, err
    assert "Traceback" not in out + err
    assert len(reads) > 2, "nobody could read while the import ran"
    assert set(reads) == {reads[0]}, "a reader saw half of something"
    assert nothing_created(json.loads(out))
    with serving(home) as client:
        assert totals(client, *LOADED) == in_service
    assert batches_in(database) == before, "a batch keeps its first outcome"
    with duckdb.connect(str(database), read_only=True) as now:
        assert now.execute("SELECT max(run), count(*) FROM import_run").fetchall() == [(2, 2 * len(FILES))]


def batches_in(database: Path) -> list[dict[str, Any]]:
    with duckdb.connect(str(database), read_only=True) as connection:
        return rows(connection, "SELECT * EXCLUDE (finished_at) FROM import_batch ORDER BY batch_id")


class Reader:
    """A process that reads the published file: it keeps the file open, and opens it again for every count."""

    def __init__(self, database: Path) -> None:
        self._arguments = [sys.executable, "-c", ANALYST, str(database)]

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(self._arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        return self

    def count(self) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("count\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def __exit__(self, *_: object) -> None:
        self._process.communicate()
        assert self._process.returncode == 0


def nothing_created(summary: dict[str, Any]) -> bool:
    return all(batch["counts"]["created"] == batch["counts"]["adopted"] == 0 for batch in summary["batches"])
