"""A target that moved and gave its resources other ids: they are found by their identifiers."""

from unittest.mock import Mock

import pytest

from tests.support.exports import tasks
from tests.support.ledgers import lose_ledger, read_ledger


@pytest.fixture
def batch(home, target, asked):
    """Three tasks at a target of another make, that can be searched by identifier."""
    target.additions, target.promised = False, ["transaction", "conditional", "identifier"]
    tasks(home, "k1", "k2", "k3")
    return asked("import")["batches"][0]["batch_id"]


def move(target, reuse=False):
    """Give every task another id, at most the former one of another task."""
    made = target.of("Task")
    ids = [body["id"] for body in made]
    for body in made:
        del target.stored[body["id"]]
    for at, body in enumerate(made):
        body["id"] = ids[at - 1] if reuse else f"moved-{at}"
        target.stored[body["id"]] = body


def unname(target):
    """Make every task one that was sent before the target showed identifiers."""
    for body in target.of("Task"):
        body["identifier"] = []


def statuses(target):
    return {body["description"]: body["status"] for body in target.of("Task")}


def test_tasks_that_were_cancelled_in_the_chart_are_not_loaded_anew_after_a_move(
    batch, home, target, asked, chartferry
):
    """CLI-CMD-18: the ledger has their new ids."""
    move(target)
    target.stored["moved-1"]["status"] = "cancelled"
    writes = target.writes
    _, out, err = chartferry("import", "--again", batch)
    assert target.writes == writes, out + err
    assert "3 resources have another id at the target now" in err
    assert len(target.of("Task")) == 3
    assert asked("verify")["differences"] == []


def test_a_resource_shown_on_two_pages_is_one_and_doubles_are_counted(batch, target, chartferry):
    """CLI-CMD-18"""
    move(target)
    first, second, _ = target.of("Task")
    first["identifier"] *= 2
    target.stored["copy"] = {**second, "id": "copy"}
    _, out, err = chartferry("import", "--again", batch)
    assert "2 resources have another id at the target now" in err, out + err
    assert "1 record is at the target several times" in err
    assert len(target.of("Task")) == 4


@pytest.mark.alike
@pytest.mark.parametrize("reuse", [False, True], ids=["new ids", "ids of others"])
def test_undo_takes_back_a_moved_resource_under_its_new_id(reuse, batch, target, asked):
    """CLI-CMD-10: nothing is said to be taken back that was not."""
    move(target, reuse)
    target.stored["k1-is-anothers"] = {**target.of("Task")[0], "id": "k1-is-anothers", "identifier": []}
    found = asked("undo", batch)
    assert (found["exit_code"], found["taken"], found["not_taken"]) == (0, 3, 0)
    assert sorted(found["taken_back"].values()) == sorted(
        f"Task/{body['id']}" for body in target.of("Task") if body["identifier"]
    )
    assert {body["status"] for body in target.of("Task") if body["identifier"]} == {"cancelled"}
    assert target.stored["k1-is-anothers"]["status"] == "requested"


def test_a_resource_with_a_records_id_but_without_its_identifier_is_never_changed(batch, target, asked, chartferry):
    """CLI-CMD-10, CLI-CMD-18: it may be another's, or the record was sent without one; neither is loaded again."""
    first, second, third = target.of("Task")
    first["identifier"] = []
    second["identifier"] = [{**third["identifier"][0], "value": "x1"}]
    found = asked("undo", batch)
    assert (found["exit_code"], found["taken"], found["not_taken"]) == (3, 1, 2)
    assert all("the resource under its id " in why for why in found["left"].values())
    assert [target.stored[body["id"]]["status"] for body in (first, second, third)] == [*["requested"] * 2, "cancelled"]
    _, out, err = chartferry("import", "--again", batch)
    assert "1 left as they are: the resources with their ids have no identifier" in err, out + err
    assert "2 to be loaded again" in err


@pytest.mark.alike
@pytest.mark.parametrize("reuse", [False, True], ids=["new ids", "ids of others"])
@pytest.mark.parametrize("sweep", [False, True], ids=["each", "sweep"])
def test_import_again_finds_resources_that_moved_to_ids_of_other_records(
    reuse, sweep, batch, home, target, asked, chartferry, monkeypatch
):
    """CLI-CMD-18: only the id of a record changes in the ledger."""
    monkeypatch.setattr("pipelines.corrections.missing_resources.READS_WITHOUT_A_SWEEP", 0 if sweep else 500)
    monkeypatch.setattr("pipelines.corrections.moved_resources.VALUES_A_SEARCH", 2)
    lose_ledger(home)
    assert asked("verify", "--adopt")["batches"][batch]["adopted"] == 3
    move(target, reuse)
    writes = target.writes
    _, out, err = chartferry("import", "--again", batch)
    assert "3 resources have another id at the target now" in err, out + err
    assert (target.writes, len(target.of("Task"))) == (writes, 3)
    with read_ledger(home) as ledger:
        known = ledger.execute("SELECT state, resource_id FROM record ORDER BY line").fetchall()
    assert known == [("adopted", body["id"]) for body in target.of("Task")]


@pytest.mark.parametrize(("patient", "there"), [("p1", 1), ("p2", 2)])
def test_import_again_at_a_bare_target_finds_a_former_resource_that_a_restore_brought_back(
    patient, there, home, target, asked
):
    """CLI-CMD-18: by its former id, unless the resource there is another patient's now."""
    target.additions = False
    tasks(home, "k1")
    batch = asked("import")["batches"][0]["batch_id"]
    [first] = target.of("Task")
    target.stored.clear()
    assert asked("import", "--again", batch)["totals"]["created"] == 1
    target.stored.clear()
    target.stored[first["id"]] = {**first, "for": {"reference": f"Patient/{patient}"}}
    asked("import", "--again", batch)
    assert len(target.of("Task")) == there


@pytest.mark.long
@pytest.mark.then_published
@pytest.mark.parametrize(("change", "said"), [(move, "3 taken back, 0 not"), (unname, "0 taken back, 3 not")])
def test_an_undo_that_was_cut_off_before_a_move_is_no_reason_to_load_anew(
    change, said, batch, target, chartferry, monkeypatch
):
    """CLI-CMD-10, CLI-CMD-18"""
    with monkeypatch.context() as patched:
        patched.setattr("pipelines.corrections.undo.Changes", Mock(side_effect=KeyboardInterrupt))
        chartferry("undo", batch)
    change(target)
    chartferry("import", "--again", batch)
    assert [body["status"] for body in target.of("Task")] == ["requested"] * 3
    assert said in chartferry("undo", batch)[1]
