"""Find records of files that were not loaded and that nothing has answered.

A stopped or failed file is done with once each of its records is answered: the ledger has its content, or has its key
from a later file, or its reject is closed or discarded. Another file of its name answers nothing. If no run read a
file to its end, its records are not known, and the file counts until its rows are purged.

A file that comes again, and is not loaded again, needs answers anew: files that came in between no longer answer it. A
run that reads the present copy, such as `import --remap`, changes nothing of this. A file that was loaded is as old as
it was when it first came.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from sqlalchemy import func, select

from fhir_service.paths import matching
from pipelines.home.batch_files import ACCEPTED, MANIFESTS
from pipelines.home.spill import batches, is_whole
from pipelines.ledger import tables as t
from pipelines.ledger.access import KEYS_A_QUERY, LedgerAccess
from pipelines.ledger.home_batches import HomeBatches
from pipelines.ledger.manifests import is_of_another, number_of
from pipelines.ledger.row_fates import OPEN
from pipelines.ledger.states import NOT_LOADED, in_sql

OUTCOMES_A_QUERY = 20_000
"""The number of outcomes, or of rejects, held in memory at once."""
MOST_CHANGED = 500_000
"""The number of changed records held in memory at once, in 85 MB. For more, later files' outcomes are read again."""
STREAM = "(SELECT stream_id FROM stream WHERE target = ? AND source = ? AND resource_type = ?)"
IS_LATER = "(batch.received_at >= ? OR batch.batch_id = ?)"
"""True for later files, and for the file itself, since an earlier run may have sent rows of it."""
RECORDS = f"""
SELECT key, content_hash, {IS_LATER} FROM record JOIN batch USING (batch_no)
WHERE stream_id = {STREAM} AND key IN ({{keys}})"""
REJECTS = f"""
SELECT source_key FROM reject JOIN batch ON batch.target = reject.target AND batch.batch_id = reject.batch_id
WHERE reject.target = ? AND reject.source = ? AND reject.resource_type = ? AND {IS_LATER}
  AND source_key IN ({{keys}})"""
LATER = f"SELECT batch_no FROM batch WHERE target = ? AND {IS_LATER} ORDER BY received_at"
OUTCOMES = f"""
SELECT line, key FROM version WHERE batch_no = ? AND line > ? AND is_outcome = 1 AND stream_id = {STREAM}
ORDER BY line LIMIT ?"""
OWN_REJECTS = f"""
SELECT reject_id, line, state IN ({in_sql(OPEN)}) FROM reject
WHERE target = ? AND batch_id = ? AND reject_id > ? ORDER BY reject_id LIMIT ?"""
"""Ordered by the index of rejects, since there is none by batch."""


def unanswered(ledger: LedgerAccess, kept: HomeBatches, batch: Mapping[str, Any]) -> Iterator[int | None]:
    """Yield the first line of each record of a file that was not loaded and that nothing answers.

    Yield None once if the file's records are not known. Yield nothing for a file that was loaded, is under way, or was
    purged. batch: a row of the ledger's table.
    """
    target, batch_id = str(batch["target"]), str(batch["batch_id"])
    if batch["state"] not in NOT_LOADED or not kept.has_source(batch_id):
        return
    kept.bring([batch_id], ACCEPTED, MANIFESTS)
    reading, later = _newest_reading(kept.folder(batch_id), target), (_came_last(ledger, kept, batch), batch_id)
    if reading is None:
        yield None
        return
    number, changed = 0, dict[str, int]()
    for line, is_open in _own_rejects(ledger, target, batch_id):
        number += 1
        if is_open:
            yield line
    for page in batches(reading, KEYS_A_QUERY, ["line", "key", "content_hash"]):
        number += page.num_rows
        yield from _unknown_of(ledger, batch, later, page, changed)
        if len(changed) >= MOST_CHANGED:
            yield from _unmet(ledger, batch, later, changed)
            changed.clear()
    yield from _unmet(ledger, batch, later, changed)
    if not number:
        yield None


_ANSWERED: dict[tuple[Path, str], tuple[Any, ...]] = {}
"""The files that this process has found to be done with, by folder and target, each with the state of ledger and file.

Dagster's sensors ask every minute, and each answer reads all records of the file.
"""


def is_unanswered(ledger: LedgerAccess, kept: HomeBatches, batch: Mapping[str, Any]) -> bool:
    """True if a file was not loaded and has a record that nothing answers."""
    if batch["state"] not in NOT_LOADED:
        return False
    batch_id = str(batch["batch_id"])
    file = (kept.path / batch_id, str(batch["target"]))
    facts = (*ledger.read(select(t.position)), ledger.value(select(func.max(t.journal.c.number))))
    state = (*facts, batch["state"], kept.copied_at(batch_id))
    if _ANSWERED.get(file) == state:
        return False
    found = any(True for _ in unanswered(ledger, kept, batch))
    if not found:
        _ANSWERED[file] = state
    return found


def _newest_reading(folder: Path, target: str) -> Path | None:
    """Return the accepted records of the newest run that read a file to its end."""
    found = (path for path in matching(folder, ACCEPTED) if is_whole(path) and not is_of_another(path.parent, target))
    return max(found, key=lambda path: (number_of(path.parent), path.stat().st_mtime_ns), default=None)


def _own_rejects(ledger: LedgerAccess, target: str, batch_id: str) -> Iterator[tuple[int, bool]]:
    """Yield the line of each reject of a file, with True if the reject is open."""
    last = ""
    while found := ledger.plain_rows(OWN_REJECTS, (target, batch_id, last, OUTCOMES_A_QUERY)):
        last = found[-1][0]
        yield from ((line, is_open) for _, line, is_open in found)


def _unknown_of(
    ledger: LedgerAccess,
    batch: Mapping[str, Any],
    later: tuple[str, str],
    page: pa.RecordBatch,
    changed: dict[str, int],
) -> list[int]:
    """Return the lines of records whose keys the ledger has from no file.

    later: the parameters of `IS_LATER`. changed: receives, by key, the lines of records that the ledger has from
    earlier files with another content.
    """
    lines, keys, contents = (page.column(name).to_pylist() for name in ("line", "key", "content_hash"))
    left, content_of = dict(zip(keys, lines, strict=True)), dict(zip(keys, contents, strict=True))
    known = list(ledger.rows_of_keys(RECORDS, (*later, *_of(batch)), left))
    for key, content, is_later in known:
        # A lost ledger may have got back only the beginning of a hash.
        if is_later or (content and content_of[key].startswith(content)):
            del left[key]
    for (key,) in ledger.rows_of_keys(REJECTS, (*_of(batch), *later), left):
        left.pop(key, None)
    changed.update({key: left.pop(key) for key, *_ in known if key in left})
    return list(left.values())


def _unmet(
    ledger: LedgerAccess, batch: Mapping[str, Any], later: tuple[str, str], changed: dict[str, int]
) -> list[int]:
    """Return the lines of the changed records that no later file has.

    Outcomes of lines have no index by key, so they are read once for many records.
    """
    files = ledger.plain_rows(LATER, (str(batch["target"]), *later)) if changed else ()
    for (number,) in files:
        last = -1
        while changed and (found := ledger.plain_rows(OUTCOMES, (number, last, *_of(batch), OUTCOMES_A_QUERY))):
            last = found[-1][0]
            for _, key in found:
                changed.pop(key, None)
    return list(changed.values())


def _of(batch: Mapping[str, Any]) -> tuple[str, str, str]:
    return str(batch["target"]), str(batch["source"]), str(batch["resource_type"])


def _came_last(ledger: LedgerAccess, kept: HomeBatches, batch: Mapping[str, Any]) -> str:
    """Return when a file last came. It came again if its copy is newer than the end of a run that did not load it."""
    received, run = str(batch["received_at"]), t.run.c
    here = (run.target == batch["target"], run.batch_id == batch["batch_id"])
    ended = ledger.value(select(func.min(run.finished_at)).where(*here, run.state.in_(NOT_LOADED)))
    copied = kept.copied_at(str(batch["batch_id"])) if ended else None
    if copied is None:
        return received
    # In a home that was moved without the times of its files, the copy is later than all runs.
    begun = ledger.value(select(func.max(run.started_at)).where(*here))
    again = min(ledger.time_here(copied), str(begun))
    return again if again > ended else received
