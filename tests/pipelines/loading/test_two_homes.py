"""Two homes with ledgers of their own at one target: what one has made or taken back is what the other finds."""

import json

import pytest

from pipelines.cli import run
from tests.support.exports import QUESTIONS, feed_file

FILES = {
    "payments": "payment_id,patient_id,amount,paid_on\nk1,p1,1.00,2026-03-01\nk2,p1,2.00,2026-03-01\n",
    "tasks": "task_id,patient_id,description,status,requester_id\nk1,p1,call,requested,a\nk2,p1,write,requested,a\n",
    "answers": "response_id,patient_id,questionnaire,question,answer_text\nk1,p1,q1,1,yes\nk2,p1,q1,1,no\n",
}
TAKEN_BACK = ("cancelled", "entered-in-error")


@pytest.fixture(params=[None, ["identifier"]], ids=["batch", "look-up"], autouse=True)
def offered(request, target):
    """Both where creates are conditional, and where rows are asked for before they are created."""
    target.additions, target.promised = request.param is None, request.param


@pytest.mark.alike
@pytest.mark.parametrize("kind", FILES)
def test_records_that_one_home_loaded_again_after_a_restore_are_adopted_by_another(home, target, asked, capsys, kind):
    """LEDGER-01, LEDGER-15: the other home asks for all identifiers of a key. Verify names what is there twice."""
    target.stored["q1"] = QUESTIONS
    (home / "inbox" / f"{kind}.csv").write_text(FILES[kind])
    batch = asked("import")["batches"][0]["batch_id"]
    there = dict(target.stored)
    for name in there.keys() - {"q1"}:
        target.lose(name)
    assert asked("import", "--again", batch)["totals"]["created"] == 2
    other = home.parent / "other"
    (other / "inbox").mkdir(parents=True)
    (other / "inbox" / f"{kind}.csv").write_text(FILES[kind])
    capsys.readouterr()
    run(["--home", str(other), "import", "--json"])
    assert json.loads(capsys.readouterr().out)["totals"]["adopted"] == 2
    assert len(target.stored) == 3
    assert asked("verify")["differences"] == []
    double = next(body for body in target.stored.values() if body["id"] != "q1")
    named = json.dumps(double["identifier"]).replace('"k1"', '"k1~2"').replace('"k2"', '"k2~2"')
    target.stored["older"] = double | {"id": "older", "identifier": json.loads(named)}
    assert [each["kind"] for each in asked("verify")["differences"]] == ["double"]


@pytest.mark.alike
@pytest.mark.parametrize("kind", [kind for kind in FILES if kind != "payments"])
def test_records_that_another_home_took_back_are_reported_and_loaded_anew_by_import_again(
    home, target, asked, capsys, kind
):
    """LEDGER-15, CLI-CMD-17: under the next key, which both homes then know as one record."""
    target.stored["q1"] = QUESTIONS

    def other(*arguments):
        (home.parent / "other" / "inbox").mkdir(parents=True, exist_ok=True)
        capsys.readouterr()
        run(["--home", str(home.parent / "other"), *arguments, "--json"])
        return json.loads(capsys.readouterr().out)

    def living():
        return [b for b in target.stored.values() if b["id"] != "q1" and b["status"] not in TAKEN_BACK]

    (home / "inbox" / f"{kind}.csv").write_text(FILES[kind])
    batch = asked("import")["batches"][0]["batch_id"]
    asked("undo", batch)
    (home.parent / "other" / "inbox").mkdir(parents=True)
    (home.parent / "other" / "inbox" / f"{kind}.csv").write_text(FILES[kind])
    [found] = other("import")["batches"]
    assert (found["state"], found["counts"]["adopted"], living()) == ("finished", 2, [])
    assert "2 records are at the target under their keys, but were taken back there" in found["message"]
    assert other("import", "--again", batch)["totals"]["created"] == 2
    assert asked("import", "--again", batch)["totals"]["adopted"] == 2
    assert len(living()) == 2
    assert other("verify")["differences"] == asked("verify")["differences"] == []


@pytest.mark.alike
def test_what_another_home_made_under_its_own_source_is_no_difference(home, target, asked, capsys):
    """CLI-CMD-17: its number is told, also of built-in feeds that this home has not used. What is of a source of this
    home's own is named, though the ledger lost it.
    """
    header = "payment_id,patient_id,amount,paid_on"
    for name in ("till-a", "till-b"):
        place = home if name == "till-a" else home.parent / "other"
        (place / "inbox").mkdir(parents=True, exist_ok=True)
        feed_file(place, "till", f'kind = "payments"\nfiles = ["till*.csv"]\nsource = "{name}"\n', header)
        (place / "inbox" / "till-1.csv").write_text(FILES["payments"])
        run(["--home", str(place), "import", "--json"])
    built_in = home.parent / "built-in"
    (built_in / "inbox").mkdir(parents=True)
    (built_in / "inbox" / "payments.csv").write_text(FILES["payments"])
    run(["--home", str(built_in), "import", "--json"])
    assert len(target.stored) == 6
    found = asked("verify")
    assert (found["exit_code"], found["differences"], found["elsewhere"]) == (0, [], {"PaymentNotice": 4})
    assert asked("evidence")["exit_code"] == 0
    ours = next(body for body in target.stored.values() if "till-a" in body["identifier"][0]["system"])
    stray = {"system": ours["identifier"][0]["system"], "value": "k9"}
    target.stored["stray"] = ours | {"id": "stray", "identifier": [stray]}
    found = asked("verify")
    assert [(each["kind"], each["resource_id"]) for each in found["differences"]] == [("unknown", "stray")]


def test_adopted_tasks_whose_status_differs_from_their_rows_are_reported(home, target, asked, capsys):
    """LEDGER-15: a newer file may have come to the other home first. The chart keeps what it shows."""
    (home / "inbox" / "tasks.csv").write_text(FILES["tasks"])
    asked("import")
    other = home.parent / "other"
    (other / "inbox").mkdir(parents=True)
    (other / "inbox" / "tasks.csv").write_text(FILES["tasks"].replace("call,requested", "call,completed"))
    before = dict(target.stored)
    capsys.readouterr()
    run(["--home", str(other), "import", "--json"])
    [found] = json.loads(capsys.readouterr().out)["batches"]
    assert (found["counts"]["adopted"], target.stored) == (2, before)
    assert (
        "1 task was at the target already, with another status, person, due time or label than its row"
        in (found["message"])
    )
