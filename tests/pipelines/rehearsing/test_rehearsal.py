"""`chartferry rehearse` from options to report, against real stores, and the rule behind each kind of refusal."""

import hashlib
import json
import os
import shutil
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fhir_service.interface.registry import RESOURCES
from fhir_service.interface.site import Site
from pipelines.cli import run
from pipelines.feeds.terms.rulebook import rules
from pipelines.home.scratch import remove_leftovers, throwaway_folder
from pipelines.rehearsing.refusals import basis, rests_on_decisions, rule_behind
from pipelines.session.bundled import bundled_service
from pipelines.session.questionnaires import Snapshot
from tests.conftest import small_world
from tests.support import commands
from tests.support.exports import feed_file
from tests.support.publishing import publish_as_marked
from tests.support.starting import start

ROOT = Path(__file__).parents[3]
WORLD = ROOT / "tests" / "spec" / "world"
HEADER = "payment_id,patient_id,amount,paid_on,claim_id\n"
ROWS = (
    "k1,p1,100.00,2026-03-01,\n"
    "k2,p1,100.00,2026-03-02,\n"  # above what is left
    "k3,p1,20.00,2026-03-03,c3\n"  # another patient's claim
    "k4,nobody,1.00,2026-03-04,\n"
    "k5,p1,nothing,2026-03-05,\n"
    "k1,p1,100.00,2026-03-01,\n"
    "k6,p1,10000000.00,2026-03-06,\n"
)


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    """A home whose store has the small world; copied for each test."""
    home = tmp_path_factory.mktemp("loaded")
    shutil.copy(small_world(), home / "service.duckdb")
    return home


@pytest.fixture
def home(request, tmp_path, loaded, monkeypatch):
    commands.forget_settings(monkeypatch)
    publish_as_marked(monkeypatch, request.node)
    home = tmp_path / "home"
    shutil.copytree(loaded, home)
    (home / "inbox").mkdir()
    return home


def put(home, text=ROWS, name="payments.csv"):
    path = home / "inbox" / name
    path.write_text(HEADER + text)
    return path


def everything(home, *but):
    """Return every file of a folder by path, mode and content."""
    return {
        str(path.relative_to(home)): (
            path.lstat().st_mode,
            path.is_file() and hashlib.sha256(path.read_bytes()).digest(),
        )
        for path in home.rglob("*")
        if path.relative_to(home).parts[0] not in but
    }


def outcomes(report):
    return {row["line"]: (row["key"], row["state"], [r["rule"] for r in row["rules"]]) for row in report["rows"]}


def test_every_row_has_its_outcome_and_every_patient_a_balance(home, chartferry):
    """CLI-CMD-01"""
    put(home)
    code, out, _ = chartferry("rehearse", "--json")
    report = json.loads(out)
    assert code == report["exit_code"] == 3
    assert outcomes(report) == {
        2: ("k1", "created", []),
        3: ("k2", "refused", ["PAY-CREATE-04"]),
        4: ("k3", "refused", ["PAY-10"]),
        5: ("k4", "refused", ["PAY-14"]),
        6: ("k5", "rejected", ["FEED-FILE-09"]),
        7: ("k1", "skipped", []),
        8: ("k6", "rejected", ["PAY-28"]),
    }
    assert {row["line"]: row["rests_on_decision"] for row in report["rows"]} == {
        2: False,
        3: False,
        4: True,
        5: True,
        6: False,
        7: False,
        8: True,
    }
    assert [row["first_line"] for row in report["rows"] if row["state"] == "skipped"] == [2]
    assert report["balances"] == [
        {"patient": "nobody", "before_cents": 0, "after_cents": 0},
        {"patient": "p1", "before_cents": 15025, "after_cents": 5025},
    ]
    (file,) = report["files"]
    states = [state for _, state, _ in outcomes(report).values()]
    assert {name: file["counts"][name] for name in ("created", "refused", "rejected", "skipped")} == {
        name: states.count(name) for name in ("created", "refused", "rejected", "skipped")
    }


@pytest.mark.long
def test_the_sentence_of_a_rule_is_below_its_first_row(home, chartferry):
    """CLI-CMD-01: also where that row comes after those that are shown anyway."""
    wrong = [f"w{number},p1,nothing,2026-03-05,\n" for number in range(22)]
    put(home, "".join([*wrong, "k4,nobody,1.00,2026-03-04,\n", "k5,nobody,1.00,2026-03-04,\n"]))
    code, out, _ = chartferry("rehearse")
    lines = out.splitlines()
    aside = [number for number, line in enumerate(lines) if line.startswith("  payments.csv line ")]
    assert (code, len(aside)) == (3, 21)
    assert [lines[aside[0] + 1], lines[aside[-1] + 1], *lines[aside[-1] + 2 : aside[-1] + 4]] == [
        f"    FEED-FILE-09: {rules()['FEED-FILE-09'].sentence}",
        "    PAY-14: The patient of a payment is known to the target.",
        "  and 3 more set aside: see the report",
        "what to do about a rule: chartferry rules ID",
    ]
    (report,) = (home / "rehearsals").iterdir()
    assert [*json.loads(report.read_text())["sentences"]] == ["FEED-FILE-09", "PAY-14"]


@pytest.mark.publishes("import_row")
def test_nothing_is_left_but_the_report(home, chartferry):
    """CLI-CMD-02: store, ledger, inbox, tables and all else are the same to the byte."""
    put(home, "k0,p1,1.00,2026-01-01,\n", "payments-0.csv")
    chartferry("import")
    put(home)
    before = everything(home)
    code, out, _ = chartferry("rehearse")
    assert code == 3
    assert everything(home, "rehearsals") == before
    (report,) = (home / "rehearsals").iterdir()
    assert out.splitlines()[-1] == f"report: {report}"
    assert stat.S_IMODE(report.stat().st_mode) == 0o600
    assert "a copy of" in out.splitlines()[0]


def test_the_import_then_does_what_was_rehearsed(home, chartferry):
    """CLI-CMD-01: also for a file that was imported before, and for records that the ledger knows."""
    put(home)
    for again in range(2):
        code, out, _ = chartferry("rehearse", "--json")
        rehearsed = json.loads(out)
        [file] = rehearsed["files"]
        done, out, _ = chartferry("import", "--json")
        imported = json.loads(out)["batches"][0]
        assert (code, file["counts"], file["run"]) == (done, imported["counts"], again + 1)
        put(home)
    states = [row["state"] for row in rehearsed["rows"]]
    assert states == ["unchanged", "refused", "refused", "refused", "rejected", "skipped", "rejected"]


def test_a_file_that_waited_for_its_feed_is_rehearsed_as_an_import_takes_it(home, chartferry):
    """CLI-CMD-01, LEDGER-23: the feed file says since that a file may be of copayments alone."""
    feed = feed_file(home, "till", 'name = "till"\nkind = "payments"\nfiles = ["till*"]\n', HEADER)
    put(home, "".join(f"k{n},p1,1.00,2026-03-01,c{n}\n" for n in range(20)), "till.csv")
    assert json.loads(chartferry("import", "--json")[1])["batches"][0]["state"] == "stopped"
    feed.write_text('copayments = "all"\n' + feed.read_text())
    [file] = json.loads(chartferry("rehearse", "--json")[1])["files"]
    done = json.loads(chartferry("import", "--json")[1])["batches"][0]
    assert (file["state"], file["counts"]) == (done["state"], done["counts"])


@pytest.mark.long
def test_a_rehearsal_reads_from_a_running_service(home, chartferry):
    """CLI-CMD-01, CLI-CMD-02"""
    put(home)
    with bundled_service(home, dict(os.environ)) as address:
        address()
        note = (home / "service.duckdb.run").read_bytes()
        code, _, _ = chartferry("rehearse")
        assert code == 3
        assert (home / "service.duckdb.run").read_bytes() == note
    code, out, _ = chartferry("import", "--json")
    assert json.loads(out)["totals"]["created"] == 1


def test_a_new_store_from_reference_data_needs_no_home(tmp_path, home, chartferry):
    """CLI-CMD-01: `--reference`; a file named by its path stays where it is."""
    file = put(home, "k1,p1,100.00,2026-03-01,\n")
    out = tmp_path / "report.json"
    code = run(["--home", str(tmp_path / "new"), "rehearse", str(file), "--reference", str(WORLD), "--out", str(out)])
    assert code == 0
    assert file.exists()
    assert list((tmp_path / "new").iterdir()) == []
    assert outcomes(json.loads(out.read_text())) == {2: ("k1", "created", [])}


def test_a_rehearsal_without_a_store_says_how_to_name_one(tmp_path, home, capsys):
    """CLI-CMD-01"""
    code = run(["--home", str(tmp_path / "new"), "rehearse"])
    _, err = capsys.readouterr()
    assert (code, "name --reference DIR" in err) == (6, True)
    assert not (tmp_path / "new").exists()


def test_two_rehearsals_are_compared_by_record(home, chartferry, tmp_path):
    """CLI-CMD-01: a corrected row, one that is new and one that is gone; lines may have moved."""
    put(home, "k1,p1,100.00,2026-03-01,\nk2,p1,nothing,2026-03-02,\nk3,p1,1.00,2026-03-02,\n")
    chartferry("rehearse", "--out", tmp_path / "one.json")
    put(home, "k9,p1,1.00,2026-03-01,\nk1,p1,100.00,2026-03-01,\nk2,p1,2.00,2026-03-02,\n")
    code, said, _ = chartferry("rehearse", "--against", tmp_path / "one.json", "--out", tmp_path / "two.json")
    assert code == 0
    created = {"state": "created", "rules": []}
    wrong = {"state": "rejected", "rules": [{"rule": "FEED-FILE-09", "basis": "importer"}]}
    where = {"file": "payments.csv"}
    assert json.loads((tmp_path / "two.json").read_text())["changed"] == [
        where | {"line": 2, "key": "k9", "before": None, "now": created},
        where | {"line": 4, "key": "k2", "before": wrong, "now": created},
        where | {"line": 4, "key": "k3", "before": created, "now": None},
    ]
    assert "payments.csv line 4, k2: rejected (FEED-FILE-09), now created" in said
    (tmp_path / "no.json").write_text("{}")
    assert chartferry("rehearse", "--against", tmp_path / "no.json")[0] == 4


def test_no_text_of_a_record_is_in_the_report_and_a_target_in_the_environment_is_not_touched(
    home, chartferry, monkeypatch
):
    """CLI-CMD-02: whatever stands in a column of ids."""
    monkeypatch.setenv("FHIR_BASE_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("FHIR_TOKEN", "t")
    monkeypatch.setenv("FHIR_SERVICE_BASE_URL", "http://127.0.0.1:9")
    put(home, "k0,p1,1.00,2026-03-01,\nk1,Ada Quill,100.00,2026-03-01,\nk2,p1,12 Main Street,2026-03-01,\n")
    code, out, err = chartferry("rehearse", "--json")
    assert (code, json.loads(out)["rows"][0]["state"]) == (3, "created")
    assert not [word for word in ("Ada", "Quill", "Main") if word in out + err]


@pytest.mark.long
def test_the_files_of_a_killed_rehearsal_are_removed_at_the_next_start(home, chartferry):
    """CLI-CMD-02"""
    put(home, "".join(f"k{n},p3,0.01,2026-03-01,\n" for n in range(5_000)))
    command = [sys.executable, "-m", "pipelines.cli", "--home", str(home), "rehearse"]
    with start(command, env=os.environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as rehearsal:
        while not list(home.glob("scratch/*/batches/*/run-1")) and rehearsal.poll() is None:
            time.sleep(0.01)
        rehearsal.kill()
    assert list(home.glob("scratch/*"))
    put(home, "k1,p1,1.00,2026-03-01,\n")
    assert chartferry("rehearse")[0] == 0
    assert list(home.glob("scratch/*")) == []


def test_the_folder_of_a_rehearsal_that_runs_is_left_alone(tmp_path):
    with throwaway_folder(tmp_path) as one, throwaway_folder(tmp_path) as two:
        remove_leftovers(tmp_path)
        assert one.exists()
        assert two.exists()
        assert stat.S_IMODE(one.stat().st_mode) == 0o700
    assert list(tmp_path.iterdir()) == []


# -- the rule behind a refusal

SITE = Site("http://chart.test")
RESPONSE = {
    "resourceType": "QuestionnaireResponse",
    "questionnaire": "http://chart.test/Questionnaire/q",
    "status": "completed",
    "subject": {"reference": "Patient/p1"},
    "encounter": {"reference": "Encounter/e1"},
    "extension": [{"url": SITE.note_id, "valueId": "n1"}],
    "item": [],
}


@pytest.mark.parametrize(
    ("diagnostics", "at", "rule"),
    [
        ("Encounter/e1 is not known", "encounter", "QR-27"),
        ("note n1 is not known", "extension", "QR-NOTE-07"),
        ("Encounter/e1 belongs to another patient", "encounter", "QR-22"),
        ("Encounter/e1 belongs to another note than n1", "extension", "QR-NOTE-04"),
        ("note n1 belongs to another patient", "extension", "QR-NOTE-08"),
        ("note 0b7f is deleted", "encounter", "QR-NOTE-09"),
        ("note 0b7f is cancelled", "encounter", "QR-NOTE-09"),
        ("something else", "encounter", None),
    ],
)
def test_the_rule_behind_a_refusal_is_found(diagnostics, at, rule):
    body = json.dumps({name: value for name, value in RESPONSE.items() if value != []})
    found = rule_behind(
        "QuestionnaireResponse",
        body,
        SITE,
        Snapshot(),
        f"QuestionnaireResponse.{at}",
        f"Unprocessable entity: {diagnostics}",
    )
    assert (found and found.rule) == rule


def test_an_outcome_rests_on_decisions_when_nothing_else_is_wrong():
    assert basis("PAY-CREATE-04") == "interface"
    assert basis("PAY-10") == "decision"
    assert basis("COMMON-38") == "decision"
    assert basis("FEED-FILE-09") == "importer"
    assert basis("business-rule") == "unknown"
    assert rests_on_decisions(["decision", "decision"]) is True
    assert rests_on_decisions(["decision", "interface"]) is False
    assert rests_on_decisions(["decision", "unknown"]) is None
    assert rests_on_decisions([]) is False
    assert {rule.given for resource in RESOURCES.values() for rule in resource.rules} == {True, False}
