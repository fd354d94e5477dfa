"""Three hosts import exports of each kind: at each step one is killed, and one is cut off and brought back."""

import random
from collections import Counter
from pathlib import Path

import pytest

from tests.faults.agreeing import out_of_order
from tests.faults.many_exports import make_exports
from tests.faults.several_hosts import CUT, KILL
from tests.faults.sharing import run
from tests.support.halting import STEPS
from tests.support.hosts import CAN, LACKING
from tests.support.postgres import Postgres

pytest.importorskip("obstore", reason="the extra `cluster` is not installed")
ROWS = {"payments": 6_000, "tasks": 6_000, "answers": 1_500}
FILES = {"payments": 4, "tasks": 4, "answers": 3}
PATIENTS, SILENCE = 50, 8.0


@pytest.mark.long
@pytest.mark.skipif(not CAN, reason=LACKING)
def test_source_ledger_and_store_agree_and_each_lane_kept_its_order(postgres: Postgres, tmp_path: Path) -> None:
    """SCALE-01, SCALE-02, SCALE-03, LEDGER-01"""
    exports = make_exports(ROWS, FILES, PATIENTS, random.Random(20))
    figures, told = run(tmp_path, postgres, exports, PATIENTS, times=1, silence=SILENCE)
    assert figures.wrong == []
    assert figures.faults == Counter((what, step) for what in (KILL, CUT) for step in STEPS)
    assert told["target_cents"] == exports.cents


def test_records_that_overtook_others_of_their_file_and_lane_are_counted() -> None:
    """The comparison itself: ids rise with time; what is in another file, or another lane, may come at any time."""
    lanes = {f"{file}:{number}": f"p{number % 2}" for file in "ab" for number in range(4)}
    in_order = {key: f"{place}" for place, key in enumerate(["b:0", "b:1", "b:2", "b:3", "a:1", "a:3", "a:0", "a:2"])}
    assert out_of_order(lanes, in_order) == 0
    assert out_of_order(lanes, in_order | {"a:2": "0", "b:3": "00"}) == 2
