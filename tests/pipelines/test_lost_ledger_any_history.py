"""After any history, by seed: a home that lost its ledger, or has an older one, goes on as one that kept it.

The chart is the same, to the row and the cent, and so is what of it is still to be corrected.
"""

import copy
import json
import random
import shutil
import sqlite3
from collections import Counter
from contextlib import closing

import pytest

from pipelines.ledger.ledger import Ledger
from pipelines.ledger.tables import LANDED
from tests.pipelines.test_any_order import TAKEN_BACK, TYPES, Sequence
from tests.pipelines.test_verify import lose_ledger

pytestmark = pytest.mark.long

STEPS_AFTER = 3
OF_ITS_MAKING = ("id", "created", "identifier", "authored", "authoredOn", "extension")


class Alike(Sequence):
    """Records of one patient that say the same, under several keys; some contents are refused, of some creates the
    answer is lost.

    Where a response supersedes another no answer is lost and nothing is taken back by hand: what a person decided, and
    which change is in doubt, only the ledger knows, and what waited for that goes on once it is lost.
    """

    def __init__(self, home, target, asked, chartferry, dice):
        super().__init__(home, target, asked, chartferry, dice)
        self.supersedes = 'changed = "supersede"' in (home / "feeds" / "form.toml").read_text()
        refused = [text for text in ('"value": 3.0', '"v2"') if dice.random() < 0.4]
        target.refuse = lambda body: any(text in json.dumps(body) for text in refused)

    purges = False

    def row(self, feed, key, version, wrong):
        line = super().row(feed, key, version, wrong)
        if feed == "pay" and not wrong:
            line[2] = f"{version + 1}.00"
        elif feed == "call":
            line[2] = f"v{version}"
        elif feed == "form":
            line[4] = f"v{version}"
        return line

    def step(self):
        if not self.supersedes and self.dice.random() < 0.4:
            self.target.faults = [self.dice.choice(["lost_before", "lost_after"])]
        super().step()
        self.target.faults = []
        if self.purges and self.dice.random() < 0.5:
            self.chartferry("purge", self.dice.choice(sorted(each.name for each in (self.home / "batches").iterdir())))

    def with_a_batch(self, *command):
        if not self.supersedes:
            super().with_a_batch(*command)


class World:
    """A home and its target, to be put back as they were."""

    def __init__(self, home, target, sequence, aside):
        self.home, self.target, self.sequence, self.aside = home, target, sequence, aside
        shutil.copytree(home, aside)
        self.stored, self.identified = copy.deepcopy(target.stored), copy.deepcopy(target.identified)
        self.files, self.dice = list(sequence.files), sequence.dice.getstate()

    def put_back(self):
        shutil.rmtree(self.home)
        shutil.copytree(self.aside, self.home)
        self.target.stored, self.target.identified = self.stored, self.identified
        self.sequence.files = self.files
        self.sequence.dice.setstate(self.dice)

    def now(self):
        """What stands in the chart, and the records that are to be corrected."""
        bodies = [body for kind in TYPES.values() for body in self.target.of(kind)]
        chart = Counter(
            json.dumps({name: body[name] for name in sorted(body) if name not in OF_ITS_MAKING})
            for body in bodies
            if body["status"] not in TAKEN_BACK
        )
        with closing(Ledger.open(self.home / "ledger.db")) as ledger:
            tables = {name: ledger.tables()[name].to_pylist() for name in ("record", "reject")}
        landed = {(each["resource_type"], each["key"]) for each in tables["record"] if each["state"] in LANDED}
        rejects = {(each["resource_type"], each["source_key"]) for each in tables["reject"] if each["state"] == "open"}
        return chart, rejects - landed

    def goes_on(self, asked):
        """What is there after the next import, and after some files more; and what `verify` finds then."""
        asked("import")
        soon = self.now()
        for _ in range(STEPS_AFTER):
            self.sequence.new()
            self.sequence.same()
        verified = asked("verify")
        differences = {kind: number for kind, number in verified["counts"].items() if number and kind != "changed"}
        return soon, self.now(), differences, verified["ledger_cents"] - verified["target_cents"]


@pytest.mark.parametrize("purges", [False, True], ids=["rows kept", "rows purged"])
@pytest.mark.parametrize("yesterday", [False, True], ids=["lost", "of yesterday"])
@pytest.mark.parametrize("additions", [True, False], ids=["with additions", "bare"])
@pytest.mark.parametrize("seed", range(3))
def test_a_home_goes_on_as_if_it_had_kept_its_ledger(
    seed, additions, yesterday, purges, home, target, asked, chartferry, monkeypatch
):
    """CLI-CMD-17, LEDGER-01"""
    monkeypatch.setattr("pipelines.importing.publish_into", lambda *_: None)
    monkeypatch.setattr("pipelines.retrying.publish_into", lambda *_: None)
    target.additions = additions
    dice = random.Random(seed)
    sequence = Alike(home, target, asked, chartferry, dice)
    sequence.purges = purges
    sequence.new()
    older, steps = home.parent / "older.db", dice.randrange(1, 7)
    copied_at = dice.randrange(steps)
    for step in range(steps):
        if step == copied_at:
            with closing(sqlite3.connect(home / "ledger.db")) as ledger:
                ledger.execute("VACUUM INTO ?", [str(older)])
        sequence.step()
    world = World(home, target, sequence, home.parent / "as it was")
    kept = world.goes_on(asked)
    world.put_back()
    lose_ledger(home)
    if yesterday:
        older.rename(home / "ledger.db")
    there = set(target.stored)
    asked("verify", "--adopt")
    assert set(target.stored) == there
    assert world.goes_on(asked) == kept
