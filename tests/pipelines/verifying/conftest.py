"""A batch at the target, to be verified."""

import pytest

from tests.support.exports import payments


@pytest.fixture
def batch(additions, home, asked):
    """Three payments of two patients, two of them alike, at the target: the batch's name."""
    payments(home, ("k1", "p1", "1.00"), ("k2", "p1", "1.00"), ("k3", "p2", "2.50"))
    return asked("import")["batches"][0]["batch_id"]
