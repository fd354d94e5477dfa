"""A marker is in every name, free text and source id of a person. It may be found only in the places for such data.

Those places are the inbox, the batches, the stores and the published tables. Everywhere else is searched after imports
by the command and by Dagster, of good rows and bad ones, with failures of every kind: logs, event logs, metrics,
metadata, error texts, audit, the ledger, and all that is printed.
"""

import io
import json
import os
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb
import pytest

from pipelines.cli import run as chartferry
from pipelines.dagster import alerts
from pipelines.dagster.waiting import waiting_now
from pipelines.feeds.files.catalog import builtin_feeds
from tests.support import loopback
from tests.support.called import called
from tests.support.clinic_feed import lay_clinic
from tests.support.commands import forget_settings, load, serving
from tests.support.privacy import TASKS, found_in, leaks, mark
from tests.support.publishing import publish_only
from tests.support.told import errors_to, everything_said

PATIENTS = [
    {
        "resourceType": "Patient",
        "id": f"p{number}",
        "name": [{"family": mark("family"), "given": [mark("given")], "text": mark("fullname")}],
        "identifier": [{"system": "urn:mrn", "value": mark("identifier")}],
        "birthDate": "1970-01-01",
        "telecom": [{"system": "phone", "value": mark("phone")}],
        "address": [{"line": [mark("street")]}],
        "text": {"status": "generated", "div": f"<div xmlns='http://www.w3.org/1999/xhtml'>{mark('narrative')}</div>"},
    }
    for number in (1, 2)
]
REPORT = {
    "resourceType": "DiagnosticReport",
    "id": "r1",
    "status": "final",
    "category": [{"coding": [{"system": "http://loinc.org", "code": "LP29684-5"}]}],
    "code": {"coding": [{"system": "http://loinc.org", "code": "58410-2"}]},
    "subject": {"reference": "Patient/p1"},
    "conclusion": mark("conclusion"),
    "text": {"status": "generated", "div": f"<div xmlns='http://www.w3.org/1999/xhtml'>{mark('finding')}</div>"},
}
QUESTIONNAIRE = {
    "resourceType": "Questionnaire",
    "id": "q1",
    "name": "intake",
    "status": "active",
    "code": [{"system": "http://loinc.org", "code": "55757-9"}],
    "item": [
        {"linkId": "story", "text": "Tell us", "type": "text"},
        {
            "linkId": "mood",
            "text": "Mood?",
            "type": "choice",
            "answerOption": [{"valueCoding": {"system": "http://loinc.org", "code": "LA6568-5", "display": "Fine"}}],
        },
        {"linkId": "weight", "text": "Weight?", "type": "decimal"},
    ],
}
REFERENCE = [
    *PATIENTS,
    {"resourceType": "Practitioner", "id": "d1", "name": [{"family": mark("doctor")}]},
    {"resourceType": "Claim", "id": "c1", "status": "active", "patient": {"reference": "Patient/p1"}}
    | {"total": {"value": 50, "currency": "USD"}, "created": "2026-01-01"},
    QUESTIONNAIRE,
    REPORT,
    {**REPORT, "id": "r2", "status": mark("status")},
    {**PATIENTS[0], "id": f"not an id {mark('badid')}"},
]

CROSSWALK = f"MRN,NAME,FHIR\n{mark('mrn')},{mark('name')},p1\n"
ANSWERS = "response_id,patient_id,questionnaire,authored,author,question,answer_code,answer_text,answer_number"

FILES: dict[str, str] = {
    "clinic_1.csv": "ID,MRN,WHAT,DONE,BY,WHEN\n"
    f"1,{mark('mrn')},{mark('described')},Y,d1,2026-01-01\n"
    f"2,{mark('unmapped')},{mark('described')},Y,d1,\n"
    f"3,{mark('mrn')},{mark('described')},{mark('shifted')},d1,\n"
    f"4,{mark('mrn')},{mark('described')},N,{mark('nobody')} {mark('nobody')},\n"
    f"5,{mark('mrn')},{mark('described')},N,d1,{mark('when')}\n"
    f'6,{mark("mrn")},"{mark("quoted")} "open,N,d1,,\n'
    f"7,{mark('ragged')}\n",
    "tasks-1.csv": f"{TASKS}\n"
    f"t1,p1,{mark('text')},requested,d1,d1,2026-05-01,{mark('label')},{mark('comment')},d1,2026-01-01T00:00:00Z\n"
    f"t2,p1,{mark('text')},{mark('shifted')},d1,,,,,,\n"
    f"t3,p1,{mark('text')}\x01,requested,d1,,,,,,\n"
    f"t4,p1,{mark('text')},requested,d1,,{mark('due')},,{mark('comment')},{mark('author')} x,{mark('time')}\n"
    f"t5,p1,{mark('twice')},requested,d1,,,,,,\nt5,p1,{mark('other')},requested,d1,,,,,,\n"
    f"t6,Group/{mark('group')} x,{mark('text')},requested,d1,,,,,,\n"
    f"t7,p404,{mark('text')},requested,d1,,,,,,\n",
    "tasks-2.ndjson": json.dumps(
        {"task_id": "n1", "patient_id": "p1", "description": mark("nd"), "status": "requested"}
    )
    + f'\n{{"task_id": "n2", "description": "{mark("cut")}\n'
    + json.dumps({"task_id": "n3", "description": [mark("list")], "status": {mark("key"): mark("value")}})
    + "\n",
    "answers-1.csv": f"{ANSWERS}\n"
    f"a1,p1,intake,2026-01-02,,story,,{mark('answer')},\n"
    "a2,p1,intake,2026-01-02,,mood,no-such-code,,\n"
    f"a3,p1,intake,2026-01-02,,weight,,,{mark('number')}\n"
    f"a4,p1,no-such-form,2026-01-02,,story,,{mark('answer')},\n"
    f"a5,p1,intake,2026-01-02,{mark('author')} y,story,,{mark('answer')},\n"
    f"a6,p1,intake,2026-01-02,,{mark('question')},,{mark('answer')},\n"
    f"a7,p1,intake,{mark('authored')},,story,,{mark('answer')},\n",
    "payments-1.csv": "payment_id,patient_id,amount,paid_on,claim_id,memo\n"
    f"y1,p1,10.00,2026-01-03,,{mark('memo')}\n"
    f"y2,p1,9000.00,2026-01-03,,{mark('memo')}\n"
    f"y3,p1,{mark('sum')},2026-01-03,,\n"
    f"y4,{mark('who')} z,5.00,2026-01-03,,\n"
    f"y5,p1,5.00,{mark('paidon')},,\n"
    f"y6,p1,5.00,2026-01-03,{mark('claim')} z,\n",
    "payments-2.csv": f"payment_id,patient_id,amount,paid_on\nz1,p1,1.00,2026-01-03\nz2,{mark('total')} z,1.00,x\n",
    "payments-2.csv.control.json": '{"rows": 7, "amount": "1.00"}',
    "payments-3.csv.gz": f"no gzip {mark('nogzip')}",
    "tasks-3.csv": f"{mark('header')},{mark('column')}\n1,2\n",
    "unmatched.csv": f"{mark('unmatched')}\n",
}


def lay_out(home: Path) -> Path:
    """The inbox, the feed and its crosswalk in a home; gives a folder with the reference data."""
    for name, text in FILES.items():
        (home / "inbox").mkdir(parents=True, exist_ok=True)
        (home / "inbox" / name).write_text(text, encoding="utf-8")
    (home / "feeds").mkdir()
    lay_clinic(home / "feeds", CROSSWALK)
    reference = home.parent / "reference"
    reference.mkdir()
    lines = "\n".join(map(json.dumps, REFERENCE)) + f'\n{{"resourceType": "Patient", "x": "{mark("notjson")}\n'
    (reference / "all.ndjson").write_text(lines)
    return reference


# -- by the command, into the bundled service


AGAIN = "import --again"
Told = dict[str, str]
"""What each command printed, by its words."""


def tell(told: Told, *arguments: object, home: Path) -> None:
    """Runs `chartferry` in this process and keeps what it prints."""
    said = io.StringIO()
    with everything_said(said):
        chartferry(["--home", str(home), *map(str, arguments)])
    told[" ".join(map(str, arguments))] = said.getvalue()


def told_of(batch: Path) -> str:
    """The name of the file of a batch."""
    return next((batch / "source").iterdir()).name


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Told]]:
    """A home after every command that tells of its data, over one running service; and what each printed.

    Nothing keeps files from others here but the commands themselves: the umask is 0.
    """
    before = os.umask(0)
    home = tmp_path_factory.mktemp("privacy") / "home"
    reference, told, store = lay_out(home), Told(), ("--store", home / "service.duckdb")
    done = load(home, reference)
    told["load"] = done.stdout + done.stderr
    with pytest.MonkeyPatch.context() as patch, errors_to(home / "stderr.log"):
        forget_settings(patch)
        publish_only(patch, "import_row")  # until the last import, which publishes all
        tell(told, "status", home=home)
        tell(told, "reports", home=home)
        with serving(home) as client:
            tell(told, "import", "--dry-run", home=home)
            tell(told, "rehearse", home / "inbox", home=home)
            tell(told, "import", home=home)
            for batch in sorted(path.name for path in (home / "batches").glob("*-*")):
                tell(told, "status", batch, home=home)
            tell(told, "rejects", "export", "--out", home / "batches" / "export", home=home)
            tell(told, "rejects", "retry", home=home)
            [undone] = [path.name for path in (home / "batches").glob("tasks-*") if told_of(path) == "tasks-1.csv"]
            tell(told, "undo", undone, home=home)
            tell(told, *AGAIN.split(), undone, home=home)
            patch.undo()
            forget_settings(patch)
            for words in ("import --json", "status", "doubts", "verify", "evidence", "feeds check", "metrics"):
                tell(told, *words.split(), home=home)
            told["metrics of the service"] = loopback.get(client.base_url.join("/metrics")).text
            for command in ("audit", "check", "audit --format auditevent"):
                told[command] = called(*command.split(), *store).output
            told["alerts"] = alerts_of(home)
            yield home, told
    os.umask(before)


def alerts_of(home: Path) -> str:
    """Every alert of the home as it would be sent, as if an hour had gone by."""
    later = datetime.now(UTC) + timedelta(hours=2)
    held = waiting_now(home, {}, builtin_feeds(), later)
    found = [*alerts.of_batches(home, {}), *alerts.of_waiting(held), *alerts.of_inbox(home, later)]
    return "\n".join(json.dumps(event.as_json(home, later)) for event in found)


def test_the_marked_rows_did_come_through_and_were_set_aside(imported: tuple[Path, Told]) -> None:
    """The search below has something to find: good rows landed, bad ones and files were refused in many ways."""
    home, told = imported
    kept = b"".join(path.read_bytes() for path in home.glob("service.duckdb*"))
    assert {mark("family"), mark("described"), mark("answer")} <= found_in(kept)
    assert "payments-3.csv.gz" in told["import"]
    assert "control" in told["import"]
    with duckdb.connect(home / "published" / "reports.duckdb", read_only=True) as db:
        assert db.sql("FROM practitioner").fetchall() == [("d1", mark("doctor"))]
        states = dict(db.sql("SELECT state, count(*) FROM import_row GROUP BY 1").fetchall())
        stages = dict(db.sql("SELECT stage, count(*) FROM reject GROUP BY 1").fetchall())
    assert states.keys() >= {"created", "refused"}
    assert stages.keys() == {"parse", "map", "rule", "load"}
    assert told["metrics of the service"]
    assert "PaymentNotice" in told["audit"]
    assert '"resourceType":"AuditEvent"' in told["audit --format auditevent"].replace(" ", "")
    assert "chartferry_rows{" in told["metrics"]
    assert (home / "metrics.prom").exists()
    assert list((home / "evidence").glob("*.html"))
    assert '"event": "batch_failed"' in told["alerts"]
    undone, again = (next(text for words, text in told.items() if words.startswith(each)) for each in ("undo", AGAIN))
    assert "1 taken back" in undone
    assert "1 to be loaded again" in again


def test_no_marker_is_printed(imported: tuple[Path, Told]) -> None:
    """REPORT-25"""
    assert {words: marks for words, text in imported[1].items() if (marks := found_in(text.encode()))} == {}


def test_no_marker_lies_outside_the_places_of_patient_data(imported: tuple[Path, Told]) -> None:
    """REPORT-25: not in the ledger, the audit, the page, the list of refused records or any log."""
    assert leaks(imported[0]) == {}


def test_the_published_tables_hold_no_name_and_no_free_text_of_a_patient(imported: tuple[Path, Told]) -> None:
    """REPORT-25: words of staff, labels and the source's own keys and codes are what they may hold."""
    found: dict[str, set[str]] = {}
    for path in (imported[0] / "published" / "parquet").iterdir():
        rows = duckdb.read_parquet(str(path)).fetchall()
        if marks := found_in(str(rows).encode()):
            found[path.stem] = marks
    assert found == {
        "practitioner": {mark("doctor")},
        "task": {mark("label")},
    }


def test_only_the_owner_can_open_what_the_commands_made(imported: tuple[Path, Told]) -> None:
    """STATE-HOME-01, STATE-HOME-06: the published files are read-only, and lie in folders of the owner's."""
    home, _ = imported
    (home / "stderr.log").chmod(0o600)  # this test's own
    ours = [home, *(path for path in home.rglob("*") if path.relative_to(home).parts[0] not in ("inbox", "feeds"))]
    modes = {str(path.relative_to(home)): path.stat().st_mode & 0o777 for path in ours}
    of_analysts = re.compile(r"published/(parquet/)?[\w.]+\.(duckdb|html|json|parquet|yml)")
    published = {name for name in modes if of_analysts.fullmatch(name)}
    assert {modes[name] for name in published} == {0o444}
    assert {name: oct(mode) for name, mode in modes.items() if mode & 0o077 and name not in published} == {}
