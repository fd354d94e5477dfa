"""The lanes that unfinished rows of other batches hold, in every state that a ledger can have."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.ledger.ledger import Ledger
from pipelines.ledger.rows import KnownRecord, Outcome, Reject, Repeat
from pipelines.ledger.states import ROW_STATES
from pipelines.loading.held_lanes import HeldLanes
from pipelines.loading.load_counts import BatchRun
from pipelines.loading.row import AcceptedRow
from tests.support.ledgers import TARGET, intent

pytestmark = pytest.mark.parametrize("address", ["sqlite"], indirect=True)

ELSEWHERE = "elsewhere"
CAME = {"z": "2026-03-01", "b": "2026-03-02", "m": "2026-03-02", "y": "2026-03-02", "a": "2026-03-03"}
"""The days on which batches came, by how their names begin: `m` is loaded."""
EARLIER = "zb"
LINES = {
    "waits": ("none", "rejected"),
    "ended": ("none", "rejected"),
    "repeated": ("none", "repeated"),
    "rows": ("none", "rejected", "repeated", *ROW_STATES),
}
"""The outcome of each row of a batch, by what the ledger has of it: a run that ended, other lines' records, rows."""


class Other(NamedTuple):
    came: str
    has: str
    target: str = TARGET
    kind: str = "PaymentNotice"
    state: str = "running"

    @property
    def name(self) -> str:
        return "-".join(self)

    def lines(self) -> list[tuple[int, str]]:
        return [*enumerate(LINES[self.has], 2)]


OWN = Other("m", "rows", state="finished")
OTHERS = [
    *(Other(came, has) for came in "zbya" for has in LINES),
    *(Other(came, "rows", target=ELSEWHERE) for came in "zbya"),
    *(Other(came, "rows", kind="Task") for came in "zbya"),
    *(Other(came, "rows", state="finished") for came in "zbya"),
]
OF_ANOTHER = Other("z", "rows")


def held_by(ledger: Ledger, folder: Path, others: list[Other], safe: bool) -> HeldLanes:
    """Return the lanes of a loaded batch that others hold."""
    with ledger.lease(TARGET) as here, ledger.lease(ELSEWHERE) as there, ledger.transaction():
        for other in (OWN, *others):
            note(ledger, here if other.target == TARGET else there, other)
            accept(folder / other.name / "run-1", other)
            ledger.start_batch(ELSEWHERE, other.name)  # of the same file, which has one row there
            ledger.intend(there, "also", other.kind, [intent(other.name, 2, other.name)])
            ledger.settle(ELSEWHERE, "also", other.kind, [Outcome(other.name, 1, "created")])
    feed: Any = SimpleNamespace(resource="PaymentNotice")
    return HeldLanes(BatchRun(TARGET, OWN.name, feed, folder / OWN.name / "run-1", resuming=False), ledger, safe)


def note(ledger: Ledger, lease: Any, other: Other) -> None:
    of, name = (other.target, "default", other.kind), other.name
    ledger.start_batch(other.target, name, source="default", resource_type=other.kind, received_at=CAME[other.came])
    for line, outcome in other.lines():
        key = f"{name}:{line}"
        if outcome == "rejected":
            ledger.reject(*of, name, [Reject(line, 1, key, "load", None, None, None, [])])
        elif outcome == "repeated":
            ledger.note_repeats(*of, name, [Repeat(line, key, "unchanged")])
        elif outcome != "none":
            ledger.intend(lease, *of[1:], [intent(key, line, name)])
            ledger.settle(*of, [Outcome(key, 1, outcome)])
    if other.has == "ended":
        run, _ = ledger.start_run(other.target, name), ledger.start_run(other.target, name)
        ledger.finish_run(other.target, name, run, state="running", counts={}, message=None)
    ledger.finish_batch(other.target, name, other.state)


def accept(folder: Path, other: Other) -> None:
    """Accept rows, each in a lane of its own, except for one lane that the batches share."""
    lanes = {line: f"{other.name}:{line}" for line, _ in other.lines()} | (
        {99: "shared"} if other.has == "ended" else {}
    )
    folder.mkdir(parents=True)
    pq.write_table(pa.table({"line": [*lanes], "lane": [*lanes.values()]}), folder / "accepted.parquet")


def holds(other: Other, outcome: str, safe: bool) -> bool:
    if other[2:] != (TARGET, "PaymentNotice", "running"):
        return False
    if outcome in ("sending", "in_doubt"):
        return other.came in EARLIER or not safe
    return other.came in EARLIER and other.has != "waits" and outcome in ("none", "planned")


@pytest.mark.parametrize("safe", [True, False])
def test_a_row_of_another_batch_holds_its_lane_until_it_is_decided(ledger: Ledger, tmp_path: Path, safe: bool) -> None:
    """LEDGER-05: a lane that several hold is named after the oldest."""
    held = held_by(ledger, tmp_path, OTHERS, safe)
    rows = [(other, line, outcome) for other in OTHERS for line, outcome in other.lines()]
    holding = {f"{other.name}:{line}": other.name for other, line, outcome in rows if holds(other, outcome, safe)}
    assert held.lanes == holding | {"shared": Other("z", "ended").name}


@pytest.mark.parametrize(
    ("state", "batch", "line", "content", "waits"),
    [
        (None, None, None, None, True),
        ("created", OWN.name, 2, "h1", True),
        ("in_doubt", OWN.name, 2, "h2", False),
        ("sending", OWN.name, 3, "h2", True),
        ("sending", OF_ANOTHER.name, 2, "h1", False),
        ("in_doubt", OF_ANOTHER.name, 2, "h2", True),
    ],
)
def test_a_row_in_doubt_is_settled_in_a_lane_that_is_held(
    ledger: Ledger, tmp_path: Path, state: Any, batch: Any, line: Any, content: Any, waits: bool
) -> None:
    """LEDGER-05: also where another batch has it with the content that is in doubt."""
    held = held_by(ledger, tmp_path, [OF_ANOTHER], safe=True)
    row = AcceptedRow(2, 1, "k", next(iter(held.lanes)), "h1", "p1", None, 1050, "{}", "")
    record = KnownRecord("k", 1, batch, line, content, "f1", state, *[None] * 6) if state else None
    assert held.holder(row, record) == (OF_ANOTHER.name if waits else None)
    assert held.holder(row._replace(lane="free"), record) is None
