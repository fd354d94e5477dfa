"""Updates of tasks that the target has lost, as after a restore of its store: it changed them last before we did.

Somebody in the chart may well have changed a task since, and that is no fault. Only the time of the target's last
change tells one from the other. Where it shows none, or it is of the minute before the update was sent, nothing is
said to be lost: the target's clock may be behind ours.
"""

from datetime import datetime, timedelta

import duckdb

from pipelines.client.client import AsOf
from pipelines.client.replies import http_date
from pipelines.client.threads import threads
from pipelines.loading.target_clock import TargetClock
from pipelines.session.reading import reading
from pipelines.session.session import Session
from pipelines.verifying.staging import Filling, number

IDS_A_LOOK = 1_000
APART = timedelta(seconds=60)
"""Clocks may be so far apart, beyond what a run has noted. Besides, a time in a header is cut to the second."""
NOT_SAID = """
SELECT ours.resource_id, ours.batch_id, ours.first_attempt_at FROM ours JOIN there ON there.id = ours.resource_id
JOIN content USING (key, content_hash)
WHERE ours.state = 'updated' AND content.said IS NOT NULL
    AND NOT coalesce(list_has_all(string_split(there.said, ' '), string_split(content.said, ' ')), false)"""


def stage_behind(db: duckdb.DuckDBPyConnection, session: Session, kind: str) -> None:
    """Table `behind`: the resources that do not say what their update said, and are older than it."""
    client, progress = session.connection.client, session.progress
    if looks := number(db, f"SELECT count(*) FROM ({NOT_SAID})"):
        progress.stage("look for lost updates", kind, looks)

    clock = TargetClock.of(session) if looks else None

    def is_lost(one: tuple[str, str, str | None]) -> bool:
        found = client.read_as_of(kind, one[0])
        return clock is not None and found is not None and is_older(found[1], clock.shown_at(*one[1:]))

    with db.cursor() as cursor, Filling(db, "behind", "resource_id") as behind:
        found = cursor.execute(NOT_SAID)
        with reading(kind), threads(session.pace.at_once, "look") as pool:
            while part := found.fetchmany(IDS_A_LOOK):
                for (name, *_), lost in zip(part, pool.map(is_lost, part), strict=True):
                    if lost:
                        behind.add((name,))
                    progress.advance(1)
    progress.end()


def is_older(read: AsOf, sent: datetime | None) -> bool:
    """True if the target last changed what was read before an update of it was sent, both by its own clock."""
    changed = http_date(read.changed or "")
    return sent is not None and changed is not None and changed + APART <= sent
