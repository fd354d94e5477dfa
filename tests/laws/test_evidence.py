"""The evidence for signing says after any history what is true, by seed: to the record and to the cent.

It is compared with the files and the chart. Of the ledger it is taken as given which row a record is from and in which
state, and which rows are given back as open rejects. A payment's cents say which payments a sum has.
"""

import csv
import io
import json
import random
from collections import Counter, defaultdict
from contextlib import closing
from decimal import Decimal
from typing import Any, NamedTuple

import pytest

from pipelines.ledger.ledger import Ledger
from pipelines.ledger.rejects import reject_places
from pipelines.ledger.states import MADE, UNDECIDED
from tests.laws.test_tables_add_up import MORE, Accounts
from tests.pipelines.test_every_record import CELLS, COMMANDS, CONTENT, CONTENTS, DAYS, FAULTS, KEY, RIGHT, said_by
from tests.support.any_order import COLUMNS, TAKEN_BACK
from tests.support.fake_target import FakeTarget, serving
from tests.support.ledgers import lose_ledger

OWN = {"purge": 4, "lose": 1, "lose_all": 1, "accept": 3, "remap": 1}
SIDES = ("export", "expected", "ledger", "target")
NOTHING = {"records": 0, "cents": 0}


class Version(NamedTuple):
    """A record as files have it. A wrong one is known by its key and amount, without a key by its place `at`."""

    key: str
    content: str
    is_wrong: bool = False
    at: tuple[str, int] | None = None

    def cents(self, feed):
        return int(Decimal(self.content) * 100) if feed == "pay" else 0


def versions_of(feed, batch, text):
    """The rows of a file by line. All rows of a key are wrong if they differ in a file."""
    rows = list(csv.DictReader(io.StringIO(text)))
    said = defaultdict(set)
    for row in rows:
        said[row[KEY[feed]]].add((row[CELLS[feed][0]], row[CONTENT[feed]]))
    found = {}
    for line, row in enumerate(rows, 2):
        key, (column, odd) = row[KEY[feed]], CELLS[feed]
        is_wrong = row[column] == odd or not key or len(said[key]) > 1
        content = "" if is_wrong and feed != "pay" else row[CONTENT[feed]]
        found[line] = Version(key, content, is_wrong, None if key else (batch, line))
    return found


def once(files):
    """Count each version once; equal wrong rows of one file are several."""
    found: Counter[Version] = Counter()
    for rows in files:
        here = Counter(rows)
        found |= Counter({each: n if each.is_wrong else 1 for each, n in here.items()})
    return found


LAWS = (
    "files_are_named",
    "sides_add_up",
    "sides_are_true",
    "exports_are_whole",
    "fates_are_true",
    "rejects_are_told",
    "verdict_is_true",
)


class Law:
    """The law on one evidence."""

    def __init__(self, found, history):
        self.found, self.history = found, history
        self.scope = {each["batch_id"]: each for each in found["files"]}
        self.texts = {name: history.texts[name] for name in self.scope}
        self.rows = {name: versions_of(feed, name, text) for name, (feed, text) in self.texts.items()}
        self.feeds = {each["feed"]: each for each in found["feeds"]}
        bodies = [body for body in history.target.stored.values() if body["status"] not in TAKEN_BACK]
        self.chart = {(feed, CONTENTS[feed, said]): said for feed, said in filter(None, map(said_by, bodies))}

    def read(self, feed):
        """The versions of a feed's files, apart from files that are named because they are not counted."""
        left = {*self.found["failed"], *self.found["unread"]}
        names = (name for name in self.rows if self.texts[name][0] == feed and self.history.is_kept(name))
        return once(self.rows[name].values() for name in names if name not in left)

    def holds(self):
        for name in LAWS:
            try:
                getattr(self, name)()
            except AssertionError as error:
                said = json.dumps([self.found[each] for each in ("feeds", "without_rows", "verify")])
                raise AssertionError(f"{name}: {error}; {said}") from None

    def files_are_named(self):
        here = {name for name in self.scope if self.history.has_rows(name)}
        same = {name for name, each in self.scope.items() if each["hash_now"] == "the same"}
        assert same == here, same ^ here
        assert set(self.found["purged"]) | set(self.found["missing"]) == self.scope.keys() - here
        assert not self.found["damaged"]
        assert set(self.found["missing"]) <= self.history.forgotten

    def sides_add_up(self):
        """Days sum up to feeds; what is due and what is apart sum up to the export."""
        for feed, of in self.feeds.items():
            days = [day for day in self.found["days"] if day["feed"] == feed]
            for name in ("records", "cents"):
                for side in SIDES:
                    assert of[side][name] == sum(day[side][name] for day in days), (feed, side)
                apart = sum(each[name] for each in of["apart"].values())
                assert of["export"][name] == of["expected"][name] + apart, (feed, name)
            assert "unaccounted" not in of["apart"], feed
            sides_agree = of["expected"] == of["ledger"] == of["target"]
            assert of["agrees"] is sides_agree, feed

    def sides_are_true(self):
        """What is at the target counts there; what is due there is what it has, unless it was put back."""
        for feed in COLUMNS:
            there = Counter({Version(key, said): 1 for (of, key), said in self.chart.items() if of == feed})
            unsure = self.history.unsure(feed)
            sure = Counter({each: 1 for each in there if each.key not in unsure})
            every = once(rows.values() for name, rows in self.rows.items() if self.texts[name][0] == feed)
            mine = Counter({each: 1 for each in sure if each in every})
            read = self.read(feed)
            due = Counter({each: 1 for each in mine if each in read})
            if self.history.is_restored or unsure:
                continue
            of = self.feeds.get(feed, dict.fromkeys(SIDES, NOTHING))
            for side in SIDES[1:]:
                self.is_sum(feed, side, of[side], due)
            days = {each["day"]: each for each in self.found["days"] if each["feed"] == feed}
            for day in set(DAYS.values()) if feed == "pay" else ():
                of_day = Counter({each: 1 for each in due if DAYS[each.content] == day})
                for side in SIDES[1:]:
                    self.is_sum(feed, f"{side} of {day}", days[day][side] if day in days else NOTHING, of_day)
            without = [each for each in self.found["without_rows"] if each["feed"] == feed]
            purged = Counter({each: 1 for each in mine - due if self.history.is_of(feed, each, self.scope)})
            sums = {
                side: {name: sum(each[f"{side}_{name}"] for each in without) for name in ("records", "cents")}
                for side in ("ledger", "target")
            }
            for side in ("ledger", "target"):
                self.is_sum(feed, f"without rows, {side}", sums[side], purged)

    def is_sum(self, feed, what, said, versions):
        expected = {"records": versions.total(), "cents": sum(v.cents(feed) * n for v, n in versions.items())}
        told = {name: said[name] for name in expected}
        assert told == expected, f"{feed}, {what}: {told} is not {expected}: {parts(told['cents'])}, {versions}"

    def exports_are_whole(self):
        """Each version of a file that was read counts once."""
        for feed in COLUMNS:
            read = self.read(feed)
            of = self.feeds.get(feed, dict.fromkeys(SIDES, NOTHING))
            self.is_sum(feed, "export", of["export"], read)

    def fates_are_true(self):
        """What was at the target and is not as it was is replaced or taken back."""
        if self.history.forgotten or self.history.is_restored:
            return
        for feed in COLUMNS:
            of, unsure = self.feeds.get(feed, {"apart": {}})["apart"], self.history.unsure(feed)
            if unsure:
                continue
            back, replaced = self.former(feed)
            self.is_sum(feed, "taken back", of.get("taken back", NOTHING), back)
            self.is_sum(feed, "replaced", of.get("replaced", NOTHING), replaced)

    def former(self, feed):
        """The versions that were at the target and are not, of records that are not there, and of others."""
        found = {v for v in self.read(feed) if not v.is_wrong and v.content in self.history.ever[feed, v.key]}
        found = {v for v in found if self.chart.get((feed, v.key)) != v.content}
        back = Counter({v: 1 for v in found if (feed, v.key) not in self.chart})
        return back, Counter(dict.fromkeys(found, 1)) - back

    def verdict_is_true(self):
        """Where all is said to agree, the chart has just what is counted; where nothing is wrong, all agrees."""
        if self.found["batch"]:
            return
        says = self.found["agrees"] and self.found["verify"]["agrees"]
        history = self.history
        unsure = [key for feed in COLUMNS for key in history.unsure(feed)]
        if not (history.is_restored or history.forgotten or unsure):
            assert says, (self.found["agrees"], self.found["verify"])
        if says:
            sides = [(each["feed"], *each["target"].values()) for each in self.found["feeds"]]
            sides += [(w["feed"], w["target_records"], 0, w["target_cents"]) for w in self.found["without_rows"]]
            for feed in COLUMNS:
                there = Counter({Version(key, said): 1 for (of, key), said in self.chart.items() if of == feed})
                records, _, cents = (
                    sum(n) for n in zip((0, 0, 0), *(s[1:] for s in sides if s[0] == feed), strict=True)
                )
                self.is_sum(feed, "chart", {"records": records, "cents": cents}, there)

    def rejects_are_told(self):
        """The rejects that a person gets to correct are those that are set aside."""
        if self.found["batch"]:
            return
        given = self.history.given_back()
        for feed in COLUMNS:
            of = self.feeds.get(feed, {"apart": {}})["apart"]
            aside = of.get("set aside", NOTHING)
            if not self.history.unsure(feed):
                former: Counter[Version] = sum(self.former(feed), Counter())
                rows = ([first if now in former else now for now, first in of] for of in given[feed].values())
                self.is_sum(feed, "set aside", aside, once(rows) - former)
        query = f"SELECT state FROM reject WHERE target = '{self.found['target']}'"
        states, told = Counter(state for (state,) in self.history.rows(query)), self.found["set_aside"]
        assert Counter(each["state"] for each in told["listed"]) == states
        assert told["total"] == states.total()


def parts(cents):
    """The contents that a sum of payments has."""
    found = []
    for number in range(12):
        cents, times = divmod(cents, 6)
        found += [(f"k{number // 3}", number % 3, times)] if times else []
    return found, cents


class Stored(dict[str, Any]):
    """The resources of a target. ever: all contents that records have had there, by feed and key."""

    def __init__(self, stored, ever):
        super().__init__(stored)
        self.ever = ever

    def __setitem__(self, name, body):
        if said := said_by(body):
            self.ever[said[0], CONTENTS[said]].add(said[1])
        super().__setitem__(name, body)


class Signed(Accounts):
    """A history with purges, losses and decisions, of which evidence is asked."""

    def __init__(self, *arguments, **more):
        super().__init__(*arguments, **more)
        self.forgotten, self.is_restored = set(), False
        self.ever: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
        self.target.stored = Stored(self.target.stored, self.ever)

    def restored(self):
        super().restored()
        self.is_restored = True

    def lose_all(self):
        if self.dice.random() < 0.5:
            self.lose()
            return
        lose_ledger(self.home)
        self.forgotten |= {path.name for path in (self.home / "batches").glob("*-*")}
        if self.dice.random() < 0.3:
            self.new()
        self.chartferry("verify", "--adopt")

    def accept(self):
        """A person names the resource of a row in doubt, if the chart has it."""
        self.target.arrives()
        for batch, line in self.rows("SELECT batch_id, line FROM record WHERE state = 'in_doubt' ORDER BY 1, 2"):
            feed, text = self.texts[batch]
            said = versions_of(feed, batch, text)[line].content
            for body in list(self.target.stored.values()):
                if body["status"] not in TAKEN_BACK and said_by(body) == (feed, said):
                    self.chartferry("doubts", "accept", f"{batch}:{line}", "--resource", body["id"])

    def step(self):
        commands = COMMANDS | MORE | OWN
        self.target.faults = [self.dice.choice(FAULTS)] if self.dice.random() < 0.3 else []
        self.said.append(self.dice.choices(list(commands), list(commands.values()))[0])
        self.does(self.said[-1])
        self.target.faults = []

    # -- what is true

    def has_rows(self, batch):
        return any((self.home / "batches" / batch / "source").glob("*.csv"))

    def is_kept(self, batch):
        """True if a batch has rows of a run at this target: a purge took them, also if the file came to another."""
        runs = self.rows(f"SELECT run FROM run WHERE batch_id = '{batch}' AND target = '{self.here()}'")
        folders = (self.home / "batches" / batch / f"run-{number}" for (number,) in runs)
        return self.has_rows(batch) and any((folder / "accepted.parquet").exists() for folder in folders)

    def records(self, feed):
        kind = {"pay": "PaymentNotice", "call": "Task", "form": "QuestionnaireResponse"}[feed]
        here = self.here()
        query = f"SELECT key, state, batch_id, line FROM record WHERE resource_type = '{kind}' AND target = '{here}'"
        return {key: rest for key, *rest in self.rows(query)}

    def here(self):
        """The name of the target in the ledger."""
        found = {name for (name,) in self.rows("SELECT DISTINCT target FROM batch") if self.other.url not in name}
        assert len(found) <= 1
        return next(iter(found), "")

    def unsure(self, feed):
        """Keys whose record is in doubt or waits."""
        return {key for key, (state, *_) in self.records(feed).items() if state in UNDECIDED}

    def is_of(self, feed, version, scope):
        """True if the record is there by a row of one of these batches."""
        state, batch, _ = self.records(feed).get(version.key, (None, None, None))
        return state in MADE and batch in scope

    def given_back(self):
        """The rows of open rejects, as they would be given back and as they came first, by feed and batch."""
        found: dict[str, defaultdict[str, list[tuple[Version, Version]]]] = {
            feed: defaultdict(list) for feed in COLUMNS
        }
        first = {name: place for name, *place in self.rows("SELECT reject_id, batch_id, line FROM reject")}
        with closing(Ledger.open(self.home / "ledger.db")) as ledger:
            for place in reject_places(ledger, self.here(), states=("open", "resubmitted")):
                feed, now = self.texts[place.batch_id][0], (place.batch_id, place.line)
                rows = [
                    versions_of(feed, name, self.texts[name][1])[line] for name, line in (now, first[place.reject_id])
                ]
                found[feed][place.batch_id].append((rows[0], rows[1]))
        return found

    def signs(self):
        """Ask for the evidence of all that came, or of one batch."""
        if not (here := self.here()):
            return
        [batches] = zip(*self.rows(f"SELECT batch_id FROM batch WHERE target = '{here}' ORDER BY 1"), strict=True)
        about = ("--batch", self.dice.choice(batches)) if self.dice.random() < 0.3 else ()
        Law(self.asked("evidence", *about, "--sample", 1), self).holds()


@pytest.mark.parametrize(
    ("seed", "steps", "every", "additions"),
    [(0, 4, 4, False), *(pytest.param(n, 10, 2, i, marks=pytest.mark.long) for n in range(100) for i in (True, False))],
)
def test_the_evidence_is_true(seed, steps, every, additions, home, target, asked, chartferry, monkeypatch):
    """EVID-01: after each step, or after each of so many."""
    target.additions = additions
    monkeypatch.setitem(CELLS, "form", ("patient_id", ""))  # a bare target may take an unknown question
    monkeypatch.setitem(RIGHT, "form", "p1")
    with serving(FakeTarget(additions=False)) as other:
        other.valid_tokens.add("fixed")
        dice = random.Random(f"evidence {seed}")
        history = Signed(home, target, asked, chartferry, dice, other=other, monkeypatch=monkeypatch)
        try:
            history.new()
            for step in range(1, steps + 1):
                history.step()
                if step % every == 0:
                    history.signs()
            history.settle()
            history.signs()
        except BaseException:
            print(history.said)
            raise
