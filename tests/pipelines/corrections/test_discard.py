"""Discarded rejects: recorded with a reason, or refused without one; and how `status` shows open rejects."""

import json
import os
import pwd
import re

import pytest

from pipelines.runs.lines import SHOWN_NEXT
from tests.support.giving_back import HEADER, one


@pytest.mark.then_published
def test_a_discard_is_on_record_with_reason_user_and_time(practice):
    """CLI-CMD-07, CLI-CMD-19, LEDGER-07"""
    practice.take(HEADER + "k1,p1,none,2026-01-01,\nk2,p1,none,2026-01-01,\n")
    ids = practice.ids()
    assert practice.run("rejects", "discard", ids["k1"], "--why", "entered twice")[:2] == (
        0,
        f"discarded: 1; {SHOWN_NEXT}\n",
    )
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


TASKS = "task_id,description,status,requester_id\n"
FIRST, SECOND, OTHER = "t1,first,requested,d1\n", "t1,second,requested,d1\n", "t2,other,requested,d1\n"


def standing(practice):
    return sorted(body["description"] for body in practice.target.of("Task") if body["status"] == "requested")


def undo_the_last(practice):
    batch = practice.rows("SELECT batch_id FROM batch ORDER BY received_at DESC")[0][0]
    assert practice.run("undo", batch)[0] == 0


def discard_second(practice):
    """The target does not take it yet."""
    practice.target.refuse = lambda body: body["description"] == "second"
    practice.take(TASKS + SECOND, "tasks-wrong.csv")
    assert practice.run("rejects", "discard", practice.ids()["t1"], "--why", "entered twice")[0] == 0
    practice.target.refuse = lambda body: False


def test_a_discard_holds_even_if_the_record_of_its_key_had_been_taken_back(practice):
    """LEDGER-07: without a discard, a corrected row makes the record anew."""
    practice.take(TASKS + FIRST, "tasks.csv")
    undo_the_last(practice)
    discard_second(practice)
    assert practice.take(TASKS + SECOND + OTHER, "tasks-mended.csv")[0] == 3
    assert standing(practice) == ["other"]
    assert "discarded by hand" in one(practice.export())


@pytest.mark.long
def test_a_discard_holds_no_longer_once_a_person_has_loaded_the_record_after_all(practice):
    """LEDGER-07: what was taken back since is made anew by a corrected row, as ever."""
    discard_second(practice)
    practice.take(TASKS + SECOND + OTHER, "tasks-mended.csv")
    assert practice.take(one(practice.export()), "meant.csv")[0] == 0
    undo_the_last(practice)
    assert practice.take(TASKS + FIRST, "tasks-corrected.csv")[0] == 0
    assert standing(practice) == ["first", "other"]


@pytest.mark.long
def test_a_discard_holds_for_a_row_in_doubt_that_is_to_be_sent_again(practice):
    """LEDGER-07: the record was never there, whatever its generation."""
    practice.target.additions = False
    practice.take(TASKS + SECOND.replace("requested", "odd"), "tasks-wrong.csv")
    practice.target.faults = ["lost_before"]
    practice.take(TASKS + SECOND, "tasks-mended.csv")
    [(row,)] = practice.rows("SELECT batch_id || ':' || line FROM record WHERE state = 'in_doubt'")
    assert practice.run("rejects", "discard", practice.ids()["t1"], "--why", "entered twice")[0] == 0
    assert practice.run("doubts", "resend", row)[0] == 0
    practice.run("import")
    assert standing(practice) == []


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
        "chartferry: feed: no such reject (chartferry status BATCH lists the rejects of a batch)",
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
    assert f"reject {reject_id}: line 2, open, attempts 1: FEED-FILE-09 in amount\n" in said
    assert not re.search("secret|key-1|patient-1", said)


@pytest.mark.long
@pytest.mark.parametrize("taken_back", [False, True], ids=["gone", "undone"])
def test_import_again_loads_a_record_although_another_row_with_its_key_was_discarded(practice, taken_back):
    """LEDGER-07, CLI-CMD-18: the discard concerns the other row, and the person who loads again knows of it."""
    practice.take(TASKS + FIRST + OTHER, "tasks-1.csv")
    [(batch,)] = practice.rows("SELECT batch_id FROM batch")
    practice.take(TASKS + SECOND, "tasks-2.csv")
    assert practice.run("rejects", "discard", practice.ids()["t1"], "--why", "the first is right")[0] == 0
    if taken_back:
        practice.run("undo", batch)
    else:
        for name in list(practice.target.stored):
            practice.target.lose(name)
    assert practice.run("import", "--again", batch)[0] == 0
    assert standing(practice) == ["first", "other"]
