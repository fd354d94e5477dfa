"""Rejects set aside for good: on record, with a reason, or not at all; and where they stand in `status`."""

import json
import os
import pwd
import re

import pytest

from pipelines.runs.lines import SHOWN_NEXT
from tests.pipelines.test_rejects import HEADER, Practice, one


@pytest.fixture
def practice(home, target, chartferry):
    return Practice(home, target, chartferry)


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
