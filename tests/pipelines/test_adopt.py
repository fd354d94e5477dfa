"""`verify --adopt` where nothing is on record of the rows and several answers are possible: what the target does not
tell is left to the next import."""

import random
import shutil
from contextlib import closing

import duckdb
import pytest

from pipelines.ledger.ledger import Ledger
from pipelines.verifying.matching import match_rows
from tests.pipelines.fake_target import Said, outcome
from tests.pipelines.test_decisions import TASKS, payments, put, tasks
from tests.pipelines.test_verify import QUESTIONS, lose_ledger

ANSWERS = "response_id,patient_id,questionnaire,question,answer_text\n"
both = pytest.mark.parametrize("additions", [True, False], ids=["with additions", "bare"])


@pytest.fixture(autouse=True)
def nothing_on_record(monkeypatch):
    """As of rows that were under way when the power failed."""
    monkeypatch.setattr("pipelines.loading.outcomes.OnRecord.note", lambda *_: None)


def records(home):
    with closing(Ledger.open(home / "ledger.db")) as ledger:
        rows = ledger.tables()["record"].to_pylist()
    return {row["key"]: (row["state"], row["resource_id"]) for row in rows}


def yesterday(home):
    """Keeps the ledger as it is now; gives what puts it back."""
    shutil.copy(home / "ledger.db", home / "yesterday.db")

    def put_back():
        lose_ledger(home)
        (home / "yesterday.db").rename(home / "ledger.db")

    return put_back


def answers(home, target):
    target.stored["q1"] = QUESTIONS
    put(home, "answers.csv", ANSWERS + "k1,p1,q1,1,yes\nk2,p1,q1,1,no\n")


@both
@pytest.mark.parametrize("kind", ["Task", "QuestionnaireResponse"])
def test_what_was_taken_back_stays_so_and_is_told(home, target, asked, chartferry, additions, kind):
    """CLI-CMD-17, CLI-CMD-22"""
    target.additions = additions
    tasks(home, "k1", "k2") if kind == "Task" else answers(home, target)
    batch = asked("import")["batches"][0]["batch_id"]
    asked("undo", batch)
    before = dict(target.stored)
    lose_ledger(home)
    out = chartferry("verify", "--adopt")[1]
    assert f"{batch}: 2 of them have been taken back there: chartferry import --again makes them anew" in out
    assert {state for state, _ in records(home).values()} == {"undone"}
    assert asked("import")["totals"] == {}
    assert target.stored == before
    assert asked("import", "--again", batch)["totals"]["created"] == 2
    assert asked("verify")["differences"] == []


@both
@pytest.mark.parametrize("older", [False, True], ids=["lost", "of before the undo"])
def test_what_was_made_anew_is_adopted_and_not_what_was_taken_back(home, target, asked, additions, older):
    """CLI-CMD-17, CLI-CMD-18"""
    target.additions = additions
    tasks(home, "k1")
    batch = asked("import")["batches"][0]["batch_id"]
    put_back = yesterday(home)
    asked("undo", batch)
    asked("import", "--again", batch)
    put_back() if older else lose_ledger(home)
    [standing] = [body["id"] for body in target.of("Task") if body["status"] == "requested"]
    assert asked("verify", "--adopt")["exit_code"] == 0
    assert records(home) == {"k1": ("adopted", standing)}
    assert asked("verify")["differences"] == []


@both
def test_a_payment_from_before_a_row_was_first_sent_is_not_the_rows(home, target, asked, additions):
    """CLI-CMD-17, LEDGER-01: it was made in the chart, and the row was never sent."""
    target.additions = additions
    payments(home, ("k1", "p1", "1.00"))
    asked("import")
    made = target.of("PaymentNotice")[0]
    older = target.create({name: made[name] for name in made if name != "identifier"})[1].rpartition("/")[2]
    target.stored[older]["created"] = "2020-01-01T00:00:00+00:00"
    payments(home, ("k1", "p1", "1.00"), ("k2", "p1", "1.00"), name="payments-b.csv")
    target.faults = ["busy"] * 40
    asked("import")
    target.faults = []
    lose_ledger(home)
    found = asked("verify", "--adopt")
    assert sum(each["adopted"] for each in found["batches"].values()) == 1
    assert list(records(home).values()) == [("adopted", made["id"])]
    assert asked("import")["totals"]["created"] == 1
    assert len(target.of("PaymentNotice")) == 3
    assert asked("verify")["differences"] == []


@both
def test_a_row_that_changes_what_an_earlier_batch_said_is_set_aside_again(home, target, asked, additions):
    """CLI-CMD-17, LEDGER-09: it was a reject before the ledger of yesterday came back, and counted as skipped."""
    target.additions = additions
    payments(home, ("k1", "p1", "1.00"))
    asked("import")
    put_back = yesterday(home)
    payments(home, ("k1", "p1", "9.00"), ("k2", "p1", "3.00"), name="payments-b.csv")
    batch = asked("import")["batches"][0]["batch_id"]
    put_back()
    found = asked("verify", "--adopt")
    assert found["batches"] == {batch: {"adopted": 1, "taken_back": 0, "waiting": 1}}
    found = asked("import")
    assert (found["exit_code"], found["batches"][0]["reasons"]) == (3, {"LEDGER-08": 1})
    with closing(Ledger.open(home / "ledger.db")) as ledger:
        [counts] = [each for each in ledger.batches() if each["batch_id"] == batch]
    assert (counts["rejected"], counts["adopted"], counts["skipped"]) == (1, 1, 0)
    assert len(target.of("PaymentNotice")) == 2


@both
@pytest.mark.parametrize("corrected", [False, True], ids=["the same row", "a corrected one"])
def test_what_was_refused_and_is_there_since_is_adopted_and_its_reject_closed(
    home, target, asked, chartferry, additions, corrected
):
    """CLI-CMD-17, LEDGER-01: to try it again would make a second one."""
    target.additions = additions
    target.refuse = lambda body: True
    payments(home, ("k1", "p1", "1.00"))
    asked("import")
    put_back = yesterday(home)
    target.refuse = lambda body: False
    payments(home, ("k1", "p1", "2.00" if corrected else "1.00"), ("k2", "p1", "3.00"), name="payments-b.csv")
    assert asked("import")["totals"]["created"] == 2
    before = dict(target.stored)
    put_back()
    assert asked("verify", "--adopt")["exit_code"] == 0
    assert {state for state, _ in records(home).values()} == {"adopted"}
    chartferry("rejects", "retry")
    assert asked("import")["totals"] == {}
    assert target.stored == before
    assert asked("verify")["differences"] == []


def tables_of(db):
    """What rows are matched by, empty."""
    for name, columns in {
        "row": "n BIGINT, key TEXT, line BIGINT, said TEXT, identifier TEXT, content TEXT, dated TEXT,"
        " withdrawn BIGINT",
        "attempted": "source TEXT, resource_type TEXT, key TEXT, since TEXT, contents BIGINT",
        "there": "id TEXT, system TEXT, record_key TEXT, record_generation BIGINT, spelling TEXT, status TEXT,"
        " content TEXT, timed TEXT, made TEXT",
        "told": "resource_id TEXT",
        "told_here": "source TEXT, batch_id TEXT, key TEXT, line BIGINT, content TEXT, generation BIGINT,"
        " resource_id TEXT, withdrawn BOOLEAN",
        "last_told": "source TEXT, batch_id TEXT, key TEXT, line BIGINT, content TEXT, state TEXT",
    }.items():
        db.execute(f"CREATE TABLE {name} ({columns})")


@pytest.mark.parametrize("seed", range(40))
def test_as_many_rows_as_can_be_get_a_payment_that_is_not_older_than_their_attempt(seed):
    """CLI-CMD-17: by trying all ways."""
    dice = random.Random(seed)
    rows = [dice.randrange(8) for _ in range(dice.randrange(1, 6))]
    made = [dice.randrange(8) for _ in range(dice.randrange(0, 6))]
    with duckdb.connect() as db:
        tables_of(db)
        for n, hour in enumerate(rows):
            db.execute("INSERT INTO row VALUES ($1, $2, $1, 'h', 's', 'c', NULL, 0)", [n, f"k{n}"])
            since = f"2026-01-01T{hour:02}:00:00Z"
            db.execute("INSERT INTO attempted VALUES ('default', 'PaymentNotice', $1, $2, 1)", [f"k{n}", since])
        for n, hour in enumerate(made):
            at = f"2026-01-01T{hour:02}:00:00+00:00"
            db.execute("INSERT INTO there VALUES ($1, NULL, NULL, NULL, NULL, 'active', 'c', 'c', $2)", [str(n), at])
        match_rows(db, "default", "PaymentNotice", "b")
        found = db.execute("SELECT n, id, state FROM match").fetchall()
    assert all(made[int(name)] >= rows[n] and state == "adopted" for n, name, state in found)
    assert len({name for _, name, _ in found}) == len({n for n, _, _ in found}) == len(found) == most(rows, made)


@both
def test_an_older_file_that_came_once_more_does_not_bring_tasks_back_to_what_it_says(home, target, asked, additions):
    """CLI-CMD-17, LEDGER-08"""
    target.additions = additions
    (home / "feeds").mkdir()
    columns = "".join(f'{name} = "{name}"\n' for name in TASKS.strip().split(","))
    head = 'kind = "tasks"\nfiles = ["tasks*"]\nchanged = "update"\n[columns]\n'
    (home / "feeds" / "calls.toml").write_text(head + columns)
    for text in ("old", "new", "old"):
        tasks(home, "k1", text=text)
        asked("import")
    lose_ledger(home)
    asked("verify", "--adopt")
    asked("import")
    assert [body["description"] for body in target.of("Task")] == ["new k1"]


@both
def test_a_row_that_was_set_aside_does_not_take_the_equal_payment_of_another(home, target, asked, additions):
    """CLI-CMD-17, LEDGER-01: the other row waited, and was paid twice."""
    target.additions = additions
    payments(home, ("k1", "p1", "1.00"), ("k2", "p1", "2.00"))
    asked("import")
    payments(home, ("k1", "p1", "2.00"), name="payments-b.csv")
    assert asked("import")["exit_code"] == 3
    before = dict(target.stored)
    lose_ledger(home)
    asked("verify", "--adopt")
    assert asked("import")["exit_code"] == 3
    assert target.stored == before
    assert asked("verify")["differences"] == []


def test_a_payment_is_the_row_that_came_once_and_not_the_one_that_was_corrected(home, target, asked):
    """CLI-CMD-17, LEDGER-01: the corrected one had been refused as it first came."""
    target.additions = False
    target.faults = [Said(422, outcome("business-rule"))]
    payments(home, ("k1", "p1", "1.00"), ("k2", "p1", "1.00"))
    asked("import")
    payments(home, ("k1", "p1", "2.00"), name="payments-b.csv")
    asked("import")
    before = dict(target.stored)
    lose_ledger(home)
    asked("verify", "--adopt")
    asked("import")
    assert len(before) == 2
    assert target.stored == before


@both
def test_a_reject_that_a_later_file_has_answered_is_not_open_again(home, target, asked, additions):
    """CLI-CMD-17, LEDGER-07: the file that answers it is met first."""
    target.additions = additions
    for name, row in (("a", ("k1", "p1", "x")), ("b", ("k1", "p1", "2.00")), ("c", ("k1", "p1", "3.00"))):
        payments(home, row, name=f"payments-{name}.csv")
        asked("import")
    lose_ledger(home)
    asked("verify", "--adopt")
    asked("import")
    with closing(Ledger.open(home / "ledger.db")) as ledger:
        states = {row["stage"]: row["state"] for row in ledger.tables()["reject"].to_pylist()}
    assert states == {"map": "closed", "rule": "open"}


@both
def test_what_waits_beside_resources_that_no_row_claims_is_for_a_person_to_look_at(
    home, target, asked, chartferry, additions
):
    """CLI-CMD-17, LEDGER-06: one key came with several contents, and only the lost ledger knew which was loaded."""
    target.additions = additions
    target.faults = [Said(422, outcome("business-rule"))]
    for name, row in (("a", ("k1", "p1", "1.00")), ("b", ("k1", "p1", "2.00")), ("c", ("k2", "p1", "1.00"))):
        payments(home, row, name=f"payments-{name}.csv")
        asked("import")
    assert len(target.of("PaymentNotice")) == 2
    lose_ledger(home)
    _, out, _ = chartferry("verify", "--adopt")
    line = "PaymentNotice: 1 patients of rows that wait have some there that no row is matched with (p1);"
    assert (line in out) is not additions


@pytest.mark.parametrize("words", ["", "{", "[]", "null", "{}", '{"target": 7}', "no text"])
def test_a_file_that_is_no_manifest_is_passed_over(home, target, asked, words):
    """CLI-CMD-17"""
    payments(home, ("k1", "p1", "1.00"))
    batch = asked("import")["batches"][0]["batch_id"]
    for folder in (home / "batches" / batch / "run-1", home / "batches" / "another" / "run-1"):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "manifest.json").write_bytes(b"\xff" if words == "no text" else words.encode())
    assert asked("verify")["differences"] == []
    lose_ledger(home)
    assert asked("verify", "--adopt")["batches"] == {batch: {"adopted": 1, "taken_back": 0, "waiting": 0}}


def most(rows, made):
    """How many rows can have one each."""
    if not rows:
        return 0
    first, *others = rows
    ways = [most(others, made)]
    ways += [1 + most(others, made[:at] + made[at + 1 :]) for at, when in enumerate(made) if when >= first]
    return max(ways)
