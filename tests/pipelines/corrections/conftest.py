"""A row in doubt, for tests of decisions on it and beside it."""

import pytest

from tests.support.commands import totals_close
from tests.support.exports import payments


@pytest.fixture
def doubt(home, target, asked):
    """Make a payment in doubt that never arrived at the target, and one that waits behind it. Return the batch."""
    target.additions = False
    target.faults = ["lost_before"]
    payments(home, ("k1", "p1", "1.00"), ("k2", "p1", "2.00"))
    found = asked("import")
    totals_close(found)
    assert (found["exit_code"], found["totals"]["in_doubt"], found["totals"]["waiting"]) == (5, 1, 1)
    return found["batches"][0]["batch_id"]
