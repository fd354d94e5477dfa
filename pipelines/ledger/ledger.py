"""The import ledger: intents before requests, outcomes after them, rejects, batches and runs.

It makes an import safe to stop, repeat and resume. Bulk calls take plain tuples and commit once each.
"""

from collections.abc import Callable, Collection, Iterable

from sqlalchemy import select, update

from pipelines.ledger import tables as t
from pipelines.ledger.batches import BatchLedger
from pipelines.ledger.former_versions import KEEP_OUTCOME
from pipelines.ledger.inserting import keep_others_out
from pipelines.ledger.lease import HeldRight, Holder, Lease
from pipelines.ledger.reject_state import restate
from pipelines.ledger.rejects import named_rejects
from pipelines.ledger.rows import Intent, KnownRecord, Outcome, Reject, Repeat, Sighting, SoFar
from pipelines.ledger.verbs import verb

KNOWN = """
SELECT key, generation, batch.batch_id, line, content_hash, feed_version.feed_hash, record.state, resource_id,
  patient_id, source_at, amount_cents, first_attempt_at, record.finished_at
FROM record JOIN batch USING (batch_no) JOIN feed_version USING (feed_no)
WHERE stream_id = (SELECT stream_id FROM stream WHERE target = ? AND source = ? AND resource_type = ?)
  AND key IN ({keys})
ORDER BY key"""
INTEND = """
INSERT INTO record (stream_id, key, generation, batch_no, line, content_hash, feed_no, state, patient_id, source_at,
  amount_cents, attempts, first_attempt_at, first_sent_at)
VALUES (?, ?, ?, ?, ?, ?, ?, 'sending', ?, ?, ?, 1, ?, ?)"""
NOTE_SIGHTING = """
INSERT INTO sighting (target, resource_type, patient_id, noted_at, ahead_us, ids) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT DO NOTHING"""
INTEND_AGAIN = """
UPDATE record SET
  batch_no = CASE WHEN state = 'in_doubt' OR (state = 'planned' AND content_hash = ?) THEN batch_no ELSE ? END,
  line = CASE WHEN state = 'in_doubt' OR (state = 'planned' AND content_hash = ?) THEN line ELSE ? END,
  content_hash = ?, feed_no = ?, patient_id = ?, source_at = ?, amount_cents = ?,
  first_attempt_at = COALESCE(?, first_attempt_at),
  state = 'sending', attempts = attempts + 1, http_status = NULL, finished_at = NULL
WHERE stream_id = ? AND key = ? AND generation = ? AND state <> 'sending'"""
SETTLE = """
UPDATE record SET state = ?, resource_id = COALESCE(?, resource_id), http_status = ?, finished_at = ?
WHERE stream_id = ? AND key = ? AND generation = ?"""
NOTE_REPEAT = """
INSERT INTO version (batch_no, stream_id, is_outcome, line, key, state, resource_id, patient_id, source_at,
  amount_cents, attempts, finished_at)
SELECT CAST(? AS INTEGER), CAST(? AS INTEGER), 1, CAST(? AS BIGINT), CAST(? AS TEXT), CAST(? AS TEXT), CAST(? AS TEXT),
  CAST(? AS TEXT), CAST(? AS TEXT), CAST(? AS BIGINT), 0, CAST(? AS TEXT)
WHERE NOT (EXISTS (SELECT 1 FROM record WHERE batch_no = ?) AND EXISTS (
  SELECT 1 FROM record WHERE stream_id = ? AND key = ? AND batch_no = ? AND line = ?))
ON CONFLICT DO NOTHING"""
"""The first test saves a look-up of each key if a batch has no records, as for a file that came before."""
NOTE_UNCHANGED = """
INSERT INTO version (batch_no, stream_id, is_outcome, line, key, state, resource_id, patient_id, source_at,
  amount_cents, attempts, finished_at)
SELECT CAST(? AS INTEGER), stream_id, 1, CAST(? AS BIGINT), key, 'unchanged', resource_id, patient_id, source_at,
  amount_cents, 0, CAST(? AS TEXT)
FROM record WHERE stream_id = ? AND key = ? AND NOT (batch_no = ? AND line = ?)
ON CONFLICT DO NOTHING"""

SET_ASIDE = """
INSERT INTO reject (target, reject_id, batch_id, line, lines, source, resource_type, source_key, stage, state, attempts,
  first_seen_at, last_seen_at, patient_id, source_at, amount_cents, content_hash)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 'open', 1, ?, ?, ?, ?, ?, ?)
ON CONFLICT (target, reject_id) DO UPDATE SET stage = excluded.stage, attempts = reject.attempts + 1,
  last_seen_at = excluded.last_seen_at, tried_since = NULL,
  content_hash = COALESCE(excluded.content_hash, reject.content_hash)"""
FORGET_REASONS = "DELETE FROM reject_reason WHERE reject_id = ?"
ADD_REASON = """
INSERT INTO reject_reason (reject_id, position, rule_id, expression, column_name, message, retryable, line)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)"""


class Ledger(BatchLedger):
    """The ledger at a URL or in a file. It adds records and rejects to batches and runs."""

    # -- records

    def known(self, target: str, source: str, resource_type: str, keys: Iterable[str]) -> dict[str, KnownRecord]:
        """Return the newest generation of each of these keys that the ledger knows, by key."""
        rows = self.rows_of_keys(KNOWN, (target, source, resource_type), keys)
        return {row[0]: KnownRecord._make(row) for row in rows}

    @verb
    def intend(
        self,
        lease: HeldRight,
        source: str,
        resource_type: str,
        intents: Collection[Intent],
        sightings: Collection[Sighting] = (),
    ) -> None:
        """Record the intent to send these new records, before the first request.

        Args:
            intents: the records. The ledger must not know any of them.
            sightings: resources at the target before the first record of their patients is sent.

        Raises:
            LeaseLost: another loader has the target.
            IntegrityError: a record is known. None of the intents is kept.
        """
        now, stream = self.now(), self.stream(lease.target, source, resource_type)
        batch, feed = self._numbers_of(lease.target, intents)
        rows = [
            (stream, i[0], i[1], batch[i[2]], i[3], i[4], feed[i[5]], i[6], i[7], i[8], i[9] or now, i[9] or now)
            for i in intents
        ]
        with self.writing(lease):
            self.write(INTEND, rows)
            self.write(NOTE_SIGHTING, [(lease.target, resource_type, *sighting) for sighting in sightings])

    @verb
    def intend_again(self, lease: HeldRight, source: str, resource_type: str, intents: Collection[Intent]) -> None:
        """Record the intent to send known records again in the same generation: another attempt, or a PUT.

        A record in doubt stays with its batch and line, and so does a planned one whose content is unchanged. Any
        other record moves to the batch and line of the intent. The outcome on its former line, if it had one, is kept
        as a repeat.
        """
        stream = self.stream(lease.target, source, resource_type)
        batch, feed = self._numbers_of(lease.target, intents)
        places = [(batch[i.batch_id], i.line) for i in intents]
        these = [(stream, i.key, i.generation) for i in intents]
        again = [
            (i[4], place[0], i[4], place[1], i[4], feed[i[5]], *i[6:], *this)
            for place, i, this in zip(places, intents, these, strict=True)
        ]
        with self.writing(lease):
            self.write(KEEP_OUTCOME, [(*this, *place) for this, place in zip(these, places, strict=True)])
            self.write_each(INTEND_AGAIN, again)

    @verb
    def settle(
        self, target: str, source: str, resource_type: str, outcomes: Collection[Outcome], so_far: SoFar | None = None
    ) -> None:
        """Write the outcomes of intents, with any row state. `planned` is for records that were surely not sent, or
        not done.

        so_far: the counts of the run with these outcomes, written in the same transaction.
        """
        now, stream = self.now(), self.stream(target, source, resource_type)
        rows = [
            (state, resource, status, now, stream, key, generation)
            for key, generation, state, resource, status in outcomes
        ]
        self.write_each(SETTLE, rows)
        if so_far:
            self.count_run(target, so_far)

    @verb
    def note_repeats(
        self,
        target: str,
        source: str,
        resource_type: str,
        batch_id: str,
        repeats: Collection[Repeat],
        at: str | None = None,
    ) -> None:
        """Note further appearances of known records. A record that the batch has on that line keeps its outcome.

        at: their moment as UTC text; None for now.
        """
        moment, stream = at or self.now(), self.stream(target, source, resource_type)
        batch = self.batch_number(target, batch_id)
        rows = [(batch, stream, *r, moment, batch, stream, r.key, batch, r.line) for r in repeats]
        self.write(NOTE_REPEAT, rows)

    @verb
    def note_unchanged(
        self, target: str, source: str, resource_type: str, batch_id: str, lines: Collection[int], keys: Collection[str]
    ) -> None:
        """Note known records that came again unchanged, with the ledger's values. Otherwise like `note_repeats`."""
        now, stream, batch = self.now(), self.stream(target, source, resource_type), self.batch_number(target, batch_id)
        rows = [(batch, line, now, stream, key, batch, line) for line, key in zip(lines, keys, strict=True)]
        self.write(NOTE_UNCHANGED, rows)

    def is_read_otherwise(self, target: str, batch_id: str, feed_hash: str) -> bool:
        """True if a batch has records that were read by another content of the feed."""
        of_feed = select(t.feed_version.c.feed_no).where(t.feed_version.c.feed_hash == feed_hash)
        others = t.records.c.feed_no.not_in(of_feed)
        here = t.of_batch(t.records, target, batch_id)
        return self.value(select(t.records.c.line).where(here, others).limit(1)) is not None

    def keys_on(self, target: str, batch_id: str, lines: Iterable[int]) -> dict[int, str]:
        """Return the keys of a batch's records on these lines. The query reads the whole batch."""
        record, here = t.records.c, t.of_batch(t.records, target, batch_id)
        query = select(record.line, record.key).where(here, record.line.in_(list(lines)))
        return {int(line): str(key) for line, key in self.read(query)}

    def lease(self, target: str, waiting: Callable[[Holder], None] | None = None, **pace: float) -> Lease:
        """Return the lease of the one loader of the target, for use in `with`; see `Lease`."""
        return Lease(self, target, self.clock, waiting, **pace)

    def sending(self, target: str, source: str, resource_type: str) -> dict[str, int]:
        """Return the keys of the records that are being sent, each with its generation."""
        record = t.record.c
        of = t.of_stream(record, (target, source, resource_type))
        query = select(record.key, record.generation).where(of, record.state == "sending")
        return {str(key): int(generation) for key, generation in self.read(query)}

    @verb
    def doubt_sending(self, target: str) -> None:
        """Put every record in doubt that is `sending`. Call it only if no process can be sending them.

        Set their batches to `running`, although another run may have ended one meanwhile, so that the next import
        continues them.
        """
        of_target = select(t.stream.c.stream_id).where(t.stream.c.target == target)
        sending = (t.records.c.stream_id.in_(of_target), t.records.c.state == "sending")
        if self.value(select(t.records.c.key).where(*sending).limit(1)) is None:
            return
        batches = select(t.records.c.batch_no).where(*sending)
        self.execute(update(t.batch).where(t.batch.c.batch_no.in_(batches)).values(state="running"))
        self.execute(update(t.records).where(*sending).values(state="in_doubt", finished_at=self.now()))

    # -- rejects

    @verb
    def reject(
        self, target: str, source: str, resource_type: str, batch_id: str, rejects: Collection[Reject]
    ) -> list[str]:
        """Set records aside; return their reject ids in order. A known reject counts an attempt and gets new
        reasons.
        """
        keep_others_out(self)
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
        restate(self, target, named, ("closed", "resubmitted"))  # a new reject and an open one remain open
        self.write(FORGET_REASONS, [(name,) for name in named])
        self.write(ADD_REASON, reasons)
        return list(named)

    # -- within

    def _numbers_of(self, target: str, intents: Collection[Intent]) -> tuple[dict[str, int], dict[str, int]]:
        """Return the numbers of the batches and feeds that intents name."""
        batches, feeds = {i.batch_id for i in intents}, {i.feed_hash for i in intents}
        of_batches = {name: self.batch_number(target, name) for name in sorted(batches)}
        return of_batches, {name: self.feed_version(name) for name in sorted(feeds)}
