"""An import into a real HAPI server: `make test-hapi`. It needs Java, Maven, PostgreSQL and, once, the network."""

import random
import subprocess
from pathlib import Path

import pytest

from tests.hapi.server import SAMPLES, Hapi, new_home, of_home, said

INBOX = SAMPLES / "inbox"
KILLS = 8
SERVERS_KILLED = 2
pytestmark = pytest.mark.long


def killed(home: Path, hapi: Hapi, seconds: float, server_too: bool) -> None:
    """An import that is killed after some seconds; before that its server too, which comes back."""
    words, settings = of_home(home, hapi.url, "import", INBOX)
    with subprocess.Popen(words, env=settings, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            if server_too:
                hapi.kill()
            process.kill()
            if server_too:
                hapi.start()


def test_the_samples_go_in_once_and_verify_agrees(hapi: Hapi, tmp_path: Path) -> None:
    """TARGET-02, TARGET-04: killed again and again; at the end nothing is missing, double or in doubt."""
    home, url = new_home(tmp_path / "home"), hapi.url
    chance = random.Random(8)
    for number in range(KILLS):
        killed(home, hapi, chance.uniform(2, 9), number < SERVERS_KILLED)
    said(home, url, "import", INBOX)
    last = said(home, url, "import", INBOX)
    assert (last["totals"].get("created", 0), last["totals"].get("in_doubt", 0)) == (0, 0)
    for arguments in (("verify",), ("verify", "--all")):
        found = said(home, url, *arguments)
        assert (found["exit_code"], found["differences"]) == (0, [])
        assert found["ledger_cents"] == found["target_cents"] > 0


def test_another_home_adopts_the_existing_resources_and_can_undo_them(hapi: Hapi, tmp_path: Path) -> None:
    """LEDGER-15: its rows carry the identifiers of these resources. All others are of the first home."""
    home, url = new_home(tmp_path / "home"), hapi.url
    found = said(home, url, "import", INBOX / "tasks-phone.ndjson")
    assert found["totals"].get("created", 0) == 0
    assert found["totals"]["adopted"] > 0
    [batch] = [each["batch_id"] for each in found["batches"]]
    assert said(home, url, "undo", batch)["exit_code"] in (0, 3)
    assert {each["kind"] for each in said(home, url, "verify")["differences"]} <= {"unknown"}
