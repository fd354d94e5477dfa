"""The fault table: what goes wrong between importer and service, at every moment of every operation.

LEDGER-01 and EXTRA-05 are proved by each cell, LEDGER-05 and LEDGER-06 by what is looked up, LEDGER-08 by the updates.
"""

from contextlib import ExitStack
from itertools import product

import pytest

from tests.faults import runs
from tests.faults.proxy import MOMENTS, OPERATIONS
from tests.faults.runs import BARE, CELLS, NO_CELLS, TWICE, WITH_ADDITIONS, Cell, place

RUNS_A_CELL = 5
SOME_FROM = len(CELLS) * (1 + RUNS_A_CELL)
"""Numbers of runs: one in each cell, five more in each, then one in some cells. Each number has rows of its own."""
LARGEST = SOME_FROM + len(CELLS)
OF_CELLS = [each for each in product((WITH_ADDITIONS, BARE), OPERATIONS) if each not in NO_CELLS]
TURNS = [[each for each in OF_CELLS if each[1] == operation] for operation in OPERATIONS]
FEW = [of[turn % len(of)] for turn, of in enumerate(TURNS)]
"""Each operation, at one target or the other in turn."""
READS = ("token", "look-up")
"""Operations that write nothing."""
TARGETS = {operation: target for target, operation in FEW}
WRITES = {
    "after send": "create",
    "after commit": "batch",
    "after the answer, before the ledger": "batch",
    "held past the time-out": "create",
    "delivered twice": "update",
}
SOME = [
    Cell(TARGETS[operation], operation, moment)
    for moment, operation in (WRITES | {"before send": "token", "in the middle of the answer": "look-up"}).items()
]
"""Each moment at one operation: at a write, where it could double or lose one."""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Does one run of a cell, by its number; a service for each kind of target, for all of them."""
    runs.CHILDREN.set_forkserver_preload([runs.__name__])
    folder = tmp_path_factory.mktemp("faults")
    with ExitStack() as stack:
        places = {bare: stack.enter_context(place(folder / str(bare), bare, LARGEST)) for bare in (False, True)}
        yield lambda cell, number: places[cell.bare](cell, number)


def agree(run, operation, runs_a_cell, first, among=CELLS):
    """Run each cell of `(target, operation)` that is among these; an error names its cell and number."""
    cells = [cell for cell in among if cell[:2] == operation]
    assert cells
    for cell in cells:
        for number in range(runs_a_cell):
            outcome = run(cell, first + CELLS.index(cell) * runs_a_cell + number)
            assert outcome.wrong == [], (cell, outcome.number)
            assert not outcome.doubled or cell == Cell(BARE, "create", TWICE)


def test_the_table_has_every_cell_that_can_be():
    """LEDGER-01"""
    assert len(CELLS) == len(MOMENTS) * len(OF_CELLS) == 56


def test_each_operation_and_each_moment_occurs_among_some_cells():
    """LEDGER-01"""
    assert set(SOME) <= set(CELLS)
    assert {cell.operation for cell in SOME} == set(OPERATIONS)
    assert {cell.moment for cell in SOME} == set(MOMENTS)
    assert {cell.target for cell in SOME} == {WITH_ADDITIONS, BARE}


@pytest.mark.parametrize(
    "operation",
    [pytest.param(each, marks=pytest.mark.long if each[1] in READS else (), id=", ".join(each)) for each in FEW],
)
def test_store_ledger_and_source_agree_after_a_fault_at_some_moment(run, operation):
    """LEDGER-01, LEDGER-05, LEDGER-06, LEDGER-08, EXTRA-05: to the row and the cent."""
    agree(run, operation, 1, SOME_FROM, among=SOME)


@pytest.mark.long
@pytest.mark.parametrize("operation", OF_CELLS, ids=", ".join)
def test_store_ledger_and_source_agree_after_a_fault_at_any_moment(run, operation):
    """LEDGER-01, LEDGER-05, LEDGER-06, LEDGER-08, EXTRA-05: to the row and the cent."""
    agree(run, operation, 1, 0)


@pytest.mark.long
@pytest.mark.parametrize("operation", OF_CELLS, ids=", ".join)
def test_store_ledger_and_source_agree_after_faults_with_other_rows_and_seeds(run, operation):
    """LEDGER-01, LEDGER-05, LEDGER-06, LEDGER-08, EXTRA-05: five runs in each cell."""
    agree(run, operation, RUNS_A_CELL, first=len(CELLS))
