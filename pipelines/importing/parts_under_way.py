"""The parts of loads by several processes, for `status`: done, under way or waiting, with their processes."""

from collections.abc import Iterable, Sequence
from typing import Any

from pipelines.home.counted import counted
from pipelines.ledger.lease import seen_of_late
from pipelines.ledger.ledger import Ledger
from pipelines.ledger.parts import BEGINNINGS, PartState, states
from pipelines.loading.part_outcome import PartLoaded, ends_all
from pipelines.runs.lines import aligned

HEAD = ["part", "state", "rows so far", "begun", "process"]


def parts_under_way(ledger: Ledger, target: str) -> list[dict[str, Any]]:
    """Return the parts of a target's load; none unless several processes are loading now."""
    is_under_way = seen_of_late(ledger.read, ledger.clock(), target)
    return [_shown(target, part) for part in states(ledger, target)] if is_under_way else []


def _shown(target: str, part: PartState) -> dict[str, Any]:
    rows = sum(PartLoaded.of(part).loaded.counts.values())
    shown = {"target": target, "part": part.number + 1, "state": _state(part), "rows": rows}
    holder = part.holder if part.held and part.outcome is None else None
    by = {"host": holder.host, "pid": holder.pid, "since": holder.taken_at} if holder else {}
    return shown | {"attempts": part.attempts} | by


def _state(part: PartState) -> str:
    if part.outcome is not None:
        return "cut short" if ends_all(part.outcome) else "done"
    if part.held:
        return "loading"
    return "waiting" if part.attempts < BEGINNINGS else "given up"


def parts_lines(parts: Sequence[dict[str, Any]]) -> Iterable[str]:
    """Yield the parts of one target as lines for people."""
    done, rows = sum(each["state"] == "done" for each in parts), sum(each["rows"] for each in parts)
    so_far = f"{done} of {len(parts)} parts done, {counted(rows, 'row')}"
    yield f"several processes are loading into this target: {so_far}"
    yield from aligned([HEAD, *([*_cells(each)] for each in parts)])


def _cells(part: dict[str, Any]) -> Iterable[str]:
    yield from (str(part["part"]), part["state"], f"{part['rows']:,}", _times(part["attempts"]))
    yield f"{part['pid']} on {part['host']} since {part['since']}" if "pid" in part else ""


def _times(attempts: int) -> str:
    return {0: "", 1: "once", 2: "twice"}.get(attempts, f"{attempts} times")
