"""`evidence`: the totals of export, ledger and target by feed and day, and the outcome of every other record."""

import hashlib
import json
import re
import shutil
from datetime import date, timedelta
from pathlib import Path
from unittest.mock import Mock

import pytest

from fhir_service.interface.resources.questionnaire import Questionnaire
from fhir_service.interface.site import Site
from pipelines.evidence.samples import _questions, _says
from pipelines.home.exits import INTERRUPTED
from pipelines.session.questionnaires import Snapshot
from tests.support.commands import listening, load, run
from tests.support.exports import PAYMENTS, TASKS, feed_file, put, tasks
from tests.support.ledgers import lose_ledger

SAMPLES = Path(__file__).parents[3] / "data" / "samples"
ZERO = {"records": 0, "patients": 0, "cents": 0}


def rows(home, name, *given):
    put(home, name, PAYMENTS + "".join(f"{row},\n" for row in given))


def side(records, patients, cents):
    return {"records": records, "patients": patients, "cents": cents}


def of_feed(found, name="payments"):
    return next(feed for feed in found["feeds"] if feed["feed"] == name)


def apart(found, name="payments"):
    return {fate: tuple(it.values()) for fate, it in of_feed(found, name)["apart"].items()}


def days(found, name="payments"):
    return {
        day["day"]: tuple(day[side]["cents"] for side in ("export", "ledger", "target"))
        for day in found["days"]
        if day["feed"] == name
    }


@pytest.fixture(params=[True, False], ids=["with additions", "bare"])
def imported(request, home, target, asked):
    """Import payments of two patients on two days, one with a wrong amount. Return the batch."""
    target.additions = request.param
    given = ("k1,p1,1.00,2026-03-01", "k2,p1,2.50,2026-03-02", "k3,p2,4.00,2026-03-01", "k4,p2,four,2026-03-02")
    rows(home, "payments-1.csv", *given)
    return asked("import")["batches"][0]["batch_id"]


def test_three_sides_are_counted_by_feed_and_day_to_the_cent(imported, asked):
    """EVID-01"""
    found = asked("evidence")
    feed = of_feed(found)
    assert feed["export"] == side(4, 2, 750)
    assert feed["expected"] == feed["ledger"] == feed["target"] == side(3, 2, 750)
    assert apart(found) == {"set aside": (1, 0)}
    assert days(found) == {"2026-03-01": (500, 500, 500), "2026-03-02": (250, 250, 250)}
    assert (found["agrees"], found["verify"]["agrees"], found["exit_code"]) == (True, True, 0)
    [rule] = found["set_aside"]["by_rule"]
    assert (rule["state"], rule["rejects"]) == ("open", 1)
    assert rule["sentence"]


@pytest.mark.long
def test_the_evidence_shows_impossible_sums_in_full(home, target, asked):
    """EVID-01: for example, if times were read as amounts. The sums exceed 64 bits."""
    rows(home, "payments-1.csv", *(f"k{n},p1,9999999999999,2026-03-01" for n in range(9_300)))
    asked("import")
    found = asked("evidence")
    assert apart(found) == {"set aside": (9_300, 9_300 * 999_999_999_999_900)}
    assert found["files"][0]["amount_received_cents"] is None


def test_a_record_that_comes_again_unchanged_counts_once(imported, home, asked):
    """EVID-01"""
    again = ("k1,p1,1.00,2026-03-01", "k2,p1,2.50,2026-03-02", "k4,p2,four,2026-03-02", "k5,p3,8.00,2026-03-05")
    rows(home, "payments-2.csv", *again)
    later = asked("import")["batches"][0]["batch_id"]
    found = asked("evidence")
    assert of_feed(found)["export"] == side(5, 3, 1550)
    assert of_feed(found)["target"] == side(4, 3, 1550)
    assert apart(found) == {"set aside": (1, 0)}
    alone = asked("evidence", "--batch", later)
    assert of_feed(alone)["export"] == side(4, 3, 1150)
    assert of_feed(alone)["ledger"] == of_feed(alone)["target"] == side(3, 2, 1150)
    assert [each["batch_id"] for each in alone["files"]] == [later]


@pytest.mark.long
def test_every_other_record_of_the_export_has_its_fate(home, target, asked):
    """EVID-01: changed content, corrections, discards, files that were stopped."""
    rows(home, "payments-1.csv", "k1,p1,1.00,2026-03-01", "k2,p1,x,2026-03-02", "k3,p2,y,2026-03-01")
    asked("import")
    rows(home, "payments-2.csv", "k1,p1,1.50,2026-03-01", "k2,p1,2.50,2026-03-02")
    asked("import")
    discarded = next(
        each for each in asked("evidence")["set_aside"]["listed"] if each["state"] == "open" and each["line"] == 4
    )
    put(home, "payments-3.csv.control.json", '{"rows": 9, "amount": "1.00"}')
    rows(home, "payments-3.csv", "k9,p1,1.00,2026-03-09")
    asked("import")
    found = asked("evidence")
    assert apart(found) == {"set aside": (2, 150), "corrected": (1, 0), "not sent": (1, 100)}
    assert of_feed(found)["target"] == side(2, 1, 350)
    assert found["agrees"]
    assert discarded["stage"] == "map"


def test_a_correction_that_is_still_wrong_counts_for_its_reject(home, target, asked, chartferry):
    """EVID-01: the number of records set aside equals that of open rejects."""
    rows(home, "payments-1.csv", "k1,p1,5.00,never", "k2,p1,7.00,2026-03-01")
    asked("import")
    [reject] = asked("evidence")["set_aside"]["listed"]
    put(home, "payments-2.csv", f"_reject_id,{PAYMENTS}{reject['reject_id']},k1,p1,6.00,never,\n")
    asked("import")
    found = asked("evidence")
    assert apart(found) == {"corrected": (1, 500), "set aside": (1, 600)}
    assert [each["state"] for each in found["set_aside"]["listed"]] == ["open"]
    assert chartferry("rejects", "discard", reject["reject_id"], "--why", "a test row")[0] == 0
    assert apart(asked("evidence")) == {"corrected": (1, 500), "discarded": (1, 600)}


def test_a_reject_stays_open_where_the_original_comes_again_after_its_correction(home, target, asked):
    """EVID-01: of two equal rows, the one that is open counts."""
    target.refuse = lambda body: True
    original = "payments-1.csv", "k1,p1,5.00,2026-03-01", "k2,p2,7.00,2026-03-01"
    rows(home, *original)
    asked("import")
    k1, k2 = asked("evidence")["set_aside"]["listed"]
    corrected = f"{k1['reject_id']},k1,p1,5.00,2026-03-01,\n{k2['reject_id']},k2,p2,6.00,2026-03-01,\n"
    put(home, "payments-2.csv", f"_reject_id,{PAYMENTS}{corrected}")
    asked("import")
    rows(home, *original)
    asked("import")
    found = asked("evidence")
    assert apart(found) == {"set aside": (2, 1_100), "corrected": (1, 700)}
    assert [each["state"] for each in found["set_aside"]["listed"]] == ["open", "open"]


def test_a_reject_that_is_open_counts_though_a_person_discarded_an_equal_one(home, asked, chartferry):
    """EVID-01: two files have the same wrong row. Somebody has yet to decide on one of them."""
    rows(home, "payments-1.csv", "k1,p1,5.00,never")
    asked("import")
    rows(home, "payments-2.csv", "k1,p1,5.00,never", "k2,p1,7.00,2026-03-01")
    asked("import")
    _, newer = asked("evidence")["set_aside"]["listed"]
    assert chartferry("rejects", "discard", newer["reject_id"], "--why", "a test row")[0] == 0
    found = asked("evidence")
    assert apart(found) == {"set aside": (1, 500)}
    assert [each["state"] for each in found["set_aside"]["listed"]] == ["open", "discarded"]


@pytest.mark.long
def test_the_evidence_shows_a_discard_with_its_reason(imported, asked, chartferry):
    """EVID-01"""
    [reject] = asked("evidence")["set_aside"]["listed"]
    assert chartferry("rejects", "discard", reject["reject_id"], "--why", "a test row")[0] == 0
    found = asked("evidence")
    assert apart(found) == {"discarded": (1, 0)}
    [decision] = found["set_aside"]["decisions"]
    assert (decision["subject"], decision["why"]) == (reject["reject_id"], "a test row")


@pytest.mark.long
def test_the_evidence_distinguishes_replaced_versions_from_undone_records(home, target, asked):
    """EVID-01"""
    says = 'name = "calls"\nkind = "tasks"\nsource = "calls"\nchanged = "update"\nfiles = ["calls*.csv"]\n'
    feed_file(home, "calls", says, TASKS)
    put(home, "calls-1.csv", f"{TASKS}t1,p1,call,requested,a\nt2,p1,call,requested,a\n")
    asked("import")
    put(home, "calls-2.csv", f"{TASKS}t1,p1,call,completed,a\n")
    asked("import")
    tasks(home, "t3")
    [undone] = asked("import")["batches"]
    asked("undo", undone["batch_id"])
    found = asked("evidence")
    assert apart(found, "calls") == {"replaced": (1, 0)}
    assert of_feed(found, "calls")["target"] == side(2, 1, 0)
    assert apart(found, "tasks") == {"taken back": (1, 0)}
    assert of_feed(found, "tasks")["target"] == ZERO
    assert found["agrees"]


def test_a_row_that_its_feed_skipped_has_its_fate_when_its_record_is_taken_back(home, asked):
    """EVID-01: nothing is unaccounted for, and the sides agree."""
    feed_file(home, "calls", 'kind = "tasks"\nchanged = "skip"\nfiles = ["calls*"]\n', TASKS)
    put(home, "calls-1.csv", f"{TASKS}t1,p1,call,requested,a\n")
    [first] = asked("import")["batches"]
    put(home, "calls-2.csv", f"{TASKS}t1,p1,other,requested,a\n")
    asked("import")
    asked("undo", first["batch_id"])
    found = asked("evidence")
    assert (apart(found, "calls"), found["agrees"]) == ({"taken back": (1, 0), "kept": (1, 0)}, True)


def test_what_was_taken_back_and_is_at_the_target_again_counts_there_as_it_does_for_verify(home, target, asked):
    """EVID-01: a restored store has it again. The page must not say that the sides of the feed agree."""
    tasks(home, "t1", "t2")
    [batch] = asked("import")["batches"]
    asked("undo", batch["batch_id"])
    before = asked("evidence")
    assert (of_feed(before, "tasks")["target"], before["agrees"]) == (ZERO, True)
    for task in target.of("Task")[:1]:
        target.stored[task["id"]] = {**task, "status": "requested"}
    found = asked("evidence")
    assert found["verify"]["differences"]["not taken back"]["number"] == 1
    assert (of_feed(found, "tasks")["ledger"], of_feed(found, "tasks")["target"]["records"]) == (ZERO, 1)
    assert (of_feed(found, "tasks")["agrees"], [day["agrees"] for day in found["days"]]) == (False, [False])


def test_records_that_the_target_lost_or_changed_are_differences(imported, target, asked):
    """EVID-01: in rows or in cents. The page says so at its top."""
    lost, other = (next(b for b in target.of("PaymentNotice") if b["amount"]["value"] == v) for v in (1.0, 2.5))
    other["amount"] = {"value": 2.51, "currency": "USD"}
    del target.stored[lost["id"]]
    found = asked("evidence")
    assert (found["agrees"], found["verify"]["agrees"], found["exit_code"]) == (False, False, 3)
    assert of_feed(found)["ledger"] == side(3, 2, 750)
    assert of_feed(found)["target"] == side(2, 2, 651)
    assert [day["day"] for day in found["days"] if not day["agrees"]] == ["2026-03-01", "2026-03-02"]
    page = Path(found["page"]).read_text()
    assert "Export, ledger and target do not agree." in page


@pytest.mark.long
def test_a_file_that_could_not_be_read_is_named(imported, home, asked, chartferry):
    """EVID-01: the sides agree without it."""
    put(home, "payments-9.csv", "payment_id,patient_id\nk9,p1\n")
    [failed] = asked("import")["batches"]
    assert failed["state"] == "failed"
    found = asked("evidence")
    assert (found["failed"], found["agrees"]) == ([failed["batch_id"]], True)
    said = f"{failed['batch_id']}: its file could not be read, and no record of it is counted"
    assert said in chartferry("evidence")[1]
    assert f"{failed['batch_id']}</span>: its file could not be read" in Path(found["page"]).read_text()


def test_a_file_that_was_not_read_to_its_end_is_named(imported, home, asked, chartferry, monkeypatch):
    """EVID-01: the import was killed. The sides agree without the file's records."""
    rows(home, "payments-9.csv", "k9,p1,9.00,2026-03-01")
    with monkeypatch.context() as patched:
        patched.setattr("pipelines.runs.received.validate", Mock(side_effect=KeyboardInterrupt))
        assert chartferry("import")[0] == INTERRUPTED
    found = asked("evidence")
    [_, running] = found["files"]
    assert (running["state"], found["unread"], found["agrees"]) == ("running", [running["batch_id"]], True)
    assert f"{running['batch_id']}: it was not read to its end, and no record" in chartferry("evidence")[1]
    assert f"{running['batch_id']}</span>: it was not read to its end, and no" in Path(found["page"]).read_text()
    asked("import")
    assert asked("evidence")["unread"] == []


@pytest.mark.long
def test_a_file_that_failed_after_its_records_were_loaded_is_shown_as_counted(home, asked, chartferry, monkeypatch):
    """EVID-01: the page must not say that no record of it is counted."""
    rows(home, "payments.csv", "k1,p1,1.00,2026-03-01")
    with monkeypatch.context() as patched:
        patched.setattr("pipelines.runs.batch.end", Mock(side_effect=KeyboardInterrupt))
        assert chartferry("import")[0] == INTERRUPTED
    with monkeypatch.context() as patched:
        patched.setattr("pipelines.runs.received.validate", Mock(side_effect=KeyError))
        [failed] = asked("import")["batches"]
    found = asked("evidence")
    assert of_feed(found)["export"] == of_feed(found)["target"] == side(1, 1, 100)
    assert (found["failed"], found["failed_later"]) == ([], [failed["batch_id"]])
    said = f"{failed['batch_id']}: its last run failed; the records that an earlier run read are counted"
    assert said in chartferry("evidence")[1]
    assert f"{failed['batch_id']}</span>: its last run failed" in Path(found["page"]).read_text()


def test_a_file_that_was_changed_since_its_receipt_is_named(imported, home, asked):
    """EVID-01"""
    [source] = (home / "batches" / imported / "source").iterdir()
    source.write_text(source.read_text() + "\n")
    found = asked("evidence")
    assert (found["damaged"], found["exit_code"]) == ([imported], 3)
    assert (
        f"{imported}</span>: the file in its batch is not the one that was received" in Path(found["page"]).read_text()
    )


@pytest.mark.long
def test_of_many_differences_some_of_each_kind_are_listed_and_how_many_more_there_are(home, target, asked, monkeypatch):
    """EVID-01"""
    monkeypatch.setattr("pipelines.evidence.evidence.DIFFERENCES_LISTED", 2)
    rows(home, "payments-1.csv", *(f"k{number},p1,{number}.00,2026-03-01" for number in range(1, 7)))
    asked("import")
    bodies = sorted(target.of("PaymentNotice"), key=lambda body: body["amount"]["value"])
    double = target.create({name: value for name, value in bodies[5].items() if name != "identifier"})[1]
    for body in bodies[:5]:
        del target.stored[body["id"]]
    found = asked("evidence")
    kinds = [(line.partition(":")[0], line.rpartition("/")[2]) for line in found["verify"]["listed"]]
    gone = [("gone", body["id"]) for body in bodies[:2]]
    assert kinds == [*gone, ("and 3 more gone", "and 3 more gone"), ("double", double.rpartition("/")[2])]
    assert '<li class="id">and 3 more gone</li>' in Path(found["page"]).read_text()


@pytest.mark.alike
@pytest.mark.parametrize("left", [(), ("sha256", "run-1")], ids=["nothing", "its runs"])
def test_a_file_that_nobody_purged_and_that_is_gone_is_named(imported, home, asked, left):
    """EVID-01: for example, after a restore without the folder of batches."""
    for path in (home / "batches" / imported).iterdir():
        if path.name not in left:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    found = asked("evidence")
    assert (found["missing"], found["purged"], found["agrees"], found["exit_code"]) == ([imported], [], False, 3)
    page = Path(found["page"]).read_text()
    assert f"{imported}</span>: its file is no longer here, and no purge of it is on record" in page
    assert "Export, ledger and target do not agree." in page


def test_purged_rows_are_compared_with_the_ledger_alone(home, target, asked, chartferry):
    """EVID-01"""
    rows(home, "payments-1.csv", "k1,p1,1.00,2026-03-01")
    batch = asked("import")["batches"][0]["batch_id"]
    assert chartferry("purge", batch)[0] == 0
    found = asked("evidence")
    expected = {"feed": "payments", "ledger_records": 1, "target_records": 1, "ledger_cents": 100, "target_cents": 100}
    assert (found["feeds"], found["without_rows"], found["purged"]) == ([], [expected], [batch])
    assert found["agrees"]
    target.of("PaymentNotice")[0]["status"] = "cancelled"
    found = asked("evidence")
    assert (found["without_rows"], found["agrees"]) == ([expected | {"target_records": 0, "target_cents": 0}], False)


def test_a_purged_payment_counts_beside_a_row_of_its_key_that_was_set_aside(home, asked, chartferry):
    """EVID-01: the row of the later file is all that the exports still have of the key."""
    rows(home, "payments-1.csv", "k1,p1,3.00,2026-03-01", "k2,p1,4.00,2026-03-01")
    purged = asked("import")["batches"][0]["batch_id"]
    rows(home, "payments-2.csv", "k1,p1,3.00,2026-03-01", "k2,p1,40.00,2026-03-01")
    assert asked("import")["totals"]["rejected"] == 1
    assert of_feed(asked("evidence"))["target"] == side(2, 1, 700)
    assert chartferry("purge", purged)[0] == 0
    found = asked("evidence")
    expected = {"feed": "payments", "ledger_records": 1, "target_records": 1, "ledger_cents": 400, "target_cents": 400}
    assert (of_feed(found)["target"], found["without_rows"], found["agrees"]) == (side(1, 1, 300), [expected], True)


def test_the_sample_is_repeated_by_its_seed_and_shows_both_sides(home, target, asked):
    """EVID-01"""
    rows(home, "payments-1.csv", *(f"k{n},p{n},{n}.00,2026-03-01" for n in range(1, 40)))
    asked("import")
    one, same, other = (
        asked("evidence", "--sample", 5, "--seed", seed)["sample"]["records"] for seed in ("a", "a", "b")
    )
    assert len(one) == 5
    assert one == same
    assert {each["key"] for each in one} != {each["key"] for each in other}
    for each in one:
        number = int(each["key"].removeprefix("k"))
        assert (each["file_name"], each["line"], each["of"]) == ("payments-1.csv", number + 1, 39)
        assert each["export_says"] == each["target_says"] == f"amount {number}.00"
        assert each["link"].endswith(f"/{each['resource_id']}") or each["link"].endswith(f"/{each['patient_id']}")
        assert target.stored[each["resource_id"]]["amount"]["value"] == number
    seeds = {asked("evidence")["sample"]["seed"] for _ in range(2)}
    assert len(seeds) == 2


@pytest.mark.long
@pytest.mark.parametrize("backwards", [False, True])
def test_of_two_runs_with_one_number_the_sample_shows_the_rows_of_the_newer_one(
    home, chartferry, asked, monkeypatch, backwards
):
    """EVID-01, LEDGER-08: a run was killed before it had read its file; then the ledger was lost."""

    def stopped(*_, **__):
        raise KeyboardInterrupt

    rows(home, "payments-1.csv", "k1,p1,1.00,2026-03-01")
    with monkeypatch.context() as patched:
        patched.setattr("pipelines.runs.batch.validate_run", stopped)
        assert chartferry("import")[0] == 130
    lose_ledger(home)
    asked("import")
    assert {path.name for path in home.glob("batches/*/run-*")} == {"run-1", "run-1-2"}
    glob = Path.glob
    monkeypatch.setattr(Path, "glob", lambda *given: iter(sorted(glob(*given), reverse=backwards)))
    [found] = asked("evidence")["sample"]["records"]
    assert found["export_says"] == found["target_says"] == "amount 1.00"


def test_the_sample_shows_answers_in_the_words_of_the_chart_with_their_codes():
    """EVID-01: a question or an option that the questionnaire lacks is shown by its linkId or code."""
    coding = {"system": "http://loinc.org", "code": "LA32-8", "display": "No"}
    questions = [
        {"linkId": "/1", "type": "choice", "text": "Refugee", "answerOption": [{"valueCoding": coding}]},
        {"linkId": "/2", "type": "group", "item": [{"linkId": "/2/1", "type": "decimal", "text": "How many? " * 9}]},
        {"linkId": "/3", "type": "text", "text": "Address"},
    ]
    known = Questionnaire.model_validate({"id": "q", "status": "active", "item": questions})
    item = [
        {"linkId": "/1", "answer": [{"valueCoding": {**coding, "display": "A NAME"}}]},
        {"linkId": "/2", "item": [{"linkId": "/2/1", "answer": [{"valueDecimal": 3}]}]},
        {"linkId": "/3", "answer": [{"valueString": "A NAME"}]},
        {"linkId": "/4", "answer": [{"valueCoding": {"system": "s", "code": "c"}}]},
    ]
    body = {"questionnaire": "http://x/Questionnaire/q", "item": item}
    many = f"{('How many? ' * 9)[:59]}…"
    assert _says("QuestionnaireResponse", body, _questions(Snapshot.of([known]), Site())) == (
        f"4 answers: Refugee = No (LA32-8), {many} = 3, Address = (text), /4 = c"
    )
    assert _says("QuestionnaireResponse", body, {}) == "4 answers: /1 = LA32-8, /2/1 = 3, /3 = (text), /4 = c"


@pytest.mark.parametrize(
    ("named", "words"),
    [
        ("http://x.org/Questionnaire/two", "One"),
        ("http://x.org/Questionnaire/two|1.0", "One"),
        ("http://x.org/three|2", "Four"),
        ("http://x.org/three", "Three"),
        ("http://127.0.0.1:8400/Questionnaire/one", "One"),
        ("http://127.0.0.1:8400/Questionnaire/two|1.0", "Two"),
        ("http://before/fhir/Questionnaire/two", "Two"),
        ("Questionnaire/two", "Two"),
        ("Questionnaire/one", "One"),
        ("http://other.org/Questionnaire/one", "/1"),
        ("http://x.org/two", "/1"),
        ("two", "/1"),
    ],
)
def test_a_response_of_the_sample_has_the_words_of_the_questionnaire_that_it_names(named, words):
    """EVID-01: the canonical URL comes first, with or without a version. The end of another URL is not an id."""
    asked_in = {
        name: [{"linkId": "/1", "type": "text", "text": name.title()}] for name in ("one", "two", "three", "four")
    }
    known = [
        Questionnaire.model_validate({"id": name, "status": "active", "item": it}) for name, it in asked_in.items()
    ]
    urls = {"one": "http://x.org/Questionnaire/two", "three": "http://x.org/three", "four": "http://x.org/three"}
    bodies = [{"id": name, "url": url, "version": "2" if name == "four" else None} for name, url in urls.items()]
    questions = _questions(Snapshot.of(known, bodies), Site())
    body = {"questionnaire": named, "item": [{"linkId": "/1", "answer": [{"valueString": "A NAME"}]}]}
    assert _says("QuestionnaireResponse", body, questions) == f"1 answer: {words} = (text)"


def test_the_page_names_the_hash_of_its_json_and_loads_nothing(imported, asked):
    """EVID-01: the signature on paper is for that document."""
    found = asked("evidence", "--seed", "1")
    page, document = Path(found["page"]), Path(found["document"])
    kept = json.loads(document.read_text())
    assert {name: found[name] for name in kept} == kept
    text = page.read_text()
    assert hashlib.sha256(document.read_bytes()).hexdigest() in text
    assert not re.search(r'(src|href)="(?!#|data:,|http://127\.0\.0\.1)', text)
    assert (page.stat().st_mode & 0o777, page.parent.stat().st_mode & 0o777) == (0o400, 0o700)
    assert text.count('<div class="sign">') == 1


@pytest.mark.parametrize("more", [("--batch", "nope"), ("--since", "2099-01-01"), ()])
def test_a_home_without_imports_gives_no_evidence(more, home, asked, chartferry):
    """EVID-01: the command prints one line, and writes no page."""
    if more:
        rows(home, "payments-1.csv", "k1,p1,1.00,2026-03-01")
        asked("import")
    code, out, err = chartferry("evidence", *more)
    assert (code, out) == (4, "")
    assert err.splitlines()[-1] in (
        "chartferry: nope: no such batch at this target (chartferry status lists them)",
        "chartferry: no evidence was written: no file was received for this target since 2099-01-01",
        "chartferry: no evidence was written: no file was received for this target",
    )
    assert not (home / "evidence").exists()


@pytest.mark.long
@pytest.mark.parametrize(
    ("period", "paid"),
    [
        ("Month", [date(2025, 1, 1) + timedelta(days=n) for n in range(121)]),
        pytest.param("Year", [date(2010 + n // 12, n % 12 + 1, 9) for n in range(121)], marks=pytest.mark.long),
    ],
)
def test_many_days_are_shown_by_month_and_many_months_by_year(period, paid, home, asked):
    """EVID-01: the JSON has each day."""
    rows(home, "payments-1.csv", *(f"k{n},p1,1.00,{day}" for n, day in enumerate(paid)))
    asked("import")
    found = asked("evidence")
    assert len(days(found)) == 121
    assert of_feed(found)["target"]["cents"] == sum(cents for _, _, cents in days(found).values()) == 12_100
    page = Path(found["page"]).read_text()
    shown = re.findall(r'<th scope="row" data-label="(Day|Month|Year)">([^<]*)<', page)
    assert shown == [(period, each) for each in sorted({f"{day}"[: 7 if period == "Month" else 4] for day in paid})]


@pytest.mark.long
def test_links_open_the_service_that_runs_wherever_it_listens(tmp_path):
    """EVID-01"""
    home = tmp_path / "home"
    load(home, SAMPLES / "reference")
    with listening(home) as url:
        run("chartferry", "--home", home, "import", SAMPLES / "inbox" / "payments-2026-01.csv")
        found = json.loads(run("chartferry", "--home", home, "evidence", "--json", "--sample", 1).stdout)
    [one] = found["sample"]["records"]
    assert one["link"].startswith(f"{url}/chart/patients/")
