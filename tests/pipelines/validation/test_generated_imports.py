"""Laws that hold for any file: some of them drawn from seeds, imported whole, again, and what was set aside of them."""

import gzip
import json
import re
from collections import Counter
from decimal import Decimal
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq
import pytest

from tests.support.commands import totals_close
from tests.support.generated_cells import FORM, MARKER, NOBODY, TOML
from tests.support.generated_files import FileMaker, GeneratedFile
from tests.support.generated_rows import (
    KEYS,
    NOW,
    cents_of,
    instant_of,
    is_taken,
    physical_lines,
    rows_by_line,
    same_key,
)
from tests.support.ledgers import read_ledger

TYPES = ("PaymentNotice", "QuestionnaireResponse", "Task")
RECORDS = """
    SELECT resource_type, key, state, resource_id, batch_id, line, patient_id, source_at, amount_cents FROM record
"""


class Imported(NamedTuple):
    """A record as the ledger has it."""

    resource_type: str
    key: str
    state: str
    resource_id: str | None
    batch_id: str
    line: int
    patient_id: str | None
    source_at: str | None
    amount_cents: int | None


class Practice:
    """A home into which generated files are imported, and what it and its target have then."""

    def __init__(self, home, target, chartferry) -> None:
        self.home, self.target, self.chartferry = home, target, chartferry
        self.printed: list[str] = []
        target.stored["q1"] = FORM
        target.refuse = lambda body: NOBODY in json.dumps(body)
        (home / "feeds").mkdir()
        for name, toml in TOML.items():
            (home / "feeds" / f"{name}.toml").write_text(toml)

    def run(self, *arguments: object) -> str:
        code, out, err = self.chartferry(*arguments)
        assert code in {0, 3, 4}, (code, out, err)
        self.printed += [out, err]
        return str(out)

    def take(self, files: dict[str, bytes]) -> dict[str, Any]:
        """Import files by their names; what the summary says."""
        for name, data in files.items():
            (self.home / "inbox" / name).write_bytes(data)
        summary: dict[str, Any] = json.loads(self.run("import", "--json"))
        for batch in summary["batches"]:
            batch["unnamed_columns"] = []  # of a file that was spoiled, any text may be its header
        self.printed[-2] = json.dumps(summary)
        totals_close({"batches": [each for each in summary["batches"] if each["state"] == "finished"]})
        return summary

    def ledger(self, query: str) -> list[tuple[Any, ...]]:
        with read_ledger(self.home) as ledger:
            return ledger.execute(query).fetchall()

    def records(self) -> list[Imported]:
        return [Imported(*row) for row in self.ledger(RECORDS)]

    def there(self) -> dict[str, dict[str, Any]]:
        """Return what was made at the target, in that order."""
        return {name: body for name, body in self.target.stored.items() if body["resourceType"] in TYPES}

    def open_rejects(self, where: str = "true") -> set[tuple[str, int]]:
        return set(self.ledger(f"SELECT batch_id, line FROM reject WHERE state = 'open' AND {where}"))

    # -- what is true

    def each_accepted_record_is_there_once(self) -> None:
        records, there = self.records(), self.there()
        made = [one for one in records if one.resource_id]
        assert {one.state for one in made} <= {"created"}
        assert {one.state for one in records} <= {"created", "refused"}
        assert sorted(one.resource_id or "" for one in made) == sorted(there)
        known = {(one.resource_type, one.key) for one in records}
        finished = {name for (name,) in self.ledger("SELECT batch_id FROM batch WHERE state = 'finished'")}
        for path in self.home.glob("batches/*/run-*/accepted.parquet"):
            rows = pq.read_table(path).to_pylist() if path.parts[-3] in finished else []
            assert {(json.loads(row["body"])["resourceType"], row["key"]) for row in rows} <= known

    def cents_agree(self) -> None:
        there = self.there()
        for one in self.records():
            if one.resource_id and one.resource_type == "PaymentNotice":
                assert one.amount_cents == cents_at_target(there[one.resource_id])
        found = json.loads(self.run("verify", "--json"))
        assert found["counts"] == {}
        total = sum(cents_at_target(each) for each in there.values() if each["resourceType"] == "PaymentNotice")
        assert found["ledger_cents"] == found["target_cents"] == total

    def payments_came_in_order(self) -> None:
        """Of each patient over all files: by the file that came first, in it by their time, then by line."""
        places = {name: place for place, name in enumerate(self.there())}
        received = dict(self.ledger("SELECT batch_id, received_at FROM batch"))
        paid = [one for one in self.records() if one.resource_type == "PaymentNotice" and one.resource_id]
        paid.sort(key=lambda one: one.patient_id or "")
        for _, some in groupby(paid, key=lambda one: one.patient_id):
            wanted = sorted(
                some,
                key=lambda one: (
                    received[one.batch_id],
                    instant_of(one.source_at) if one.source_at else NOW,
                    one.line,
                ),
            )
            came = [places[one.resource_id or ""] for one in wanted]
            assert came == sorted(came)

    def holds(self) -> None:
        self.each_accepted_record_is_there_once()
        self.cents_agree()

    def rejects_put_in_again_are_nothing_new(self, out: Path) -> None:
        """Each stays what it was. One that may have been misread is taken then, and so may one be whose file had a
        `_reject_id` of its own: the export writes ours in its place. A quote may cut one in several.
        """
        made, waiting, doubtful = self.there(), self.open_rejects(), self.open_rejects("content_hash IS NOT NULL")
        doubtful |= {(batch, line) for batch, line in waiting if "_reject_id" in self.text(batch)}
        self.run("rejects", "export", "--out", out)
        self.take({path.name: path.read_bytes() for path in out.glob("*")})
        closed, more = waiting - self.open_rejects(), self.open_rejects() - waiting
        assert closed <= doubtful
        assert len(self.there()) - len(made) <= len(closed)
        for batch, line in more:
            lines = physical_lines(self.text(batch))
            assert not re.match(r"\W*(?:_reject_id\W+)?[0-9a-f]{16}\b", lines[line - 1])

    def text(self, batch: str) -> str:
        """The file of a batch."""
        [source] = self.home.glob(f"batches/{batch}/source/*")
        data = source.read_bytes()
        text = data if not data.startswith(b"\x1f\x8b") else gzip.decompress(data)
        return text.decode("utf-8-sig", "surrogateescape")

    def sound_payments_are_there(self, file: GeneratedFile) -> None:
        """Each payment of a sound file that another reader finds is at the target with its cents."""
        rows = rows_by_line(file)
        keys = Counter(same_key(row.get(KEYS[file.kind], "")) for row in rows.values())
        found = {one.key: one for one in self.records() if one.resource_type == "PaymentNotice"}
        for row, record in zip(rows.values(), file.records, strict=False):
            key = same_key(row.get(KEYS[file.kind], ""))
            if record.sound and keys[key] == 1 and is_taken(row):
                body = self.there()[found[key].resource_id or ""]
                assert cents_at_target(body) == cents_of(file, row["amount" if file.kind == "payments" else "Betrag"])


def cents_at_target(body: dict[str, Any]) -> Decimal:
    return Decimal(str(body["amount"]["value"])) * 100


@pytest.mark.parametrize(
    ("seed", "number"), [(4, 4), (5, 4), *(pytest.param(seed, 8, marks=pytest.mark.long) for seed in range(21, 51))]
)
def test_generated_files_are_imported_once_whatever_is_in_them(
    seed, number, home, target, chartferry, monkeypatch, caplog
):
    """LEDGER-01, LEDGER-02, LEDGER-03, FEED-PAY-03, FEED-PAY-04, CLI-CMD-04, CLI-CMD-05, CLI-CMD-17, STATE-HOME-07."""
    monkeypatch.setattr("pipelines.importing.begin_and_end.publish_into", lambda *_: None)
    target.additions = seed % 2 == 0
    practice, maker = Practice(home, target, chartferry), FileMaker(seed)
    files = [maker.file() for _ in range(number)]
    practice.take({file.name: file.data for file in files})
    practice.holds()
    practice.payments_came_in_order()
    for file in files:
        if file.sound and file.records and file.kind in ("payments", "till"):
            practice.sound_payments_are_there(file)
    made, waiting = practice.there(), practice.open_rejects()
    practice.take({file.name: file.data for file in files})
    practice.take({f"{file.kind}-again-{file.name}": file.data for file in files})
    assert (practice.there(), practice.open_rejects()) == (made, waiting)
    practice.rejects_put_in_again_are_nothing_new(home.parent / "out")
    practice.holds()
    assert MARKER not in "".join(practice.printed) + caplog.text
