"""Three-way totals: the records in the exports, the records at the target by the ledger, and those at the target.

Each record of the exports gets one fate. The three sides are counted from three sources: the batches' files, the
ledger's records, the target's resources.
"""

from typing import Any

import duckdb

from pipelines.evidence.files import rows_of
from pipelines.ledger.states import MADE, UNDECIDED, in_sql
from pipelines.session.session import Session

THERE = "there"
FATES = {
    THERE: "at the target, with exactly this content",
    "replaced": "an earlier version, which a later one has replaced",
    "taken back": "was at the target, and was taken back, even if a row of it is an open reject now",
    "set aside": "a reject that is open",
    "corrected": "a row whose correction was imported; the correction counts as a record of its own",
    "discarded": "a reject that a person discarded",
    "kept": "never sent: by its feed, the earlier content of the record stayed",
    "under way": "not sent yet, or its outcome is not known",
    "not sent": "left unsent by a file that was stopped or failed",
    "unaccounted": "nothing says what its outcome is",
}
"""Each fate of a record of an export, in words. `unaccounted` is never right."""


_LEDGER = {
    "reject": "reject_id batch_id line state stage source_at first_seen_at closed_by_batch amount_cents",
    "resubmission": "reject_id batch_id line",
}
_OWN_ID = "substr(sha256(concat_ws('|', $target, batch_id, line, coalesce(key, ''))), 1, 16)"
"""The id of a reject, computed as in `rows.reject_id`."""

_FATE = f"""
CREATE OR REPLACE TABLE record AS
WITH version AS (
    SELECT exported.*, {_OWN_ID} AS own_id, feed, source, kind, state AS batch_state, file_name, received_at
    FROM exported JOIN in_scope USING (batch_id)
),
rejected AS (
    SELECT reject_id, state, source_at FROM said_reject
),
again AS (
    SELECT batch_id, line, min(reject_id) AS reject_id FROM said_resubmission GROUP BY ALL
),
met AS (
    SELECT version.*, now.batch_id = version.batch_id AND now.line = version.line AS is_its_line,
        now.state AS now_state, now.resource_id, now.patient_id AS now_patient_id,
        now.source_at::TIMESTAMPTZ AS now_source_at, now.amount_cents AS now_cents,
        coalesce(own.reject_id, answered.reject_id) AS reject_id, coalesce(own.state, answered.state) AS reject_state,
        coalesce(own.source_at, answered.source_at)::TIMESTAMPTZ AS reject_at,
        NOT is_reject AND coalesce(version.content_hash IS NULL
            OR now.content_hash = version.content_hash, false) AS is_now
    FROM version
    LEFT JOIN all_ours AS now
        ON now.source = version.source AND now.resource_type = version.kind AND now.key = version.key
    LEFT JOIN rejected AS own ON own.reject_id = own_id
    LEFT JOIN again ON again.batch_id = version.batch_id AND again.line = version.line
    LEFT JOIN rejected AS answered ON answered.reject_id = again.reject_id
),
fated AS (
    SELECT met.* EXCLUDE (source_at), coalesce(source_at, reject_at) AS source_at, CASE
        WHEN is_now AND now_state IN ({in_sql(MADE)}) THEN 'there'
        WHEN is_now AND now_state IN ({in_sql(UNDECIDED)}) THEN 'under way'
        WHEN is_now AND now_state = 'undone' THEN 'taken back'
        WHEN former.key IS NOT NULL AND NOT is_reject AND now_state = 'undone' THEN 'taken back'
        WHEN former.key IS NOT NULL AND NOT is_reject THEN 'replaced'
        WHEN reject_state IN ('open', 'resubmitted') THEN 'set aside'
        WHEN reject_state = 'closed' THEN 'corrected'
        WHEN reject_state = 'discarded' THEN 'discarded'
        WHEN batch_state IN ('stopped', 'failed') THEN 'not sent'
        WHEN batch_state = 'running' THEN 'under way'
        WHEN now_state IN ({in_sql((*MADE, "undone"))}) AND NOT is_reject THEN 'kept'
        ELSE 'unaccounted' END AS fate
    FROM met
    LEFT JOIN (SELECT DISTINCT source, resource_type, key, content_hash FROM all_former) AS former
        ON former.source = met.source AND former.resource_type = met.kind AND former.key = met.key
        AND former.content_hash = met.content_hash
),
of_line AS (
    SELECT * FROM fated
    QUALIFY row_number() OVER (
        PARTITION BY batch_id, line, key ORDER BY fate = 'there' DESC, is_reject, run DESC) = 1
),
told AS (
    SELECT * EXCLUDE (latest)
        REPLACE (CASE WHEN fate IN ('set aside', 'discarded') AND batch_id <> latest THEN 'corrected' ELSE fate END
            AS fate)
    FROM (SELECT *, arg_max(batch_id, received_at) OVER (PARTITION BY reject_id, fate) AS latest FROM of_line)
),
counted AS (
    SELECT *, row_number() OVER (
        PARTITION BY batch_id, is_reject, key, content_hash, patient_id, amount_cents ORDER BY line) AS nth
    FROM told
)
SELECT * EXCLUDE (own_id, is_now, batch_state, reject_at, nth), source_at::DATE AS day FROM counted
QUALIFY row_number() OVER (
    PARTITION BY source, kind, is_reject, coalesce(key, concat(batch_id, ' ', line)), content_hash, patient_id,
        amount_cents, nth
    ORDER BY fate = 'there' DESC, fate = 'set aside' DESC, fate = 'corrected', is_its_line DESC NULLS LAST,
        received_at DESC, batch_id, line
) = 1"""
"""Every version of a record in the exports, with its fate.

A version is identified by key and content. A rejected row counts once, however many files repeat it. Two rows of one
file count as two. Several files may have rows that answer one reject. The rows of the last of these files decide if the
reject is open, even if an equal row of an earlier file came again since.
"""

_SIDES = {
    "export": ("record.day", "record.patient_id", "record.amount_cents", "true"),
    "expected": ("record.day", "record.patient_id", "record.amount_cents", "fate = 'there'"),
    "ledger": ("now_source_at::DATE", "now_patient_id", "now_cents", "fate = 'there'"),
    "target": ("now_source_at::DATE", "found.patient_id", "found.cents", "fate = 'there' AND found.is_there"),
}
"""Day, patient, cents and condition of each side. expected: the records of the export that should be at the target."""
_STILL_THERE = f"""
    SELECT arg_max(in_scope.feed, former.generation) AS feed,
        arg_max(former.source_at, former.generation)::TIMESTAMPTZ::DATE AS day, found.patient_id, found.cents
    FROM all_former AS former
    JOIN in_scope USING (batch_id)
    JOIN found ON found.kind = former.resource_type AND found.id = former.resource_id
    ANTI JOIN (FROM all_ours WHERE state IN ({in_sql(MADE)})) AS ours
        ON ours.resource_type = former.resource_type AND ours.resource_id = former.resource_id
    WHERE former.fate <> 'kept' AND coalesce(found.status, '') NOT IN ('entered-in-error', 'cancelled')
    GROUP BY found.kind, found.id, found.patient_id, found.cents"""
"""Resources that the target has, though they were taken back or replaced: `not taken back` in `verify`."""
_FOUND = """(SELECT kind, id AS resource_id, patient_id, cents, true AS is_there FROM found
    WHERE coalesce(status, '') <> 'entered-in-error')"""


def stage_records(db: duckdb.DuckDBPyConnection, session: Session) -> None:
    """Make the table `record`: each record of the exports with its fate, beside the tables of a comparison."""
    here = {"target": session.target}
    with session.ledger.snapshot() as snapshot:
        for name, columns in _LEDGER.items():
            snapshot.stage(db, f"said_{name}", name, ["target", *columns.split()], "WHERE target = $target", here)
    db.execute(_FATE, here)


def totals(db: duckdb.DuckDBPyConnection, by: str) -> list[dict[str, Any]]:
    """Return the three sides of each feed, or of each feed and day. by: `feed`, or `feed, day`."""
    groups: dict[tuple[Any, ...], dict[str, Any]] = {}
    for side, (day, patient, cents, condition) in _SIDES.items():
        more = f" UNION ALL {_STILL_THERE}" if side == "target" else ""
        query = f"""SELECT {by}, count(*), count(DISTINCT patient_id), coalesce(sum(cents), 0)::HUGEINT FROM (
            SELECT feed, {day} AS day, {patient} AS patient_id, {cents} AS cents
            FROM record LEFT JOIN {_FOUND} AS found USING (kind, resource_id) WHERE {condition}{more}) GROUP BY {by}"""
        for *group, records, patients, amount in db.execute(query).fetchall():
            made = groups.setdefault(tuple(group), _nothing())
            made[side] = {"records": records, "patients": patients, "cents": amount}
    for *group, fate, records, amount in db.execute(
        f"SELECT {by}, fate, count(*), coalesce(sum(amount_cents), 0)::HUGEINT FROM record WHERE fate <> 'there'"
        " GROUP BY ALL"
    ).fetchall():
        groups.setdefault(tuple(group), _nothing())["apart"][fate] = {"records": records, "cents": amount}
    names = [name.strip() for name in by.split(",")]
    ordered = sorted(groups.items(), key=lambda each: tuple((v is not None, str(v)) for v in each[0]))
    return [
        {n: str(v) if v is not None else None for n, v in zip(names, group, strict=True)}
        | made
        | {"agrees": bool(made["expected"] == made["ledger"] == made["target"] and "unaccounted" not in made["apart"])}
        for group, made in ordered
    ]


def _nothing() -> dict[str, Any]:
    return {side: {"records": 0, "patients": 0, "cents": 0} for side in _SIDES} | {"apart": {}}


def without_rows(db: duckdb.DuckDBPyConnection) -> list[dict[str, Any]]:
    """Return, by feed, the sums of the ledger's records of these batches whose rows are in no file any more."""
    query = f"""
        SELECT feed, count(*) AS ledger_records, count(found.resource_id) AS target_records,
            coalesce(sum(ours.amount_cents), 0)::HUGEINT AS ledger_cents,
            coalesce(sum(found.cents), 0)::HUGEINT AS target_cents
        FROM all_ours AS ours
        JOIN in_scope ON in_scope.batch_id = ours.batch_id
        ANTI JOIN (FROM record WHERE fate = 'there') AS there
            ON there.source = ours.source AND there.kind = ours.resource_type AND there.key = ours.key
        LEFT JOIN {_FOUND} AS found ON found.kind = ours.resource_type AND found.resource_id = ours.resource_id
        WHERE ours.state IN ({in_sql(MADE)}) GROUP BY feed ORDER BY feed"""
    return rows_of(db.execute(query))
