"""Which resource of a target a row made, for a ledger that has lost that: as runs have left on record, else by
identifier, else by content.

A resource is taken once. One that is older than all attempts of a row is not the row's.
"""

import duckdb

from pipelines.verifying.told import WITHDRAWN

ROWS = "n key line said identifier content dated withdrawn"
SLACK = "INTERVAL 5 MINUTE"
"""By how much the target's clock may be behind ours."""
MADE_BY_THE_TARGET = "PaymentNotice"
"""What shows when the target made it, and not what its row said."""

MATCH = f"""
CREATE OR REPLACE TABLE match AS
WITH on_record AS (FROM told_here WHERE source = $source),
by_record AS (
  SELECT row.n, on_record.generation, on_record.resource_id AS id, on_record.withdrawn
  FROM row JOIN on_record USING (key)
  WHERE on_record.content = row.said OR (on_record.batch_id = $batch AND on_record.line = row.line)
),
exactly AS (
  SELECT row.n, there.id, {WITHDRAWN} AS withdrawn, there.record_generation AS generation,
    there.content = row.content AS same
  FROM there JOIN row ON there.system = row.identifier AND there.record_key = row.key
),
named AS (
  FROM exactly UNION ALL
  SELECT row.n, there.id, {WITHDRAWN} AS withdrawn, there.record_generation AS generation,
    there.content = row.content AS same
  FROM there JOIN row ON there.system = row.identifier AND there.spelling = row.key
  ANTI JOIN exactly ON exactly.n = row.n
),
newest AS (
  FROM named QUALIFY row_number() OVER (PARTITION BY n ORDER BY generation DESC) = 1
),
free AS (
  SELECT id, content, timed, {WITHDRAWN} AS withdrawn,
    CASE WHEN $made THEN coalesce(TRY_CAST(made AS TIMESTAMPTZ), 'infinity') ELSE 'infinity' END AS moment
  FROM there ANTI JOIN told AS taken ON taken.resource_id = there.id
  WHERE system IS NULL OR system NOT LIKE 'urn:chartferry:%'
),
nameless AS (
  SELECT row.*, coalesce(attempted.since::TIMESTAMPTZ - {SLACK}, '-infinity') AS since,
    coalesce(attempted.contents, 1) AS contents
  FROM row ANTI JOIN named ON named.n = row.n ANTI JOIN on_record ON on_record.key = row.key
  ANTI JOIN last_told AS refused ON refused.source = $source AND refused.key = row.key AND refused.state = 'refused'
    AND (refused.content = row.said OR (refused.batch_id = $batch AND refused.line = row.line))
  LEFT JOIN attempted ON attempted.source = $source AND attempted.resource_type = $kind AND $made
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
  FROM by_record ANTI JOIN newest ON newest.n = by_record.n AND newest.generation > by_record.generation
  UNION ALL SELECT n, generation, id, withdrawn FROM newest
  ANTI JOIN by_record ON by_record.n = newest.n AND by_record.generation >= newest.generation WHERE same
  UNION ALL SELECT n, 1, id, withdrawn FROM by_time
  UNION ALL SELECT n, 1, id, withdrawn FROM by_content
)
SELECT n, generation, id, CASE WHEN found.withdrawn AND row.withdrawn = 0 THEN 'undone' ELSE 'adopted' END AS state
FROM found JOIN row USING (n) ORDER BY n"""
"""Rows with the resource that each made. A row whose newest generation has other content is left: the next import
meets it, and says so. One without a time of its own was given one by us, which is lost with the ledger.

on_record: what runs have left on record. A row is known there by its key with its content, or with its very line, which
a feed that was changed since reads otherwise.
named: by the key that the resource was sent with, or where none has that, by the key as it is read today.
course: rows and resources of one content, the latest first, a row being as late as its first attempt; `resources` says
how many of them are not older. served: how many of these are taken once each row has had its turn, the latest first.
What was taken back is the last to be taken. Of rows as late as each other, one whose key came with several contents
is the last to take: it may have been set aside or refused for one of them.
"""


def match_rows(db: duckdb.DuckDBPyConnection, source: str, kind: str, batch_id: str) -> None:
    """Table `match`, of the tables `row` (as `ROWS` says), `there`, and what `told.py` stages: `attempted`, `told`, and
    of this kind `told_here` and `last_told`.
    """
    of = {"source": source, "kind": kind, "batch": batch_id}
    db.execute(MATCH, {**of, "made": kind == MADE_BY_THE_TARGET})
