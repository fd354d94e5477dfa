"""Random sequences of commands on a home, with the checks of chart and ledger after each command."""

import json
from collections import Counter

from tests.support.exports import QUESTIONS, feed_file
from tests.support.ledgers import read_ledger

KEYS = [f"k{number}" for number in range(4)]
COLUMNS = {
    "pay": "payment_id patient_id amount paid_on".split(),
    "call": "task_id patient_id description status requester_id".split(),
    "form": "response_id patient_id questionnaire question answer_text".split(),
}
KINDS = {"pay": "payments", "call": "tasks", "form": "answers"}
POLICIES = {"pay": ("reject", "skip"), "call": ("update",), "form": ("reject", "supersede")}
TYPES = {"pay": "PaymentNotice", "call": "Task", "form": "QuestionnaireResponse"}
TAKEN_BACK = ("cancelled", "entered-in-error")
COMMANDS = {"new": 6, "same": 6, "corrected": 3, "retry": 1, "undo": 2, "again": 2}


class Sequence:
    """A home on which commands are run in random order."""

    def __init__(self, home, target, asked, chartferry, dice):
        self.home, self.target, self.asked, self.chartferry, self.dice = home, target, asked, chartferry, dice
        self.files = []
        target.stored["q1"] = QUESTIONS
        for feed, columns in COLUMNS.items():
            says = f'kind = "{KINDS[feed]}"\nfiles = ["{feed}*"]\nchanged = "{dice.choice(POLICIES[feed])}"\n'
            feed_file(home, feed, says, ",".join(columns))

    def step(self):
        getattr(self, self.dice.choices(list(COMMANDS), list(COMMANDS.values()))[0])()

    def new(self):
        feed, dice = self.dice.choice(list(COLUMNS)), self.dice
        rows = [self.row(feed, key, dice.randrange(3), dice.random() < 0.2) for key in dice.sample(KEYS, 3)]
        self.files.append((feed, "".join(",".join(line) + "\n" for line in [COLUMNS[feed], *rows])))
        self.take(*self.files[-1])

    def row(self, feed, key, version, wrong):
        if feed == "pay":
            return [key, "p1", "x" if wrong else f"{key[1:]}{version}.00", "2026-01-01"]
        if feed == "call":
            return [key, "p1", f"{key} v{version}", "odd" if wrong else "requested", "a"]
        return [key, "p1", "q1", "none" if wrong else "1", f"{key} v{version}"]

    def put(self, feed, text):
        """Put a file into the inbox."""
        (self.home / "inbox" / f"{feed}-{len(list((self.home / 'batches').glob('*'))):03}.csv").write_text(text)

    def take(self, feed, text):
        self.put(feed, text)
        self.chartferry("import")

    def same(self):
        if self.files:
            self.take(*self.dice.choice(self.files))

    def corrected(self):
        out = self.home.parent / f"out-{self.dice.random()}"
        self.chartferry("rejects", "export", "--out", out)
        for path in sorted(out.glob("*")):
            right = path.read_text().replace(",x,", ",90.00,").replace(",odd,", ",requested,").replace(",none,", ",1,")
            self.take(path.name.partition("-")[0], right)

    def retry(self):
        self.chartferry("rejects", "retry")

    def undo(self):
        self.with_a_batch("undo")

    def again(self):
        self.with_a_batch("import", "--again")

    def with_a_batch(self, *command):
        if batches := sorted(path.name for path in (self.home / "batches").glob("*-*")):
            self.chartferry(*command, self.dice.choice(batches))

    # -- what is there

    def there(self):
        """Return the ids of the resources at the target, by type."""
        return {
            kind: {body["id"] for body in self.target.of(kind) if body["status"] not in TAKEN_BACK}
            for kind in TYPES.values()
        }

    def rows(self, query):
        with read_ledger(self.home) as ledger:
            return ledger.execute(query).fetchall()

    def agrees(self):
        known: dict[str, set[str]] = {kind: set() for kind in TYPES.values()}
        live = "'created', 'adopted', 'updated', 'superseded'"
        for kind, resource in self.rows(f"SELECT resource_type, resource_id FROM record WHERE state IN ({live})"):
            assert resource not in known[kind]
            known[kind].add(resource)
        assert known == self.there()
        places = "SELECT batch_id, line FROM record UNION ALL SELECT batch_id, line FROM repeat"
        found = Counter(self.rows(places))
        assert set(found.values()) <= {1}
        accepted = dict(self.rows("SELECT batch_id, accepted FROM batch WHERE state = 'finished'"))
        assert Counter(batch for batch, _ in found) == {batch: number for batch, number in accepted.items() if number}
        verified = json.loads(self.chartferry("verify", "--json")[1])
        assert {kind for kind, number in verified["counts"].items() if number} <= {"changed"}
        assert verified["ledger_cents"] == verified["target_cents"]
