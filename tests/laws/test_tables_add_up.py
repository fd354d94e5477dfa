"""The figures of the published tables add up after any history, by seed.

They are compared with the files and the target: each row of a finished file is accepted or a reject, each payment
belongs to a file and counts once, and created payments are at the target, to the cent. The batches' states are taken as
given.
"""

import csv
import io
import json
import random
from collections import Counter, defaultdict
from contextlib import closing
from decimal import Decimal
from typing import NamedTuple

import duckdb
import pytest

from pipelines.ledger.ledger import Ledger
from pipelines.ledger.standing import undone_by_batch
from pipelines.reports.publish import publish
from pipelines.reports.sweep import sweep
from tests.pipelines.test_every_record import CELLS, COMMANDS, CONTENT, FAULTS, KEY, VERSIONS, History, said_by
from tests.support.any_order import COLUMNS, KEYS, POLICIES, TAKEN_BACK
from tests.support.fake_target import FakeTarget, serving
from tests.support.publishing import Target, publish_only

STEPS = 10
MORE = {"repeated": 3, "keyless": 2, "stopped": 2, "restored": 1, "other_feed": 1, "elsewhere": 2}
TABLES = (
    "payment_reconciliation",
    "payment_by_day",
    "import_row",
    "import_run",
    "reject",
    "reject_by_rule",
    "reject_by_age",
    "record_by_month",
    "task",
    "questionnaire_response",
    "publication",
    "import_batch",
    "payment",
)
THIS = "(SELECT target FROM publication ORDER BY published_at DESC LIMIT 1)"
SAME = [
    (
        """SELECT coalesce(sum(received), 0), coalesce(sum(created), 0), coalesce(sum(refused), 0),
            coalesce(sum(difference), 0) FROM payment_reconciliation""",
        """SELECT coalesce(sum(amount), 0), coalesce(sum(amount) FILTER (fate = 'created'), 0),
            coalesce(sum(amount) FILTER (fate = 'refused'), 0),
            coalesce(sum(amount) FILTER (fate IN ('open', 'not sent')), 0) FROM payment""",
    ),
    (
        "SELECT fate, sum(payments)::BIGINT, sum(amount) FROM payment_by_day GROUP BY fate ORDER BY fate",
        "SELECT fate, count(*), sum(amount) FROM payment GROUP BY fate ORDER BY fate",
    ),
    (
        "SELECT coalesce(sum(rejects), 0)::BIGINT FROM reject_by_age",
        "SELECT count(*) FROM reject WHERE state = 'open'",
    ),
]
"""Pairs of queries that must give the same."""


class Line(NamedTuple):
    """A row of a file. is_wrong: its cell is. is_again: it names a reject."""

    batch: str
    line: int
    key: str
    content: str
    is_wrong: bool
    is_again: bool


class Tables:
    """The tables of a publication."""

    def __init__(self, path):
        self.db = duckdb.connect(str(path), read_only=True)

    def __call__(self, query):
        return self.db.execute(query).fetchall()


def lines_of(feed, batch, text):
    """The rows of a file."""
    columns, *rows = csv.reader(io.StringIO(text))
    for line, row in enumerate(rows, 2):
        cells = dict(zip(columns, row, strict=True))
        is_wrong = cells[CELLS[feed][0]] == CELLS[feed][1]
        yield Line(batch, line, cells[KEY[feed]], cells[CONTENT[feed]], is_wrong, bool(cells.get("_reject_id")))


class Law:
    """The law: the tables must agree with the files that were sent to a target, and with its resources."""

    def __init__(self, tables, files, target, is_settled):
        self.tables, self.target, self.is_settled = tables, target, is_settled
        self.state = dict(tables(f"SELECT batch_id, state FROM import_batch WHERE target = {THIS}"))
        files = {batch: files[batch] for batch in self.state}
        self.feed = {batch: feed for batch, (feed, _) in files.items()}
        self.lines = {batch: list(lines_of(feed, batch, text)) for batch, (feed, text) in files.items()}
        self.chart = Counter(
            each for body in target.stored.values() if body["status"] not in TAKEN_BACK if (each := said_by(body))
        )
        self.order = [batch for (batch,) in tables("SELECT batch_id FROM import_batch ORDER BY received_at, batch_id")]

    def holds(self):
        for name in ("files_are_there", "lines_have_one_fate", "payments_are_those_of_files", "sums_agree"):
            try:
                getattr(self, name)()
            except AssertionError as error:
                raise AssertionError(f"{name}: {error}") from error

    def files_are_there(self):
        """Each file has its rows and its money counted."""
        query = f"""SELECT batch_id, records, amount_received FROM import_batch
            WHERE target = {THIS} AND state <> 'running' AND records IS NOT NULL"""
        for batch, records, received in self.tables(query):
            lines = self.lines[batch]
            if self.feed[batch] != "pay" or self.state[batch] != "finished":
                continue
            assert received == sum(Decimal(each.content) for each in lines), f"{batch} received {received}"
            assert records <= len(lines), batch

    def lines_have_one_fate(self):
        """Each row of a file that was read to its end is an accepted record, or it is set aside; not both.

        A row keeps its first outcome: when its file comes again, it may be set aside if it is not in the chart now.
        """
        rows = Counter(self.tables(f"SELECT batch_id, line FROM import_row WHERE target = {THIS}"))
        assert set(rows.values()) <= {1}, "a row is there twice"
        aside = {(b, n): s for b, n, s in self.tables("SELECT batch_id, line, state FROM reject")}
        refused = set(self.tables(f"SELECT batch_id, line FROM import_row WHERE state = 'refused' AND target = {THIS}"))
        ran_again = {b for (b,) in self.tables("SELECT batch_id FROM import_run GROUP BY ALL HAVING count(*) > 1")}
        for batch, lines in self.lines.items():
            keys = Counter(each.key for each in lines)
            for each in lines:
                place = (batch, each.line)
                if self.state.get(batch) != "finished" or each.is_again or keys[each.key] > 1:
                    continue
                assert place in rows or place in aside, f"{place} is nowhere: {each}"
                is_there = batch not in ran_again or self.chart[self.feed[batch], each.content]
                if place in rows and place not in refused and is_there:
                    assert aside.get(place) not in ("open", "discarded"), f"{place} is loaded, and {aside[place]}"

    def payments_are_those_of_files(self):
        """Each payment is counted once: as created if it is in the chart, else as the newest file has it."""
        query = "SELECT source_key, amount, fate, batch_id, line, paid_on IS NULL FROM payment"
        told = [(key or "", *of) for key, *of in self.tables(query)]
        pays = {b: lines for b, lines in self.lines.items() if self.feed[b] == "pay" and b in self.state}
        every = {(e.key, Decimal(e.content), e.is_wrong) for lines in pays.values() for e in lines}
        counted = Counter((key, amount, is_dayless) for key, amount, *_, is_dayless in told)
        alike = Counter((b, e.key, Decimal(e.content), e.is_wrong) for b, lines in pays.items() for e in lines)
        most = {each: max(n for (_, *of), n in alike.items() if tuple(of) == each) for each in every}
        for each, number in counted.items():
            assert each in every, f"{each} is of no file"
            assert number <= most[each], f"{each} counts {number} times: {self.about(each[0])}"
        sent = {(key, amount) for key, amount, fate, *_ in told if key and fate in ("created", "open")}
        again = {(key, amount) for key, amount, fate, *_, is_dayless in told if fate == "refused" and is_dayless}
        assert not sent & again, f"set aside beside what was sent: {sent & again}"
        there = Counter({Decimal(said): n for (feed, said), n in self.chart.items() if feed == "pay"})
        created = Counter(amount for _, amount, fate, *_ in told if fate == "created")
        lost = there - created, created - there
        opened = {amount for _, amount, fate, *_ in told if fate == "open"}
        assert set(lost[0]) <= opened, f"in the chart, not told: {lost[0]}; {told}"
        assert set(lost[1]) <= self.target.gone, f"told, not in the chart: {lost[1]}"
        if self.is_settled:
            assert not opened, f"nothing is under way, but {opened}"
        by_key: dict[str, dict[Decimal, str]] = defaultdict(dict)
        for key, amount, fate, *_ in told:
            by_key[key][amount] = fate
        newest = {e.key: e for b in self.order if b in pays for e in pays[b] if self.state[b] != "running"}
        on_the_way = {e.key for b in pays if self.state[b] == "running" for e in pays[b]}
        for key, each in newest.items():
            assert by_key[key], f"{key} is told nowhere: {each}"
            if key and each.is_wrong and self.state[each.batch] == "finished" and key not in on_the_way:
                assert Decimal(each.content) in by_key[key], (
                    f"{key} is not told as the newest file has it: {each}; {self.about(key)}"
                )
        for key, fates in by_key.items():
            aside = [amount for amount, fate in fates.items() if fate == "refused"]
            files = {batch for k, _, fate, batch, *_ in told if k == key and fate == "refused"}
            assert not key or len(files) <= 1, f"{key} is set aside as of several files: {aside}"

    def about(self, key):
        """Return the rows of a payment's key in files and tables, for a message."""
        files = [
            (self.state[b], e) for b in self.order for e in self.lines.get(b, ()) if e.key == key and b[:3] == "pay"
        ]
        told = self.tables(f"SELECT amount, fate, batch_id, line, paid_on FROM payment WHERE source_key = '{key}'")
        return f"files {files}, payment {told}"

    def sums_agree(self):
        """Tables that count what others have say what these do."""
        for one, other in SAME:
            assert self.tables(one) == self.tables(other), (one, self.tables(one), self.tables(other))
        for kind, table in (("Task", "task"), ("QuestionnaireResponse", "questionnaire_response")):
            told = {name for (name,) in self.tables(f"SELECT resource_id FROM {table}")}
            there = {body["id"] for body in self.target.of(kind) if body["status"] not in TAKEN_BACK}
            assert told <= there | self.target.gone, f"{table}: {told - there} are not there"
            if self.is_settled:
                assert there <= told, f"{table}: {there - told} are not told"


class Accounts(History):
    """A history whose files and charts, at two targets, are kept for what the tables must say of them."""

    def __init__(self, *arguments, other, monkeypatch):
        super().__init__(*arguments, monkeypatch=monkeypatch)
        self.other = other
        other.stored["q1"], other.refuse = self.target.stored["q1"], self.target.refuse
        self.charts, self.said, self.is_settled = [], [], False
        self.target.gone, other.gone = set(), set()

    def does(self, name):
        self.charts.append(dict(self.target.stored))
        super().does(name)

    # -- what is done

    def rows_of(self, feed, keys):
        return [self.row(feed, key, self.dice.choice(VERSIONS), self.dice.random() < 0.2) for key in keys]

    def take_rows(self, feed, rows, keep=True):
        text = "".join(",".join(line) + "\n" for line in [COLUMNS[feed], *rows])
        if keep:
            self.files.append((feed, text))
        self.take(feed, text)

    def repeated(self):
        """A file in which a key comes twice, alike or not."""
        feed = self.dice.choice(["pay", "call"])
        self.take_rows(feed, self.rows_of(feed, [*KEYS[:2], self.dice.choice(KEYS[:2])]))

    def keyless(self):
        rows = self.rows_of("pay", self.dice.sample(KEYS, 2))
        amounts = [f"{6 ** self.dice.choice((12, 13)) // 100}.00" for _ in range(self.dice.randrange(1, 3))]
        self.take_rows("pay", [*rows, *(["", "p1", amount, "2026-01-01"] for amount in amounts)])

    def stopped(self):
        """A file whose control totals are others, so that nothing of it is sent; perhaps it comes again without."""
        name = f"pay-{len(list((self.home / 'batches').glob('*'))):03}.csv"
        control = self.home / "inbox" / f"{name}.control.json"
        control.write_text(json.dumps({"rows": 99, "amount": "0.50"}))
        self.take_rows("pay", self.rows_of("pay", self.dice.sample(KEYS, 2)), keep=self.dice.random() < 0.5)
        control.unlink(missing_ok=True)

    def restored(self):
        """The target is put back to how it was some commands ago."""
        before = self.dice.choice(self.charts[-3:])
        for name in self.target.stored.keys() - before.keys():
            if said := said_by(self.target.stored[name]):
                self.target.gone |= {name, *([Decimal(said[1])] if said[0] == "pay" else [])}
            self.target.lose(name)
        self.target.stored.update(before)

    def other_feed(self):
        """A feed has another policy from now on."""
        feed = self.dice.choice(list(COLUMNS))
        path = self.home / "feeds" / f"{feed}.toml"
        text = path.read_text()
        old = next(each for each in POLICIES[feed] if f'"{each}"' in text)
        path.write_text(text.replace(f'"{old}"', f'"{self.dice.choice(POLICIES[feed])}"') + "# changed\n")

    def elsewhere(self):
        """A file goes to another target, which perhaps has been put in already."""
        with self.monkeypatch.context() as patch:
            patch.setenv("FHIR_BASE_URL", self.other.url)
            if self.files and self.dice.random() < 0.6:
                self.take(*self.dice.choice(self.files))
            else:
                self.take_rows("pay", self.rows_of("pay", self.dice.sample(KEYS, 2)))

    def look(self):
        pass

    def step(self):
        commands = COMMANDS | MORE
        self.target.faults = [self.dice.choice(FAULTS)] if self.dice.random() < 0.3 else []
        self.said.append(self.dice.choices(list(commands), list(commands.values()))[0])
        self.does(self.said[-1])
        self.target.faults = []

    def settle(self):
        """All that was on its way has come to something."""
        for _ in range(4):
            self.target.arrives()
            self.chartferry("import")
            for batch, line in self.rows("SELECT batch_id, line FROM record WHERE state = 'in_doubt' ORDER BY 1, 2"):
                self.chartferry("doubts", "resend", f"{batch}:{line}")
        self.is_settled = True

    # -- what is true

    def add_up(self):
        for target in (self.target, self.other):
            if tables := self.published(target):
                with closing(tables.db):
                    Law(tables, self.texts, target, self.is_settled).holds()

    def published(self, target):
        """Publish what there is of a target now."""
        with closing(Ledger.open(self.home / "ledger.db")) as ledger:
            known = {each["target"] for each in ledger.batches()}
            names = [name for name in known if (self.other.url in name) == (target is self.other)]
            if not names:
                return None
            publish(self.home, ledger, sweep(Target([]), self.home, names[0]))
            tables = Tables(self.home / "published/reports.duckdb")
            back = "SELECT target, batch_id, count(*) FROM import_row WHERE state = 'undone' GROUP BY ALL"
            told = {(of, batch): number for of, batch, number in tables(back)}
            assert undone_by_batch(ledger) == told, "Dagster is told otherwise what was taken back"
        return tables


@pytest.mark.parametrize("additions", [True, False], ids=["with additions", "bare"])
@pytest.mark.parametrize(
    ("seed", "every"), [(0, 4), *(pytest.param(seed, 1, marks=pytest.mark.long) for seed in range(100))]
)
def test_the_figures_of_the_published_tables_add_up(
    seed, every, additions, home, target, asked, chartferry, monkeypatch
):
    """REPORT-18, REPORT-24: after each step, or after each of so many."""
    target.additions = additions
    publish_only(monkeypatch, *TABLES)
    with serving(FakeTarget(additions=False)) as other:
        other.valid_tokens.add("fixed")
        dice = random.Random(f"tables {seed}")
        history = Accounts(home, target, asked, chartferry, dice, other=other, monkeypatch=monkeypatch)
        try:
            history.new()
            for step in range(1, STEPS + 1):
                history.step()
                if step % every == 0:
                    history.add_up()
            history.settle()
            history.add_up()
        except BaseException:
            print(history.said)
            raise
