"""Updates of tasks that the target has lost, as after a restore: its last change of a task is older than the update.

A user of the chart may have changed a task since, and that is no fault. Only the time of the target's last change
tells the two apart. If the target shows no time, the update does not count as lost. Nor does it if that time is within
the minute before the update was sent, since the target's clock may be behind ours.
"""

from datetime import datetime, timedelta

import duckdb

from pipelines.client.client import AsOf
from pipelines.client.replies import http_date
from pipelines.client.threads import threads
from pipelines.loading.target_clock import TargetClock
from pipelines.session.needed_reads import reading
from pipelines.session.session import Session
from pipelines.verifying.staging import StagingTable, number

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
