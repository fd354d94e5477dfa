"""An import into a real HAPI server: `make test-hapi`. It needs Java, Maven, PostgreSQL and, once, the network."""

import json
import os
import random
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.hapi.server import SAMPLES, chartferry, missing, new_home, of_home, scratch, serving

INBOX = SAMPLES / "inbox"
KILLS = 8
WHY = "a real HAPI server is started by make test-hapi alone" if not os.environ.get("WITH_HAPI") else missing()
pytestmark = [pytest.mark.long, pytest.mark.skipif(WHY is not None, reason=WHY or "")]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with scratch() as folder, serving(folder) as address:
        yield address


def said(home: Path, url: str, *arguments: object) -> dict[str, Any]:
    """What a command says as JSON."""
    done = chartferry(home, url, *arguments, "--json")
    assert done.stdout, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_the_samples_go_in_once_and_verify_agrees(url: str, tmp_path: Path) -> None:
    """TARGET-02, TARGET-04: killed again and again; at the end nothing is missing, double or in doubt."""
    home = new_home(tmp_path / "home")
    chance = random.Random(8)
    for _ in range(KILLS):
        words, settings = of_home(home, url, "import", INBOX)
        with subprocess.Popen(words, env=settings, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            try:
                process.wait(chance.uniform(3, 15))
            except subprocess.TimeoutExpired:
                process.kill()
    said(home, url, "import", INBOX)
    last = said(home, url, "import", INBOX)
    assert (last["totals"].get("created", 0), last["totals"].get("in_doubt", 0)) == (0, 0)
    for arguments in (("verify",), ("verify", "--all")):
        found = said(home, url, *arguments)
        assert (found["exit_code"], found["differences"]) == (0, [])
        assert found["ledger_cents"] == found["target_cents"] > 0


def test_another_home_finds_what_is_there_and_undo_takes_it_back(url: str, tmp_path: Path) -> None:
    """LEDGER-15: its rows carry the identifiers that are there, so that they are adopted."""
    home = new_home(tmp_path / "home")
    found = said(home, url, "import", INBOX / "tasks-phone.ndjson")
    assert found["totals"].get("created", 0) == 0
    assert found["totals"]["adopted"] > 0
    [batch] = [each["batch_id"] for each in found["batches"]]
    assert said(home, url, "undo", batch)["exit_code"] in (0, 3)
    assert said(home, url, "verify")["differences"] == []
