"""Every record that was ever read is somewhere, whatever was done, by seed.

It is at the target with its newest accepted content, or it is an open reject, in doubt, waiting, taken back or
discarded by a person; `verify` and the published tables count it as just that. What is there is read from the chart and
from the files; of the ledger only what it says of a row.
"""

import csv
import hashlib
import io
import math
import random
import sqlite3
from collections import Counter
from contextlib import closing, suppress
from decimal import Decimal
from typing import NamedTuple

import duckdb
import pytest

from pipelines.ledger.access import LedgerAccess
from pipelines.ledger.states import MADE, UNDECIDED, in_sql
from tests.support.any_order import COLUMNS, KEYS, POLICIES, TAKEN_BACK, Sequence
from tests.support.ledgers import lose_tables

STEPS = 9
COMMANDS = {
    "new": 8,
    "same": 3,
    "older": 4,
    "corrected": 3,
    "retry": 1,
    "revive": 1,
    "discard": 2,
    "resend": 2,
    "arrives": 2,
    "undo": 2,
    "again": 1,
    "killed": 2,
}
MORE = {"nothing": 2, "purge": 2, "remap": 2, "other_policy": 1, "mood": 1, "accept": 2, "lose": 1}
FAULTS = ("lost_before", "lost_after", "held")
PUT_FAULTS = ("lost_before", "lost_after", "refused")
CELLS = {"pay": ("paid_on", "never"), "call": ("status", "odd"), "form": ("question", "none")}
"""By feed: a column, and what in it a row is rejected for."""
RIGHT = {"call": "requested", "form": "1"}
CONTENT = {"pay": "amount", "call": "description", "form": "answer_text"}
KEY = {feed: columns[0] for feed, columns in COLUMNS.items()}
VERSIONS = range(3)


class Killed(BaseException):
    """The process is gone, in the middle of what it did."""


class Read(NamedTuple):
    """A record as a file had it. moment: when it was read."""

    feed: str
    key: str
    content: str
    moment: int = 0


def content(feed, key, version):
    """A content that names its key. Amounts are powers of 6: their sum names them, unless one is in it six times."""
    number = int(key[1:]) * len(VERSIONS) + version
    return f"{Decimal(6**number) / 100:05.2f}" if feed == "pay" else f"{key} v{version}"


CONTENTS = {(feed, content(feed, key, version)): key for feed in COLUMNS for key in KEYS for version in VERSIONS}
DAYS = {content("pay", key, version): f"2026-01-0{version + 1}" for key in KEYS for version in VERSIONS}


def right(feed, said):
    """What is right in the column of `CELLS`, in a row of this content."""
    return DAYS.get(said, "2026-01-01") if feed == "pay" else RIGHT[feed]


def said_by(body):
    """(feed, content) of a resource, None for one that is not of these."""
    match body["resourceType"]:
        case "PaymentNotice":
            return "pay", f"{body['amount']['value']:05.2f}"
        case "Task":
            return "call", body["description"]
        case "QuestionnaireResponse":
            return "form", body["item"][0]["answer"][0]["valueString"]
    return None


class History(Sequence):
    """Files, corrections, undo, retries, discards, purges, kills, late answers and a target that goes away, as the dice
    fall.
    """

    def __init__(self, *arguments, monkeypatch):
        super().__init__(*arguments)
        self.monkeypatch, self.moment = monkeypatch, 0
        self.read: dict[tuple[str, int], Read] = {}
        self.chart: dict[tuple[str, str], str] = {}
        self.came: Counter[tuple[str, str]] = Counter()
        self.taken_back: Counter[tuple[str, str]] = Counter()
        self.waited: set[tuple[str, int]] = set()
        self.texts: dict[str, tuple[str, str]] = {}
        self.put_in: dict[str, int] = {}
        refused = [each for each in CONTENTS if self.dice.random() < 0.1]
        self.target.refuse = lambda body: said_by(body) in refused

    def step(self):
        """One command, perhaps killed, perhaps without some answers, and what is true after it."""
        dice, target = self.dice, self.target
        target.faults = [dice.choice(FAULTS)] if dice.random() < 0.3 else []
        target.put_faults = [dice.choice(PUT_FAULTS)] if dice.random() < 0.3 else []
        target.answers = dice.randrange(14) if dice.random() < 0.25 else math.inf
        commands = COMMANDS | MORE
        name = dice.choices(list(commands), list(commands.values()))[0]
        if dice.random() < 0.2:
            self.dies(name)
        else:
            self.does(name)
        target.faults, target.put_faults, target.answers = [], [], math.inf
        self.look()
        self.every_record_is_somewhere()

    def does(self, name):
        self.moment += 1
        getattr(self, name)()
        self.look()

    # -- what is done

    def row(self, feed, key, version, wrong):
        (column, odd), said = CELLS[feed], content(feed, key, version)
        cells = {"patient_id": "p1", "questionnaire": "q1", "question": "1", "requester_id": "a"}
        cells |= {KEY[feed]: key, CONTENT[feed]: said}
        cells[column] = odd if wrong else right(feed, said)
        return [cells[name] for name in COLUMNS[feed]]

    def take(self, feed, text):
        self.moment += 1
        batch = f"{feed}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
        self.texts[batch] = feed, text
        if text.startswith("_reject_id"):
            self.put_in[batch] = self.moment
        super().take(feed, text)
        self.look()

    def older(self):
        """A full export that has what an older file had, and one record more or changed."""
        feed, text = self.dice.choice(self.files)
        rows = [line.split(",") for line in text.splitlines()[1:]]
        rows.append(self.row(feed, self.dice.choice(KEYS), self.dice.choice(VERSIONS), False))
        unique = {row[0]: row for row in rows}.values()
        self.files.append((feed, "".join(",".join(line) + "\n" for line in [COLUMNS[feed], *unique])))
        self.take(*self.files[-1])

    def corrected(self):
        out = self.home.parent / f"out-{self.dice.random()}"
        self.chartferry("rejects", "export", "--out", out)
        for path in sorted(out.glob("*")):
            feed = path.name.partition("-")[0]
            rows, mended = csv.DictReader(io.StringIO(path.read_text())), io.StringIO()
            written = csv.DictWriter(mended, list(rows.fieldnames or ()), lineterminator="\n")
            written.writeheader()
            written.writerows(row | {CELLS[feed][0]: right(feed, row[CONTENT[feed]])} for row in rows)
            self.take(feed, mended.getvalue())

    def revive(self):
        self.chartferry("rejects", "retry", "--taken-back")

    def discard(self):
        if rejects := self.rows("SELECT reject_id FROM reject WHERE state = 'open' ORDER BY 1"):
            assert self.chartferry("rejects", "discard", self.dice.choice(rejects)[0], "--why", "wrong")[0] == 0

    def resend(self):
        """A person makes sure that the target has it not and will not have it, and lets it be sent again."""
        if doubts := self.rows("SELECT batch_id, line FROM record WHERE state = 'in_doubt' ORDER BY 1, 2"):
            self.target.held.clear()
            self.chartferry("doubts", "resend", ":".join(map(str, self.dice.choice(doubts))))

    def arrives(self):
        self.target.arrives()

    def killed(self):
        self.dies("new")

    def dies(self, name):
        """A command is killed at some write to the ledger, or before the next: nothing after it is done."""
        done, last = LedgerAccess.transaction, self.dice.randrange(1, 12)

        def until_killed(access):
            nonlocal last
            last -= 1
            if last < 0:
                raise Killed
            return done(access)

        with self.monkeypatch.context() as patched, suppress(Killed):
            patched.setattr(LedgerAccess, "transaction", until_killed)
            getattr(self, name)()
        self.end_leases()

    def end_leases(self):
        with closing(sqlite3.connect(self.home / "ledger.db")) as ledger, ledger:
            ledger.execute("DELETE FROM lease")

    def nothing(self):
        self.chartferry("import")

    def purge(self):
        self.with_a_batch("purge")

    def edit(self, feed, text):
        """A feed file is changed."""
        (self.home / "feeds" / f"{feed}.toml").write_text(text)

    def other_policy(self):
        feed = self.dice.choice(list(COLUMNS))
        text = (self.home / "feeds" / f"{feed}.toml").read_text()
        old = next(each for each in POLICIES[feed] if f'"{each}"' in text)
        self.edit(feed, text.replace(f'"{old}"', f'"{self.dice.choice(POLICIES[feed])}"') + "# changed\n")

    def remap(self):
        if self.files:
            feed, text = self.dice.choice(self.files)
            self.edit(feed, (self.home / "feeds" / f"{feed}.toml").read_text() + f"# {self.dice.random()}\n")
            self.put(feed, text)
            self.chartferry("import", "--remap")

    def mood(self):
        """The target refuses everything from now on, or nothing. Before that, what was on its way arrives."""
        self.target.arrives()
        refuses = self.dice.random() < 0.3
        self.target.refuse = lambda body: refuses

    def accept(self):
        """A person looks at the chart, and says which resource a row in doubt is."""
        self.target.arrives()
        known = "SELECT resource_id FROM record UNION SELECT resource_id FROM former"
        taken = {name for (name,) in self.rows(known)}
        doubts = "SELECT batch_id, line, resource_type FROM record WHERE state = 'in_doubt' ORDER BY 1, 2"
        for batch, line, kind in self.rows(doubts):
            said = self.read[batch, line].feed, self.read[batch, line].content
            there = [b["id"] for b in self.target.of(kind) if said_by(b) == said and b["id"] not in taken]
            for name in there[:1]:
                self.chartferry("doubts", "accept", f"{batch}:{line}", "--resource", f"{kind}/{name}")

    def lose(self):
        """The ledger's tables are lost. Its journal is there."""
        lose_tables(self.home)
        self.chartferry("status")

    def settle(self):
        """All that was on its way has come to something, and a person completes each undo that was cut off."""
        cut_off = f"""SELECT DISTINCT batch_id FROM former JOIN record
            USING (target, resource_type, source, key, batch_id, resource_id)
            WHERE former.fate = 'standing' AND record.state IN ({in_sql(MADE)})"""
        self.target.arrives()
        self.target.refuse = lambda body: False
        for _ in range(3):
            self.moment += 1
            self.nothing()
            for doubt in self.rows("SELECT batch_id, line FROM record WHERE state = 'in_doubt' ORDER BY 1, 2"):
                self.chartferry("doubts", "resend", ":".join(map(str, doubt)))
            for (batch,) in self.rows(cut_off):
                self.chartferry("undo", batch)
            self.look()
        self.every_record_is_somewhere()

    # -- what is true

    def look(self):
        """Note what was read, what is in force in the chart, and when each arrived or was taken back."""
        for batch in {path.name for path in (self.home / "batches").glob("*-*")} - {batch for batch, _ in self.read}:
            feed, text = self.texts[batch]
            for line, row in enumerate(csv.DictReader(io.StringIO(text)), 2):
                self.read[batch, line] = Read(feed, row[KEY[feed]], row[CONTENT[feed]], self.moment)
        said = [said_by(body) for body in self.target.stored.values() if body["status"] not in TAKEN_BACK]
        there = [(feed, CONTENTS[feed, content], content) for feed, content in filter(None, said)]
        now = {(feed, key): content for feed, key, content in there}
        assert len(now) == len(there) or self.rows("SELECT 1 FROM former WHERE fate = 'standing'"), "there twice"
        for place in now.keys() | self.chart.keys():
            if now.get(place) != self.chart.get(place):
                moved = self.came if place in now else self.taken_back
                moved[place] = self.moment
        self.chart = now

    def told(self, table, state):
        """Records whose rows the ledger has in such a state."""
        rows = self.rows(f"SELECT batch_id, line FROM {table} WHERE state IN ({', '.join(map(repr, state))})")
        return {self.read[row][:3] for row in rows}

    def every_record_is_somewhere(self):
        aside = self.told("reject", ("open", "discarded"))
        aside |= self.told("record", ("skipped",)) | self.told("repeat", ("skipped",))
        waiting, answered = self.told("record", UNDECIDED), self.told("reject", ("resubmitted",))
        finished = {batch for (batch,) in self.rows("SELECT batch_id FROM batch WHERE state = 'finished'")}
        said = sorted((max(each.moment, self.put_in.get(row[0], 0)), each[:3]) for row, each in self.read.items())
        newest = {record: moment for moment, record in said}
        for row, each in self.read.items():
            place, record, moment = each[:2], each[:3], each.moment
            there = self.chart.get(place)
            if row[0] not in finished or record in waiting:
                self.waited.add(row)
            elif there == each.content or record in aside or (record in answered and newest[record] > moment):
                continue
            elif there:
                confirmed = newest[*place, there] if row in self.waited else self.came[place]
                assert confirmed > moment, f"{row} is nowhere: {each}"
            else:
                assert self.taken_back[place] > moment, f"{row} is nowhere: {each}"

    def newest_payments_aside(self):
        """The amounts of payments that are set aside: of each key as the newest reject has it, if that is open."""
        rows = self.rows("SELECT batch_id, line, state FROM reject")
        found = sorted((self.read[batch, line].moment, state, self.read[batch, line]) for batch, line, state in rows)
        newest = {each.key: (each.content, state) for _, state, each in found if each.feed == "pay"}
        return {content for content, state in newest.values() if state in ("open", "discarded")}

    def tables_agree(self):
        """The published tables at the end of a history, with the chart and what is set aside."""
        with duckdb.connect(str(self.home / "published/reports.duckdb"), read_only=True) as tables:
            fates = tables.sql("SELECT fate, printf('%05.2f', amount::DOUBLE) FROM payment").fetchall()
            told = tables.sql("SELECT resource_id, source_key FROM task").fetchall()
            given = tables.sql("SELECT resource_id, source_key FROM questionnaire_response").fetchall()
        undecided = {each[:2] for each in self.told("record", UNDECIDED)}
        settled = {place: said for place, said in self.chart.items() if place not in undecided}
        paid = {said for (feed, _), said in settled.items() if feed == "pay"}
        aside = self.newest_payments_aside()
        going_on = {batch for (batch,) in self.rows("SELECT batch_id FROM batch WHERE state = 'running'")}
        judged = {
            row for table in ("record", "repeat", "reject") for row in self.rows(f"SELECT batch_id, line FROM {table}")
        }
        open_rows = (row for row in self.read.keys() - judged if row[0] in going_on)
        unjudged = {self.read[row].content for row in open_rows if self.read[row].feed == "pay"}
        under_way = self.told("record", UNDECIDED) | self.told("reject", ("resubmitted",))
        waiting = {said for feed, _, said in under_way if feed == "pay"} | unjudged
        assert max((number for (fate, _), number in Counter(fates).items() if fate != "refused"), default=1) == 1
        found = {fate: {amount for said, amount in fates if said == fate} for fate in ("created", "open", "refused")}
        assert (found["created"], found["open"]) == (paid, waiting - paid)
        assert aside - waiting - paid <= found["refused"] <= aside
        known = "SELECT resource_id FROM record UNION SELECT resource_id FROM former"
        ours = {name for (name,) in self.rows(known)}
        with_rows = {path.parts[-3] for path in (self.home / "batches").glob("*/run-*/accepted.parquet")}
        records = self.rows("SELECT batch_id, key, resource_id FROM record")
        purged = {(batch.partition("-")[0], key): name for batch, key, name in records if batch not in with_rows}
        for feed, kind, shown in (("call", "Task", told), ("form", "QuestionnaireResponse", given)):
            keys = Counter(key for _, key in shown)
            assert max(keys.values(), default=1) == 1
            at_rest = {key for each, key in settled if each == feed}
            missing = at_rest ^ {key for key in keys if (feed, key) not in undecided}
            assert missing <= {key for each, key in purged if each == feed}
            there = {body["id"] for body in self.target.of(kind) if body["status"] not in TAKEN_BACK}
            superseded = {name for (name,) in self.rows("SELECT resource_id FROM former WHERE fate = 'standing'")}
            names = {name for name, _ in shown}
            assert (there & ours) - superseded - set(purged.values()) <= names <= there


def play(history):
    """Play a history, and compare its end with the published tables and the chart."""
    with history.monkeypatch.context() as quick:
        quick.setattr("pipelines.importing.begin_and_end.publish_into", lambda *_: None)
        quick.setattr("pipelines.importing.retry.publish_into", lambda *_: None)
        history.new()
        for _ in range(STEPS):
            history.step()
        history.settle()
    history.new()
    history.tables_agree()
    found = history.asked("verify")
    cents = sum(round(100 * body["amount"]["value"]) for body in history.target.of("PaymentNotice"))
    assert set(found["counts"]) <= {"changed"}
    assert (found["ledger_cents"], found["target_cents"]) == (cents, cents)


@pytest.mark.publishes("payment", "task", "questionnaire_response")
@pytest.mark.parametrize(
    "seed", [46, *(pytest.param(seed, marks=pytest.mark.long) for seed in (*range(4), *range(100, 140)))]
)
def test_every_record_that_was_read_is_somewhere(seed, additions, home, target, asked, chartferry, monkeypatch):
    """LEDGER-19"""
    play(History(home, target, asked, chartferry, random.Random(seed), monkeypatch=monkeypatch))
