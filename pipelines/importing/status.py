"""The content of `chartferry status`: batches, counts, parts under way; for one batch its runs, rejects, doubts."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pipelines.home.batch import printable_name as as_shown
from pipelines.importing.parts_under_way import parts_lines, parts_under_way
from pipelines.ledger.batch_counts import as_of_now
from pipelines.ledger.doubts import undecided
from pipelines.ledger.ledger import Ledger
from pipelines.ledger.manifests import newest_manifest
from pipelines.ledger.reasons import open_reasons
from pipelines.ledger.rejects import open_by_batch, open_here, open_in_batch
from pipelines.ledger.standing import next_step, undo_left_by_batch, undone_by_batch
from pipelines.ledger.states import NOT_LOADED, OUTCOMES, ROW_STATES
from pipelines.runs.lines import IN_DOUBT_NEXT, aligned, dollars, first_of, undo_left
from pipelines.session.ledger import ledger_of

COUNTED = ("records", "accepted", "rejected", *OUTCOMES)
SHOWN = (*COUNTED, "taken_back", "open_rejects")
SHOWN_ROWS = 50


def batch_status(home: Path, environ: Mapping[str, str], batch_id: str | None) -> dict[str, Any] | None:
    """Return the batches, or one of them; None if there is no such batch or no ledger yet.

    received: files that have a batch folder, but no run in the ledger: no run began, or the ledger lost it.
    """
    with ledger_of(home, environ) as ledger:
        if ledger is None:
            return None
        batches = [as_of_now(ledger, row) for row in ledger.batches() if batch_id in (None, row["batch_id"])]
        begun = undo_left_by_batch(ledger) if batches else {}
        for row in batches:
            row["undo_left"] = begun.get((row["target"], row["batch_id"]), 0)
        received = [each for each in _received(ledger, home) if batch_id in (None, each["batch_id"])]
        under_way = sorted({row["target"] for row in batches if row["state"] == "running"})
        parts = [part for target in under_way for part in parts_under_way(ledger, target)]
        if batch_id is None:
            left, gone = open_by_batch(ledger), undone_by_batch(ledger)
            names = [(row["target"], row["batch_id"]) for row in batches]
            return {
                "batches": [
                    {**row, "open_rejects": left.get(name, 0), "taken_back": gone.get(name, 0)}
                    for row, name in zip(batches, names, strict=True)
                ],
                "received": received,
                "parts": parts,
            }
        if not (batches or received):
            return None
        for row in batches:
            row["now"] = _now(ledger, row)
            row["decisions"] = ledger.decisions(row["target"], row["batch_id"])
            row["runs"] = ledger.runs(row["target"], row["batch_id"])
            if row["runs"] and row["state"] in NOT_LOADED:
                here = open_here(ledger, row["target"], batch_id)
                row["next_step"] = next_step(batch_id, row["state"], row["runs"][-1]["state"], here)
            unsettled = undecided(ledger, row["target"], row["batch_id"])
            row["rejects"] = list(_rejects(ledger, row["target"], row["batch_id"]))
            row["open_rejects"] = len(row["rejects"])
            row["taken_back"] = undone_by_batch(ledger, batch_id)[row["target"], row["batch_id"]]
            row["unsettled"] = [{"line": r.line, "state": r.state, "attempts": r.attempts} for r in unsettled]
        return {
            "batches": batches,
            "received": received,
            "parts": parts,
            "manifest": newest_manifest(ledger.batches_in(home), batch_id),
        }


def _received(ledger: Ledger, home: Path) -> Iterable[dict[str, Any]]:
    for each in ledger.batches_in(home).without({row["batch_id"] for row in ledger.batches()}):
        at = ledger.time_here(each.received_at)
        yield {"batch_id": each.batch_id, "file_name": each.file_name, "received_at": at}


def _now(ledger: Ledger, batch: dict[str, Any]) -> dict[str, int]:
    """Return the number of rows of an unfinished batch by state, at this moment."""
    if batch["state"] != "running":
        return {}
    return {state: rows for state, (rows, _) in ledger.row_counts(batch["target"], batch["batch_id"]).items()}


def _rejects(ledger: Ledger, target: str, batch_id: str) -> Iterable[dict[str, Any]]:
    """Yield the open rejects of a batch, each with the rules that it broke last, or `TAKEN-BACK`."""
    found = open_in_batch(ledger, target, batch_id)
    reasons = open_reasons(ledger, target, batch_id) if found else {}
    for reject in found:
        shown = {name: reject._mapping[name] for name in ("reject_id", "line", "stage", "state", "attempts")}
        why = reasons.get(reject.reject_id, ())
        yield shown | {"rules": [each.rule_id for each in why], "columns": [each.column_name for each in why]}


def status_lines(found: dict[str, Any]) -> Iterable[str]:
    """Yield the status as lines for people."""
    batches = found["batches"]
    targets = {row["target"] for row in batches}
    for target in sorted(targets):
        yield f"target: {target}"
        rows = [row for row in batches if row["target"] == target]
        shown = [name for name in SHOWN if any(row[name] for row in rows)]
        cells = [[_file(row), row["batch_id"], row["state"], *_cells(row, shown)] for row in rows]
        heads = ["file", "batch", "state", *(name.replace("_", " ") for name in shown), "created $"]
        yield from aligned([heads, *cells], texts=3)
        for row in rows:
            yield from _one(row)
        if parts := [each for each in found["parts"] if each["target"] == target]:
            yield from parts_lines(parts)
    for row in found["received"]:
        name = f"{_file(row)} ({row['batch_id']})"
        yield f"received, but the ledger has no run of it: {name}; chartferry import continues with it"
    if not (batches or found["received"]):
        yield "no batches yet"
    if found.get("manifest"):
        yield "manifest:"
        yield from json.dumps(found["manifest"], indent=1).splitlines()


def _file(row: dict[str, Any]) -> str:
    return as_shown(row["file_name"]) if row["file_name"] else "-"


def _cells(row: dict[str, Any], shown: list[str]) -> list[str]:
    return [f"{row[name]:,}" for name in shown] + [dollars(row["amount_created"])]


def _one(row: dict[str, Any]) -> Iterable[str]:
    runs = row.get("runs", ())
    for run in runs:
        yield f"run {run['run']}: {run['state']}, {_times(run)}: {_counted(run, COUNTED) or 'no records'}"
        if run["message"]:
            yield f"  {run['message']}"
    if step := row.get("next_step"):
        yield f"not loaded: {step}"
    if left := row["undo_left"]:
        yield undo_left(row["batch_id"], left)
    if row.get("now"):
        yield f"rows at this moment: {_counted(row['now'], ROW_STATES)}"
    if rejects := row.get("rejects", ()):
        others = "rejects: chartferry rejects export has them all"
        yield from first_of(map(_reject, rejects), SHOWN_ROWS, len(rejects), others)
        yield "what to do about a rule: chartferry rules ID; the rows to correct: chartferry rejects export"
    if unsettled := row.get("unsettled", ()):
        others = "such rows: chartferry status BATCH --json has them all"
        yield from first_of(map(_unsettled, unsettled), SHOWN_ROWS, len(unsettled), others)
        if any(each["state"] == "in_doubt" for each in unsettled):
            yield f"in doubt: {IN_DOUBT_NEXT}"
    for each in row.get("decisions", ()):
        why = f": {each['why']}" if each["why"] else ""
        yield f"decision: {each['at']}, {each['user']}: {each['command']} {each['subject']}{why}"


def _times(run: Mapping[str, Any]) -> str:
    if run["finished_at"]:
        return f"{run['started_at']} to {run['finished_at']}"
    if run["state"] != "running":
        return f"since {run['started_at']}, no end recorded"
    return f"since {run['started_at']}, not ended: it is running, or was stopped; the next import continues with it"


def _counted(counts: Mapping[str, Any], names: Iterable[str]) -> str:
    return ", ".join(f"{counts[name]:,} {name.replace('_', ' ')}" for name in names if counts.get(name))


def _unsettled(row: Mapping[str, Any]) -> str:
    return f"line {row['line']}: {row['state'].replace('_', ' ')}, attempts {row['attempts']}"


def _reject(reject: Mapping[str, Any]) -> str:
    said = f"reject {reject['reject_id']}: line {reject['line']}, {reject['state']}, attempts {reject['attempts']}"
    why = (
        f"{rule} in {column}" if column else rule
        for rule, column in zip(reject["rules"], reject["columns"], strict=True)
    )
    return f"{said}: {', '.join(dict.fromkeys(why))}"
