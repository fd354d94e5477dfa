"""The ledger on PostgreSQL: what commands do with it from import to undo is what they do with the home's own."""

import json
from contextlib import closing
from pathlib import Path

import pytest

from pipelines.cli import run
from pipelines.ledger import Intent, Ledger, Outcome
from pipelines.ledger_former import intend_change
from pipelines.ledger_notes import RESPONSE, Group, Member, keep_members, members_of
from tests import commands
from tests.pipelines.test_decisions import payments, tasks
from tests.pipelines.test_rehearsal import HEADER, ROWS, WORLD


@pytest.fixture(autouse=True)
def ledger_url(postgres, monkeypatch, home):
    """An empty database, named in the environment."""
    with postgres.database() as url:
        monkeypatch.setenv("CHARTFERRY_LEDGER", url)
        yield url
    assert not (home / "ledger.db").exists()


def kinds(found):
    return sorted(each["kind"] for each in found["differences"])


@pytest.mark.parametrize("additions", [True, False], ids=["with additions", "bare"])
def test_a_file_is_imported_once_verified_and_loaded_anew_where_the_store_lost_it(home, target, asked, additions):
    """STATE-HOME-02, LEDGER-01, CLI-CMD-17, CLI-CMD-18"""
    target.additions = additions
    target.refuse = lambda body: body["amount"]["value"] == 3.0
    payments(home, ("k1", "p1", "1.00"), ("k2", "p1", "2.00"), ("k3", "p2", "3.00"), ("k4", "", "4.00"))
    first = asked("import")
    batch = first["batches"][0]["batch_id"]
    commands.totals_close(first)
    assert (first["totals"]["created"], first["totals"]["refused"], first["totals"]["rejected"]) == (2, 1, 1)
    again = asked("import", str(next((home / "batches" / batch / "source").iterdir())))
    assert (again["totals"]["unchanged"], again["totals"]["created"]) == (2, 0)
    assert asked("verify")["differences"] == []
    lost = target.of("PaymentNotice")[0]
    del target.stored[lost["id"]]
    target.identified = {key: found for key, found in target.identified.items() if found[1] != lost["id"]}
    assert kinds(asked("verify")) == ["gone"]
    assert asked("import", "--again", batch)["totals"]["created"] == 1
    assert asked("verify")["differences"] == []


def test_rejects_go_back_and_are_closed_retried_or_discarded(home, target, asked, chartferry):
    """STATE-HOME-02, CLI-CMD-04, CLI-CMD-05, CLI-CMD-06, CLI-CMD-07"""
    target.refuse = lambda body: body["amount"]["value"] == 3.0
    payments(home, ("k1", "p1", "3.00"), ("k2", "", "2.00"), ("k3", "", "1.00"))
    asked("import")
    code, out, _ = chartferry("rejects", "export", "--json")
    file = json.loads(out)["files"][0]
    assert (code, file["rejects"]) == (0, 3)
    header, *rows = Path(file["file"]).read_text(encoding="utf-8").splitlines()
    assert header.startswith("_reject_id,_reasons,")
    corrected = [row.replace("k2,,", "k2,p2,") for row in rows if "k2" in row]
    (home / "inbox" / "fixed.csv").write_text("\n".join([header, *corrected]) + "\n")
    assert asked("import")["totals"]["created"] == 1
    target.refuse = lambda body: False
    assert asked("rejects", "retry")["totals"]["created"] == 1
    left = json.loads(chartferry("rejects", "export", "--json")[1])["files"]
    assert [each["rejects"] for each in left] == [1]
    last = next(row for row in rows if "k3" in row).split(",")[0]
    assert chartferry("rejects", "discard", last, "--why", "paid in cash")[0] == 0
    assert json.loads(chartferry("rejects", "export", "--json")[1])["files"] == []


def test_doubts_are_settled_and_a_batch_is_taken_back(home, target, asked, ledger_url):
    """STATE-HOME-02, CLI-CMD-08, CLI-CMD-09, CLI-CMD-19"""
    target.additions = False
    target.faults = ["lost_before"]
    payments(home, ("k1", "p1", "1.00"), ("k2", "p1", "2.00"))
    batch = asked("import")["batches"][0]["batch_id"]
    assert asked("doubts", "resolve")["left"] == {f"{batch}:2": "the target does not have it"}
    assert asked("doubts", "resend", f"{batch}:2")["exit_code"] == 0
    assert asked("import")["totals"]["created"] == 2
    tasks(home, "t1", "t2")
    made = asked("import")["batches"][0]["batch_id"]
    assert len(asked("undo", made)["taken_back"]) == 2
    assert asked("import", "--again", made)["totals"]["created"] == 2
    ledger = Ledger.open(ledger_url)
    try:
        assert [row["command"] for row in ledger.decisions()] == ["doubts resend", "undo", "import --again"]
    finally:
        ledger.close()


def test_a_rehearsal_works_on_a_copy_of_it_and_foretells_the_import(home, monkeypatch, capsys):
    """STATE-HOME-02, CLI-CMD-01, CLI-CMD-02"""
    for name in ("FHIR_BASE_URL", "FHIR_TOKEN"):
        monkeypatch.delenv(name)
    assert commands.load(home, WORLD).returncode == 0
    (home / "inbox" / "payments.csv").write_text(HEADER + "".join(ROWS))
    assert run(["--home", str(home), "rehearse", "--json"]) == 3
    report = json.loads(capsys.readouterr().out)
    run(["--home", str(home), "import", "--json"])
    done = json.loads(capsys.readouterr().out)
    assert {k: v for k, v in done["totals"].items() if v} == {k: v for k, v in report["totals"].items() if v}
    run(["--home", str(home), "rehearse", "--json", str(next((home / "batches").glob("*/source/*.csv")))])
    assert "created" not in {row["state"] for row in json.loads(capsys.readouterr().out)["rows"]}


def test_records_that_share_a_note_are_found_by_patient_and_day(ledger_url):
    """STATE-HOME-02: of their own generation only, with the version that a superseding one is to replace."""
    day, next_day = Group("p1", "2026-03-01"), Group("p1", "2026-03-02")
    with closing(Ledger.open(ledger_url)) as ledger, ledger.lease("t") as lease:
        of = (lease, "s", RESPONSE)
        keep_members(ledger, lease, "s", [("k1", 1, next_day), ("k2", 1, day), ("k3", 1, Group("p2", "2026-03-01"))])
        keep_members(ledger, lease, "s", [("k1", 1, day)])
        ledger.intend(*of, [Intent(key, 1, "b", line, "h", "f", "p1") for line, key in enumerate(("k1", "k2", "k3"))])
        ledger.settle("t", "s", RESPONSE, [Outcome("k1", 1, "created", "r1"), Outcome("k2", 1, "refused")])
        intend_change(ledger, *of, [(1, Intent("k1", 2, "b2", 7, "h2", "f", "p1"))])
        keep_members(ledger, lease, "s", [("k1", 2, next_day)])
        found = members_of(ledger, "t", "s", [day, next_day])
    assert sorted(found, key=lambda member: (member.key, member.batch_id)) == [
        Member(day, "k1", "b", "created", "r1"),
        Member(next_day, "k1", "b2", "sending", None),
        Member(day, "k2", "b", "refused", None),
    ]
