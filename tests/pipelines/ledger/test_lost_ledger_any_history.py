"""After any history, by seed: the ledger comes back from its journal as it was, and from any beginning of the journal
the home goes on without making or losing anything twice.
"""

import random
import shutil
from collections import Counter
from contextlib import closing

import pytest

from pipelines.ledger.ledger import Ledger
from tests.support.any_order import TAKEN_BACK, TYPES, Sequence
from tests.support.ledgers import lose_ledger, lose_tables
from tests.support.replaying import rows_of

LATER = [pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 12)]
seeds = pytest.mark.parametrize("seed", [0, 1, *LATER])


class History(Sequence):
    """Commands as the dice fall, at a target that refuses some records, and of which some answers are lost."""

    def __init__(self, home, target, asked, chartferry, dice):
        super().__init__(home, target, asked, chartferry, dice)
        refused = [text for text in ("12.00", "k1 v2") if dice.random() < 0.4]
        target.refuse = lambda body: any(text in str(body) for text in refused)

    def step(self):
        if self.dice.random() < 0.4:
            self.target.faults = [self.dice.choice(["lost_before", "lost_after"])]
        super().step()
        self.target.faults = []
        if self.dice.random() < 0.2:
            self.chartferry("purge", self.dice.choice(sorted(each.name for each in (self.home / "batches").iterdir())))
        if self.dice.random() < 0.2:
            self.chartferry("rejects", "discard", "--all")


@pytest.fixture
def played(additions, home, target, asked, chartferry):
    """Plays a history of a seed; gives its copies of the ledger's database on the way."""

    def play(seed):
        history = History(home, target, asked, chartferry, random.Random(seed))
        history.new()
        for step in range(5):
            history.step()
            shutil.copy(home / "ledger.db", home.parent / f"ledger-{step}.db")
        return history

    return play


def tables(home):
    with closing(Ledger.open(home / "ledger.db")) as ledger:
        return rows_of(ledger)


@seeds
def test_a_ledger_that_is_lost_or_of_another_day_comes_back_whole(seed, home, played):
    """LEDGER-20: records, batches, runs, former versions, decisions, rejects: row for row, with no history left out."""
    played(seed)
    before = tables(home)
    assert before["record"]
    lose_tables(home)
    assert tables(home) == before
    for copy in sorted(home.parent.glob("ledger-*.db")):
        lose_tables(home)
        shutil.copy(copy, home / "ledger.db")
        assert tables(home) == before


@seeds
def test_with_any_prefix_of_the_journal_the_next_import_makes_nothing_twice(seed, home, target, asked, played):
    """LEDGER-20, CLI-CMD-17: the journal is of another moment, and the ledger with it."""
    history = played(seed)
    lines = (home / "journal.ndjson").read_bytes().splitlines(keepends=True)
    lose_ledger(home)
    (home / "journal.ndjson").write_bytes(b"".join(lines[: history.dice.randrange(1, len(lines))]))
    before = set(target.stored)
    asked("verify", "--adopt")
    assert set(target.stored) == before
    for _ in range(2):
        asked("import")
    standing = [body for kind in TYPES.values() for body in target.of(kind) if body["status"] not in TAKEN_BACK]
    assert max(Counter(key for body in standing if (key := key_of(body))).values(), default=0) <= 1
    assert "double" not in asked("verify")["counts"]


def key_of(body):
    """What a record was of, by its content; None for a corrected payment, which looks like others."""
    if body["resourceType"] == "PaymentNotice":
        tens = int(body["amount"]["value"]) // 10
        return ("PaymentNotice", tens) if tens < 9 else None
    said = body.get("description") or str(body["item"])
    return next((body["resourceType"], key) for key in ("k0", "k1", "k2", "k3") if key in said)
