"""A home whose rejects are exported, corrected and imported again."""

import json

from tests.support.ledgers import read_ledger

HEADER = "payment_id,patient_id,amount,paid_on,claim_id\n"


class Practice:
    """A home, with commands on it and look-ups in its ledger."""

    def __init__(self, home, target, chartferry):
        self.home, self.target, self.run = home, target, chartferry
        self.out = home.parent / "out"

    def take(self, text, name="payments.csv"):
        path = self.home / "inbox" / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        code, said, wrong = self.run("import", "--json")
        assert said, wrong
        return code, json.loads(said)

    def export(self, *arguments):
        """Export the rejects. Return the files by name."""
        for left in self.out.glob("*"):
            left.unlink()
        code, _, wrong = self.run("rejects", "export", "--out", self.out, *arguments)
        assert (code, wrong) == (0, "")
        return {path.name: path.read_bytes() for path in sorted(self.out.glob("*"))}

    def rows(self, query):
        with read_ledger(self.home) as ledger:
            return ledger.execute(query).fetchall()

    def rejects(self):
        """Return state and attempts of the rejects by key."""
        rows = self.rows("SELECT source_key, state, attempts FROM reject ORDER BY line")
        return {key: (state, attempts) for key, state, attempts in rows}

    def ids(self):
        return dict(self.rows("SELECT source_key, reject_id FROM reject ORDER BY line"))

    def created(self):
        return sorted(body["identifier"][0]["value"] for body in self.target.of("PaymentNotice"))


def one(files):
    [(_, content)] = files.items()
    return content.decode()
