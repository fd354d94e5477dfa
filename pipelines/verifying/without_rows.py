"""What a lost ledger gets back without its rows: they are purged, or their feed rejects them by now.

Runs have left on record which resource each made, so that a later file that brings them does not make them again.
"""

from collections import Counter
from collections.abc import Collection
from itertools import groupby
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import duckdb

from pipelines.behind import ledger_is_behind
from pipelines.ledger.lease import Lease, utc_text
from pipelines.ledger.rows import Intent, KnownRecord, Outcome, Repeat
from pipelines.ledger.tables import COUNTS
from pipelines.loading.verdicts import SURELY_NOT_THERE
from pipelines.on_record import manifest_in
from pipelines.pipeline import ENDED
from pipelines.session import Session, came, received_before
from pipelines.verifying.compare import CONTENT
from pipelines.verifying.staging import ROWS


class OnRecord(NamedTuple):
    """A record as it is on record last. content: the beginning of its hash. since: when it was sent, as UTC text."""

    source: str
    batch_id: str
    key: str
    generation: int
    line: int
    content: str
    feed_hash: str
    state: str
    resource_id: str | None
    patient_id: str | None
    cents: int | None
    http_status: int | None
    since: str | None


ON_RECORD = """
SELECT source, batch_id, key, generation, line, content, feed_hash,
  CASE WHEN withdrawn THEN 'undone' ELSE 'adopted' END, resource_id, patient_id, cents, http_status,
  nullif(noted_at, '')
FROM told_of_{kind}
UNION ALL
SELECT source, batch_id, key, generation, line, content, feed_hash, state, NULL, NULL, NULL, http_status, asked_at
FROM last_of_{kind} ANTI JOIN told_of_{kind} USING (source, key) WHERE state = 'in_doubt' AND asked_at IS NOT NULL
ORDER BY source, batch_id, line, key"""
"""The records that the target has, and those in doubt."""
FORMER = """
SELECT source, batch_id, line, key, last(resource_id ORDER BY place) FILTER (resource_id IS NOT NULL) FROM told
WHERE resource_type = $kind AND batch_id IN (SELECT unnest($batches)) AND state <> 'in_doubt'
GROUP BY ALL ORDER BY source, batch_id, line"""
"""What rows made, or that they were refused; of those that are records now the ledger notes nothing more."""


# -- batches


def purged_and_lost(session: Session) -> dict[str, str]:
    """Batches without their rows of which the ledger lacks runs, each with the type of its resources, by name."""
    found = {}
    for folder in sorted((session.home / "batches").iterdir()):
        runs = [] if received_before(folder) else _runs(session, folder)
        if runs and ledger_is_behind(session.home, session.ledger, session.target, folder.name):
            found[folder.name] = str(runs[-1]["resource"])
    return found


def restore_batch(session: Session, batch_id: str) -> None:
    """Writes a batch and its runs down as their manifests have them."""
    ledger, target, folder = session.ledger, session.target, session.home / "batches" / batch_id
    runs = _runs(session, folder)
    first = next((run for run in runs if run.get("state") == "finished"), runs[-1])
    ledger.start_batch(
        target,
        batch_id,
        feed=_text(first, "feed") or batch_id.rpartition("-")[0],
        source=first["source"],
        resource_type=first["resource"],
        file_name=_text(first, "file"),
        file_sha256=_text(first, "file_sha256"),
        received_at=utc_text(came(folder)) if (folder / "sha256").exists() else runs[0]["started_at"],
    )
    known = {run["started_at"]: run for run in ledger.runs(target, batch_id)}
    for run in runs:
        _restore_run(session, batch_id, run, known.get(run["started_at"]))
    ledger.finish_batch(target, batch_id, _state(first), _counts(first), _text(first, "ended_at"))


def _restore_run(session: Session, batch_id: str, run: dict[str, Any], known: dict[str, Any] | None) -> None:
    """known: what the ledger has of the run, of which it may not have the end."""
    if known and known["finished_at"]:
        return
    about = {name: _text(run, name) for name in ("started_at", "feed_hash", "rules_version", "software_version")}
    number = known["run"] if known else session.ledger.start_run(session.target, batch_id, **about)
    said, ended_at = _text(run, "message"), _text(run, "ended_at")
    of_run = (session.target, batch_id, number)
    session.ledger.finish_run(*of_run, state=_state(run), counts=_counts(run), message=said, finished_at=ended_at)


def _runs(session: Session, folder: Path) -> list[dict[str, Any]]:
    """The manifests of a batch's runs at this target, the first one first."""
    found = (manifest_in(run) for run in folder.glob("run-*"))
    ours = (run for run in found if run and run["target"] == session.target and run.get("resource") in CONTENT)
    return sorted((run for run in ours if isinstance(run.get("source"), str)), key=lambda run: run["started_at"])


def _text(run: dict[str, Any], name: str) -> str | None:
    said = run.get(name)
    return said if isinstance(said, str) else None


def _state(run: dict[str, Any]) -> str:
    """That of its end; what had none goes on no more, without its rows."""
    return run["state"] if run.get("state") in ENDED else "failed"


def _counts(run: dict[str, Any]) -> dict[str, int]:
    said = run.get("counts")
    return {name: said[name] for name in COUNTS if isinstance(said.get(name), int)} if isinstance(said, dict) else {}


# -- records


def restore_records(
    db: duckdb.DuckDBPyConnection, session: Session, lease: Lease, kind: str, batches: Collection[str]
) -> dict[str, int]:
    """Writes the records of a type down that rows of these batches have left and not brought back; by batch, how many.

    What the ledger knows better stays as it is.
    """
    restored = Counter[str]()
    found = db.cursor().execute(ON_RECORD.format(kind=kind))
    while some := [OnRecord._make(row) for row in found.fetchmany(ROWS)]:
        for source, of_source in groupby(some, attrgetter("source")):
            records = [record for record in of_source if record.batch_id in batches]
            known = session.ledger.known(session.target, source, kind, [record.key for record in records])
            new = [record for record in records if record.key not in known]
            again = [record for record in records if record.key in known and _is_behind(known[record.key], record)]
            with session.ledger.writing(lease):
                session.ledger.intend(lease, source, kind, map(_intent, new))
                session.ledger.intend_again(lease, source, kind, map(_intent, again))
                session.ledger.settle(session.target, source, kind, map(_outcome, [*new, *again]))
            restored.update(record.batch_id for record in [*new, *again])
    return dict(restored)


def note_former(db: duckdb.DuckDBPyConnection, session: Session, kind: str, batches: Collection[str]) -> None:
    """Notes what came of the other rows of these batches, as of when their files came: their records are other rows' by
    now, and such a file, put in once more, brings nothing back.
    """
    came = {row["batch_id"]: row["received_at"] for row in session.ledger.batches(session.target)}
    found = db.cursor().execute(FORMER, {"kind": kind, "batches": list(batches)})
    while some := found.fetchmany(ROWS):
        for (source, batch_id), rows in groupby(some, itemgetter(0, 1)):
            repeats = [Repeat(line, key, "adopted" if made else "refused", made) for *_, line, key, made in rows]
            session.ledger.note_repeats(session.target, source, kind, batch_id, repeats, came[batch_id])


def _is_behind(known: KnownRecord, told: OnRecord) -> bool:
    """Whether the ledger takes a record for one that is surely not there."""
    return known.state in SURELY_NOT_THERE and known.generation == told.generation


def _intent(told: OnRecord) -> Intent:
    about = (told.content, told.feed_hash, told.patient_id, None, told.cents, told.since)
    return Intent(told.key, told.generation, told.batch_id, told.line, *about)


def _outcome(told: OnRecord) -> Outcome:
    return Outcome(told.key, told.generation, told.state, told.resource_id, told.http_status)
