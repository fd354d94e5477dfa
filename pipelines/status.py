"""What `chartferry status` shows: batches and their counts from the ledger; of one its runs, rejects, doubts."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pipelines.ledger_rejects import open_by_batch, open_in_batch
from pipelines.ledger_tables import OUTCOMES
from pipelines.session import has_ledger, open_ledger
from pipelines.summary import aligned, dollars

COUNTED = ("records", "accepted", "rejected", *OUTCOMES)
SHOWN = (*COUNTED, "open_rejects")


def batch_status(home: Path, environ: Mapping[str, str], batch_id: str | None) -> dict[str, Any] | None:
    """The batches, or one of them; None when there is no such batch or no ledger yet."""
    if not has_ledger(home, environ):
        return None
    ledger = open_ledger(home, environ)
    try:
        batches = [row for row in ledger.batches() if batch_id in (None, row["batch_id"])]
        if batch_id is None:
            left = open_by_batch(ledger)
            return {
                "batches": [{**row, "open_rejects": left.get((row["target"], row["batch_id"]), 0)} for row in batches]
            }
        if not batches:
            return None
        for row in batches:
            row["runs"] = ledger.runs(row["target"], row["batch_id"])
            unsettled = ledger.unsettled(row["target"], row["batch_id"])
            row["rejects"] = open_in_batch(ledger, row["target"], row["batch_id"])
            row["open_rejects"] = len(row["rejects"])
            row["unsettled"] = [{"line": r.line, "state": r.state, "attempts": r.attempts} for r in unsettled]
        return {"batches": batches, "manifest": _manifest(home / "batches" / str(batch_id))}
    finally:
        ledger.close()


def _manifest(folder: Path) -> dict[str, Any] | None:
    """The manifest of the newest run."""
    found = sorted(folder.glob("run-*/manifest.json"), key=lambda path: path.stat().st_mtime)
    return dict(json.loads(found[-1].read_bytes())) if found else None


def status_lines(found: dict[str, Any]) -> Iterable[str]:
    """The same for people."""
    batches = found["batches"]
    targets = {row["target"] for row in batches}
    for target in sorted(targets):
        yield f"target: {target}"
        rows = [row for row in batches if row["target"] == target]
        shown = [name for name in SHOWN if any(row[name] for row in rows)]
        cells = [[row["batch_id"], row["state"], *_cells(row, shown)] for row in rows]
        yield from aligned([["batch", "state", *(name.replace("_", " ") for name in shown), "created $"], *cells])
        for row in rows:
            yield from _one(row)
    if not batches:
        yield "no batches yet"
    if found.get("manifest"):
        yield "manifest:"
        yield from json.dumps(found["manifest"], indent=1).splitlines()


def _cells(row: dict[str, Any], shown: list[str]) -> list[str]:
    return [f"{row[name]:,}" for name in shown] + [dollars(row["amount_created"])]


def _one(row: dict[str, Any]) -> Iterable[str]:
    for run in row.get("runs", ()):
        counts = ", ".join(f"{run[name]:,} {name.replace('_', ' ')}" for name in COUNTED if run[name])
        times = f"{run['started_at']} to {run['finished_at'] or 'now'}"
        yield f"run {run['run']}: {run['state']}, {times}: {counts or 'no records'}"
        if run["message"]:
            yield f"  {run['message']}"
    for reject in row.get("rejects", ()):
        said = f"reject {reject['reject_id']}: line {reject['line']}, {reject['state']}, attempts {reject['attempts']}"
        yield f"{said}: {', '.join(dict.fromkeys(reject['rules']))}"
    for unsettled in row.get("unsettled", ()):
        yield f"line {unsettled['line']}: {unsettled['state'].replace('_', ' ')}, attempts {unsettled['attempts']}"
