"""A home of a version without a journal: its ledger, and the outcomes beside it that the ledger lacks, are taken in."""

import json
import shutil
from contextlib import closing

import pytest

from pipelines.ledger.ledger import Ledger
from pipelines.session.ledger import open_ledger
from tests.support.earlier import make_earlier
from tests.support.exports import payments, tasks
from tests.support.ledgers import lose_ledger

both = pytest.mark.parametrize("additions", [True, False], ids=["with additions", "bare"])


def records(home):
    with closing(open_ledger(home, {})) as ledger:
        rows = ledger.tables()["record"].to_pylist()
    return {row["key"]: row for row in rows}


def as_before_the_journal(home):
    """Write what the version before left in the folders of runs, and make the ledger's database one of that version."""
    for record in records(home).values():
        [run] = (home / "batches" / record["batch_id"]).glob("run-*")
        asked_at = record["first_attempt_at"] if record["state"] == "in_doubt" else None
        told = [record[name] for name in ("key", "content_hash", "line", "generation", "state", "resource_id")]
        told[1] = told[1][:16]
        with (run / "outcomes.ndjson").open("a") as file:
            file.write(f"\n{json.dumps(record['finished_at'])}\n{json.dumps([*told, record['http_status'], asked_at])}")
    of_version_7(home / "ledger.db")


def of_version_7(path):
    with closing(Ledger.open(path, journal=False)) as ledger:
        make_earlier(ledger, 7)


@pytest.fixture
def older(home, target, asked):
    """A home of the version before, whose ledger knows payments and whose later one knows a task and a doubt too."""

    def make(additions):
        target.additions = additions
        payments(home, ("k1", "p1", "1.00"), ("k2", "p2", "2.00"))
        asked("import")
        shutil.copy(home / "ledger.db", home.parent / "yesterday.db")
        tasks(home, "t1")
        target.faults = [None] if additions else ["lost_after"]
        asked("import")
        target.faults = []
        now = records(home)
        as_before_the_journal(home)
        of_version_7(home.parent / "yesterday.db")
        return now

    return make


@pytest.mark.alike
@both
@pytest.mark.parametrize("lost", ["all", "nothing", "the last day"])
def test_the_first_start_takes_missing_outcomes_into_the_ledger(older, home, target, asked, additions, lost):
    """LEDGER-20, CLI-CMD-17"""
    before = older(additions)
    if lost != "nothing":
        lose_ledger(home)
    if lost == "the last day":
        shutil.copy(home.parent / "yesterday.db", home / "ledger.db")
    there = set(target.stored)
    after = records(home)
    names = "state resource_id content_hash generation batch_id line patient_id amount_cents".split()
    assert {key: [row[name] for name in names] for key, row in after.items()} == {
        key: [row[name] for name in names] for key, row in before.items()
    }
    asked("verify", "--adopt")
    for _ in range(2):
        asked("import")
    assert set(target.stored) == there
    assert not {"double", "gone", "unknown"} & asked("verify")["counts"].keys()


def test_nothing_reads_these_files_afterwards(older, home, asked):
    older(True)
    assert records(home)
    for path in home.glob("batches/*/run-*/outcomes.ndjson"):
        path.write_text('"2030-01-01T00:00:00.000000Z"\n["k1", "0", 2, 9, "created", "other", 201, null]\n')
    assert records(home)["k1"]["generation"] == 1
    assert asked("verify")["differences"] == []


def test_damaged_lines_of_an_outcome_file_are_skipped(older, home):
    """STATE-HOME-07: a disk, or a person, damaged them."""
    older(True)
    for path in home.glob("batches/*/run-*/outcomes.ndjson"):
        path.write_bytes(b'{\n["k1"]\n[1, 2, 3, 4, 5, 6, 7, 8]\n\xff\n' + path.read_bytes())
    lose_ledger(home)
    assert {key: row["state"] for key, row in records(home).items()} == dict.fromkeys(("k1", "k2", "t1"), "created")
