"""The command `chartferry` from options to exit codes, against a real server on loopback named by the environment."""

import json
import os
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

from tests.support.commands import totals_close
from tests.support.exports import QUESTIONS
from tests.support.publishing import publish_nothing
from tests.support.starting import start

HEADER = "payment_id,patient_id,amount,paid_on,claim_id\n"


def put(home, name="payments.csv", rows=3, first=1, text=None):
    lines = "".join(f"k{n},p{n % 2},{n}.50,2026-03-0{1 + n % 9},\n" for n in range(first, first + rows))
    path = home / "inbox" / name
    path.write_text(HEADER + lines if text is None else text)
    return path


def summary(chartferry, *arguments):
    code, out, _ = chartferry("import", "--json", *arguments)
    found = json.loads(out)
    assert found["exit_code"] == code
    return code, found


@pytest.mark.publishes
def test_an_import_takes_the_inbox_to_the_target_and_the_tables(chartferry, home, target):
    """CLI-IMPORT-01, CLI-IMPORT-04, CLI-GLOBAL-02: the first line names the target."""
    put(home)
    code, out, err = chartferry("import")
    assert code == 0
    assert out.splitlines()[0] == f"target: {target.url} (urn:uuid:fake)"
    amounts = [body["amount"]["value"] for body in target.of("PaymentNotice")]
    assert sorted(amounts) == [1.5, 2.5, 3.5]
    assert amounts.index(1.5) < amounts.index(3.5), "one patient's payments go in the file's order"
    assert list((home / "inbox").iterdir()) == []
    assert "load done, 3 rows" in err
    assert "3 created" in err
    with duckdb.connect(str(home / "published/reports.duckdb"), read_only=True) as tables:
        assert tables.sql("select source_key, state, amount::varchar from import_row order by line").fetchall() == [
            ("k1", "created", "1.50"),
            ("k2", "created", "2.50"),
            ("k3", "created", "3.50"),
        ]


@pytest.mark.publishes("import_row", "import_run")
def test_a_second_import_of_a_file_is_another_run_of_its_batch_and_creates_nothing(
    chartferry, home, target, monkeypatch
):
    """LEDGER-02, STATE-HOME-07"""
    path = put(home)
    text = path.read_text()
    with monkeypatch.context() as patched:
        publish_nothing(patched)
        first = summary(chartferry)[1]
    put(home, "payments-under-another-name.csv", text=text)
    code, second = summary(chartferry)
    assert code == 0
    assert len(target.of("PaymentNotice")) == 3
    (one,), (two,) = first["batches"], second["batches"]
    assert one["batch_id"] == two["batch_id"]
    assert (one["run"], two["run"]) == (1, 2)
    assert (one["counts"]["created"], two["counts"]["unchanged"]) == (3, 3)
    totals_close(first)
    totals_close(second)
    with duckdb.connect(str(home / "published/reports.duckdb"), read_only=True) as tables:
        assert tables.sql("select created, unchanged, amount_created::varchar from import_batch").fetchall() == [
            (3, 0, "7.50")
        ]
        assert tables.sql("select run, created, unchanged from import_run order by run").fetchall() == [
            (1, 3, 0),
            (2, 0, 3),
        ]


def test_the_same_records_in_another_file_create_nothing(chartferry, home, target):
    """LEDGER-03"""
    put(home, rows=2)
    summary(chartferry)
    put(home, "payments-2.csv", rows=3)
    _, found = summary(chartferry)
    assert found["totals"]["unchanged"] == 2
    assert found["totals"]["created"] == 1
    assert len(target.of("PaymentNotice")) == 3


def test_rejected_and_refused_rows_end_in_3(chartferry, home, target):
    """CLI-IMPORT-05"""
    target.refuse = lambda body: body["amount"]["value"] == 2.5
    put(home, text=HEADER + "k1,p1,1.00,2026-01-01,\nk2,p1,2.50,2026-01-01,\nk3,p1,nothing,2026-01-01,\n")
    code, found = summary(chartferry)
    assert code == 3
    counts = found["batches"][0]["counts"]
    assert (counts["created"], counts["refused"], counts["rejected"]) == (1, 1, 1)
    totals_close(found)


def test_other_content_under_a_known_key_is_rejected(chartferry, home, target):
    """LEDGER-08, LEDGER-09"""
    put(home, text=HEADER + "k1,p1,1.00,2026-01-01,\n")
    summary(chartferry)
    put(home, text=HEADER + "k1,p1,9.00,2026-01-01,\nk2,p1,2.00,2026-01-01,\n")
    code, found = summary(chartferry)
    assert code == 3
    assert found["batches"][0]["reasons"] == {"LEDGER-08": 1}
    counts = found["batches"][0]["counts"]
    assert (counts["records"], counts["accepted"], counts["rejected"], counts["created"]) == (2, 1, 1, 1)
    assert (counts["amount_received"], counts["amount_accepted"]) == (1100, 200)
    assert len(target.of("PaymentNotice")) == 2
    totals_close(found)


def test_a_total_among_the_rows_is_named_with_its_line(chartferry, home):
    """CLI-IMPORT-05: amount received counts it."""
    put(home, text=HEADER + "k1,p1,1.00,2026-01-01,\nk2,p1,2.50,2026-01-01,\nTotal,,3.50,,\n")
    code, found = summary(chartferry)
    [batch] = found["batches"]
    assert (code, batch["counts"]["amount_received"], batch["warnings"]) == (3, 700, {"LOOKS-LIKE-TOTAL": 1})
    assert batch["message"].startswith(f"{batch['batch_id']}: line 4: a rejected row looks like a total")
    assert "3.50" not in batch["message"]


def test_a_file_that_no_feed_takes_is_named_and_left(chartferry, home):
    """FEED-FILE-10"""
    path = put(home, "visits.csv")
    code, out, _ = chartferry("import")
    assert code == 4
    assert f"{path}: no feed takes a file of this name" in out
    assert path.exists()


def test_a_file_that_cannot_be_read_ends_in_4_and_the_others_go_on(chartferry, home, target):
    """CLI-IMPORT-06"""
    (home / "inbox" / "payments-a.csv.gz").write_bytes(b"not gzip")
    put(home, "payments-b.csv")
    code, found = summary(chartferry)
    assert code == 4
    failed, finished = found["batches"]
    assert (failed["state"], finished["state"]) == ("failed", "finished")
    assert failed["message"].startswith("payments-a.csv.gz")
    assert len(target.of("PaymentNotice")) == 3


def test_control_totals_that_differ_stop_the_file_before_anything_is_sent(chartferry, home, target):
    """LEDGER-14"""
    path = put(home)
    path.with_name("payments.csv.control.json").write_text('{"rows": 4}')
    code, found = summary(chartferry)
    assert (code, found["batches"][0]["state"]) == (4, "stopped")
    assert target.stored == {}


def test_rows_in_doubt_end_in_5_and_the_next_import_settles_nothing_by_itself(chartferry, home, target):
    """CLI-IMPORT-07, LEDGER-05: towards the bare interface."""
    target.additions = False
    target.faults = ["lost_before"]
    put(home, rows=1)
    code, found = summary(chartferry)
    assert (code, found["totals"]["in_doubt"]) == (5, 1)
    code, found = summary(chartferry)
    assert (code, found["totals"]["in_doubt"]) == (5, 1)
    assert target.of("PaymentNotice") == []
    assert target.writes == 1


def test_a_target_that_is_away_ends_in_6_in_one_line(chartferry, home, monkeypatch):
    """CLI-IMPORT-08"""
    monkeypatch.setenv("FHIR_BASE_URL", "http://127.0.0.1:9")
    put(home)
    code, out, err = chartferry("import")
    assert (code, out) == (6, "")
    assert err.splitlines() == ["chartferry: http://127.0.0.1:9 does not answer (connection refused)"]
    assert (home / "inbox" / "payments.csv").exists()


def test_an_unfinished_batch_goes_on_at_the_next_import(chartferry, home, target, monkeypatch):
    """CLI-IMPORT-08, CLI-IMPORT-09: exit code 6 takes precedence, and no row is lost."""
    monkeypatch.setattr("pipelines.client.client.RetryPauses.wait", lambda *_: None)
    target.faults = ["busy"] * 100
    put(home)
    put(home, "visits.csv")
    code, found = summary(chartferry)
    assert (code, found["batches"][0]["state"], found["batches"][0]["waiting"]) == (6, "running", 3)
    assert target.stored == {}
    target.faults = []
    code, found = summary(chartferry)
    assert (code, found["batches"][0]["state"], found["totals"]["created"]) == (4, "finished", 3)
    totals_close(found)


def test_a_dry_run_sends_and_moves_nothing(chartferry, home, target):
    """CLI-IMPORT-10"""
    put(home, text=HEADER + "k1,p1,1.00,2026-01-01,\nk2,p1,nothing,2026-01-01,\n")
    code, found = summary(chartferry, "--dry-run")
    assert (code, found["totals"]["accepted"], found["totals"]["rejected"]) == (3, 1, 1)
    assert (target.writes, target.stored) == (0, {})
    assert (home / "inbox" / "payments.csv").exists()
    assert list((home / "batches").iterdir()) == []
    assert not (home / "published").exists()


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"FHIR_BASE_URL": "http://elsewhere.example"}, "use https://, or --insecure"),
        ({"FHIR_BASE_URL": "elsewhere"}, "not an http:// or https:// address"),
        ({"FHIR_BASE_URL": "http://user:secret@127.0.0.1:1"}, "leave out user, password"),
        ({"FHIR_BASE_URL": "http://127.0.0.1:1/?key=secret"}, "leave out user, password"),
        ({"FHIR_BASE_URL": ""}, "set FHIR_BASE_URL"),
        ({"FHIR_TOKEN": ""}, "set FHIR_CLIENT_ID and FHIR_CLIENT_SECRET"),
        ({"FHIR_TOKEN": "", "FHIR_CLIENT_ID": "c", "FHIR_CLIENT_SECRET_FILE": "/none"}, "cannot be read"),
    ],
)
def test_a_target_named_wrongly_is_reported_in_one_line(chartferry, monkeypatch, environment, said):
    """CLI-GLOBAL-02, CLI-GLOBAL-04"""
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    code, out, err = chartferry("import")
    assert (code, out, len(err.splitlines())) == (6, "", 1)
    assert said in err
    assert "secret" not in err.lower().replace("client_secret", "")


def test_a_path_that_is_not_there_is_reported_in_one_line(chartferry):
    code, _, err = chartferry("import", "nowhere.csv")
    assert (code, err) == (4, "chartferry: nowhere.csv: there is no such file or folder\n")


def test_a_bad_feed_file_is_reported_in_one_line(chartferry, home):
    (home / "feeds").mkdir()
    (home / "feeds" / "mine.toml").write_text("kind = ")
    code, _, err = chartferry("import")
    assert code == 4
    assert err.startswith("chartferry: mine.toml: the file is not valid TOML")
    assert len(err.splitlines()) == 1


def test_status_lists_batches_and_one_with_its_runs_and_manifest(chartferry, home):
    """CLI-CMD-03, STATE-HOME-03"""
    assert chartferry("status")[0] == 4
    put(home)
    name = summary(chartferry)[1]["batches"][0]["batch_id"]
    code, out, _ = chartferry("status")
    assert code == 0
    assert f"{name}  finished" in out
    code, out, _ = chartferry("status", name, "--json")
    found = json.loads(out)
    assert [run["created"] for run in found["batches"][0]["runs"]] == [3]
    assert "batch_no" not in found["batches"][0]
    manifest = json.loads((home / "batches" / name / "run-1" / "manifest.json").read_text())
    assert found["manifest"] == manifest
    assert (manifest["state"], manifest["target"], manifest["counts"]["created"]) == ("finished", "urn:uuid:fake", 3)
    assert chartferry("status", "none")[0] == 4


@pytest.mark.publishes("import_run")
def test_every_run_leaves_a_manifest_that_agrees_with_status_and_the_tables(chartferry, home, monkeypatch):
    """STATE-HOME-03, CLI-CMD-03: the file, the rules, the target and the counts. The first run's manifest stays."""
    path = put(home)
    text = path.read_text()
    with monkeypatch.context() as patched:
        publish_nothing(patched)
        name = summary(chartferry)[1]["batches"][0]["batch_id"]
    path.write_text(text)
    summary(chartferry)
    found = json.loads(chartferry("status", name, "--json")[1])["batches"][0]
    manifests = [json.loads((home / "batches" / name / f"run-{n}/manifest.json").read_text()) for n in (1, 2)]
    assert set(manifests[0]) >= set(
        "batch_id run file file_sha256 file_size feed feed_hash source resource rules_version questionnaires"
        " software_version target target_url started_at ended_at seconds records_per_second counts amounts_in".split()
    )
    for manifest, run_of_it in zip(manifests, found["runs"], strict=True):
        told = {column: run_of_it[column] for column in manifest["counts"]}
        assert (manifest["counts"], manifest["started_at"]) == (told, run_of_it["started_at"])
        assert manifest["ended_at"] >= run_of_it["finished_at"]
    assert manifests[0]["counts"]["amount_created"] == 750
    assert [manifest["counts"]["created"] for manifest in manifests] == [3, 0]
    counted = "lines, records, accepted, created, unchanged"
    with duckdb.connect(str(home / "published/reports.duckdb"), read_only=True) as tables:
        assert tables.sql(f"select run, {counted} from import_run order by run").fetchall() == [
            (number, *(manifest["counts"][column] for column in counted.split(", ")))
            for number, manifest in enumerate(manifests, 1)
        ]
        assert tables.sql("select created, unchanged, amount_created::varchar from import_batch").fetchall() == [
            (3, 0, "7.50")
        ]


def test_status_shows_a_run_without_an_end_with_the_states_of_its_rows(chartferry, home, monkeypatch):
    """CLI-CMD-03: a killed run has a manifest, too, without an end."""
    put(home)

    def killed(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("pipelines.runs.batch.end", killed)
    assert chartferry("import")[0] == 130
    name = next((home / "batches").iterdir()).name
    _, out, _ = chartferry("status", name)
    assert f"{name}  running" in out
    assert "not ended: it is running, or was stopped; the next import continues with it" in out
    assert "rows at this moment: 3 created" in out
    manifest = json.loads((home / "batches" / name / "run-1/manifest.json").read_text())
    assert (manifest["state"], manifest["ended_at"]) == ("running", None)


@pytest.mark.publishes("diagnostic_report")
def test_reports_publishes_without_an_import(chartferry, home, target):
    """CLI-CMD-12"""
    target.stored["r1"] = {"resourceType": "DiagnosticReport", "id": "r1", "status": "final"}
    code, out, _ = chartferry("reports")
    assert code == 0
    assert "diagnostic_report  1" in out


def test_feeds_check_says_what_each_column_becomes(chartferry, home, tmp_path):
    """CLI-CMD-14"""
    code, out, _ = chartferry("feeds", "check")
    assert code == 0
    assert "  patient_id  from patient_id  becomes PaymentNotice.request" in out
    bad = tmp_path / "bad.toml"
    bad.write_text('kind = "payments"\nfiles = ["x.csv"]\n[columns]\nunheard = "X"\n')
    code, _, err = chartferry("feeds", "check", str(bad))
    assert code == 4
    assert err.startswith("chartferry: bad.toml: columns.unheard")


def test_no_patient_data_in_what_is_printed(chartferry, home, target):
    target.refuse = lambda body: True
    put(home, text=HEADER + "key-of-source,patient-name,12.34,2026-01-01,\nkey-2,patient-name,abc,2026-01-01,\n")
    for arguments in (["import"], ["status"]):
        _, out, err = chartferry(*arguments)
        for secret in ("key-of-source", "patient-name", "abc"):
            assert secret not in out + err


def test_two_importers_at_once_create_each_record_once(home, target):
    """LEDGER-01, LEDGER-10"""
    put(home, "payments-1.csv", rows=400)
    put(home, "payments-2.csv", rows=400, first=200)
    command = [sys.executable, "-m", "tests.support.unpublished", "--home", str(home), "import"]
    root = Path(__file__).parents[3]
    both = [start(command, cwd=root, env=os.environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(2)]
    said = [process.communicate(timeout=120) for process in both]
    assert {process.returncode for process in both} <= {0, 4}, said
    values = [body["identifier"][0]["value"] for body in target.of("PaymentNotice")]
    assert len(values) == len(set(values)) == 599, said


@pytest.mark.long
def test_an_import_that_loaded_no_record_hints_at_missing_reference_data(chartferry, home, target):
    target.refuse = lambda body: True
    put(home)
    _, out, err = chartferry("import")
    assert "note: no record was loaded. Does this target have the patients" in out
    assert "3 refused" in err
    assert "no record was loaded" not in chartferry("rejects", "retry")[1]
    target.refuse = lambda body: False
    chartferry("rejects", "retry")
    assert "no record was loaded" not in chartferry("import")[1]


def test_a_file_stopped_by_its_control_totals_gives_no_hint_at_missing_reference_data(chartferry, home):
    """Its control totals stopped it, although some of its rows are rejects."""
    (home / "inbox" / "payments.csv").write_text("payment_id,patient_id,amount,paid_on\nk1,p1,x,2026-03-01\n")
    (home / "inbox" / "payments.csv.control.json").write_text('{"rows": 2}')
    _, out, _ = chartferry("import")
    assert "control.json says 2 rows, the file has 1" in out
    assert "no record was loaded" not in out


def test_rows_rejected_for_their_own_content_give_no_hint_at_missing_reference_data(chartferry, home):
    put(home, text=HEADER + "k1,p1,none,2026-03-01,\n")
    _, out, _ = chartferry("import")
    assert "set aside by FEED-FILE-09 (1)" in out
    assert "no record was loaded" not in out


@pytest.mark.alike
@pytest.mark.parametrize(("status", "asked"), [("active", False), ("retired", False), (None, True)])
def test_a_missing_questionnaire_gives_a_hint_at_missing_reference_data(status, asked, chartferry, home, target):
    """A retired questionnaire is not missing."""
    if status:
        target.stored["q1"] = QUESTIONS | {"status": status}
    answers = "response_id,patient_id,questionnaire,authored,question,answer_code,answer_text\n"
    (home / "inbox" / "answers.csv").write_text(f"{answers}r1,p1,q1,2026-01-01,1,,Fine\n")
    _, out, _ = chartferry("import")
    assert ("no record was loaded" in out) == asked
    assert ("QR-13" in out) == (status == "retired")
