"""Commands in any order over two homes at one target, by seed: whatever ledgers they have, no record is there twice."""

import json
import random
from collections import defaultdict
from contextlib import contextmanager

import pytest

from pipelines.cli import run
from pipelines.client.identifiers import record_of
from tests.support.any_order import POLICIES, TAKEN_BACK, Sequence

pytestmark = pytest.mark.long

STEPS = 14


@contextmanager
def database(request, shared):
    """The URL of an empty ledger that both homes share; None where each has its own."""
    if not shared:
        yield None
        return
    with request.getfixturevalue("postgres").database() as url:
        yield url


def sequence(home, target, capsys, dice):
    """A home on which commands are run, with a way to run them."""

    def chartferry(*arguments):
        capsys.readouterr()
        code = run(["--home", str(home), *map(str, arguments)])
        return code, *capsys.readouterr()

    def asked(*arguments):
        return json.loads(chartferry(*arguments, "--json")[1])

    for folder in ("inbox", "batches"):
        (home / folder).mkdir(parents=True, exist_ok=True)
    return Sequence(home, target, asked, chartferry, dice)


def living(target):
    """Return by record the resources of all its generations that are in force."""
    found = defaultdict(list)
    for named, (kind, name) in target.identified.items():
        system, _, value = named.partition("|")
        if target.stored[name]["status"] not in TAKEN_BACK:
            found[system, record_of(value)[0]].append(f"{kind}/{name}")
    return found


@pytest.mark.parametrize("shared", [False, True], ids=["a ledger each", "a shared ledger"])
@pytest.mark.parametrize("seed", range(4))
def test_no_record_is_there_twice_after_any_commands_of_two_homes(
    seed, shared, home, target, capsys, monkeypatch, request
):
    """LEDGER-01, LEDGER-15, STATE-HOME-02"""
    # A task that one home has cancelled, another would bring back with its update.
    monkeypatch.setitem(POLICIES, "call", ("update",) if shared else ("reject", "skip"))
    dice = random.Random(f"two {seed}")
    with database(request, shared) as url:
        if url:
            monkeypatch.setenv("CHARTFERRY_LEDGER", url)
        one, other = (sequence(path, target, capsys, dice) for path in (home, home.parent / "other"))
        other.files = one.files
        one.new()
        for _ in range(STEPS):
            dice.choice((one, other)).step()
            assert [named for named in living(target).values() if len(named) > 1] == []
        if shared:
            assert set(one.asked("verify")["counts"]) <= {"changed"}
