"""Records that a person is done with, discarded or loaded under another key: no later file loads them."""

import csv
from importlib import resources
from typing import Any

import pytest

from tests.support.exports import ANSWERS, QUESTIONS, feed_file
from tests.support.giving_back import HEADER

pytestmark = pytest.mark.usefixtures("additions")

ROWS = {"k1": "k1,p1,1.00,2026-03-01,\n", "k2": "k2,p2,2.00,2026-03-01,\n", "k3": "k3,p3,3.00,2026-03-01,\n"}


def amounts(practice):
    return sorted(body["amount"]["value"] for body in practice.target.of("PaymentNotice"))


@pytest.fixture
def discarded(practice):
    """k2 was refused, and is discarded; the target would take it now."""
    practice.target.refuse = lambda body: body["amount"]["value"] == 2
    practice.take(HEADER + ROWS["k1"] + ROWS["k2"])
    assert practice.run("rejects", "discard", practice.ids()["k2"], "--why", "entered twice")[0] == 0
    practice.target.refuse = lambda body: False


@pytest.mark.long
@pytest.mark.usefixtures("discarded")
def test_a_discarded_record_is_not_loaded_by_the_same_file(practice):
    """LEDGER-07, LEDGER-02"""
    code, found = practice.take(HEADER + ROWS["k1"] + ROWS["k2"])
    assert (code, found["totals"]["unchanged"], found["totals"]["rejected"]) == (3, 1, 1)
    assert amounts(practice) == [1]
    assert practice.rejects() == {"k2": ("discarded", 2)}


@pytest.mark.usefixtures("discarded")
def test_a_discarded_record_in_a_later_file_waits_for_a_person(practice):
    """LEDGER-07: neither that file nor a retry loads it; a row with the reject's id does."""
    code, found = practice.take(HEADER + ROWS["k1"] + ROWS["k2"] + ROWS["k3"])
    assert (code, found["totals"]["created"], found["totals"]["rejected"]) == (3, 1, 1)
    practice.run("rejects", "retry")
    assert amounts(practice) == [1, 3]
    (export,) = practice.export().values()
    assert b"discarded by hand" in export
    assert practice.take(export, "fixed.csv")[0] == 0
    assert amounts(practice) == [1, 2, 3]


@pytest.mark.long
def test_a_row_whose_record_was_loaded_under_another_key_is_set_aside(practice):
    """LEDGER-07: the next full export has the corrected row under the key of the source."""
    wrong = ROWS["k2"].replace("2.00", "two")
    practice.take(HEADER + ROWS["k1"] + wrong)
    (export,) = practice.export().values()
    practice.take(export.replace(b",k2,", b",k2-mended,").replace(b",two,", b",2.00,"), "fixed.csv")
    assert amounts(practice) == [1, 2]
    code, found = practice.take(HEADER + ROWS["k1"] + ROWS["k2"] + ROWS["k3"])
    assert (code, found["totals"]["created"], found["totals"]["rejected"]) == (3, 1, 1)
    assert amounts(practice) == [1, 2, 3]
    assert b"loaded under another key" in b"".join(practice.export().values())


@pytest.mark.long
def test_once_one_of_two_rows_with_one_key_gets_another_key_the_other_is_loaded(practice):
    """LEDGER-13: each was a reject, and the one that is still open is loaded."""
    practice.take(HEADER + ROWS["k1"] + ROWS["k1"].replace("1.00", "5.00"))
    (export,) = practice.export().values()
    head, _, second = export.splitlines(keepends=True)
    practice.take(head + second.replace(b",k1,", b",k1-b,"), "fixed.csv")
    assert practice.take(HEADER + ROWS["k1"])[0] == 0
    assert amounts(practice) == [1, 5]
    assert {state for state, _ in practice.rejects().values()} == {"closed"}


def test_of_two_rows_with_one_key_a_wrong_one_stays_open_when_the_other_is_loaded(practice):
    """LEDGER-07: the good row has the key of both rejects, and closed them both."""
    practice.take(HEADER + ROWS["k1"] + ROWS["k1"].replace("1.00", "5.00"))
    (export,) = practice.export().values()
    head, first, second = export.splitlines(keepends=True)
    wrong = second.replace(b",k1,", b",k1-b,").replace(b"5.00", b"five")
    assert practice.take(head + first + wrong, "fixed.csv")[1]["totals"]["created"] == 1
    (left,) = practice.export().values()
    [row] = csv.DictReader(left.decode().splitlines())
    assert (row["payment_id"], row["amount"], row["_reasons"].partition(":")[0]) == ("k1-b", "five", "FEED-FILE-09")
    assert practice.take(left.replace(b"five", b"5.00"), "fixed-too.csv")[1]["batches"][0]["reasons"] == {
        "LEDGER-07": 1
    }
    (left,) = practice.export().values()
    assert b"LEDGER-07" in left
    practice.take(left, "meant.csv")
    assert amounts(practice) == [1, 5]
    assert practice.rows("SELECT state, attempts FROM reject ORDER BY line") == [("closed", 1), ("closed", 3)]


def test_a_correction_that_gives_a_row_the_key_of_another_record_does_not_replace_that(practice):
    """LEDGER-07, LEDGER-08: the row was one of several answers of a response, whose others are in the chart."""
    practice.target.stored["q1"] = QUESTIONS
    feed_file(practice.home, "forms", 'kind = "answers"\nfiles = ["forms*"]\nchanged = "supersede"\n', ANSWERS)
    practice.take(ANSWERS + "r1,p1,q1,1,first\n,p1,q1,1,second\n", "forms.csv")
    (export,) = practice.export().values()
    code, found = practice.take(export.replace(b",,p1", b",r1,p1"), "fixed.csv")
    assert (code, found["totals"]["superseded"], found["totals"]["rejected"]) == (3, 0, 1)
    (kept,) = practice.target.of("QuestionnaireResponse")
    assert (kept["status"], kept["item"][0]["answer"]) == ("completed", [{"valueString": "first"}])
    assert practice.take(ANSWERS + "r1,p1,q1,1,other\n", "forms-2.csv")[1]["totals"]["superseded"] == 1


@pytest.fixture
def corrected(practice):
    """k2 was rejected and loaded as `k2-mended`; gives the file of rejects."""
    practice.take(HEADER + ROWS["k1"] + ROWS["k2"].replace("2.00", "two"))
    (export,) = practice.export().values()
    fixed = export.replace(b",two,", b",2.00,")
    assert practice.take(fixed.replace(b",k2,", b",k2-mended,"), "fixed.csv")[0] == 0
    return fixed


def test_a_second_correction_of_a_reject_is_set_aside_whatever_its_key(practice, corrected):
    """LEDGER-07: it waits for a person, also after a retry."""
    code, found = practice.take(corrected.replace(b",k2,", b",k2-b,"), "fixed-too.csv")
    assert (code, found["totals"]["created"], found["totals"]["rejected"]) == (3, 0, 1)
    practice.run("rejects", "retry")
    assert amounts(practice) == [1, 2]
    (export,) = practice.export().values()
    assert b"another record was loaded for the reject that the row names" in export
    assert practice.take(export, "meant.csv")[0] == 0
    assert amounts(practice) == [1, 2, 2]


@pytest.mark.long
def test_a_wrong_second_correction_also_says_that_its_reject_was_loaded_already(practice, corrected):
    """LEDGER-07: otherwise its next correction would load the record a second time unseen."""
    wrong = corrected.replace(b",k2,", b",k2-b,").replace(b",2.00,", b",three,")
    (batch,) = practice.take(wrong, "fixed-too.csv")[1]["batches"]
    assert batch["reasons"] == {"FEED-FILE-09": 1, "LEDGER-07": 1}
    assert b"another record was loaded for the reject that the row names" in b"".join(practice.export().values())


@pytest.mark.long
def test_a_correction_for_a_discarded_reject_is_set_aside(practice):
    """LEDGER-07: the target refused it before, and would accept it now."""
    practice.take(HEADER + ROWS["k2"].replace("2.00", "two"))
    (export,) = practice.export().values()
    fixed = export.replace(b",two,", b",2.00,")
    practice.target.refuse = lambda body: True
    assert practice.take(fixed, "fixed.csv")[0] == 3
    practice.run("rejects", "discard", practice.ids()["k2"], "--why", "entered twice")
    practice.target.refuse = lambda body: False
    for name in ("fixed.csv", "fixed-too.csv"):
        assert practice.take(fixed + (b"\n" if name != "fixed.csv" else b""), name)[0] == 3
    assert amounts(practice) == []


@pytest.mark.long
def test_a_second_correction_is_set_aside_while_the_first_is_in_doubt(practice):
    """LEDGER-07: the first may be at the target, of whichever patient the second is."""
    practice.target.additions = False
    practice.take(HEADER + ROWS["k2"].replace("2.00", "two"))
    (export,) = practice.export().values()
    fixed = export.replace(b",two,", b",2.00,")
    practice.target.faults = ["lost_before"]
    assert practice.take(fixed, "fixed.csv")[0] == 5
    code, found = practice.take(fixed.replace(b",k2,p2", b",k2-b,p3"), "fixed-too.csv")
    assert (code, found["totals"]["created"], found["totals"]["rejected"]) == (5, 0, 1)
    assert b"is being loaded" in b"".join(practice.export().values())
    assert [state for state, _ in practice.rejects().values()] == ["resubmitted", "open"]


@pytest.fixture
def in_doubt(practice):
    """The next payment is in doubt; gives what lets it arrive, late, and accepts it by hand."""
    sent = list[dict[str, Any]]()

    def keep(body):
        sent.append(body)
        return True

    def arrive():
        practice.target.create(sent[0])
        (row,) = practice.rows("SELECT batch_id, line FROM record WHERE state = 'in_doubt'")
        found = practice.target.of("PaymentNotice")[-1]["id"]
        assert practice.run("doubts", "accept", f"{row[0]}:{row[1]}", "--resource", f"PaymentNotice/{found}")[0] == 0

    practice.target.faulty, practice.target.faults = keep, ["lost_before"]
    return arrive


@pytest.mark.long
@pytest.mark.parametrize("additions", [False], ids=["bare"], indirect=True)
def test_a_second_correction_stays_set_aside_once_the_first_has_come_out_of_doubt(practice, in_doubt):
    """LEDGER-07: it is a reject of its own, which the first does not close and a retry does not load."""
    practice.take(HEADER + ROWS["k2"].replace("2.00", "two"))
    (export,) = practice.export().values()
    fixed = export.replace(b",two,", b",2.00,")
    assert practice.take(fixed, "fixed.csv")[0] == 5
    practice.take(fixed.replace(b",k2,p2", b",k2-b,p3"), "fixed-too.csv")
    in_doubt()
    practice.run("rejects", "retry")
    assert amounts(practice) == [2]
    assert {key: state for key, (state, _) in practice.rejects().items()} == {"k2": "closed", "k2-b": "open"}


@pytest.mark.long
@pytest.mark.parametrize("additions", [False], ids=["bare"], indirect=True)
def test_a_correction_is_set_aside_while_its_reject_is_in_doubt_by_a_retry(practice, in_doubt):
    """LEDGER-07: the row itself may be at the target by now."""
    practice.target.refuse = lambda body: True
    practice.target.faults = []
    practice.take(HEADER + ROWS["k2"])
    (export,) = practice.export().values()
    practice.target.refuse, practice.target.faults = lambda body: False, ["lost_before"]
    practice.run("rejects", "retry")
    assert practice.take(export.replace(b",k2,p2", b",k2-b,p3"), "fixed.csv")[1]["totals"]["rejected"] == 1
    in_doubt()
    assert amounts(practice) == [2]


@pytest.mark.parametrize("additions", [False], ids=["bare"], indirect=True)
def test_a_row_is_set_aside_while_its_correction_under_another_key_is_in_doubt(practice, in_doubt):
    """LEDGER-07: in its own file and in a later one, and also once the correction has come out of doubt."""
    practice.target.refuse, practice.target.faults = lambda body: True, []
    practice.take(HEADER + ROWS["k2"])
    (export,) = practice.export().values()
    practice.target.refuse, practice.target.faults = lambda body: False, ["lost_before"]
    assert practice.take(export.replace(b",k2,p2", b",k2-b,p3"), "fixed.csv")[0] == 5
    for rows in (ROWS["k2"], ROWS["k2"] + ROWS["k1"]):
        assert practice.take(HEADER + rows)[1]["totals"]["rejected"] == 1
    assert sorted(practice.rows("SELECT source_key, state FROM reject")) == [("k2", "open"), ("k2", "resubmitted")]
    in_doubt()
    practice.run("rejects", "retry")
    assert amounts(practice) == [1, 2]


@pytest.mark.long
def test_a_second_correction_is_not_loaded_by_a_retry_under_a_feed_that_reads_its_key_otherwise(practice, corrected):
    """LEDGER-07: that it is tried again says no more than before."""
    practice.take(corrected.replace(b",k2,", b",k2-b,"), "fixed-too.csv")
    feeds = practice.home / "feeds"
    feeds.mkdir(exist_ok=True)
    said = (resources.files("pipelines.feeds") / "builtin" / "payments.toml").read_text()
    key = 'payment_id = "payment_id"'
    (feeds / "payments.toml").write_text(said.replace(key, 'payment_id = { column = "payment_id", before = "till-" }'))
    assert practice.run("rejects", "retry")[0] == 3
    assert amounts(practice) == [1, 2]


@pytest.fixture
def exported(practice):
    """k2 was rejected; gives the file of rejects with its amount mended."""
    practice.take(HEADER + ROWS["k2"].replace("2.00", "two"))
    (export,) = practice.export().values()
    return export.replace(b",two,", b",2.00,")


@pytest.mark.long
@pytest.mark.parametrize("additions", [False], ids=["bare"], indirect=True)
def test_a_correction_is_set_aside_while_the_record_is_in_doubt_from_a_plain_export(practice, exported, in_doubt):
    """LEDGER-07: the source had mended the row, too."""
    assert practice.take(HEADER + ROWS["k2"], "payments-mended.csv")[0] == 5
    assert practice.take(exported.replace(b",k2,p2", b",k2-b,p3"), "fixed.csv")[1]["totals"]["rejected"] == 1
    in_doubt()
    assert sorted(practice.rows("SELECT source_key, state FROM reject")) == [("k2", "closed"), ("k2-b", "open")]
    practice.run("rejects", "retry")
    assert amounts(practice) == [2]


@pytest.mark.parametrize("additions", [True], ids=["with additions"], indirect=True)
@pytest.mark.usefixtures("exported")
def test_a_row_that_was_intended_and_not_sent_is_not_sent_once_its_reject_was_discarded(practice, monkeypatch):
    """LEDGER-07: what is true when a row is sent counts, and not when it came."""
    monkeypatch.setattr("pipelines.client.profiles.ROWS_A_BUNDLE", 1)
    monkeypatch.setattr("pipelines.loading.sending_loop.BUNDLES_AT_ONCE", 1)
    practice.target.faults = ["lost_before"] * 20
    rows = "".join(f"k{n},p1,{n}.00,2026-03-0{n},\n" for n in range(3, 7)) + ROWS["k2"].replace("-01,", "-09,")
    practice.take(HEADER + rows, "payments-mended.csv")
    assert ("k2",) in practice.rows("SELECT key FROM record WHERE state = 'planned'")
    practice.run("rejects", "discard", practice.ids()["k2"], "--why", "entered twice")
    practice.target.faults = []
    assert practice.run("import")[0] == 3
    assert amounts(practice) == [3, 4, 5, 6]
    assert practice.rows("SELECT state FROM record WHERE key = 'k2'") == [("refused",)]
    assert sorted(practice.rows("SELECT source_key, state FROM reject")) == [("k2", "discarded"), ("k2", "open")]
    counts = practice.rows("SELECT accepted, rejected, refused FROM batch WHERE accepted > 0")
    assert counts == [(5, 0, 1)]


@pytest.mark.long
def test_after_an_undo_of_a_wrong_correction_the_right_one_goes_and_no_second_one(practice):
    """LEDGER-07: what was taken back answers nothing."""
    header, row = "task_id,description,status,requester_id\n", "t1,first,odd,d1\n"
    practice.take(header + row, "tasks.csv")
    (export,) = practice.export().values()
    fixed = export.replace(b",odd,", b",requested,")
    wrong = practice.take(fixed.replace(b",t1,first", b",t2,wrong"), "wrong.csv")[1]
    assert practice.run("undo", wrong["batches"][0]["batch_id"])[0] == 0
    assert practice.take(fixed.replace(b",t1,", b",t3,"), "right.csv")[0] == 0
    assert {state for state, _ in practice.rejects().values()} == {"closed"}
    assert practice.take(fixed.replace(b",t1,", b",t4,"), "more.csv")[1]["totals"]["rejected"] == 1
    standing = [body["description"] for body in practice.target.of("Task") if body["status"] == "requested"]
    assert standing == ["first"]


@pytest.mark.alike
@pytest.mark.parametrize(("first", "second"), [("k2", "k2-b"), ("k2-b", "k2"), ("k2-b", "k2-c")])
def test_a_record_that_was_rejected_in_two_files_is_loaded_once(practice, first, second):
    """LEDGER-07: each complete export has the row that nobody has mended in the source, and each is a reject."""
    wrong = ROWS["k2"].replace("2.00", "two")
    fixed = []
    for rows in (wrong, wrong + ROWS["k1"]):
        practice.take(HEADER + rows)
        fixed.append(
            practice.export("--batch", practice.rows("SELECT batch_id FROM reject ORDER BY first_seen_at")[-1][0])
        )
    (one,), (other,) = (files.values() for files in fixed)
    one, other = (text.replace(b",two,", b",2.00,") for text in (one, other))
    assert practice.take(one.replace(b",k2,", f",{first},".encode()), "one.csv")[0] == 0
    code, found = practice.take(other.replace(b",k2,", f",{second},".encode()), "other.csv")
    assert (code, found["totals"]["rejected"]) == (3, 1)
    assert amounts(practice) == [1, 2]


def test_one_file_with_a_row_and_its_correction_under_another_key_loads_one_of_them(practice, exported):
    """LEDGER-07: the uncorrected row does not name the reject."""
    head, row = exported.splitlines(keepends=True)
    plain = b",," + ROWS["k2"].encode()
    code, found = practice.take(head + plain + row.replace(b",k2,", b",k2-b,"), "both.csv")
    assert (code, found["totals"]["created"], found["totals"]["rejected"]) == (3, 1, 1)
    assert amounts(practice) == [2]


@pytest.mark.long
def test_a_row_rejected_for_a_known_key_is_loaded_under_a_new_key_without_further_questions(practice):
    """LEDGER-07, LEDGER-08: its reject names the known record, so that whoever changes the key means another record."""
    practice.take(HEADER + ROWS["k2"])
    practice.take(HEADER + ROWS["k2"].replace("2.00", "5.00"))
    (export,) = practice.export().values()
    other = export.replace(b",k2,", b",k2-b,")
    assert practice.take(other, "other.csv")[0] == 0
    assert practice.take(other.replace(b",k2-b,", b",k2-c,"), "once-more.csv")[1]["totals"]["rejected"] == 1
    assert amounts(practice) == [2, 5]
