"""Rejects: their export, and their import again, corrected or unchanged."""

import csv
import json
import os
import re
import signal
import time
from pathlib import Path

import duckdb
import pytest

from pipelines.client.pace import AT_ONCE
from pipelines.feeds.files.catalog import load_feeds
from pipelines.home.exits import INTERRUPTED
from tests.support.giving_back import HEADER, one
from tests.support.publishing import publish_nothing

HERE = Path(__file__).parents[1]
EXPORTS = sorted(folder.name for folder in (HERE / "exports").iterdir() if (folder / "input").is_dir())


def built_in(name):
    feed = load_feeds().named(name)
    assert feed
    return feed


# -- export


@pytest.mark.parametrize(
    "case",
    [pytest.param(each, marks=[pytest.mark.long] * (each not in ("payments_csv", "answers_csv"))) for each in EXPORTS],
)
def test_rejects_are_exported_as_they_came_with_id_and_reasons(case, practice):
    """CLI-CMD-04: byte for byte, with refused rows and all rows of answers records.

    An exported file that is imported unchanged gives the same rejects, and nothing new.
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
    """The target refuses k2 and r2."""
    return body.get("amount", {}).get("value") == 2.5 or "though" in json.dumps(body)


def comes_back_unchanged(practice, files, known_width):
    """Import exported files unchanged. Asserts that the rejects get an attempt more, and that their export stays.

    known_width: false if the file has no header: the export has one, which changes the message about missing cells.
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


@pytest.mark.alike
@pytest.mark.parametrize("text", ["two\nlines", ",two\nlines"])
def test_a_quote_left_open_in_one_correction_takes_nothing_of_the_next(text, practice):
    """CLI-CMD-05, FEED-FILE-02: a line that begins with the id of a reject is a row of its own."""
    header = "task_id,description,status,requester_id\n"
    rows = f'1,"open,requested,d1\n9,fine,requested,d1\n2,"{text}",odd,d1\n'
    practice.take(header + rows, "tasks.csv")
    assert practice.rejects() == {None: ("open", 1), "2": ("open", 1)}
    practice.take(one(practice.export()).replace("odd", "requested"), "corrected.csv")
    assert practice.rejects() == {None: ("open", 2), "2": ("closed", 1)}
    assert [body["description"] for body in practice.target.of("Task")] == ["fine", text]


def test_an_export_of_nothing_says_so(practice):
    practice.take(HEADER + "k1,p1,1.00,2026-01-01,\n")
    assert practice.run("rejects", "export") == (0, "no open rejects\n", "")
    assert not (practice.home / "rejects").exists()


def test_retry_and_export_name_what_has_no_open_rejects(practice):
    """CLI-CMD-04, CLI-CMD-06: other rejects may be open."""
    practice.take(HEADER + "k1,p1,none,2026-03-01,\n")
    batch = practice.take(HEADER + "k2,p1,1.00,2026-03-01,\n")[1]["batches"][0]["batch_id"]
    said = practice.run("rejects", "retry", "--taken-back")[1].splitlines()
    assert said[1:] == ["no open rejects of records that were taken back"]
    assert practice.run("rejects", "retry", "--batch", batch)[1].splitlines()[1:] == [f"no open rejects of {batch}"]
    assert practice.run("rejects", "export", "--batch", batch)[1] == f"no open rejects of {batch}\n"


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


def test_rejects_of_purged_rows_are_not_exported_and_the_command_says_so(practice):
    """CLI-CMD-04"""
    batch = practice.take(HEADER + "k1,p1,none,2026-01-01,\n")[1]["batches"][0]["batch_id"]
    (practice.home / "batches" / batch / "source" / "payments.csv").unlink()
    code, said, _ = practice.run("rejects", "export")
    assert code == 4
    assert said.startswith(f"{batch}: 1 reject cannot be exported: its file is not in this home")
    code, said, _ = practice.run("rejects", "retry")
    assert code == 4
    assert "cannot be tried again: its file is not in this home" in said


# -- corrections


def test_a_corrected_file_goes_to_its_feed_under_any_name_and_closes_what_it_answers(practice):
    """CLI-CMD-05, LEDGER-07: also a record whose key could not be read, and one whose key was corrected."""
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


def test_a_wrong_correction_leaves_the_reject_open_with_its_latest_text(practice):
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


@pytest.mark.long
def test_a_row_of_the_same_key_that_is_made_closes_a_reject_in_any_file(practice):
    """CLI-CMD-05, LEDGER-17: a row that changes nothing at the target does not close a reject of other content."""
    old = HEADER + "k1,p1,1.00,2026-01-01,\n"
    practice.take(old)
    practice.take(HEADER + "k1,p1,9.00,2026-01-01,\nk2,p1,none,2026-01-01,\n", "payments-2.csv")
    practice.take(old)
    assert practice.rejects() == {"k1": ("open", 1), "k2": ("open", 1)}
    practice.take(HEADER + "k2,p1,2.00,2026-01-01,\nk1,p1,1.00,2026-01-01,\n", "payments-3.csv")
    assert practice.rejects() == {"k1": ("open", 1), "k2": ("closed", 1)}
    assert practice.created() == ["k1", "k2"]


@pytest.mark.long
def test_a_second_import_after_its_feed_was_corrected_closes_the_rejects_of_a_file(practice):
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


@pytest.mark.long
def test_a_row_that_is_refused_once_its_reject_was_closed_is_open_again(practice):
    """LEDGER-07, CLI-CMD-04: it was loaded, taken back, loaded again and refused: a person must correct it."""
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


@pytest.mark.long
@pytest.mark.publishes("reject", "payment_reconciliation")
def test_a_refused_row_that_is_refused_again_is_the_same_reject(practice, monkeypatch):
    """CLI-CMD-05, LEDGER-07"""
    practice.target.refuse = lambda body: body["amount"]["value"] > 2
    with monkeypatch.context() as patched:
        publish_nothing(patched)
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


@pytest.mark.long
def test_one_row_with_the_reject_id_is_enough_to_load_a_whole_corrected_response(practice):
    """CLI-CMD-04, CLI-CMD-05: any row of the response may have it."""
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


def test_in_an_export_each_reason_names_its_line_and_is_beside_that_row(practice):
    """CLI-CMD-04, FEED-FILE-09: the rows of the response are apart. A reason about the whole is beside each row."""
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


def test_a_file_with_rejects_of_two_feeds_is_left_in_the_inbox_with_a_message(practice):
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
    """LEDGER-07: it is `resubmitted`, then closed by the run that settles the row."""
    monkeypatch.setattr("pipelines.client.client.RetryPauses.wait", lambda *_: None)
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


@pytest.mark.publishes("import_row")
def test_each_line_of_a_record_that_was_sent_says_when_that_was_first(practice):
    """REPORT-01: a record was in two files and refused both times. A line that was not sent has no such time."""
    practice.target.refuse = lambda body: body["amount"]["value"] == 1.25
    practice.take(HEADER + "k1,p1,1.25,2026-03-01,\nk2,p1,2.50,2026-03-01,\n", "payments-1.csv")
    practice.take(HEADER + "k1,p1,1.25,2026-03-02,\nk2,p1,2.50,2026-03-01,\n", "payments-2.csv")
    [(first,)] = practice.rows("SELECT first_sent_at FROM record WHERE key = 'k1'")
    query = """SELECT source_key, state, strftime(first_sent_at AT TIME ZONE 'UTC', '%Y-%m-%dT%H:%M:%S.%fZ')
        FROM import_row ORDER BY source_key, file_name"""
    with duckdb.connect(practice.home / "published" / "reports.duckdb", read_only=True) as tables:
        k1, again, k2, repeated = tables.sql(query).fetchall()
    assert (k1, again) == (("k1", "refused", first), ("k1", "refused", first))
    assert (k2[:2], k2[2] is None, repeated) == (("k2", "created"), False, ("k2", "unchanged", None))


@pytest.mark.parametrize("additions", [True, False], ids=["bundles", "bare"])
def test_a_refused_row_has_all_reasons_where_the_target_offers_validate(additions, practice):
    """EXTRA-VALIDATE-02, CLI-CMD-04: the refusal of a create has the first reason only."""
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
    """EXTRA-VALIDATE-02: a target that fails is asked three times at most, and for a bounded number of rows."""
    monkeypatch.setattr("pipelines.client.client.RetryPauses.pauses", lambda _: iter(()))
    practice.target.additions = False
    practice.target.refuse = lambda body: True
    practice.target.validate = lambda body: None
    text = HEADER + "".join(f"k{n},p1,5.00,2026-01-01,\n" for n in range(9))
    assert practice.take(text)[1]["batches"][0]["reasons"] == {"business-rule": 9}
    assert practice.target.validated == 3
    monkeypatch.setattr("pipelines.loading.refusal_reasons.MOST", 5)
    practice.target.validate = lambda body: ["more"]
    assert practice.run("rejects", "retry")[0] == 3
    assert practice.target.validated == 8
    assert len(practice.rows("SELECT * FROM reject_reason WHERE position = 1")) == 5


@pytest.mark.parametrize("additions", [True, False], ids=["bundles", "bare"])
def test_an_interrupt_ends_the_asking_for_reasons_too(additions, practice):
    """LEDGER-02: at a target with a request limit the reasons of one bundle would take minutes."""
    practice.target.additions = additions
    practice.target.refuse = lambda body: True

    def interrupting(_):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.2)
        return ["more"]

    practice.target.validate = interrupting
    rows = "".join(f"k{n},p{n},5.00,2026-01-01,\n" for n in range(100))
    (practice.home / "inbox" / "payments.csv").write_text(HEADER + rows)
    assert practice.run("import", "--json")[0] == INTERRUPTED
    assert 0 < practice.target.validated <= 2 * AT_ONCE, "those under way, and the threads that they free"
    refused = practice.rows("SELECT state FROM record WHERE state = 'refused'")
    assert len(refused) == len(practice.rows("SELECT * FROM reject")), "what was answered is written down"
    assert len(refused) % 25 == 0 or not additions, "of a bundle of 25, all that was answered"
    practice.target.validate = lambda _: ["more"]
    practice.run("import", "--json")
    assert {*practice.rows("SELECT count(*), state FROM record GROUP BY state")} == {(100, "refused")}


EDITED = ("1.23457E+15", "{}x", "'{}", '"=""{}"""', "{}-2026112703365123565")
"""Ids of rejects as spreadsheet programs change them, as CSV."""


def test_a_row_whose_reject_id_a_program_has_changed_is_set_aside(practice):
    """LEDGER-07: otherwise it would be loaded as a new row, and its reject could be answered a second time."""
    practice.take(HEADER + "".join(f",p1,{n}.00,2026-01-0{n},\n" for n in range(1, len(EDITED) + 2)))
    header, *rows = one(practice.export()).splitlines()
    fixed = [row.replace(f",,p1,{n}.00", f",a{n},p1,{n}.00") for n, row in enumerate(rows, 1)]
    names = [row.split(",")[0] for row in rows]
    edited = [row.replace(name, of.format(name), 1) for row, name, of in zip(fixed, names, EDITED, strict=False)]
    code, found = practice.take("\n".join([header, *edited, fixed[-1], ""]), "fixed.csv")
    assert (code, found["totals"]["created"], found["totals"]["rejected"]) == (3, 1, len(EDITED))
