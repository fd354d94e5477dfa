"""What a lost ledger gets back without its rows: they are purged, or their feed rejects them by now.

Runs have left on record which resource each made, so that a later file that brings them does not make them again.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from itertools import groupby
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import duckdb

from pipelines.behind import ledger_is_behind, number_of
from pipelines.ledger.former import intend_change, raise_generation
from pipelines.ledger.lease import Lease, utc_text
from pipelines.ledger.rows import Intent, KnownRecord, Outcome, Repeat
from pipelines.ledger.tables import COUNTS, LANDED, OUTCOMES
from pipelines.loading.outcomes import CHANGE_REFUSED, short
from pipelines.loading.verdicts import SURELY_NOT_THERE
from pipelines.on_record import manifest_in, run_of
from pipelines.pipeline import ENDED
from pipelines.session import Session, came, received_before
from pipelines.verifying.compare import CONTENT, OWN_TIME
from pipelines.verifying.staging import ROWS, number

UNSURE = ("sending", "in_doubt")
LOOK = "look into the chart before a file brings these rows again"


class OnRecord(NamedTuple):
    """A record as it is on record last. content: the beginning of its hash. since: when it was sent, as UTC text.

    state: what the row came to. undone: whether the target has its resource as one that was taken back. news: 1 where
    the ledger does not know the run.
    """

    source: str
    batch_id: str
    key: str
    generation: int
    line: int
    content: str
    feed_hash: str
    state: str
    undone: bool
    resource_id: str | None
    patient_id: str | None
    source_at: str | None
    cents: int | None
    http_status: int | None
    since: str | None
    news: int

    @property
    def state_now(self) -> str:
        if self.resource_id is None:
            return "in_doubt"
        return "undone" if self.undone else "adopted"


ON_RECORD = """
SELECT source, batch_id, key, generation, line, content, feed_hash, state, withdrawn, resource_id, patient_id,
  CASE WHEN $timed THEN strftime(make_timestamp(epoch_us(TRY_CAST(made AS TIMESTAMPTZ))), '%Y-%m-%dT%H:%M:%S.%fZ') END,
  cents, http_status, nullif(noted_at, ''), news
FROM told_of_{kind} WHERE batch_id IN (SELECT unnest($batches)) {apart}
UNION ALL
SELECT source, batch_id, key, generation, line, content, feed_hash, state, false, NULL, NULL,
  NULL, NULL, http_status, asked_at, news
FROM last_of_{kind} ANTI JOIN told_of_{kind} USING (source, key)
WHERE state = 'in_doubt' AND asked_at IS NOT NULL AND batch_id IN (SELECT unnest($batches)) {apart}
ORDER BY source, batch_id, line, key"""
"""The records that the target has, and those in doubt."""
MADE = "SELECT count(DISTINCT (key, generation)) FROM told WHERE batch_id = $batch AND state = 'created'"
LAST_OF_ROWS = """
SELECT source, batch_id, line, key,
  last(resource_id ORDER BY place) FILTER (resource_id IS NOT NULL) AS resource_id, last(state ORDER BY place) AS state
FROM told WHERE batch_id IN (SELECT unnest($batches)) GROUP BY ALL"""
"""What rows came to last, whatever other rows of their records came to since."""


# -- batches


def purged_and_lost(session: Session) -> dict[str, str]:
    """Batches without their rows of which the ledger lacks runs, or what came of rows, each with the type of its
    resources, by name.
    """
    found = {}
    for folder in _without_rows(session):
        runs = _runs(session, folder)
        of = (session.target, folder.name)
        if runs and (ledger_is_behind(session.home, session.ledger, *of) or session.ledger.unsettled(*of)):
            found[folder.name] = str(runs[-1]["resource"])
    return found


def untold(session: Session) -> dict[str, str]:
    """Such batches of which nothing is told any more, each with what to do."""
    known = {row["batch_id"] for row in session.ledger.batches()}
    return {
        folder.name: f"its rows are purged, and no manifest.json of its runs tells what they sent: {LOOK}"
        for folder in _without_rows(session)
        if folder.name not in known and any(folder.glob("run-*")) and not any(map(manifest_in, folder.glob("run-*")))
    }


def _without_rows(session: Session) -> Iterator[Path]:
    return (each for each in sorted((session.home / "batches").iterdir()) if received_before(each) is None)


def restore_batch(db: duckdb.DuckDBPyConnection, session: Session, batch_id: str) -> str | None:
    """Writes a batch and its runs down as their manifests have them; what is to be said of it where they made more than
    is on record.
    """
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
        received_at=_received_at(folder, runs),
    )
    known = {run["started_at"]: run for run in ledger.runs(target, batch_id)}
    for run in runs:
        _restore_run(session, batch_id, run, known.get(run["started_at"]))
    state = first["state"] if first.get("state") in ENDED else "failed"
    counts = _counts_of(db, batch_id, runs, first)
    ledger.finish_batch(target, batch_id, state, counts, first["ended_at"])
    made, on_record = sum(run["counts"].get("created", 0) for run in runs), number(db, MADE, {"batch": batch_id})
    if lacking := _note_untold(session, batch_id):
        return f"what {lacking} of its runs did is not told any more: {LOOK}"
    return f"of {made:,} rows that it made, {on_record:,} are on record: {LOOK}" if made > on_record else None


def _note_untold(session: Session, batch_id: str) -> int:
    """Counts runs of a batch of which nothing is told any more as known; how many they are."""
    folders = list((session.home / "batches" / batch_id).glob("run-*"))
    lacking = [folder for folder in folders if manifest_in(folder) is None]
    for _ in range(session.ledger.newest_run(batch_id), max(map(number_of, lacking), default=0)):
        run = session.ledger.start_run(session.target, batch_id)
        session.ledger.finish_run(session.target, batch_id, run, state="failed", counts={}, message="not told any more")
    return len(lacking)


def _restore_run(session: Session, batch_id: str, run: dict[str, Any], known: dict[str, Any] | None) -> None:
    """known: what the ledger has of the run, of which it may not have the end."""
    if known and known["finished_at"]:
        return
    about = {name: _text(run, name) for name in ("started_at", "feed_hash", "rules_version", "software_version")}
    run_number = known["run"] if known else session.ledger.start_run(session.target, batch_id, **about)
    ended_at = run["ended_at"]
    session.ledger.finish_run(
        session.target,
        batch_id,
        run_number,
        state=str(run.get("state")) if ended_at else "failed",
        counts=_counts(run),
        message=_text(run, "message"),
        finished_at=ended_at,
    )


def _runs(session: Session, folder: Path) -> list[dict[str, Any]]:
    """The manifests of a batch's runs at this target, the first one first."""
    found = (run_of(run, session.target) for run in folder.glob("run-*"))
    ours = (run for run in found if run and run["resource"] in CONTENT)
    return sorted(ours, key=lambda run: run["started_at"])


def _received_at(folder: Path, runs: list[dict[str, Any]]) -> str:
    return utc_text(came(folder)) if (folder / "sha256").exists() else str(runs[0]["started_at"])


def _text(run: dict[str, Any], name: str) -> str | None:
    said = run.get(name)
    return said if isinstance(said, str) else None


def _counts(run: dict[str, Any]) -> dict[str, int]:
    return {name: said for name, said in run["counts"].items() if name in COUNTS}


def _counts_of(
    db: duckdb.DuckDBPyConnection, batch_id: str, runs: list[dict[str, Any]], first: dict[str, Any]
) -> dict[str, int]:
    """The counts of a batch: what is on record of its rows, and the rest as its first run to the end counted it."""
    states = f"SELECT state, count(*) FROM ({LAST_OF_ROWS}) GROUP BY state"
    told = Counter(dict(db.execute(states, {"batches": [batch_id]}).fetchall()))
    told["refused"] += told.pop(CHANGE_REFUSED, 0)
    told["adopted"] += told.pop("undone", 0)
    counts = dict.fromkeys(COUNTS, 0) | _counts(first)
    left = max(counts["accepted"] - told.total(), 0)
    skipped = min(counts["skipped"], left)
    outcomes = {name: told[name] for name in OUTCOMES} | {"skipped": skipped, "unchanged": left - skipped}
    accepted = sum(outcomes.values())
    created = sum(_counts(run).get("amount_created", 0) for run in runs)
    rest = {"accepted": accepted, "rejected": max(counts["records"] - accepted, 0), "amount_created": created}
    return counts | outcomes | rest


# -- records


def restore_records(
    db: duckdb.DuckDBPyConnection,
    session: Session,
    lease: Lease,
    kind: str,
    batches: Collection[str],
    apart_from: Path | None = None,
) -> dict[str, int]:
    """Writes the records of a type down that rows of these batches have left; by batch, how many.

    What the ledger knows better stays as it is. apart_from: a file of rows that tell of themselves.
    """
    restored = Counter[str]()
    given: dict[str, Any] = {"batches": list(batches), "timed": kind in OWN_TIME}
    if apart_from:
        given["path"] = str(apart_from)
    apart = "AND key NOT IN (SELECT key FROM read_parquet($path))" if apart_from else ""
    found = db.cursor().execute(ON_RECORD.format(kind=kind, apart=apart), given)
    while some := [OnRecord._make(row) for row in found.fetchmany(ROWS)]:
        for source, of_source in groupby(some, attrgetter("source")):
            records = list(of_source)
            known = session.ledger.known(session.target, source, kind, [each.key for each in records])
            lost = [each for each in records if each.key not in known or _is_behind(known[each.key], each)]
            with session.ledger.writing(lease):
                session.ledger.intend(lease, source, kind, [_intent(each) for each in lost if each.key not in known])
                states = [_caught_up(session, lease, kind, each, known.get(each.key)) for each in lost]
                session.ledger.settle(session.target, source, kind, map(_outcome, lost, states))
            restored.update(each.batch_id for each in lost)
    return dict(restored)


def _is_behind(known: KnownRecord, told: OnRecord) -> bool:
    """Whether what is told came after what the ledger knows."""
    if told.resource_id is None or told.generation < known.generation:
        return False
    if known.state in UNSURE and told.generation == known.generation:
        return True
    if not told.news:
        return False
    if told.generation > known.generation or known.state in SURELY_NOT_THERE:
        return True
    return known.state in LANDED and known.state != "undone" and short(known.content_hash) != told.content


def _caught_up(session: Session, lease: Lease, kind: str, told: OnRecord, known: KnownRecord | None) -> str:
    """Intends what is told of a known record, so that it can be settled; gives the state that it has then."""
    ledger, intent, now = session.ledger, _intent(told), told.state_now
    if known is None:
        return now
    is_other = short(known.content_hash) != told.content
    if known.state in LANDED or (known.state in UNSURE and is_other and told.generation == known.generation):
        intend_change(ledger, lease, told.source, kind, [(known.generation, intent)])
        changed = "updated" if told.generation == known.generation else "superseded"
        return changed if now == "adopted" else now
    for generation in range(known.generation, told.generation):
        raise_generation(ledger, lease, [(told.source, kind, told.key, generation)], None)
    if told.generation > known.generation or known.state not in UNSURE:
        ledger.intend_again(lease, told.source, kind, [intent])
    return now


def _intent(told: OnRecord) -> Intent:
    about = (told.content, told.feed_hash, told.patient_id, told.source_at, told.cents, told.since)
    return Intent(told.key, told.generation, told.batch_id, told.line, *about)


def _outcome(told: OnRecord, state: str) -> Outcome:
    return Outcome(told.key, told.generation, state, told.resource_id, told.http_status)


def note_others(db: duckdb.DuckDBPyConnection, session: Session, purged: Mapping[str, str]) -> None:
    """Notes what came of the other rows of these batches, as of when their files came: their records are other rows' by
    now, and such a file, put in once more, brings nothing back.
    """
    query = f"SELECT * EXCLUDE (state) FROM ({LAST_OF_ROWS}) WHERE state <> 'in_doubt' ORDER BY source, batch_id, line"
    found = db.cursor().execute(query, {"batches": list(purged)})
    while some := found.fetchmany(ROWS):
        for (source, name), rows in groupby(some, itemgetter(0, 1)):
            at = _received_at(session.home / "batches" / name, _runs(session, session.home / "batches" / name))
            repeats = [Repeat(line, key, "adopted" if made else "refused", made) for *_, line, key, made in rows]
            session.ledger.note_repeats(session.target, source, purged[name], name, repeats, at)
