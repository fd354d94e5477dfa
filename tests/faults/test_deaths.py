"""SIGKILL of the service, of the importer, or of both, in the middle of a load, an update, a supersede and an undo.

LEDGER-01 and EXTRA-05 are proved by each: store, ledger and source agree once both are there again.
"""

import random
from threading import Event

import pytest

from tests.faults import runs
from tests.faults.proxy import DEATHS, Fault, Proxy
from tests.faults.runs import CHANGES, CHILDREN, Cell, Importer, Outcome, Work, disagreements, prepare_change, recover
from tests.faults.service import Mortal
from tests.faults.world import first_exports, write_feeds, write_world

VICTIMS = ("service", "importer", "both")
WORKS = ("load", *CHANGES)
TIMES, RUNS = 4, 150
SURVIVES = 4.0
"""The longest pause (seconds) of an importer that waits for a service to come back."""


@pytest.fixture(scope="module", autouse=True)
def preloaded():
    CHILDREN.set_forkserver_preload([runs.__name__])


@pytest.fixture(scope="module", params=[False, True], ids=["with additions", "bare"])
def mortal(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("service")
    mortal = Mortal(folder, write_world(folder / "world", RUNS), request.param)
    with mortal.target() as target, Proxy(target.url) as proxy:
        yield mortal, target, proxy, request.param


def killed_on_the_way(mortal, home, victim, what, number):
    """One run: a process dies at a request that the run's number chooses, and the import is resumed."""
    service, target, proxy, bare = mortal
    dice = random.Random(f"{victim} {what} {bare} {number}")
    alone = what in CHANGES and (bare or what != "undo")
    operation = "update" if alone else "create" if bare else "batch"
    outcome = Outcome(Cell("", operation, victim), number)
    importer = Importer(home, proxy.url, target.url, target.credentials, longest_pause=SURVIVES)
    write_feeds(home)
    source = first_exports(home, number, dice, TIMES)
    work: Work = Importer.load
    if what in CHANGES:
        proxy.plan([])
        importer.load()
        work = prepare_change(what, home, source, dice)
    child, over = CHILDREN.Process(target=runs.in_child, args=(importer, work)), Event()

    def killed():
        if victim != "service":
            child.kill()
        if victim != "importer":
            service.kill()
            service.start()
        over.set()

    fault = Fault(operation, dice.choice(list(DEATHS)), dice.randint(1, 3), dice)
    proxy.plan([fault], killed=killed)
    child.start()
    child.join()
    assert fault.fired
    assert over.wait(600)
    proxy.plan([])
    recover(importer._replace(settling=0.0, longest_pause=0.05), work, target, source, outcome)
    assert outcome.wrong + disagreements(importer, target, source, set()) == []


@pytest.mark.alike
@pytest.mark.parametrize(
    ("victim", "what"),
    [("service", "load"), pytest.param("both", "load", marks=pytest.mark.long), ("importer", "undo")],
)
def test_store_ledger_and_source_agree_after_a_death(mortal, tmp_path, victim, what):
    """LEDGER-01, LEDGER-05, EXTRA-05"""
    killed_on_the_way(mortal, tmp_path / "home", victim, what, VICTIMS.index(victim))


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("what", WORKS)
@pytest.mark.parametrize("victim", VICTIMS)
def test_store_ledger_and_source_agree_after_a_death_in_every_operation_at_more_moments(
    mortal, tmp_path, victim, what, seed
):
    """LEDGER-01, LEDGER-05, LEDGER-08, EXTRA-05"""
    number = 10 + (VICTIMS.index(victim) * len(WORKS) + WORKS.index(what)) * 10 + seed
    killed_on_the_way(mortal, tmp_path / "home", victim, what, number)
