"""The rejects of a ledger: set aside with their reasons, and closed by later rows."""

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any

from sqlalchemy import Select, select

from pipelines.ledger import tables as t
from pipelines.ledger.batches import BatchLedger
from pipelines.ledger.rejects import OPEN, named_rejects
from pipelines.ledger.rows import Reject
from pipelines.ledger.verbs import verb

LATEST = "9"
"""Later than every time."""

SET_ASIDE = """
INSERT INTO reject (target, reject_id, batch_id, line, lines, source, resource_type, source_key, stage, state, attempts,
  first_seen_at, last_seen_at, patient_id, source_at, amount_cents, content_hash)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 'open', 1, ?, ?, ?, ?, ?, ?)
ON CONFLICT (target, reject_id) DO UPDATE SET stage = excluded.stage, attempts = reject.attempts + 1,
  last_seen_at = excluded.last_seen_at, content_hash = COALESCE(excluded.content_hash, reject.content_hash),
  closed_by_batch = CASE WHEN excluded.stage = 'load' THEN NULL ELSE reject.closed_by_batch END,
  state = CASE WHEN reject.state = 'resubmitted' OR (reject.state = 'closed' AND excluded.stage = 'load') THEN 'open'
    ELSE reject.state END"""
"""A refused record is not at the target, so a reject that was closed is open again."""
FORGET_REASONS = "DELETE FROM reject_reason WHERE reject_id = ?"
ADD_REASON = """
INSERT INTO reject_reason (reject_id, position, rule_id, expression, column_name, message, retryable, line)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)"""
CLOSE_REJECT = """
UPDATE reject SET state = 'closed', closed_by_batch = ?
WHERE target = ? AND reject_id = ? AND state IN ('open', 'resubmitted')"""


class RejectLedger(BatchLedger):
    """The ledger with its rejects, beside batches and runs."""

    @verb
    def reject(
        self, target: str, source: str, resource_type: str, batch_id: str, rejects: Collection[Reject]
    ) -> list[str]:
        """Set records aside; return their ids in order. One met again counts an attempt and gets today's reasons."""
        now = self.now()
        named = named_rejects(self, target, source, resource_type, batch_id, list(rejects))
        rows = [
            (target, name, batch_id, r.line, r.lines, source, resource_type, *r[2:4], now, now, *r[4:7], r.content_hash)
            for name, r in named.items()
        ]
        reasons = [
            (name, position, *reason[:4], int(reason.retryable), reason.line)
            for name, r in named.items()
            for position, reason in enumerate(r.reasons)
        ]
        self.write(SET_ASIDE, rows)
        self.write(FORGET_REASONS, [(name,) for name in named])
        self.write(ADD_REASON, reasons)
        return list(named)

    @verb
    def close_rejects(
        self,
        target: str,
        source: str,
        resource_type: str,
        keys: Collection[str],
        *,
        batch_id: str,
        ids: Collection[str] = (),
        there: Mapping[str, str] = MappingProxyType({}),
    ) -> int:
        """Close the open rejects that rows of a batch settle; return how many.

        Args:
            keys: of records that were created, updated or superseded. They settle what no later batch said.
            ids: of rejects that a correction has named.
            there: by key, the content hashes of records that the target had already. They settle that content alone.
        """
        made, answered = set(keys), set(ids)
        received = select(t.batch.c.batch_id, t.batch.c.received_at).where(t.batch.c.target == target)
        came = {str(name): str(at) for name, at in self.read(received)}
        closing_ids = [
            each.reject_id
            for each in self.read(_open_rejects(target, source, resource_type))
            if each.reject_id in answered
            or (each.source_key in made and came.get(each.batch_id, "") <= came.get(batch_id, LATEST))
            or (each.content_hash is not None and there.get(each.source_key) == each.content_hash)
        ]
        self.write(CLOSE_REJECT, [(batch_id, target, name) for name in closing_ids])
        return len(closing_ids)


def _open_rejects(target: str, source: str, resource_type: str) -> Select[Any]:
    """Id, key, content and first batch of the rejects of a source that are not done with."""
    reject = t.reject.c
    return select(reject.reject_id, reject.source_key, reject.content_hash, reject.batch_id).where(
        reject.target == target,
        reject.source == source,
        reject.resource_type == resource_type,
        reject.state.in_(OPEN),
    )
