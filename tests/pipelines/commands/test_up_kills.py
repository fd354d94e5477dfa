"""Processes of `chartferry up` are killed during imports: the next look finishes them, with nothing lost or double.

Seeded; a new file for each kill. Killed are the process of the run, the daemon, the web server and the service.
"""

import json
import random
import re
import signal
import sqlite3
from collections import Counter
from contextlib import closing, suppress
from pathlib import Path

import psutil
import pytest

from tests.support.commands import load, resources, run
from tests.support.ledgers import read_ledger
from tests.support.payers import Paid, paid, payments, practice
from tests.support.standing import (
    PATIENCE_SECONDS,
    Standing,
    addresses,
    client_of,
    gone,
    gone_is_none,
    published,
    running_up,
    standing,
    until,
)

pytestmark = pytest.mark.long

PATIENTS, PAYMENTS, KILLS = 40, 2500, 5
ENDINGS = (signal.SIGINT, signal.SIGKILL)
SLOWLY = {"CHARTFERRY_REQUESTS_PER_SECOND": "1"}
"""A request a second: a file's load takes long enough to be met in the middle."""
VERY_SLOWLY = {"CHARTFERRY_REQUESTS_PER_SECOND": "0.05"}
"""The load takes longer than an end in good order waits for it."""


def the_run(up: Standing) -> psutil.Process | None:
    """The process of the import that is under way."""
    for found in up.runs():
        if (found["status"], found["jobName"]) == ("STARTED", "import_payments"):
            pids = re.findall(r"Started process for run \(pid: (\d+)\)", "\n".join(up.messages(found["runId"])))
            with gone_is_none():
                return psutil.Process(int(pids[-1])) if pids else None
    return None


def sent(home: Path, batch: int) -> int | None:
    """Return how many rows of the n-th batch the ledger has; None before the batch exists, and once it has ended."""
    if not (home / "ledger.db").exists():
        return None
    with suppress(sqlite3.OperationalError), read_ledger(home, timeout=60) as ledger:
        states = ledger.execute("SELECT batch_id, state FROM batch ORDER BY received_at").fetchall()
        if len(states) > batch and states[batch][1] == "running":
            counted = ledger.execute("SELECT count(*) FROM record WHERE batch_id = ?", (states[batch][0],))
            return int(counted.fetchone()[0])
    return None


def killed(up: Standing, victim: str, batch: int, rows: int) -> bool:
    """Kills it once the ledger has so many rows of the batch. Whether the import was still under way."""
    until(lambda: (now := sent(up.home, batch)) is not None and now >= rows, f"{rows} rows of file {batch}", pause=0.05)
    process = until(lambda: the_run(up) if victim == "run" else up.child(victim), f"the process of {victim}")
    with gone_is_none():
        process.kill()
    return sent(up.home, batch) is not None


@pytest.mark.parametrize("victim", ["run", "daemon", "Dagster", "service"])
def test_an_import_whose_process_is_killed_is_finished_to_the_row_and_the_cent(tmp_path, victim):
    """LEDGER-01, LEDGER-05, CLI-CMD-13: each five times."""
    home, chosen = tmp_path / "home", random.Random(victim)
    assert load(home, practice(tmp_path / "practice", PATIENTS)).returncode == 0
    (home / "inbox").mkdir(mode=0o700)
    wanted: Paid = Counter()
    in_the_middle = 0
    with standing(home, **SLOWLY) as up:
        for number in range(KILLS):
            text, comes_to = payments(f"f{number}", PAYMENTS, PATIENTS, chosen)
            wanted += comes_to
            (home / "inbox" / f"payments-{number}.csv").write_text(text)
            in_the_middle += killed(up, victim, number, rows=chosen.choice([0, 1, 600, 1200, 1800]))
            until(lambda: is_green(up, number + 1), f"file {number} is green after a kill of {victim}", pause=2)  # noqa: B023
        until(lambda: published(home) == {"finished": KILLS}, "the publication of it all", pause=2)
        agree(up, wanted, KILLS)
    assert in_the_middle > KILLS // 2


def test_the_next_start_of_up_finishes_imports_that_its_end_cut_off(tmp_path):
    """CLI-CMD-13, LEDGER-01: ended by Ctrl-C, then killed, each in the middle of a file."""
    home, chosen = tmp_path / "home", random.Random("end")
    assert load(home, practice(tmp_path / "practice", PATIENTS)).returncode == 0
    (home / "inbox").mkdir(mode=0o700)
    wanted: Paid = Counter()
    for number, ending in enumerate(ENDINGS):
        text, comes_to = payments(f"f{number}", PAYMENTS, PATIENTS, chosen)
        wanted += comes_to
        with running_up(home, "--port", 0, "--web-port", 0, **VERY_SLOWLY) as process:
            assert "inbox" in addresses(process)
            (home / "inbox" / f"payments-{number}.csv").write_text(text)
            until(lambda: (sent(home, number) or 0) >= 1, f"rows of file {number}", pause=0.05)  # noqa: B023
            process.send_signal(ending)
            process.wait(PATIENCE_SECONDS)
        assert gone(home)
        assert sent(home, number) is not None
    with standing(home) as up:
        until(lambda: is_green(up, len(ENDINGS)), "all files are green", pause=2)
        until(lambda: published(home) == {"finished": len(ENDINGS)}, "the publication of it all", pause=2)
        agree(up, wanted, len(ENDINGS))


def is_green(up: Standing, files: int) -> bool:
    """All files are green at every stage, and nothing is under way."""
    stages = [up.partitions("payments", stage) for stage in ("received", "validated", "loaded")]
    return all(list(found.values()) == ["materialized"] * files for found in stages) and up.nothing_under_way()


def agree(up: Standing, wanted: Paid, files: int) -> None:
    """Store = ledger = source, to the row and the cent."""
    with client_of(up.home, up.addresses["service"]) as client:
        notices = resources(client, "PaymentNotice")
    assert paid(notices) == wanted
    with closing(sqlite3.connect(up.home / "ledger.db")) as ledger:
        records = ledger.execute("SELECT key, state, resource_id, amount_cents FROM record").fetchall()
    assert Counter(key for key, *_ in records) == Counter(
        f"f{n}-{row}" for n in range(files) for row in range(PAYMENTS)
    )
    assert {state for _, state, *_ in records} <= {"created", "adopted"}
    assert sorted(each for _, _, each, _ in records) == sorted(body["id"] for body in notices)
    assert sum(cents for *_, cents in records) == sum(cents * times for (_, cents), times in wanted.items())
    verified = json.loads(run("chartferry", "--home", up.home, "verify", "--json").stdout)
    assert (verified["exit_code"], verified["differences"]) == (0, [])
