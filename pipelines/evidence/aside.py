"""Records that were set aside, and their fates: rejects by rule and state, and the decisions that people made."""

from typing import Any

import duckdb

from pipelines.evidence.exported import rows_of
from pipelines.feeds.terms.rulebook import rules
from pipelines.session.session import Session

LISTED = 500
"""Rejects that an evidence lists; it counts all of them, and `rejects export` has all that are open."""
_OF_SCOPE = "said_reject AS reject JOIN (SELECT batch_id, feed, file_name FROM in_scope) AS scope USING (batch_id)"
_DECIDED = f"""
    SELECT "at", "user", command, subject, why FROM said_decision
    WHERE subject IN (SELECT batch_id FROM in_scope)
        OR regexp_replace(subject, ':[^:]*$', '') IN (SELECT batch_id FROM in_scope)
        OR subject IN (SELECT reject_id FROM said_reject SEMI JOIN in_scope USING (batch_id))
    ORDER BY "at", subject LIMIT {LISTED}"""
_BY_RULE = f"""
    SELECT scope.feed, reason.rule_id, reject.state, count(DISTINCT reject_id), coalesce(sum(amount_cents), 0)::HUGEINT
    FROM {_OF_SCOPE}
    JOIN (SELECT DISTINCT reject_id, rule_id FROM said_reason) AS reason USING (reject_id)
    GROUP BY ALL ORDER BY ALL"""
_LISTED = f"""
    SELECT reject_id, feed, file_name, batch_id, line, stage, reject.state, closed_by_batch,
        (SELECT string_agg(DISTINCT rule_id, ', ' ORDER BY rule_id) FROM said_reason
            WHERE said_reason.reject_id = reject.reject_id) AS rules
    FROM {_OF_SCOPE} ORDER BY feed, file_name, line, reject_id LIMIT {LISTED}"""


def set_aside(db: duckdb.DuckDBPyConnection, session: Session) -> dict[str, Any]:
    """Return the rejects of these batches by rule and state, the first of them by name, and decisions about them."""
    with session.ledger.snapshot() as snapshot:
        reasons = "reject_reason", ["reject_id", "rule_id"], "SEMI JOIN said_reject USING (reject_id)"
        snapshot.stage(db, "said_reason", *reasons)
        snapshot.stage(db, "said_decision", "decision", (), "WHERE target = $target", {"target": session.target})
    sentences = rules()
    by_rule = [
        {"feed": feed, "rule_id": rule_id, "state": state, "rejects": number, "cents": cents}
        | {"sentence": sentences[rule_id].sentence if rule_id in sentences else None}
        for feed, rule_id, state, number, cents in db.execute(_BY_RULE).fetchall()
    ]
    [[total]] = db.execute(f"SELECT count(*) FROM {_OF_SCOPE}").fetchall()
    listed, decisions = (rows_of(db.execute(query)) for query in (_LISTED, _DECIDED))
    return {"total": total, "by_rule": by_rule, "listed": listed, "decisions": decisions}
