"""Importer and server killed in the middle of sending: `make test-hapi`. `HAPI_SEEDS` says how many seeds.

Ten kills a seed, each at a moment on a request's way that is waited for, not slept for. The seed draws their order, and
at which request. At the end each row is there once, and none waits for a person.
"""

import os
import random
import subprocess
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.hapi.server import Hapi, new_home, of_home, said, there
from tests.hapi.watching import ARRIVES, AT_WORK, DONE, HEARD, LOOKED_UP, Moments, watched
from tests.support.exports import feed_file

SEEDS = int(os.environ.get("HAPI_SEEDS", "3"))


class Kill(NamedTuple):
    """A kill at a moment. least, most: bounds of how often the moment comes before."""

    whom: str
    moment: str
    least: int = 1
    most: int = 6


KILLS = (
    Kill("importer", ARRIVES),
    Kill("importer", AT_WORK),
    Kill("importer", AT_WORK),
    Kill("importer", DONE),
    Kill("importer", DONE),
    Kill("importer", HEARD),
    Kill("importer", LOOKED_UP, 1, 1),
    Kill("server", AT_WORK, 4, 6),
    Kill("server", DONE, 4, 6),
    Kill("both", AT_WORK, 4, 6),
)
"""The first three writes of an import are single rows, by which it tries the server's promises; then come bundles."""
ROWS = {"payments": 6_000, "tasks": 1_500}
TYPES = {"payments": "PaymentNotice", "tasks": "Task"}
COLUMNS = {
    "payments": "payment_id,patient_id,amount,paid_on",
    "tasks": "task_id,patient_id,description,status,requester_id",
}
CELLS = {"payments": "{key},{patient},1.00,2026-03-01", "tasks": "{key},{patient},call {key},requested,dr-01"}
MOST_IMPORTS = 5
A_MOMENT = 600
"""Seconds in which a moment comes on the slowest machine."""
pytestmark = pytest.mark.long


def exports(home: Path, source: str) -> Path:
    """An inbox with payments and tasks of a source of their own, for the samples' patients."""
    inbox = home / "inbox"
    inbox.mkdir()
    for kind, rows in ROWS.items():
        says = f'kind = "{kind}"\nsource = "{source}"\nfiles = ["{kind}*"]\ntimezone = "UTC"\n'
        feed_file(home, f"{kind}-killed", says, COLUMNS[kind])
        lines = (CELLS[kind].format(key=f"k{n}", patient=f"p{n % 200 + 1:03}") for n in range(rows))
        (inbox / f"{kind}.csv").write_text("\n".join([COLUMNS[kind], *lines]) + "\n")
    return inbox


def in_order(dice: random.Random) -> list[Kill]:
    """All kills in a random order. Rows are looked up only after a kill that surely left some in doubt."""
    while True:
        drawn = dice.sample(KILLS, len(KILLS))
        before = next((a for a, b in pairwise(drawn) if b.moment == LOOKED_UP), None)
        if before and before.whom != "server" and before.moment in (AT_WORK, DONE):
            return drawn


def import_killed(home: Path, url: str, hapi: Hapi, moments: Moments, kill: Kill, number: int) -> None:
    """Begin an import, and kill as asked once the moment has come so many times. A killed server is restarted at once.

    An import whose server was killed goes on until it sends again, and is killed then.
    """
    words, settings = of_home(home, url, "import", home / "inbox")
    with subprocess.Popen(words, env=settings, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:

        def then() -> None:
            if kill.whom != "importer":
                hapi.kill()
            if kill.whom != "server":
                process.kill()

        moments.expect(kill.moment, number, then)
        reached = wait_for(moments, process)
        if kill.whom != "importer":
            hapi.start()
        if kill.whom == "server":
            moments.expect(AT_WORK, 1, process.kill)
            wait_for(moments, process)
        process.kill()
    assert reached, f"{kill}: not reached"


def wait_for(moments: Moments, process: "subprocess.Popen[bytes]") -> bool:
    """Wait until the moment has come or the import has ended by itself; True if it has come."""
    for _ in range(A_MOMENT * 10):
        if moments.reached.wait(0.1) or process.poll() is not None:
            break
    return moments.reached.wait(1)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_nothing_is_double_lost_or_in_doubt_after_kills(hapi: Hapi, tmp_path: Path, seed: int) -> None:
    """TARGET-02, TARGET-03, LEDGER-01"""
    home, source, dice = new_home(tmp_path / "home", balances=False), f"killed-{seed}", random.Random(seed)
    inbox, moments = exports(home, source), Moments(random.Random(seed))
    with watched(hapi.url, moments) as url:
        for kill in in_order(dice):
            number = dice.randint(kill.least, kill.most)
            print(f"seed {seed}: {kill.whom} at {kill.moment}, {number}", flush=True)
            import_killed(home, url, hapi, moments, kill, number)
        totals: Counter[str] = Counter()
        for _ in range(MOST_IMPORTS):
            last = said(home, url, "import", inbox)
            totals.update({name: number for name, number in last["totals"].items() if isinstance(number, int)})
            if last["exit_code"] == 0:
                break
        print(f"seed {seed}: {len(KILLS)} kills, then {dict(totals)}", flush=True)
        assert (last["exit_code"], last["totals"].get("in_doubt", 0)) == (0, 0)
        for kind, rows in ROWS.items():
            keys = Counter(key for key, _ in there(hapi.url, source, TYPES[kind]))
            assert keys == Counter(f"k{n}" for n in range(rows))
        assert {each["kind"] for each in said(home, url, "verify")["differences"]} <= {"unknown"}
