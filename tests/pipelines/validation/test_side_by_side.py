"""Chunks in several processes: what validate writes is the same, byte for byte, and no process is left behind."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.feeds.reading import chunks as reading
from pipelines.validation import grouping, side_by_side
from pipelines.validation.side_by_side import HelperProcess, SideBySide, processes_for
from tests.support.crossing import every_second
from tests.support.golden import CASES, GOLDEN, validated
from tests.support.helped import make, os_gone

FILES = ("accepted.parquet", "rejects.parquet", "skipped.parquet")


class Kept(SideBySide):
    """A helper that stays from one file to the next, and handles every chunk."""

    def __exit__(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def kept() -> Iterator[SideBySide]:
    with SideBySide(2) as work:
        kept = Kept(1)
        kept._helpers = work._helpers
        yield kept


@pytest.fixture
def all_helped(monkeypatch: pytest.MonkeyPatch) -> None:
    """A helper is waited for."""

    def free(helper: HelperProcess) -> bool:
        assert helper._prepared
        helper._prepared.result()
        return True

    monkeypatch.setattr(HelperProcess, "free", property(free))


@pytest.mark.parametrize("case", every_second(CASES))
def test_two_processes_write_what_one_writes_byte_for_byte(
    case: str, tmp_path: Path, kept: SideBySide, all_helped: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FEED-FILE-09: chunks of a few rows, each mapped and checked by the helper, against chunks that are done here."""
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    monkeypatch.setattr(grouping, "BATCH_SIZE", 1)
    monkeypatch.setattr(reading, "CHUNK", 3)
    here = validated(GOLDEN / case / "input", tmp_path / "one")
    done_here: list[object] = []
    monkeypatch.setattr(side_by_side, "_done", lambda _, chunk: done_here.append(chunk))
    monkeypatch.setattr(side_by_side, "SideBySide", lambda _: kept)
    helped = validated(GOLDEN / case / "input", tmp_path / "two")
    assert not done_here
    for name in FILES:
        assert (helped.folder / name).read_bytes() == (here.folder / name).read_bytes(), name
    places = pq.read_table(helped.folder / "accepted.parquet")["position"].to_pylist()
    assert places == list(range(len(places)))
    helped.folder = here.folder
    assert helped == here


def test_a_chunk_never_cuts_a_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """LEDGER-13: the rows of a response stay together, however small the chunks and long the record."""
    batches = [[1, 1, 2], [2, 2], [2, 3], [4], [4, 4], [5]]
    parts = (pa.record_batch({"first_line": pa.array(batch, pa.int64())}) for batch in batches)
    whole = [part.column(0).to_pylist() for part in grouping._whole_records(parts)]
    assert whole == [[1, 1], [2, 2, 2, 2], [3], [4, 4, 4], [5]]


# -- the processes


@pytest.mark.long
def test_results_come_in_the_order_of_the_chunks(all_helped: None) -> None:
    with SideBySide(3) as work:
        assert list(work.over(make, range(40))) == [2 * number for number in range(40)]
        assert list(work.over(make, ())) == []


def test_a_helper_that_is_not_ready_is_not_waited_for() -> None:
    with SideBySide(2) as work:
        assert list(work.over(make, range(40))) == [2 * number for number in range(40)]


def test_this_process_does_the_work_that_a_broken_helper_leaves(
    all_helped: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HELPED", "1")
    with SideBySide(3) as work:
        monkeypatch.delenv("HELPED")
        assert list(work.over(partial(make, os_gone), range(40))) == [2 * number for number in range(40)]


def test_an_exception_is_the_one_that_this_process_raises(all_helped: None) -> None:
    with SideBySide(2) as work, pytest.raises(TypeError, match="unsupported operand"):
        list(work.over(make, [1, 2, None]))  # type: ignore[arg-type]


def test_helpers_are_for_large_files_and_no_more_than_there_are_cores() -> None:
    assert processes_for(1000) == 1
    assert 1 <= processes_for(1 << 30) <= min(4, os.cpu_count() or 1)


PARENT = """
import sys, time
from pipelines.validation.side_by_side import SideBySide
with SideBySide(2) as work:
    print(work._helpers[0]._process.pid, flush=True)
    time.sleep(600)
"""


@pytest.mark.long
def test_a_killed_parent_leaves_no_helper() -> None:
    """SIGKILL: nothing of ours runs then, and the helper ends because its input does."""
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True)
    assert parent.stdout
    helper = int(parent.stdout.readline())
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    end = time.monotonic() + 120
    while alive(helper) and time.monotonic() < end:
        time.sleep(0.05)
    assert not alive(helper)


def alive(pid: int) -> bool:
    """True if a process runs. A zombie does not."""
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout
    return bool(state.strip()) and not state.startswith("Z")
