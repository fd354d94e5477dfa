"""Records that were set aside: their way out, corrected or as they are, and back in."""

import csv
import json
import os
import pwd
import re
import sqlite3
from pathlib import Path

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fhir_service.reference import load as load_reference
from pipelines.feeds.catalog import load_feeds
from pipelines.feeds.marks import Columns, csv_lead, csv_text, marked_line, unmarked_line
from pipelines.pipeline import import_file
from pipelines.rejects import export_home
from pipelines.session import find_files, open_session
from tests.pipelines.fake_target import FakeTarget, serving

HERE = Path(__file__).parent
HEADER = "payment_id,patient_id,amount,paid_on,claim_id\n"
EXPORTS = sorted(folder.name for folder in (HERE / "exports").iterdir() if (folder / "input").is_dir())


def built_in(name):
    feed = load_feeds().named(name)
    assert feed
    return feed


class Practice:
    """A home at work: files go in, commands are run, the ledger is looked into."""

    def __init__(self, home, target, chartferry):
        self.home, self.target, self.run = home, target, chartferry
        self.out = home.parent / "out"

    def take(self, text, name="payments.csv"):
        path = self.home / "inbox" / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        code, said, wrong = self.run("import", "--json")
        assert said, wrong
        return code, json.loads(said)

    def export(self, *arguments):
        """The exported files by name."""
        for left in self.out.glob("*"):
            left.unlink()
        code, _, wrong = self.run("rejects", "export", "--out", self.out, *arguments)
        assert (code, wrong) == (0, "")
        return {path.name: path.read_bytes() for path in sorted(self.out.glob("*"))}

    def rows(self, query):
        with sqlite3.connect(self.home / "ledger.db") as ledger:
            return ledger.execute(query).fetchall()

    def rejects(self):
        """(state, attempts) by key."""
        rows = self.rows("SELECT source_key, state, attempts FROM reject ORDER BY line")
        return {key: (state, attempts) for key, state, attempts in rows}

    def ids(self):
        return dict(self.rows("SELECT source_key, reject_id FROM reject ORDER BY line"))

    def created(self):
        return sorted(body["identifier"][0]["value"] for body in self.target.of("PaymentNotice"))


@pytest.fixture
def practice(home, target, chartferry):
    return Practice(home, target, chartferry)


def one(files):
    [(_, content)] = files.items()
    return content.decode()


# -- export


@pytest.mark.parametrize("case", EXPORTS)
def test_rejects_are_exported_as_they_came_with_id_and_reasons(case, practice):
    """CLI-CMD-04: byte for byte, refused rows and whole answers records included.

    And what is exported comes back as it is: the same rejects, and nothing new.
    """
    folder = HERE / "exports" / case
    (practice.home / "feeds").mkdir()
    for path in (folder / "input").glob("*.toml"):
        (practice.home / "feeds" / path.name).write_bytes(path.read_bytes())
    [source] = [path for path in (folder / "input").iterdir() if path.suffix != ".toml"]
    questionnaires = json.loads((HERE / "golden" / "questionnaires.json").read_text())
    practice.target.stored.update({body["id"]: body for body in questionnaires})
    practice.target.refuse = refused
    assert practice.take(source.read_bytes(), source.name)[0] == 3
    files = practice.export()
    if os.environ.get("GOLDEN_UPDATE"):
        for name, content in files.items():
            (folder / "output" / name).write_bytes(content)
    assert files == {path.name: path.read_bytes() for path in sorted((folder / "output").iterdir())}
    comes_back_unchanged(practice, files, case != "no_header_utf_16")


def refused(body):
    """k2 and r2 are refused by the target."""
    return body.get("amount", {}).get("value") == 2.5 or "though" in json.dumps(body)


def comes_back_unchanged(practice, files, known_width):
    """Exported files, dropped as they are: the same rejects with one more attempt, nothing new, the same export.

    known_width: where there is no header, what a row should have is said in other words once the export has one.
    """
    before, stored = dict(practice.rows("SELECT reject_id, attempts FROM reject")), set(practice.target.stored)
    for number, content in enumerate(files.values()):
        practice.take(content, f"as it was {number}")
    after = practice.rows("SELECT reject_id, state, attempts FROM reject")
    assert {name: attempts for name, _, attempts in after} == {name: n + 1 for name, n in before.items()}
    assert {state for _, state, _ in after} == {"open"}
    assert set(practice.target.stored) == stored
    exported = sorted(practice.export().values())
    assert exported == sorted(files.values()) or not known_width
    assert len(exported) == len(files)


def test_an_export_of_nothing_says_so(practice):
    assert practice.run("rejects", "export") == (0, "no open rejects\n", "")
    practice.take(HEADER + "k1,p1,1.00,2026-01-01,\n")
    assert practice.run("rejects", "export") == (0, "no open rejects\n", "")
    assert not (practice.home / "rejects").exists()


def test_an_export_goes_into_the_batch_for_its_owner_only_and_names_one_batch_where_asked(practice):
    """CLI-CMD-04"""
    practice.take(HEADER + "k1,p1,none,2026-01-01,\n", "payments-1.csv")
    batch = practice.take(HEADER + "k2,p1,none,2026-01-01,\n", "payments-2.csv")[1]["batches"][0]["batch_id"]
    assert list(practice.export("--batch", batch)) == [f"{batch}.rejects.csv"]
    assert len(practice.export()) == 2
    code, said, _ = practice.run("rejects", "export", "--batch", batch, "--json")
    path = practice.home / "batches" / batch / "rejects" / f"{batch}.rejects.csv"
    assert (code, json.loads(said)) == (0, {"files": [{"file": str(path), "rejects": 1}], "left": []})
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)


def test_what_was_purged_cannot_be_exported_and_is_said(practice):
    """CLI-CMD-04"""
    batch = practice.take(HEADER + "k1,p1,none,2026-01-01,\n")[1]["batches"][0]["batch_id"]
    (practice.home / "batches" / batch / "source" / "payments.csv").unlink()
    code, said, _ = practice.run("rejects", "export")
    assert code == 4
    assert said.startswith(f"{batch}: 1 reject cannot be exported: its source rows are no longer kept (purged)")
    code, said, _ = practice.run("rejects", "retry")
    assert code == 4
    assert "cannot be tried again: its source rows are no longer kept" in said


# -- corrections


def test_a_corrected_file_goes_to_its_feed_under_any_name_and_closes_what_it_answers(practice):
    """CLI-CMD-05, LEDGER-07: a record whose key could not be read, and one whose key is corrected, too."""
    first = practice.take(HEADER + "k1,p1,none,2026-01-01,\n,p1,2.00,2026-01-01,\nk 3,p1,3.00\n")[1]
    text = one(practice.export())
    text = text.replace("none", "1.00").replace(",,p1", ",k2,p1").replace("k 3,p1,3.00", "k3,p1,3.00,2026-01-01,")
    code, found = practice.take(text, "Mappe1 (Kopie).txt")
    [batch] = found["batches"]
    assert (code, batch["feed"], batch["counts"]["created"]) == (0, "payments", 3)
    assert batch["unnamed_columns"] == []
    assert practice.created() == ["k1", "k2", "k3"]
    assert practice.rows("SELECT DISTINCT state, attempts, batch_id, closed_by_batch FROM reject") == [
        ("closed", 1, first["batches"][0]["batch_id"], batch["batch_id"])
    ]
    assert practice.run("rejects", "export")[1] == "no open rejects\n"
    assert practice.take(text, "again.csv")[1]["totals"]["unchanged"] == 3
    assert len(practice.created()) == 3


def test_what_is_still_wrong_stays_open_as_corrected_last(practice):
    """CLI-CMD-05: with one more attempt, today's reasons, and the latest text in the next export."""
    practice.take(HEADER + "k1,p1,none,2026-01-01,\nk2,p1,none,2026-01-01,\n")
    ids = practice.ids()
    text = one(practice.export()).replace("k1,p1,none", "k1,p1,1.00").replace("k2,p1,none", "k2,p1,2.00")
    code, found = practice.take(text.replace("2.00,2026-01-01", "2.00,someday"), "corrected.csv")
    assert (code, found["totals"]["created"], found["totals"]["rejected"]) == (3, 1, 1)
    assert practice.rejects() == {"k1": ("closed", 1), "k2": ("open", 2)}
    assert practice.ids() == ids
    files = practice.export()
    assert list(files) == [f"{found['batches'][0]['batch_id']}.rejects.csv"]
    assert "none" not in one(files)
    assert "k2,p1,2.00,someday," in one(files)
    assert practice.take(one(files).replace("someday", "2026-02-02"))[0] == 0
    assert practice.rejects() == {"k1": ("closed", 1), "k2": ("closed", 2)}
    assert practice.created() == ["k1", "k2"]


def test_an_accepted_row_of_the_same_key_in_any_file_closes_a_reject(practice):
    """CLI-CMD-05: also one that changes nothing at the target, but not the file that was there before."""
    old = HEADER + "k1,p1,1.00,2026-01-01,\n"
    practice.take(old)
    practice.take(HEADER + "k1,p1,9.00,2026-01-01,\nk2,p1,none,2026-01-01,\n", "payments-2.csv")
    practice.take(old)
    assert practice.rejects() == {"k1": ("open", 1), "k2": ("open", 1)}
    practice.take(HEADER + "k2,p1,2.00,2026-01-01,\nk1,p1,1.00,2026-01-01,\n", "payments-3.csv")
    assert practice.rejects() == {"k1": ("closed", 1), "k2": ("closed", 1)}
    assert practice.created() == ["k1", "k2"]


def test_the_same_file_again_closes_the_rejects_that_it_had_once_its_feed_is_mended(practice):
    """CLI-CMD-05, LEDGER-07: also where no key could be read before, and where a row is known already."""
    feed = practice.home / "feeds" / "till.toml"
    feed.parent.mkdir()
    say = (
        'kind = "payments"\nfiles = ["till*.csv"]\n[columns]\n'
        'payment_id = "no"\npatient_id = "who"\namount = "sum"\npaid_on = "day"\n'
    )
    text = "no,who,sum,day,for\n1,p1,1.00,2026-01-01,'a, b'\n2,p1,2.00,2026-01-01,c\n3,p1,x,2026-01-01,'d, e'\n"
    feed.write_text(say)
    practice.take(text, "till.csv")
    assert practice.rows("SELECT line, state FROM reject ORDER BY line") == [(2, "open"), (4, "open")]
    feed.write_text('quote = "\'"\n' + say.replace('"sum"', '{ column = "sum", values = { "2.00" = "two" } }'))
    practice.take(text, "till.csv")
    states = practice.rows("SELECT line, state, attempts FROM reject ORDER BY line")
    assert states == [(2, "closed", 1), (3, "open", 1), (4, "open", 2)]
    feed.write_text('quote = "\'"\n' + say)
    practice.take(text, "till.csv")
    states = practice.rows("SELECT line, state, attempts FROM reject ORDER BY line")
    assert states == [(2, "closed", 1), (3, "closed", 1), (4, "open", 3)]
    assert practice.created() == ["1", "2"]


def test_a_row_that_is_refused_once_its_reject_was_closed_is_open_again(practice):
    """LEDGER-07, CLI-CMD-04: loaded, taken back, loaded anew and refused: it goes back to who can correct it."""
    tasks = "task_id,description,status,requester_id\nt1,call,requested,d1\n"
    practice.target.refuse = lambda body: True
    practice.take(tasks, "tasks.csv")
    practice.target.refuse = lambda body: False
    practice.take(tasks, "tasks.csv")
    assert practice.rejects() == {"t1": ("closed", 1)}
    [(batch,)] = practice.rows("SELECT batch_id FROM batch")
    assert practice.run("undo", batch)[0] == 0
    practice.target.refuse = lambda body: True
    assert practice.run("import", "--again", batch)[0] == 3
    assert practice.rejects() == {"t1": ("open", 2)}
    assert practice.rows("SELECT closed_by_batch FROM reject") == [(None,)]
    practice.target.refuse = lambda body: False
    assert practice.run("rejects", "retry")[0] == 0
    assert practice.rejects() == {"t1": ("closed", 2)}


def test_a_refused_row_that_is_refused_again_is_the_same_reject(practice):
    """CLI-CMD-05, LEDGER-07"""
    practice.target.refuse = lambda body: body["amount"]["value"] > 2
    practice.take(HEADER + "k1,p1,5.00,2026-01-01,\n")
    text = one(practice.export())
    code, found = practice.take(text.replace("5.00", "4.00"), "less.csv")
    assert (code, found["totals"]["refused"]) == (3, 1)
    assert practice.rejects() == {"k1": ("open", 2)}
    assert practice.take(text.replace("5.00", "2.00"), "even less.csv")[0] == 0
    assert practice.rejects() == {"k1": ("closed", 2)}
    assert practice.created() == ["k1"]
    with duckdb.connect(str(practice.home / "published/reports.duckdb"), read_only=True) as tables:
        assert tables.sql("SELECT state, attempts, stage FROM reject").fetchall() == [("closed", 2, "load")]
        assert tables.sql("SELECT difference::varchar FROM payment_reconciliation").fetchall() == [("0.00",)]


def test_one_answer_of_several_rows_is_enough_to_correct_and_the_record_goes_whole(practice):
    """CLI-CMD-04, CLI-CMD-05: the id may stand on any row of an answers record."""
    questionnaires = json.loads((HERE / "golden" / "questionnaires.json").read_text())
    practice.target.stored.update({body["id"]: body for body in questionnaires})
    header = "response_id,patient_id,questionnaire,authored,question,answer_code,answer_number\n"
    practice.take(f"{header}r1,p1,MOOD,2024-05-01,w,,seven\nr1,p1,MOOD,2024-05-01,g.1,LA6568-5,\n", "answers.csv")
    text = one(practice.export()).replace("seven", "7")
    rows = text.splitlines(keepends=True)
    assert len(rows) == 3
    without = re.sub(r"^[0-9a-f]{16},", ",", rows[1])
    assert practice.take(rows[0] + without + rows[2], "x.csv")[0] == 0
    assert practice.rejects() == {"r1": ("closed", 1)}
    [response] = practice.target.of("QuestionnaireResponse")
    assert [item["linkId"] for item in response["item"]] == ["w", "g.1"]


def test_each_reason_names_the_line_of_its_row_and_stands_beside_that_row(practice):
    """CLI-CMD-04, FEED-FILE-09: of a response whose rows stand apart; what is about it all stands at all of them."""
    questionnaires = json.loads((HERE / "golden" / "questionnaires.json").read_text())
    practice.target.stored.update({body["id"]: body for body in questionnaires})
    text = (
        "response_id,patient_id,questionnaire,question,answer_code,answer_text,answer_number\n"
        'r1,p1,FALLS,words,,"one\ntwo",\n'
        "r2,p2,FALLS,fall,LA33-6,,\n"
        "r1,p1,FALLS,fall,LA9-9,,\n"
        "r2,p3,FALLS,words,,x,\n"
        "r1,p1,FALLS,steady,,,many\n"
    )
    practice.take(text, "answers.csv")
    found = practice.rows(
        "SELECT source_key, reject.line, reject_reason.line, rule_id FROM reject JOIN reject_reason USING (reject_id)"
        " ORDER BY reject.line, position"
    )
    assert found == [("r1", 2, 7, "FEED-FILE-09"), ("r1", 2, 5, "QR-CREATE-03"), ("r2", 4, None, "FEED-ANS-10")]
    said = {(row[2], row[5]): row[1] for row in csv.reader(one(practice.export()).splitlines()[1:]) if len(row) > 5}
    assert said["r1", "fall"].startswith("QR-CREATE-03: Question received an invalid response option code: LA9-9")
    assert said["r1", "steady"].startswith("FEED-FILE-09: ")
    assert said["r2", "fall"] == said["r2", "words"]
    assert said["r2", "fall"].startswith("FEED-ANS-10: ")


def test_an_id_that_no_reject_has_is_no_answer(practice):
    assert practice.take("_reject_id," + HEADER + "0123456789abcdef,k1,p1,none,2026-01-01,\n")[0] == 3
    assert practice.rejects() == {"k1": ("open", 1)}
    assert "0123456789abcdef" not in practice.ids().values()
    code, found = practice.take("_reject_id," + HEADER + "0123456789abcdef,k1,p1,1,2026-01-01,\n", "visits.csv")
    assert (code, len(found["unmatched"])) == (4, 1)


def test_a_file_that_answers_two_feeds_is_left_and_said(practice):
    practice.take(HEADER + "k1,p1,none,2026-01-01,\n")
    practice.take("task_id,description,status,requester_id\nt1,,requested,d1\n", "tasks.csv")
    ids = [name for (name,) in practice.rows("SELECT reject_id FROM reject")]
    both = practice.home / "inbox" / "both.csv"
    both.write_text(f"_reject_id,{HEADER}{ids[0]},\n{ids[1]},\n")
    code, out, _ = practice.run("import")
    why = "answers rejects of the feeds payments and tasks; a file has one feed"
    assert code == 4
    assert f"{both}: {why}; left where it is" in out.splitlines()


def test_a_row_in_doubt_keeps_its_reject_on_the_way_until_it_is_settled(practice, monkeypatch):
    """LEDGER-07: resubmitted, then closed by the run that learns of it."""
    monkeypatch.setattr("pipelines.client.Patience.wait", lambda *_: None)
    practice.take(HEADER + "k1,p1,none,2026-01-01,\n")
    text = one(practice.export()).replace("none", "1.00").replace("k1", "k7")
    practice.target.faults = ["lost_after"] + ["gateway"] * 20
    assert practice.take(text, "corrected.csv")[0] == 6
    assert practice.rejects() == {"k1": ("resubmitted", 1)}
    assert practice.run("rejects", "export")[1] == "no open rejects\n"
    practice.target.faults = []
    assert practice.run("import")[0] == 0
    assert practice.rejects() == {"k1": ("closed", 1)}
    assert practice.created() == ["k7"]


@pytest.mark.parametrize("additions", [True, False], ids=["bundles", "bare"])
def test_a_refused_row_has_all_reasons_where_the_target_offers_validate(additions, practice):
    """EXTRA-VALIDATE-02, CLI-CMD-04: a create is refused for the first alone."""
    negative, other = "the balance would be negative", "the claim is another patient's"
    practice.target.additions = additions
    practice.target.refuse = lambda body: body["amount"]["value"] > 2
    practice.target.validate = lambda body: [negative, other] if body["amount"]["value"] == 5 else [negative]
    text = HEADER + "k1,p1,5.00,2026-01-01,\nk2,p2,3.00,2026-01-01,\nk3,p3,1.00,2026-01-01,\n"
    code, found = practice.take(text)
    assert (code, found["totals"]["refused"], found["batches"][0]["reasons"]) == (3, 2, {"business-rule": 2})
    assert practice.target.validated == 2
    said = "business-rule: Unprocessable entity: "
    first, second = one(practice.export()).splitlines()[1:]
    assert f"{said}{negative}; {said}{other}" in first
    assert f"{said}{negative}," in second


def test_reasons_that_cannot_be_had_leave_a_refusal_as_it_is(practice, monkeypatch):
    """EXTRA-VALIDATE-02: what fails to say more is asked three times at most, and not of more rows than a bound."""
    monkeypatch.setattr("pipelines.client.Patience.pauses", lambda _: iter(()))
    practice.target.additions = False
    practice.target.refuse = lambda body: True
    practice.target.validate = lambda body: None
    text = HEADER + "".join(f"k{n},p1,5.00,2026-01-01,\n" for n in range(9))
    assert practice.take(text)[1]["batches"][0]["reasons"] == {"business-rule": 9}
    assert practice.target.validated == 3
    monkeypatch.setattr("pipelines.why.MOST", 5)
    practice.target.validate = lambda body: ["more"]
    assert practice.run("rejects", "retry")[0] == 3
    assert practice.target.validated == 8
    assert len(practice.rows("SELECT * FROM reject_reason WHERE position = 1")) == 5


# -- retry


def test_a_retry_sends_refused_rows_again_and_closes_what_is_created(practice):
    """CLI-CMD-06: a further run of the batch over these records alone; the batch's totals still close."""
    practice.target.refuse = lambda body: body["amount"]["value"] == 2.5
    batch = practice.take(HEADER + "k1,p1,1,2026-01-01,\nk2,p1,2.50,2026-01-01,\nk3,p1,none,2026-01-01,\n")[1]
    name = batch["batches"][0]["batch_id"]
    assert practice.run("rejects", "retry")[0] == 3
    assert practice.rejects() == {"k2": ("open", 2), "k3": ("open", 2)}
    practice.target.refuse = lambda body: False
    code, said, _ = practice.run("rejects", "retry", "--json")
    [tried] = json.loads(said)["batches"]
    assert (code, tried["batch_id"], tried["run"], tried["state"]) == (3, name, 3, "finished")
    counts = {key: number for key, number in tried["counts"].items() if number}
    assert counts == {
        "lines": 2, "records": 2, "accepted": 1, "rejected": 1, "created": 1,
        "amount_received": 250, "amount_accepted": 250, "amount_created": 250,
    }  # fmt: skip
    assert practice.rejects() == {"k2": ("closed", 2), "k3": ("open", 3)}
    assert practice.created() == ["k1", "k2"]
    [kept] = practice.rows("SELECT state, lines, records, accepted, rejected, created, refused FROM batch")
    assert kept == ("finished", 4, 3, 2, 1, 2, 0)
    assert practice.run("rejects", "retry", "--batch", "none")[0] == 4


def test_a_retry_uses_the_feeds_of_today(practice):
    """CLI-CMD-06: a feed file that was mended is enough."""
    feed = (
        'kind = "payments"\nfiles = ["till*.txt"]\n[columns]\npayment_id = "no"\npatient_id = "who"\namount = "sum"\n'
    )
    (practice.home / "feeds").mkdir()
    (practice.home / "feeds" / "till.toml").write_text(feed + 'paid_on = "day"\n')
    practice.take("no,who,sum,day\n1,p1,1.00,31.12.2025\n2,p1,-2,31.12.2025\n", "till.txt")
    (practice.home / "feeds" / "till.toml").write_text('dates = ["%d.%m.%Y"]\n' + feed + 'paid_on = "day"\n')
    assert practice.run("rejects", "retry")[0] == 3
    assert practice.rejects() == {"1": ("closed", 1), "2": ("open", 2)}
    (practice.home / "feeds" / "till.toml").unlink()
    code, said, _ = practice.run("rejects", "retry")
    assert (code, "there is no feed till any more" in said) == (4, True)


def test_a_reject_that_was_created_meanwhile_is_closed_and_not_sent_again(practice):
    """CLI-CMD-06, LEDGER-01"""
    practice.target.refuse = lambda body: True
    practice.take(HEADER + "k1,p1,1.00,2026-01-01,\n")
    practice.target.refuse = lambda body: False
    practice.take(HEADER + "k1,p1,1.00,2026-01-01,\n\n", "payments-2.csv")
    with sqlite3.connect(practice.home / "ledger.db") as ledger:  # as if the importer had died before it closed it
        ledger.execute("UPDATE reject SET state = 'open', closed_by_batch = NULL")
    writes = practice.target.writes
    assert practice.run("rejects", "retry")[0] == 0
    assert practice.rejects() == {"k1": ("closed", 1)}
    assert practice.target.writes == writes
    assert practice.created() == ["k1"]


def test_a_retry_never_goes_back_to_what_a_later_file_replaced(practice):
    """CLI-CMD-06: only the records of open rejects are looked at, so that an old file undoes nothing."""
    columns = "task_id,description,status,requester_id\n"
    (practice.home / "feeds").mkdir()
    builtin = built_in("tasks").path.read_text()
    (practice.home / "feeds" / "tasks.toml").write_text(
        builtin.replace("\n[columns]", 'changed = "skip"\n\n[columns]', 1)
    )
    practice.take(f"{columns}t1,old,requested,d1\nt2,,requested,d1\n", "tasks-1.csv")
    practice.take(f"{columns}t1,new,requested,d1\n", "tasks-2.csv")
    code, said, _ = practice.run("rejects", "retry", "--json")
    assert (code, json.loads(said)["totals"]["records"]) == (3, 1)


def test_a_retry_that_cannot_reach_the_target_leaves_everything_as_it_was(practice, monkeypatch):
    """CLI-CMD-06"""
    monkeypatch.setattr("pipelines.client.Patience.wait", lambda *_: None)
    practice.target.refuse = lambda body: True
    practice.take(HEADER + "k1,p1,1.00,2026-01-01,\n")
    before = practice.rows("SELECT state, finished_at, records, refused FROM batch")
    practice.target.faults = ["busy"] * 20
    assert practice.run("rejects", "retry")[0] == 6
    assert [row[0] for row in practice.rows("SELECT state FROM batch")] == [before[0][0]]
    practice.target.faults, practice.target.refuse = [], lambda body: False
    assert practice.run("rejects", "retry")[0] == 0
    assert practice.rejects() == {"k1": ("closed", 1)}
    assert practice.created() == ["k1"]


def test_rejects_of_a_stopped_batch_are_not_sent_behind_its_back(practice):
    """CLI-CMD-06, LEDGER-14"""
    (practice.home / "inbox" / "payments.csv.control.json").write_text('{"rows": 5}')
    assert practice.take(HEADER + "k1,p1,none,2026-01-01,\n")[0] == 4
    code, said, _ = practice.run("rejects", "retry")
    assert (code, "the batch was stopped" in said) == (4, True)


def test_the_bundled_rules_and_records_of_today_decide_a_retry(fresh_service, home, chartferry, tmp_path, monkeypatch):
    """CLI-CMD-06: at a real service, whose reference data came later."""
    monkeypatch.setenv("FHIR_BASE_URL", fresh_service.url)
    monkeypatch.setenv("FHIR_TOKEN", fresh_service.headers["authorization"].removeprefix("Bearer "))
    practice = Practice(home, None, chartferry)
    assert practice.take(HEADER + "k1,latecomer,1.00,2026-01-01,\n")[0] == 3
    assert "latecomer" in one(practice.export())
    service = fresh_service.service
    claim = json.loads((HERE.parent / "spec" / "world" / "claim.ndjson").read_text().splitlines()[0])
    claim |= {"id": "c-late", "patient": {"reference": "Patient/latecomer"}}
    for name, body in (("patient", {"resourceType": "Patient", "id": "latecomer"}), ("claim", claim)):
        path = tmp_path / f"{name}.ndjson"
        path.write_text(json.dumps(body) + "\n")
        report = load_reference([path], service.writer, service.store, service.clock, service.new_id, service.site)
        assert report["refused"] == []
    code, said, wrong = practice.run("rejects", "retry")
    assert code == 0, said + wrong
    assert practice.rejects() == {"k1": ("closed", 1)}
    assert fresh_service.client.get("/PaymentNotice?request=Patient/latecomer").json()["total"] == 1


# -- discard


def test_a_discard_is_on_record_with_reason_user_and_time(practice):
    """CLI-CMD-07, CLI-CMD-19, LEDGER-07"""
    practice.take(HEADER + "k1,p1,none,2026-01-01,\nk2,p1,none,2026-01-01,\n")
    ids = practice.ids()
    assert practice.run("rejects", "discard", ids["k1"], "--why", "entered twice")[:2] == (0, "discarded: 1\n")
    assert practice.rejects() == {"k1": ("discarded", 1), "k2": ("open", 1)}
    [(user, command, subject, why, at)] = practice.rows('SELECT "user", command, subject, why, at FROM decision')
    assert (command, subject, why) == ("rejects discard", ids["k1"], "entered twice")
    assert user.startswith(pwd.getpwuid(os.getuid()).pw_name)
    assert re.fullmatch(r"20\d\d-\d\d-\d\dT.*Z", at)
    assert practice.run("rejects", "discard", ids["k1"], "--why", "again")[0] == 0
    assert len(practice.rows("SELECT 1 FROM decision")) == 1
    practice.take(HEADER + "k1,p1,none,2026-01-01,\nk2,p1,none,2026-01-01,\n")
    assert practice.rejects() == {"k1": ("discarded", 2), "k2": ("open", 2)}
    assert "k1" not in one(practice.export())


@pytest.mark.parametrize("why", [(), ("--why", ""), ("--why", "  ")])
def test_without_a_reason_nothing_is_discarded(practice, why):
    """CLI-CMD-07"""
    practice.take(HEADER + "k1,p1,none,2026-01-01,\n")
    code, said, wrong = practice.run("rejects", "discard", practice.ids()["k1"], *why)
    assert (code, said) == (2, "")
    assert "nothing was discarded" in wrong
    assert practice.rejects() == {"k1": ("open", 1)}


def test_with_an_unknown_or_closed_id_nothing_is_discarded(practice):
    """CLI-CMD-07"""
    practice.take(HEADER + "k1,p1,none,2026-01-01,\nk2,p1,none,2026-01-01,\n")
    ids = practice.ids()
    practice.take(HEADER + "k2,p1,1,2026-01-01,\n")
    code, said, wrong = practice.run("rejects", "discard", *ids.values(), "feed", "--why", "w")
    assert (code, said) == (4, "")
    assert wrong.splitlines() == [
        f"chartferry: {ids['k2']}: is closed already",
        "chartferry: feed: there is no such reject",
    ]
    assert practice.rejects()["k1"] == ("open", 1)
    assert practice.rows("SELECT 1 FROM decision") == []


def test_status_shows_open_rejects_without_what_they_say(practice):
    """CLI-CMD-03"""
    name = practice.take(HEADER + "key-1,patient-1,secret,2026-01-01,\n")[1]["batches"][0]["batch_id"]
    assert json.loads(practice.run("status", "--json")[1])["batches"][0]["open_rejects"] == 1
    assert "open rejects" in practice.run("status")[1]
    _, said, _ = practice.run("status", name)
    [reject_id] = practice.ids().values()
    assert f"reject {reject_id}: line 2, open, attempts 1: FEED-FILE-09" in said
    assert not re.search("secret|key-1|patient-1", said)


# -- laws

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
CELL = st.one_of(TEXT, st.sampled_from(['a"b', '"', "two\nlines", "c,d", "", " x ", "東京", "\r\n", "_reject_id", "'"]))
FEED = built_in("payments").file


@given(st.lists(CELL, min_size=1, max_size=5), CELL)
def test_marks_come_off_a_csv_row_as_they_were_put_on(cells, said):
    names = [f"c{number}" for number in range(len(cells))]
    columns = Columns(["_reject_id", "_reasons", *names], FEED)
    raw = csv_text(cells, {"delimiter": ",", "quotechar": '"'}) + "\r\n"
    marked = csv_lead(("0123456789abcdef", said), FEED) + raw
    [read] = csv.reader([marked], strict=True)
    assert columns.off(read, marked) == ("0123456789abcdef", read[2:], raw)


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(10**20), 10**20), TEXT),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXT, inner, max_size=3)),
    max_leaves=8,
)


@given(st.one_of(st.builds(json.dumps, JSON), st.builds(lambda j: json.dumps(j, ensure_ascii=False), JSON), TEXT))
def test_marks_come_off_a_line_as_they_were_put_on(text):
    marked = marked_line(text, "0123456789abcdef", [{"rule": "R", "message": 'a "b"'}])
    assert json.loads(marked)["_reject_id"] == "0123456789abcdef"
    assert unmarked_line(marked) == ("0123456789abcdef", text.strip() + "\n")
    reordered = json.dumps(dict(reversed(json.loads(marked).items())), ensure_ascii=False)
    answered, own = unmarked_line(reordered)
    assert answered == "0123456789abcdef"
    assert own.strip() == text.strip() or json.loads(own) == json.loads(text)


ROW = st.fixed_dictionaries(
    {
        "payment_id": st.sampled_from(["k1", "k2", "k3", "k4", "", "k 5", "é,ß"]),
        "patient_id": st.sampled_from(["p1", "", "p/2", "東京"]),
        "amount": st.sampled_from(["1.00", "2.50", "1,00", "-1", "", "3.001"]),
        "paid_on": st.sampled_from(["2026-01-01", "yesterday", ""]),
        "claim_id": CELL,
    }
)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.lists(ROW, min_size=1, max_size=8), cut=st.integers(0, 4))
def test_rejects_imported_as_they_were_exported_are_the_same_rejects_and_nothing_new(rows, cut, tmp_path_factory):
    """CLI-CMD-04, CLI-CMD-05, LEDGER-01: whatever the rows hold."""
    folder = tmp_path_factory.mktemp("law")
    home, inbox = folder / "home", folder / "home" / "inbox"
    inbox.mkdir(parents=True)
    written = [csv_text(list(row.values())[: 5 - cut if number == 1 else 5], {"delimiter": ",", "quotechar": '"'})
               for number, row in enumerate(rows)]  # fmt: skip
    (inbox / "payments.csv").write_bytes((HEADER + "\n".join(written)).encode())
    with serving(FakeTarget()) as target:
        target.valid_tokens.add("fixed")
        target.refuse = lambda body: body["amount"]["value"] == 2.5
        environ = {"FHIR_BASE_URL": target.url, "FHIR_TOKEN": "fixed"}
        bring_in(home, environ)
        first = rejects_of(home)
        stored = set(target.stored)
        for turn in range(1, 3):
            exported = export_home(home, environ, (), out=folder / f"out-{turn}")
            assert exported.left == []
            for path in exported.files:
                (inbox / "whatever").write_bytes(path.read_bytes())
                bring_in(home, environ)
            assert rejects_of(home) == {name: (state, tries + turn) for name, (state, tries) in first.items()}
            assert set(target.stored) == stored


def bring_in(home, environ):
    with open_session(home, environ) as session:
        files, unmatched = find_files([home / "inbox"], session.catalog, session.ledger)
        assert unmatched == []
        for waiting in files:
            assert import_file(session, waiting).state == "finished"


def rejects_of(home):
    with sqlite3.connect(home / "ledger.db") as ledger:
        rows = ledger.execute("SELECT reject_id, state, attempts FROM reject").fetchall()
    return {name: (state, attempts) for name, state, attempts in rows}
