"""Which resource of a target a row made, for a ledger that has lost that: by identifier, else by content.

A resource is taken once. One that is older than all attempts of a row is not the row's.
"""

from contextlib import suppress
from datetime import datetime
from pathlib import Path

import duckdb

from pipelines.manifest import manifest_in
from pipelines.session import Session
from pipelines.verifying.staging import Filling

ROWS = "n key identifier content dated withdrawn"
WITHDRAWN = "coalesce(there.status IN ('entered-in-error', 'cancelled'), false)"
SLACK = "INTERVAL 5 MINUTE"
"""By how much the target's clock may be behind ours."""
MADE_BY_THE_TARGET = "PaymentNotice"
"""What shows when the target made it, and not what its row said."""

MATCH = f"""
CREATE OR REPLACE TABLE match AS
WITH named AS (
  SELECT row.n, there.id, {WITHDRAWN} AS withdrawn, there.record_generation AS generation,
    there.content = row.content AS same
  FROM there JOIN row ON there.system = row.identifier AND there.record_key = row.key
),
newest AS (
  FROM named QUALIFY row_number() OVER (PARTITION BY n ORDER BY generation DESC) = 1
),
free AS (
  SELECT id, content, timed, {WITHDRAWN} AS withdrawn,
    CASE WHEN $made THEN coalesce(TRY_CAST(made AS TIMESTAMPTZ), 'infinity') ELSE 'infinity' END AS moment
  FROM there WHERE system IS NULL OR system NOT LIKE 'urn:chartferry:%'
),
nameless AS (
  SELECT row.*, coalesce(attempted.since::TIMESTAMPTZ - {SLACK}, '-infinity') AS since,
    coalesce(attempted.contents, 1) AS contents
  FROM row ANTI JOIN named ON named.n = row.n LEFT JOIN attempted ON attempted.source = $source AND $made
    AND attempted.key = row.key
),
by_time AS (
  SELECT a.n, b.id, b.withdrawn FROM (
    SELECT n, dated, row_number() OVER (PARTITION BY dated ORDER BY n) AS place FROM nameless WHERE dated IS NOT NULL
  ) AS a JOIN (
    SELECT id, timed, withdrawn, row_number() OVER (PARTITION BY timed ORDER BY withdrawn, id) AS place FROM free
  ) AS b ON a.dated = b.timed AND a.place = b.place
),
course AS (
  SELECT *, count(id) OVER back AS resources, count(n) OVER back AS place FROM (
    SELECT content, since AS moment, contents, n, NULL AS id, NULL AS withdrawn FROM nameless WHERE dated IS NULL
    UNION ALL
    SELECT content, moment, 0, NULL, id, withdrawn FROM free ANTI JOIN by_time ON by_time.id = free.id
  ) WINDOW back AS (
    PARTITION BY content ORDER BY moment DESC, contents, n, withdrawn, id ROWS UNBOUNDED PRECEDING
  )
),
served AS (
  SELECT content, n, place, place + least(0, min(resources - place) OVER (PARTITION BY content ORDER BY place)) AS taken
  FROM course WHERE n IS NOT NULL
),
by_content AS (
  SELECT a.n, b.id, b.withdrawn FROM (
    SELECT *, lag(taken, 1, 0) OVER (PARTITION BY content ORDER BY place) AS before FROM served
  ) AS a JOIN course AS b ON a.content = b.content AND b.id IS NOT NULL AND a.taken = b.resources
  WHERE a.taken > a.before
),
found AS (
  SELECT n, generation, id, withdrawn FROM newest WHERE same
  UNION ALL SELECT n, 1, id, withdrawn FROM by_time
  UNION ALL SELECT n, 1, id, withdrawn FROM by_content
)
SELECT n, generation, id, CASE WHEN found.withdrawn AND row.withdrawn = 0 THEN 'undone' ELSE 'adopted' END AS state
FROM found JOIN row USING (n) ORDER BY n"""
"""Rows with the resource that each made. A row whose newest generation has other content is left: the next import
meets it, and says so. One without a time of its own was given one by us, which is lost with the ledger.

course: rows and resources of one content, the latest first, a row being as late as its first attempt; `resources` says
how many of them are not older. served: how many of these are taken once each row has had its turn, the latest first.
What was taken back is the last to be taken. Of rows as late as each other, one whose key came with several contents
is the last to take: it may have been set aside or refused for one of them.
"""


def match_rows(db: duckdb.DuckDBPyConnection, source: str, kind: str) -> None:
    """Table `match`, of the tables `row` (as `ROWS` says), `there` and `attempted`."""
    db.execute(MATCH, {"source": source, "made": kind == MADE_BY_THE_TARGET})


def stage_attempts(db: duckdb.DuckDBPyConnection, session: Session) -> None:
    """Table `attempted`: by source and key, when a run first took the row, of what shows when it was made, and with how
    many contents the key came."""
    with Filling(db, "runs", "source since path") as runs:
        for folder in (session.home / "batches").glob("*/run-*"):
            if attempt := _attempt(folder, session.target):
                runs.add(attempt)
    Filling(db, "attempt", "source key since content_hash")
    for source, since, accepted in db.execute("FROM runs").fetchall():
        keys = "INSERT INTO attempt SELECT $source, key, $since, content_hash FROM read_parquet($path)"
        with suppress(duckdb.Error):  # cut short by a full disk, say: the row has no known beginning then
            db.execute(keys, {"source": source, "since": since, "path": accepted})
    db.execute(
        "CREATE OR REPLACE TABLE attempted AS"
        " SELECT source, key, min(since) AS since, count(DISTINCT content_hash) AS contents"
        " FROM attempt GROUP BY source, key"
    )


def _attempt(folder: Path, target: str) -> tuple[str, str, str] | None:
    """Source, beginning and accepted rows of a run; None for one of others, and where its folder does not tell."""
    run, accepted = manifest_in(folder), folder / "accepted.parquet"
    if not run or (run["target"], run.get("resource")) != (target, MADE_BY_THE_TARGET) or not accepted.exists():
        return None
    try:
        datetime.fromisoformat(run["started_at"])
    except ValueError:
        return None
    return (run["source"], run["started_at"], str(accepted)) if isinstance(run.get("source"), str) else None
