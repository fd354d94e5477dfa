"""Importer and server killed at random, in the middle of sending: `make test-hapi`. `HAPI_SEEDS` says how many seeds.

Ten moments a seed. At the end each row is there once, and none waits for a person.
"""

import os
import random
import subprocess
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from tests.hapi.server import Hapi, new_home, of_home, said, there

SEEDS = int(os.environ.get("HAPI_SEEDS", "3"))
KILLS = (*["importer"] * 8, "server", "both")
"""Whom each kill of a seed hits: a server takes a minute to come back."""
ROWS = {"payments": 9_000, "tasks": 3_000}
TYPES = {"payments": "PaymentNotice", "tasks": "Task"}
COLUMNS = {
    "payments": "payment_id,patient_id,amount,paid_on",
    "tasks": "task_id,patient_id,description,status,requester_id",
}
CELLS = {"payments": "{key},{patient},1.00,2026-03-01", "tasks": "{key},{patient},call {key},requested,dr-01"}
MOST_IMPORTS = 5
INTENDED = 50_000
"""By how many bytes the journal grows with the intents of a round of bundles, at least."""
pytestmark = pytest.mark.long


def exports(home: Path, source: str) -> Path:
    """An inbox with payments and tasks of a source of their own, for the samples' patients."""
    inbox, feeds = home / "inbox", home / "feeds"
    inbox.mkdir()
    feeds.mkdir()
    for kind, rows in ROWS.items():
        names = COLUMNS[kind].split(",")
        feed = f'kind = "{kind}"\nsource = "{source}"\nfiles = ["{kind}*"]\ntimezone = "UTC"\n[columns]\n'
        (feeds / f"{kind}-killed.toml").write_text(feed + "".join(f'{name} = "{name}"\n' for name in names))
        lines = (CELLS[kind].format(key=f"k{n}", patient=f"p{n % 200 + 1:03}") for n in range(rows))
        (inbox / f"{kind}.csv").write_text("\n".join([COLUMNS[kind], *lines]) + "\n")
    return inbox


class Killer:
    """Imports that are killed. whom: for each kill, in their order. done: how often each was killed."""

    def __init__(self, home: Path, hapi: Hapi, chance: random.Random) -> None:
        self._home, self._hapi, self._chance = home, hapi, chance
        self.whom = chance.sample(KILLS, len(KILLS))
        self.done: Counter[str] = Counter()

    def kill_all(self) -> None:
        for whom in self.whom:
            self._kill(whom)

    def _kill(self, whom: str) -> None:
        """Begin an import; kill importer or server, or both at once, some time after it has begun to send."""
        words, settings = of_home(self._home, self._hapi.url, "import", self._home / "inbox")
        with subprocess.Popen(words, env=settings, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            self._until_it_sends(process)
            if whom != "importer":
                self._hapi.kill()
                self.done["server"] += 1
            if whom == "server":
                self._hapi.start()
                self._wait(process, self._chance.uniform(0, 3))
            if process.poll() is None:
                process.kill()
                self.done["importer"] += 1
        if whom == "both":
            self._hapi.start()

    def _until_it_sends(self, process: "subprocess.Popen[bytes]") -> None:
        """Wait until the import has intended rows for bundles, and some time more."""
        journal = self._home / "journal.ndjson"
        enough = INTENDED + (journal.stat().st_size if journal.exists() else 0)
        while process.poll() is None and (not journal.exists() or journal.stat().st_size < enough):
            time.sleep(0.02)
        self._wait(process, self._chance.uniform(0, 1.5))

    def _wait(self, process: "subprocess.Popen[bytes]", seconds: float) -> None:
        with suppress(subprocess.TimeoutExpired):
            process.wait(seconds)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_nothing_is_double_lost_or_in_doubt_after_kills_at_random(hapi: Hapi, tmp_path: Path, seed: int) -> None:
    """TARGET-02, TARGET-03, LEDGER-01"""
    home, source = new_home(tmp_path / "home", balances=False), f"killed-{seed}"
    inbox, killer = exports(home, source), Killer(home, hapi, random.Random(seed))
    killer.kill_all()
    totals: Counter[str] = Counter()
    for _ in range(MOST_IMPORTS):
        last = said(home, hapi.url, "import", inbox)
        totals.update({name: number for name, number in last["totals"].items() if isinstance(number, int)})
        if last["exit_code"] == 0:
            break
    print(f"seed {seed}: {dict(killer.done)}, then {dict(totals)}")
    assert (last["exit_code"], last["totals"].get("in_doubt", 0)) == (0, 0)
    for kind, rows in ROWS.items():
        keys = Counter(key for key, _ in there(hapi.url, source, TYPES[kind]))
        assert keys == Counter(f"k{n}" for n in range(rows))
    assert {each["kind"] for each in said(home, hapi.url, "verify")["differences"]} <= {"unknown"}
