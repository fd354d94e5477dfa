"""What runs have left on record of their rows, as tables: which resource each made, and when it was first tried."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import duckdb

from pipelines.loading.outcomes import CHANGE_REFUSED, outcomes_in
from pipelines.on_record import run_of
from pipelines.session import Session
from pipelines.verifying.staging import Filling

WITHDRAWN = "coalesce(there.status IN ('entered-in-error', 'cancelled'), false)"
ATTEMPTS = "source resource_type key since content_hash"
OF_RUN = "source resource_type batch_id feed_hash"
OF_ROW = "key content line generation state resource_id http_status asked_at"
TOLD = f"{OF_RUN} {OF_ROW} noted_at place news"


@dataclass(frozen=True)
class _Run:
    """A run of this target, with what of it the ledger does not know (`news`: 1, else 0)."""

    source: str
    resource_type: str
    feed_hash: str
    began: str
    folder: Path
    news: int


def stage_runs(db: duckdb.DuckDBPyConnection, session: Session) -> None:
    """Tables `attempted`: by source, type and key, when a run first took the row, and with how many contents it came.
    `told`: what runs have left on record of their rows, `place` giving the order of what is told of one record.
    """
    Filling(db, "attempt", ATTEMPTS)
    with Filling(db, "told", TOLD) as told:
        for run in sorted(_runs(session), key=lambda run: run.began):
            of = (run.source, run.resource_type, run.folder.parent.name, run.feed_hash)
            for place, each in enumerate(outcomes_in(run.folder)):
                told.add((*of, *each, place, run.news))
            with suppress(duckdb.Error):  # cut short by a full disk, or gone: the rows have no known beginning then
                _stage_attempts(db, run)
    # Generations rise whatever clocks say.
    order = "SELECT * REPLACE (row_number() OVER (ORDER BY generation, noted_at, place) AS place) FROM told"
    db.execute(f"CREATE OR REPLACE TABLE told AS {order}")
    db.execute(
        "CREATE OR REPLACE TABLE attempted AS"
        " SELECT source, resource_type, key, min(since) AS since, count(DISTINCT content_hash) AS contents"
        " FROM attempt GROUP BY ALL"
    )


def _stage_attempts(db: duckdb.DuckDBPyConnection, run: _Run) -> None:
    attempts = "INSERT INTO attempt SELECT $source, $kind, key, $since, content_hash FROM read_parquet($path)"
    path = str(run.folder / "accepted.parquet")
    db.execute(attempts, {"source": run.source, "kind": run.resource_type, "since": run.began, "path": path})


def _runs(session: Session) -> Iterator[_Run]:
    """Runs of this target whose folders tell what they were."""
    for batch in (session.home / "batches").iterdir() if (session.home / "batches").is_dir() else ():
        ended = {run["started_at"] for run in session.ledger.runs(session.target, batch.name) if run["finished_at"]}
        for folder in batch.glob("run-*"):
            if run := run_of(folder, session.target):
                news = int(run["started_at"] not in ended)
                yield _Run(run["source"], run["resource"], run["feed_hash"], run["started_at"], folder, news)


def stage_told_of(db: duckdb.DuckDBPyConnection, kind: str) -> None:
    """Table `told_of_<kind>`: what is on record last of each record whose resource is among `there`, each of them once.
    `last_of_<kind>`: what is on record last of each, whether it is there or not.
    """
    last = "row_number() OVER (PARTITION BY {} ORDER BY place DESC) = 1"
    of_record, of_resource = last.format("source, key"), last.format("resource_id")
    there = (
        f"SELECT told.*, {WITHDRAWN} AS withdrawn, there.patient_id, there.cents, there.made"
        f" FROM told JOIN there ON there.id = told.resource_id WHERE told.resource_type = $kind QUALIFY {of_record}"
    )
    records = f"FROM told WHERE resource_type = $kind AND state <> '{CHANGE_REFUSED}'"
    db.execute(f"CREATE TABLE last_of_{kind} AS {records} QUALIFY {of_record}", {"kind": kind})
    db.execute(f"CREATE TABLE told_of_{kind} AS FROM ({there}) QUALIFY {of_resource}", {"kind": kind})
