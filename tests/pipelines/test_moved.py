"""A target that moved and gave its resources other ids: they are found by their identifiers."""

import pytest

from tests.support.exports import tasks


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
    assert "3 are there under another id" in err
    assert len(target.of("Task")) == 3
    assert asked("verify")["differences"] == []


def test_a_resource_that_is_shown_twice_is_one_and_what_is_there_twice_is_counted(batch, target, chartferry):
    """CLI-CMD-18"""
    move(target)
    first, second, _ = target.of("Task")
    first["identifier"] *= 2
    target.stored["copy"] = {**second, "id": "copy"}
    _, out, err = chartferry("import", "--again", batch)
    assert "2 are there under another id" in err, out + err
    assert "1 are there several times" in err
    assert len(target.of("Task")) == 4
