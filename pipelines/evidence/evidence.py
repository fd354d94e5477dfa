"""The evidence for signing a migration off: gathered from files, ledger and target, as JSON and as a page."""

import secrets
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import duckdb

from pipelines.evidence.files import MISSING, OTHER, PURGED, Batch, files, rows_of, stage_exported
from pipelines.evidence.samples import add_both_sides, sample
from pipelines.evidence.totals import FATES, stage_records, totals, without_rows
from pipelines.evidence.written import Evidence, write_evidence
from pipelines.feeds.terms.rulebook import rules
from pipelines.home.exits import SET_ASIDE
from pipelines.ledger.tables import NotPossible
from pipelines.runs.manifest import rules_version, software_version
from pipelines.session.session import Session
from pipelines.verifying.verify import verify_target
from pipelines.verifying.verify_result import MEANING, VerifyResult

DIFFERENCES_LISTED = 100
"""The most differences of each kind that an evidence lists; it counts all of them."""


@dataclass(frozen=True)
class EvidenceSubject:
    """The subject of an evidence: batches received since a day, or one batch; size and seed of its sample.

    chart: the address under which people open the target.
    """

    since: str | None
    batch: str | None
    size: int
    seed: str
    chart: str

    @classmethod
    def of(cls, since: str | None, batch: str | None, size: int, seed: str | None, chart: str) -> "EvidenceSubject":
        return cls(since, batch, size, seed or f"{secrets.randbelow(10**8):08}", chart.rstrip("/"))


def make_evidence(session: Session, asked: EvidenceSubject) -> Evidence:
    """Gather an evidence at the target of a session, and write its page and its JSON into the home.

    Raises `NotPossible` if no batch matches, and `TargetUnusable`.
    """
    batches = _batches(session, asked)
    content: dict[str, Any] = {
        "made_at": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
        "software_version": software_version(),
        "rules_version": rules_version(),
        "target": session.target,
        "target_url": asked.chart,
        "since": asked.since,
        "batch": asked.batch,
        "fates": FATES,
    }
    was_read = set[str]()

    def gather(db: duckdb.DuckDBPyConnection) -> None:
        stage_exported(db, session, batches)
        stage_records(db, session)
        was_read.update(name for (name,) in db.execute("SELECT DISTINCT batch_id FROM exported").fetchall())
        content["feeds"] = totals(db, "feed")
        content["days"] = totals(db, "feed, day")
        content["without_rows"] = without_rows(db)
        content["set_aside"] = set_aside(db, session)
        content["sample"] = {"size": asked.size, "seed": asked.seed, "records": sample(db, asked.size, asked.seed)}

    verified = verify_target(session, asked.batch, gather)
    add_both_sides(session, content["sample"]["records"], asked.chart)
    content["verify"] = _verified(verified)
    content["files"] = files(session, batches)
    for name, now in (("damaged", OTHER), ("missing", MISSING), ("purged", PURGED)):
        content[name] = [each["batch_id"] for each in content["files"] if each["hash_now"] == now]
    failed, running = ([n["batch_id"] for n in content["files"] if n["state"] == s] for s in ("failed", "running"))
    content["failed"] = [name for name in failed if name not in was_read]
    content["failed_later"] = [name for name in failed if name in was_read]
    content["unread"] = [name for name in running if name not in was_read]
    content["agrees"] = all(each["agrees"] for each in (*content["feeds"], *content["days"]))
    content["agrees"] = content["agrees"] and not (content["damaged"] or content["missing"])
    content["agrees"] = content["agrees"] and all(_same(each) for each in content["without_rows"])
    content["exit_code"] = max(verified.exit_code, 0 if content["agrees"] else SET_ASIDE)
    return write_evidence(session.home, content)


def _batches(session: Session, asked: EvidenceSubject) -> list[Batch]:
    ledger, target = session.ledger, session.target
    found = [ledger.known_batch(target, asked.batch)] if asked.batch else ledger.batches(target)
    found = [row for row in found if str(row["received_at"]) >= (asked.since or "")]
    if not found:
        since = f" since {asked.since}" if asked.since else ""
        raise NotPossible(f"no evidence was written: no file was received for this target{since}")
    return sorted(found, key=lambda row: (str(row["received_at"]), str(row["batch_id"])))


def _same(without: dict[str, Any]) -> bool:
    return bool(
        without["ledger_records"] == without["target_records"] and without["ledger_cents"] == without["target_cents"]
    )


LISTED = 500
"""The most rejects that an evidence lists. It counts all of them, and `rejects export` has all open ones."""
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
    """Return the rejects of these batches by rule and state, a list of the first ones, and the decisions about them."""
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


def _verified(verified: VerifyResult) -> dict[str, Any]:
    """Return the result of `verify`, with the first differences of each kind."""
    counts = verified.differences.counts
    listed = [*(each.line() for each in verified.dropped), *verified.differences.first(DIFFERENCES_LISTED)]
    kinds = {kind: {"number": number, "meaning": MEANING[kind]} for kind, number in counts.items()}
    agrees = not set(counts) - {"changed"} and not verified.lost and not verified.dropped
    return {
        "sentence": "ledger and target agree" if agrees else "ledger and target do not agree",
        "agrees": agrees,
        "rows": verified.rows,
        "others": verified.others,
        "without_source": verified.without_source,
        "ledger_cents": verified.ledger_cents,
        "target_cents": verified.target_cents,
        "differences": kinds,
        "listed": listed,
        "lost": verified.lost,
    }
