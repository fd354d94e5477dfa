"""Rejects corrected in any way and any order, by seed: what one row of the source stands for is there at most once, and
never silently absent.

Each payment or task has a number, its origin, which is in its key and its content whatever a correction makes of it. A
second one is right only where a person has put a row in again that says why it did not go: it names what is there.
"""

import csv
import hashlib
import io
import json
import random
import shutil
from collections import defaultdict
from contextlib import contextmanager
from threading import local

import pytest

from pipelines.ledger.access import LedgerAccess
from pipelines.ledger.ledger import Ledger
from tests.support.exports import feed_file
from tests.support.ledgers import lose_tables, read_ledger
from tests.support.told_of_rows import Law, Put, body_of, origin_in

STEPS = 12
NEVER_UNSEEN = ("LEDGER-07", "LEDGER-08", "TAKEN-BACK")
"""Reasons that say that something of the record is there, or is done with."""
COLUMNS = {
    "pay": "payment_id patient_id amount paid_on".split(),
    "call": "task_id patient_id description status requester_id".split(),
}
KINDS = {"pay": "payments", "call": "tasks"}
ACTS = {
    "export": 8,
    "by_hand": 16,
    "retry": 3,
    "discard": 1,
    "undo": 2,
    "again": 2,
    "settle": 3,
    "lose": 1,
    "mood": 1,
    "late": 2,
}


class Killed(BaseException):
    """The importer's process ends here: nothing is written any more."""


@contextmanager
def killed_at(commit, after):
    """Kill before or after a commit of the ledger: the first counts as 1."""
    transaction, count, inside = LedgerAccess.transaction, 0, local()

    @contextmanager
    def counted(ledger):
        nonlocal count
        if getattr(inside, "open", False):
            with transaction(ledger) as connection:
                yield connection
            return
        count += 1
        if count > commit or (count == commit and not after):
            raise Killed
        inside.open = True
        try:
            with transaction(ledger) as connection:
                yield connection
        finally:
            inside.open = False
        if count >= commit:
            raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LedgerAccess, "transaction", counted)
        yield


def ids_in(cell):
    return tuple(each.partition("-")[0] for each in cell.split())


def is_odd(feed, row):
    """True if a row cannot be sent unchanged."""
    return not row[1] or row[2][0] == "x" if feed == "pay" else row[3] == "odd"


class History:
    """A practice whose exports have wrong rows, and whose people correct them as they see fit.

    rows: by origin, the feed and the row as the source has it now. texts: files of rejects, as they were exported.
    """

    def __init__(self, home, target, chartferry, dice):
        self.home, self.target, self.chartferry, self.dice = home, target, chartferry, dice
        self.rows, self.texts, self.files, self.said = {}, [], [], []
        self.law = Law(home, target)
        self.refuses = True
        target.refuse = lambda body: (
            self.refuses and (body.get("amount", {}).get("value", 0) % 1 == 0.5 or "v50" in body.get("description", ""))
        )
        for feed, columns in COLUMNS.items():
            feed_file(home, feed, f'kind = "{KINDS[feed]}"\nfiles = ["{feed}*"]\n', ",".join(columns))

    def step(self):
        act = self.dice.choices(list(ACTS), list(ACTS.values()))[0]
        self.said.append(act)
        getattr(self, act)()

    def maybe(self, odds):
        return self.dice.random() < odds

    # -- rows

    def row(self, feed, origin, key, wrong=False):
        dice = self.dice
        wrong = wrong and dice.choice(["cell", "patient", "refused"])
        version = "50" if wrong == "refused" else f"{dice.choice([0, 0, 0, 5]):02}"
        patient = "" if wrong == "patient" and feed == "pay" else dice.choice(["p1", "p1", "p2", "p3"])
        if feed == "pay":
            return [key, patient, f"x{origin}" if wrong == "cell" else f"{origin}.{version}", "2026-01-01"]
        return [key, patient, f"o{origin} v{version}", "odd" if wrong in ("cell", "patient") else "requested", "a"]

    def is_wrong(self, feed, row):
        return is_odd(feed, row) or row[2].endswith("50")

    def export(self):
        """A new export, cumulative to some degree; some rows have been mended in the source."""
        feed = self.dice.choice(["pay", "pay", "pay", "call"])
        for _ in range(self.dice.randrange(1, 3) if len(self.rows) < 2 or self.maybe(0.1) else 0):
            origin = len(self.rows) + 1
            self.rows[origin] = feed, self.row(feed, origin, f"k{origin}", self.maybe(0.75))
        chosen = []
        for origin, (kind, row) in self.rows.items():
            if kind != feed or self.maybe(0.2):
                continue
            if self.is_wrong(feed, row) and self.maybe(0.35):
                self.rows[origin] = feed, self.row(feed, origin, row[0])
            elif self.maybe(0.05):
                self.rows[origin] = feed, self.row(feed, origin, row[0], True)
            chosen.append(self.rows[origin][1])
        self.files.append((feed, [COLUMNS[feed], *chosen]))
        self.take(*self.files[-1])

    def by_hand(self):
        """Rejects are corrected in the file that was handed back, now or some time ago."""
        out = self.home.parent / "out"
        shutil.rmtree(out, ignore_errors=True)
        self.chartferry("rejects", "export", "--out", out)
        now = [(path.name.partition("-")[0], self.read_export(path.read_text())) for path in sorted(out.glob("*"))]
        self.texts += now
        if not self.texts:
            self.export()
            return
        feed, (head, rows) = self.dice.choice(now if now and self.maybe(0.6) else self.texts)
        if self.maybe(0.3):  # several files put into one
            rows = [each for other, (_, more) in self.texts[-3:] if other == feed for each in more]
        found = [each for row, knows in rows for each in self.corrected(feed, row, knows)]
        self.take(feed, [head, *(row for row, _ in found)], [knows for _, knows in found])

    def read_export(self, text):
        """The rows of a file of rejects, each with what its reject says is there."""
        head, *rows = csv.reader(io.StringIO(text))
        return head, [(row, self.law.known_to(ids_in(row[0]))) for row in rows]

    def corrected(self, feed, row, knows):
        """A reject's row as a person puts it in, or nothing; and seldom the row itself beside it."""
        name, reasons, key = row[:3]
        origin, dice = origin_in(key), self.dice
        is_told = any(rule in reasons for rule in NEVER_UNSEEN)
        if self.maybe(0.9 if is_told else 0.1):
            return
        key = dice.choice([key, f"k{origin}", f"k{origin}-b", f"k{origin}-c", f"k{origin}-d"])
        yield [name, reasons, *self.row(feed, origin, key, self.maybe(0.2))], knows
        if self.maybe(0.05):
            yield [name, reasons, *self.row(feed, origin, f"k{origin}-e", self.maybe(0.5))], knows
        if self.maybe(0.05) and key != f"k{origin}":
            yield ["", "", *self.row(feed, origin, f"k{origin}")], frozenset()

    def take(self, feed, rows, knows=()):
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(rows)
        self.said[-1] += f"\n{text.getvalue()}"
        batch = f"{feed}-{hashlib.sha256(text.getvalue().encode()).hexdigest()[:12]}"
        marked = rows[0][0] == "_reject_id"
        for line, row in enumerate(rows[1:], 2):
            names = ids_in(row[0]) if marked else ()
            own = row[2:] if marked else row
            about = (batch, origin_in(own[0]), own[0], (own[1], own[2]), names)
            put = Put(*about, knows[line - 2] if marked else frozenset(), is_odd(feed, own))
            self.law.put.setdefault((batch, line), put)
        number = len(list((self.home / "batches").glob("*"))) + len(list((self.home / "inbox").glob("*")))
        (self.home / "inbox" / f"{feed}-{number:03}.csv").write_text(text.getvalue())
        self.run("import")

    # -- commands

    def run(self, *command):
        """Run a command in which something may go wrong."""
        if self.maybe(0.35):
            held = ["held"] if self.target.additions else []  # a bare target would have it twice
            self.target.faults = [self.dice.choice(["lost_before", "lost_after", *held])]
        self.said[-1] += f" {self.target.faults}"
        if self.maybe(0.2):
            at, after = self.dice.randrange(1, 25), self.maybe(0.5)
            self.said[-1] += f" killed at {at} {after}"
            try:
                with killed_at(at, after):
                    self.chartferry(*command)
            except Killed:
                pass
        else:
            self.chartferry(*command)
        self.target.faults = []

    def retry(self):
        self.run("rejects", "retry")

    def discard(self):
        if ids := self.read("SELECT reject_id FROM reject WHERE state = 'open'"):
            (name,) = self.dice.choice(ids)
            assert self.chartferry("rejects", "discard", name, "--why", "entered twice")[0] == 0
            self.law.discarded[name] = self.law.now.rejects[name].key, frozenset(self.law.now.chart)

    def undo(self):
        self.with_a_batch("undo")

    def again(self):
        if self.maybe(0.5):
            self.with_a_batch("import", "--again")
        elif self.files:
            self.take(*self.dice.choice(self.files))

    def with_a_batch(self, *command):
        if batches := sorted(path.name for path in (self.home / "batches").glob("*-*")):
            self.run(*command, self.dice.choice(batches))

    def settle(self):
        """A person waits, and looks at the chart for each row in doubt."""
        self.late()
        in_doubt = "SELECT batch_id, line, resource_type, key FROM record WHERE state IN ('in_doubt', 'sending')"
        taken = {name for (name,) in self.read("SELECT resource_id FROM record WHERE resource_id IS NOT NULL")}
        for batch, line, kind, key in self.read(in_doubt):
            origin = origin_in(key)
            there = [b["id"] for b in self.target.of(kind) if body_of(b).origin == origin and b["id"] not in taken]
            if not there:
                self.chartferry("doubts", "resend", f"{batch}:{line}")
            for each in there:
                self.chartferry("doubts", "accept", f"{batch}:{line}", "--resource", f"{kind}/{each}")

    def lose(self):
        lose_tables(self.home)

    def late(self):
        """Let a request arrive that a gateway has held."""
        self.target.arrives()

    def mood(self):
        self.refuses = not self.refuses

    # -- what is true

    def read(self, query):
        if not (self.home / "journal.ndjson").exists():
            return []
        Ledger.open(self.home / "ledger.db").close()  # which is made again if it was lost
        with read_ledger(self.home) as ledger:
            return ledger.execute(query).fetchall()

    def nothing_is_lost(self):
        """Once all has been settled: what is not there is open, discarded, was taken back, or is in a file that undo
        has ended, which each import names.
        """
        for _ in range(4):
            self.refuses = False
            self.settle()
            not_loaded = json.loads(self.chartferry("import", "--json")[1])["not_loaded"]
            self.law.look()
        ended = {row.origin for (batch, _), row in self.law.put.items() if batch in not_loaded}
        known = defaultdict(set)
        for key, state in self.read("SELECT key, state FROM record"):
            known[origin_in(key)].add(state)
        assert not {key for key, states in known.items() if states & {"planned", "sending", "in_doubt"}}, known
        for key, state in self.read("SELECT source_key, state FROM reject"):
            known[origin_in(key)].add(state)
        received = {origin_in(row[0]) for _, (_, *rows) in self.files for row in rows}
        living = {body.origin for body in self.law.now.chart.values() if body.is_living}
        silent = {o: known[o] for o in received - living - ended if not known[o] & {"open", "discarded", "undone"}}
        assert not silent, silent
        found = json.loads(self.chartferry("verify", "--json")[1])
        assert {each["resource_id"] for each in found["differences"]} == self.law.late, found["counts"]
        if self.law.late:
            return
        cents = sum(round(body["amount"]["value"] * 100) for body in self.target.of("PaymentNotice"))
        assert (found["ledger_cents"], found["target_cents"]) == (cents, cents)
        self.evidence_is_true(cents)
        batches = json.loads(self.chartferry("status", "--json")[1])["batches"]
        [(number,)] = self.read("SELECT count(*) FROM reject WHERE state IN ('open', 'resubmitted')")
        assert sum(batch["open_rejects"] for batch in batches) == number
        assert not [p.name for p in (self.home / "inbox").iterdir()]

    def evidence_is_true(self, cents):
        """The three sides agree, and each record of the exports has a fate."""
        found = json.loads(self.chartferry("evidence", "--json")[1])
        assert found["agrees"], found["feeds"]
        sides = {side: sum(feed[side]["cents"] for feed in found["feeds"]) for side in ("ledger", "target")}
        assert sides == {"ledger": cents, "target": cents}


@pytest.fixture
def history(home, target, chartferry):
    def played(seed, additions):
        target.additions = additions
        history = History(home, target, chartferry, random.Random(f"corrections {seed}"))
        try:
            for _ in range(STEPS):
                history.step()
                history.law.look()
            history.nothing_is_lost()
        except BaseException:
            print("\n---\n".join(history.said))
            raise
        return history

    return played


@pytest.mark.parametrize("additions", [True, False], ids=["with additions", "bare"])
@pytest.mark.parametrize("seed", range(32))
def test_after_any_corrections_no_record_is_there_twice_or_lost_unseen(seed, additions, history):
    """LEDGER-01, LEDGER-07, CLI-CMD-05"""
    history(seed, additions)
