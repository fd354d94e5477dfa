"""Commands in any order, by seed: chart and ledger agree, to the row and the cent, and no record is there twice."""

import random

import pytest

from tests.support.any_order import Sequence

pytestmark = pytest.mark.long

STEPS = 8


@pytest.mark.parametrize("seed", range(4))
def test_chart_and_ledger_agree_after_any_sequence_of_commands(seed, additions, home, target, asked, chartferry):
    """LEDGER-02, LEDGER-08, CLI-CMD-17"""
    sequence = Sequence(home, target, asked, chartferry, random.Random(seed))
    sequence.new()
    for _ in range(STEPS):
        sequence.step()
        sequence.agrees()
