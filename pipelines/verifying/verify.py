"""`verify`: compare ledger and target, to the row and the cent.

The target is read, a type at a time, into a table beside the ledger's rows; queries over both find the differences.

An update of a task is lost, as after a restore, if the target's last change of the task is older than the update. A
user of the chart may have changed a task since, and that is no fault. Only the time of the target's last change tells
the two apart. If the target shows no time, the update does not count as lost. Nor does it if that time is within the
minute before the update was sent, since the target's clock may be behind ours.
"""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

import duckdb

from pipelines.client.client import AsOf
from pipelines.client.replies import http_date
from pipelines.client.threads import threads
from pipelines.loading.target_clock import TargetClock
from pipelines.reports.changed_resources import read_whole_next
from pipelines.runs.lost_runs import lost_batches
from pipelines.session.needed_reads import reading
from pipelines.session.session import Session
from pipelines.verifying.dropped_elements import dropped_of, sample_of
from pipelines.verifying.staging import (
    FOUND,
    LIVE,
    SETTLED,
    StagingTable,
    number,
    stage_contents,
    stage_found,
    stage_ledger,
    stage_records_of,
    stage_sources,
    workbench,
)
from pipelines.verifying.target import WITHOUT, stage_hidden, stage_known, stage_target
from pipelines.verifying.verify_result import Difference, VerifyResult

TYPES = ("PaymentNotice", "QuestionnaireResponse", "Task")
SLACK = "INTERVAL 5 MINUTE"
"""The time by which the target's clock may be behind ours, beyond what runs have noted. It matters if only times can
tell an older equal payment from a late double.
"""


def verify_target(
    session: Session,
    batch_id: str | None = None,
    then: Callable[[duckdb.DuckDBPyConnection], None] = lambda _: None,
    whole: bool = False,
) -> VerifyResult:
    """Compare the ledger's rows, or those of one batch, with the target, under its lease so that no load runs.

    then: reads more from the tables while they exist: the ledger's `all_ours` and `all_former`, and `found`, the
    target's resources that the ledger knows. whole: read everything at the target, even if it can be asked only for
    what may be ours.

    Raises `TargetUnusable`, and `NotPossible` for a batch that the ledger does not know.
    """
    kinds: Sequence[str] = TYPES
    if batch_id is not None:
        kinds = [session.ledger.known_batch(session.target, batch_id)["resource_type"]]
    lost = lost_batches(session)
    verified = VerifyResult(lost=[each.name for each in lost if batch_id in (None, each.name)])
    about = {str(manifest["resource"]) for each in lost for manifest in each.manifests}
    with session.lease(), workbench(session.home) as db:
        stage_ledger(db, session)
        stage_sources(db, session)
        db.execute(FOUND)
        for kind in kinds:
            if stage_records_of(db, kind) or kind in about:
                unnamed = "SELECT count(*) FROM unnamed WHERE resource_type = $kind"
                named = session.connection.step(session.target, kind).named and not number(db, unnamed, {"kind": kind})
                part = not (whole or kind in about) and stage_known(db, session, kind, named)
                if not part:
                    stage_target(db, session, kind)
                    stage_hidden(db, session, kind)
                verified.whole[kind] = not part
                bodies = stage_contents(db, session, kind, sample_of(db))
                stage_behind(db, session, kind)
                stage_found(db, kind)
                _compare(db, kind, batch_id or "", named, _behind(session, db), verified)
                if number(db, "SELECT count(*) FROM difference WHERE kind = 'gone'"):
                    read_whole_next(session.home, session.target, kind)
                with reading(kind):
                    verified.dropped += dropped_of(db, session.connection.client, kind, bodies)
        then(db)
    return verified


def verify_and_write(session: Session, batch_id: str | None, whole: bool) -> VerifyResult:
    """Compare as `verify_target` does, and write all differences to a file in the home, if that is possible.

    Raises also `LedgerError`: a line of the journal is damaged.
    """
    session.ledger.read_journal()
    verified = verify_target(session, batch_id, whole=whole)
    try:
        verified.file = verified.differences.write(session.home)
    except OSError as error:
        session.progress.say(f"the file of all differences could not be written: {error.strerror}")
    return verified


# -- what differs

TODAY = "coalesce(there.spelling, there.record_key)"
"""The key of a resource as this version spells it: another version may have sent it in another spelling."""
STRANGERS = "there ANTI JOIN known ON known.resource_id = there.id"
BY_NAME = f"""(FROM {STRANGERS}) AS there
            JOIN ours ON there.system = 'urn:chartferry:' || ours.source || ':' || $kind
            AND ours.key = there.record_key"""
MADE = "epoch(TRY_CAST(there.made AS TIMESTAMPTZ))"
OF_DOUBTS = f"""(SELECT DISTINCT there.id FROM {BY_NAME}
            WHERE ours.state IN ('in_doubt', 'sending') AND there.record_generation = ours.generation)"""
"""Selects the resources with the identifier of a row in doubt, which the next import takes as the row's."""
LATE = f"""CASE WHEN $kind <> 'PaymentNotice' THEN NOT $named ELSE NOT coalesce(
                {MADE} < epoch(sent.first_sent_at::TIMESTAMPTZ - {SLACK} - to_microseconds($behind)), false) END"""
OF_A_FIRST_ATTEMPT = f"""$kind <> 'PaymentNotice' AND NOT $named
            AND least(abs({MADE} - epoch(sent.first_attempt_at::TIMESTAMPTZ)),
                abs({MADE} - epoch(sent.first_sent_at::TIMESTAMPTZ))) < 1"""
"""Compares a time with those of first attempts. A row without its own time is sent with that of its first attempt,
which some targets keep to the second. Each generation has one; the first of the key may arrive last.
"""
EQUAL = f"""
        SELECT arg_min(sent.batch_id, sent.line) AS batch_id, min(sent.line) AS line, there.id FROM {STRANGERS}
        JOIN content ON {{}}
        JOIN sent ON sent.key = content.key AND sent.content_hash = content.content_hash
            AND $batch IN ('', sent.batch_id)
        WHERE there.system IS NULL AND NOT {WITHOUT} AND {{}}
        GROUP BY there.id"""
"""Selects the resources without identifier that equal rows of the batch which was asked for."""
OURS_IS_THERE = f"""ours.resource_id IN (SELECT id FROM there WHERE NOT {WITHOUT})"""
IN_STEP = """(FROM ours ANTI JOIN behind USING (resource_id)) AS ours
        JOIN there ON there.id = ours.resource_id LEFT JOIN content USING (key, content_hash)"""
BY_IMPORTERS = "there.system LIKE 'urn:chartferry:%:' || $kind"
OF_ANOTHER = "(ours.patient_id IS NOT NULL AND there.patient_id IS DISTINCT FROM ours.patient_id)"
"""True for a task of another patient, or without one. A task sent without a patient may have got one since."""
NAMED_OTHERWISE = f"""({BY_IMPORTERS}
    AND (there.system <> 'urn:chartferry:' || {{of}}.source || ':' || $kind
        OR {{of}}.key NOT IN (there.record_key, {TODAY})))"""
"""True for a resource that has a record's id but was made for another record: a restored target gives ids again."""
OTHERS = NAMED_OTHERWISE.format(of="ours")
BEGUN = "(FROM former WHERE fate = 'standing') AS begun USING (source, key, generation, batch_id)"
"""Selects the versions that an undo is about to take back, which it keeps until it has done so. A record that a later
file has updated since does not count.
"""
OF_OWN_SOURCE = "there.system IN (SELECT 'urn:chartferry:' || source || ':' || $kind FROM own)"
QUERIES: dict[str, str] = {
    "gone": f"""
        SELECT batch_id, line, resource_id FROM ours ANTI JOIN there ON there.id = ours.resource_id WHERE {LIVE}""",
    "hidden": f"""
        SELECT batch_id, line, resource_id FROM ours JOIN hidden ON hidden.id = ours.resource_id
        JOIN there USING (id) WHERE NOT {WITHOUT}""",
    "not updated": "SELECT batch_id, line, resource_id FROM ours SEMI JOIN behind USING (resource_id)",
    "differs": f"""
        SELECT batch_id, line, resource_id FROM {IN_STEP}
        WHERE {LIVE} AND $kind = 'Task' AND ({OF_ANOTHER} OR coalesce({OTHERS}, false))
        UNION ALL
        SELECT batch_id, line, resource_id FROM {IN_STEP}
        WHERE {LIVE} AND $kind <> 'Task' AND (there.patient_id IS DISTINCT FROM ours.patient_id
            OR (ours.amount_cents IS NOT NULL AND there.cents IS DISTINCT FROM ours.amount_cents)
            OR (content.content IS NOT NULL AND content.content IS DISTINCT FROM there.content)
            OR {OTHERS})""",
    "changed": f"""
        SELECT batch_id, line, resource_id FROM {IN_STEP}
        WHERE {LIVE} AND $kind = 'Task' AND content.content <> there.content AND NOT {OF_ANOTHER}
            AND NOT coalesce({OTHERS}, false)""",
    "undo open": f"SELECT batch_id, line, resource_id FROM ours SEMI JOIN {BEGUN} WHERE {LIVE}",
    "taken back": f"""
        SELECT batch_id, line, resource_id FROM (FROM ours ANTI JOIN {BEGUN}) AS ours
        JOIN there ON there.id = ours.resource_id
        WHERE {LIVE} AND there.status = 'entered-in-error'""",
    "not taken back": f"""
        SELECT batch_id, line, resource_id FROM former JOIN there ON there.id = former.resource_id
        ANTI JOIN (FROM ours WHERE {LIVE}) AS ours ON ours.resource_id = former.resource_id
        WHERE former.fate <> 'kept' AND NOT {WITHOUT} AND NOT coalesce({NAMED_OTHERWISE.format(of="former")}, false)""",
    "shared": f"""
        SELECT arg_min(batch_id, ($batch <> batch_id, batch_id)) AS batch_id,
            arg_min(line, ($batch <> batch_id, batch_id)) AS line, resource_id FROM ours
        WHERE {LIVE} GROUP BY resource_id HAVING count(*) > 1""",
    "double": f"""
        {EQUAL.format("content.timed = there.timed", LATE)}
        UNION ALL
        {EQUAL.format("content.content = there.content AND content.timed = content.content", OF_A_FIRST_ATTEMPT)}
        UNION ALL
        SELECT ours.batch_id, ours.line, there.id FROM {BY_NAME}
        LEFT JOIN content ON content.key = ours.key AND content.content_hash = ours.content_hash
        WHERE NOT {WITHOUT} AND ours.{SETTLED}
            AND (there.record_generation <= ours.generation OR {OURS_IS_THERE})
            AND (ours.resource_id IS NOT NULL OR content.content IS NULL OR content.content = there.content)""",
    "unknown": f"""
        SELECT NULL AS batch_id, NULL AS line, there.id FROM {STRANGERS}
        ANTI JOIN difference ON difference.resource_id = there.id
        ANTI JOIN (SELECT there.id FROM {BY_NAME} WHERE {WITHOUT}) AS earlier
            ON earlier.id = there.id
        ANTI JOIN {OF_DOUBTS} AS doubtful ON doubtful.id = there.id
        WHERE {BY_IMPORTERS} AND ($lost OR {OF_OWN_SOURCE})""",
    "not sent": """
        SELECT batch_id, line, resource_id FROM ours WHERE state = 'planned'""",
    "in doubt": """
        SELECT batch_id, line, resource_id FROM ours WHERE state IN ('in_doubt', 'sending')""",
}
"""Queries for the differences by kind: batch, line and resource of each.

A resource that may belong to rows of several batches is reported for one of them, or for the batch that was asked for.
A resource made by importers under other sources belongs to another home, unless batches of this home are lost.

A resource of an earlier generation that was taken back is no difference, even if the ledger does not know it. A
resource of a later generation than the ledger knows is no double, unless the known one is there too. Nor is it one if
a row with other content was refused for it. If every row was sent with its identifier, an equal task or response
without one is another's; an equal payment is left for a person to explain.
"""

NEEDED = {
    "hidden": "hidden",
    "not updated": "behind",
    "undo open": "former",
    "not taken back": "former",
    "double": STRANGERS,
    "unknown": STRANGERS,
}
"""Tables and queries that are mostly empty, so that the differences of a kind need no query. DuckDB takes longer to
plan a query of few rows than to answer it.
"""


def _empty(db: duckdb.DuckDBPyConnection) -> set[str]:
    """Return those tables and queries of `NEEDED` that have no row."""
    needed = list(dict.fromkeys(NEEDED.values()))
    [found] = db.execute(f"SELECT {', '.join(f'EXISTS (FROM {each})' for each in needed)}").fetchall()
    return {each for each, is_there in zip(needed, found, strict=True) if not is_there}


def _behind(session: Session, db: duckdb.DuckDBPyConnection) -> int:
    """Return the most microseconds that the target's clock was behind the ledger's; 0 without strangers to judge."""
    strangers = number(db, f"SELECT count(*) FROM {STRANGERS}")
    return TargetClock.of(session).most_behind() // timedelta(microseconds=1) if strangers else 0


def _compare(
    db: duckdb.DuckDBPyConnection, kind: str, batch_id: str, named: bool, behind: int, verified: VerifyResult
) -> None:
    db.execute("CREATE OR REPLACE TABLE difference (kind TEXT, batch_id TEXT, line BIGINT, resource_id TEXT)")
    given = {"kind": kind, "batch": batch_id, "named": named, "behind": behind, "lost": bool(verified.lost)}
    empty = _empty(db)
    for name, query in QUERIES.items():
        if NEEDED.get(name) in empty:
            continue
        statement = f"INSERT INTO difference SELECT '{name}', * FROM ({query}) WHERE $batch IN ('', batch_id)"
        db.execute(statement, {each: value for each, value in given.items() if f"${each}" in statement})
    order = f"list_position({list(QUERIES)}, kind), batch_id, line, resource_id"
    found = db.execute(f"SELECT kind, batch_id, line, resource_id FROM difference ORDER BY {order}")
    while part := found.fetchmany(10_000):
        for name, batch, line, resource in part:
            row = None if batch is None else f"{batch}:{line}"
            verified.differences.add(Difference(name, kind, row, resource))
    _count(db, kind, {"batch": batch_id}, verified)


def _count(db: duckdb.DuckDBPyConnection, kind: str, batch: dict[str, str], verified: VerifyResult) -> None:
    live = f"{LIVE} AND $batch IN ('', ours.batch_id)"
    there = f"FROM ours JOIN there ON there.id = ours.resource_id WHERE {live}"
    verified.rows[kind] = number(db, f"SELECT count(*) {there}", batch)
    purged = f"FROM ours ANTI JOIN content USING (key, content_hash) WHERE {live}"
    verified.without_source[kind] = number(db, f"SELECT count(*) {purged}", batch)
    strangers = number(db, f"SELECT count(*) FROM {STRANGERS}")
    verified.of_doubts[kind] = number(db, f"SELECT count(*) FROM {OF_DOUBTS}", {"kind": kind}) if strangers else 0
    verified.others[kind] = strangers - verified.of_doubts[kind]
    elsewhere = f"SELECT count(*) FROM {STRANGERS} WHERE {BY_IMPORTERS} AND NOT {OF_OWN_SOURCE}"
    verified.elsewhere[kind] = 0 if verified.lost else number(db, elsewhere, {"kind": kind})
    if kind == "PaymentNotice":
        verified.target_cents = number(db, f"SELECT coalesce(sum(there.cents), 0) {there} AND NOT {WITHOUT}", batch)
        verified.ledger_cents = number(db, f"SELECT coalesce(sum(amount_cents), 0) FROM ours WHERE {live}", batch)


IDS_A_LOOK = 1_000
APART = timedelta(seconds=60)
"""Clocks may differ by this much beyond what a run has noted. A time in a header is also cut to the second."""
NOT_SAID = """
SELECT ours.resource_id, ours.batch_id, ours.first_attempt_at FROM ours JOIN there ON there.id = ours.resource_id
JOIN content USING (key, content_hash)
WHERE ours.state = 'updated' AND content.said IS NOT NULL
    AND NOT coalesce(list_has_all(string_split(there.said, ' '), string_split(content.said, ' ')), false)"""


def stage_behind(db: duckdb.DuckDBPyConnection, session: Session, kind: str) -> None:
    """Fill table `behind` with the resources that lack their update's content and are older than the update."""
    client, progress = session.connection.client, session.progress
    if looks := number(db, f"SELECT count(*) FROM ({NOT_SAID})"):
        progress.stage("look for lost updates", kind, looks)

    clock = TargetClock.of(session) if looks else None

    def is_lost(one: tuple[str, str, str | None]) -> bool:
        found = client.read_as_of(kind, one[0])
        return clock is not None and found is not None and is_older(found[1], clock.shown_at(*one[1:]))

    with db.cursor() as cursor, StagingTable(db, "behind", "resource_id") as behind:
        found = cursor.execute(NOT_SAID)
        with reading(kind), threads(session.pace.at_once, "look") as pool:
            while part := found.fetchmany(IDS_A_LOOK):
                for (name, *_), lost in zip(part, pool.map(is_lost, part), strict=True):
                    if lost:
                        behind.add((name,))
                    progress.advance(1)
    progress.end()


def is_older(read: AsOf, sent: datetime | None) -> bool:
    """True if the target last changed the resource before the update was sent, both by the target's clock."""
    changed = http_date(read.changed or "")
    return sent is not None and changed is not None and changed + APART <= sent
