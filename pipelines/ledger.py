"""The import ledger: what was sent, what came of it, and what is not known, written before and after each request.

It is what makes an import safe to stop, repeat and resume. Bulk calls take plain tuples and commit once each.
"""

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
from sqlalchemy import Connection, Engine, Table, and_, case, func, select, update

from pipelines import ledger_tables as t
from pipelines.lease import Clock, Holder, Lease, LeaseLost, utc_text
from pipelines.ledger_former import first_outcomes
from pipelines.ledger_rejects import named_rejects
from pipelines.ledger_rows import Intent, KnownRecord, Outcome, Reason, Reject, Repeat, Sighting, reject_id
from pipelines.ledger_snapshot import Snapshot
from pipelines.ledger_tables import AMOUNTS, COUNTS, LINE_COUNTS, OUTCOMES, ROW_STATES, LedgerError

__all__ = [
    "AMOUNTS",
    "COUNTS",
    "LINE_COUNTS",
    "OUTCOMES",
    "ROW_STATES",
    "Intent",
    "KnownRecord",
    "Lease",
    "LeaseLost",
    "Ledger",
    "LedgerError",
    "Outcome",
    "Reason",
    "Reject",
    "Repeat",
    "Snapshot",
    "reject_id",
    "utc_text",
]

KEYS_A_QUERY = 1000
UNDECIDED = ("planned", "sending", "in_doubt")
LOCKS_A_ROW = {"postgresql": " FOR SHARE"}


KNOWN = """
SELECT {columns} FROM record WHERE target = ? AND source = ? AND resource_type = ? AND key IN ({keys})
ORDER BY key, generation"""
INTEND = """
INSERT INTO record (target, source, resource_type, key, generation, batch_id, line, content_hash, feed_hash, state,
  patient_id, source_at, amount_cents, attempts, first_attempt_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 'sending', ?, ?, ?, 1, ?)"""
NOTE_SIGHTING = """
INSERT INTO sighting (target, resource_type, patient_id, noted_at, ahead_us, ids) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT DO NOTHING"""
KEEP_APPEARANCE = """
INSERT INTO repeat (target, batch_id, line, source, resource_type, key, state, resource_id, patient_id, source_at,
  amount_cents, attempts, http_status, finished_at)
SELECT target, batch_id, line, source, resource_type, key, state, resource_id, patient_id, source_at,
  amount_cents, attempts, http_status, finished_at
FROM record
WHERE target = ? AND source = ? AND resource_type = ? AND key = ? AND generation = ?
  AND state NOT IN ('planned', 'sending', 'in_doubt') AND NOT (batch_id = ? AND line = ?)
ON CONFLICT DO NOTHING"""
INTEND_AGAIN = """
UPDATE record SET
  batch_id = CASE WHEN state IN ('planned', 'in_doubt') THEN batch_id ELSE ? END,
  line = CASE WHEN state IN ('planned', 'in_doubt') THEN line ELSE ? END,
  content_hash = ?, feed_hash = ?, patient_id = ?, source_at = ?, amount_cents = ?,
  first_attempt_at = COALESCE(?, first_attempt_at),
  state = 'sending', attempts = attempts + 1, http_status = NULL, finished_at = NULL
WHERE target = ? AND source = ? AND resource_type = ? AND key = ? AND generation = ? AND state <> 'sending'"""
SETTLE = """
UPDATE record SET state = ?, resource_id = COALESCE(?, resource_id), http_status = ?, finished_at = ?
WHERE target = ? AND source = ? AND resource_type = ? AND key = ? AND generation = ?"""
NOTE_REPEAT = """
INSERT INTO repeat (target, batch_id, line, source, resource_type, key, state, resource_id, patient_id, source_at,
  amount_cents, attempts, finished_at)
SELECT CAST(? AS TEXT), CAST(? AS TEXT), CAST(? AS BIGINT), CAST(? AS TEXT), CAST(? AS TEXT), CAST(? AS TEXT),
  CAST(? AS TEXT), CAST(? AS TEXT), CAST(? AS TEXT), CAST(? AS TEXT), CAST(? AS BIGINT), 0, CAST(? AS TEXT)
WHERE NOT EXISTS (SELECT 1 FROM record WHERE target = ? AND batch_id = ? AND line = ?)
ON CONFLICT DO NOTHING"""
SET_ASIDE = """
INSERT INTO reject (target, reject_id, batch_id, line, lines, source, resource_type, source_key, stage, state, attempts,
  first_seen_at, last_seen_at, patient_id, source_at, amount_cents)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 'open', 1, ?, ?, ?, ?, ?)
ON CONFLICT (target, reject_id) DO UPDATE SET stage = excluded.stage, attempts = reject.attempts + 1,
  last_seen_at = excluded.last_seen_at,
  state = CASE WHEN reject.state = 'resubmitted' THEN 'open' ELSE reject.state END"""
FORGET_REASONS = "DELETE FROM reject_reason WHERE reject_id = ?"
ADD_REASON = """
INSERT INTO reject_reason (reject_id, position, rule_id, expression, column_name, message, retryable)
VALUES (?, ?, ?, ?, ?, ?, ?)"""
CLOSE_REJECT = """
UPDATE reject SET state = 'closed', closed_by_batch = ?
WHERE target = ? AND reject_id = ? AND state IN ('open', 'resubmitted')"""


class Ledger:
    """The ledger at a URL or file. Safe to use from several threads and processes; every call is one transaction."""

    def __init__(self, engine: Engine, clock: Clock):
        self.engine = engine
        self._writing = engine.execution_options(writes=True)
        self._clock = clock
        self._placeholder = "?" if engine.dialect.paramstyle == "qmark" else "%s"

    @classmethod
    def open(cls, url: str | Path, clock: Clock = lambda: datetime.now(UTC)) -> Self:
        """Opens or makes the ledger; `LedgerError` when it is from a newer version or cannot be opened."""
        return cls(t.open_engine(url), clock)

    def close(self) -> None:
        self.engine.dispose()

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """A transaction that writes, for what is kept beside the calls of this class."""
        with self._writing.begin() as connection:
            yield connection

    def now(self) -> str:
        return utc_text(self._clock())

    def lease(self, target: str, waiting: Callable[[Holder], None] | None = None, **pace: float) -> Lease:
        """`with ledger.lease(target, waiting) as lease:` the one loader of the target; see `Lease`."""
        return Lease(self.engine, target, self._clock, waiting, **pace)

    # -- records

    def known(self, target: str, source: str, resource_type: str, keys: Iterable[str]) -> dict[str, KnownRecord]:
        """The newest generation of each of these keys that the ledger has, by key."""
        found: dict[str, KnownRecord] = {}
        with self.engine.connect() as connection:
            for some in _parts(keys, KEYS_A_QUERY):
                query = self._native(KNOWN.format(columns=", ".join(KnownRecord._fields), keys=_marks(len(some))))
                rows = connection.exec_driver_sql(query, (target, source, resource_type, *some))
                found.update((row[0], KnownRecord(*row)) for row in rows)
        return found

    def unsettled(self, target: str, batch_id: str | None = None) -> list[KnownRecord]:
        """Records that are planned, sending or in doubt, of the target or one batch, in file order."""
        columns = [t.record.c[name] for name in KnownRecord._fields]
        query = select(*columns).where(t.record.c.target == target, t.record.c.state.in_(UNDECIDED))
        if batch_id is not None:
            query = query.where(t.record.c.batch_id == batch_id)
        with self.engine.connect() as connection:
            rows = connection.execute(query.order_by(t.record.c.batch_id, t.record.c.line))
            return [KnownRecord._make(row) for row in rows]

    def resource_ids(self, target: str, resource_type: str, patient_id: str | None) -> set[str]:
        """Ids of the patient's resources that the ledger knows: none of them may be adopted again."""
        found: set[str] = set()
        with self.engine.connect() as connection:
            for table in (t.record, t.former):
                query = select(table.c.resource_id).where(
                    table.c.target == target,
                    table.c.resource_type == resource_type,
                    table.c.patient_id == patient_id,
                    table.c.resource_id.is_not(None),
                )
                found.update(connection.execute(query).scalars())
        return found

    def intend(
        self,
        lease: Lease,
        source: str,
        resource_type: str,
        intents: Iterable[Intent],
        sightings: Iterable[Sighting] = (),
    ) -> None:
        """Writes down, durably, that these new records are being sent. Commit comes before the request.

        Raises `LeaseLost` when the lease is another's by now, and the database's IntegrityError when a record is known.
        sightings: what was at the target before, of patients whose records are sent from now on.
        """
        now = self.now()
        rows = [(lease.target, source, resource_type, *i[:-1], i.first_attempt_at or now) for i in intents]
        with self._writing.begin() as connection:
            self._check(connection, lease)
            self._many(connection, INTEND, rows)
            self._many(connection, NOTE_SIGHTING, [(lease.target, resource_type, *sighting) for sighting in sightings])

    def intend_again(self, lease: Lease, source: str, resource_type: str, intents: Iterable[Intent]) -> None:
        """The same for known records of the same generation: another attempt, or a PUT.

        A planned or in-doubt record stays with its batch and line. One that was settled in another batch leaves that
        outcome there (as a repeat) and moves to the batch and line of the intent.
        """
        intents = list(intents)
        where = [(lease.target, source, resource_type, i.key, i.generation) for i in intents]
        with self._writing.begin() as connection:
            self._check(connection, lease)
            self._many(
                connection, KEEP_APPEARANCE, [(*w, i.batch_id, i.line) for w, i in zip(where, intents, strict=True)]
            )
            again = [(*i[2:], *w) for w, i in zip(where, intents, strict=True)]
            self._many_exactly(connection, INTEND_AGAIN, again)

    def settle(self, target: str, source: str, resource_type: str, outcomes: Iterable[Outcome]) -> None:
        """Writes down what came of intents: any row state. `planned` is for what was surely not sent or not done."""
        now = self.now()
        rows = [
            (state, resource, status, now, target, source, resource_type, key, generation)
            for key, generation, state, resource, status in outcomes
        ]
        with self._writing.begin() as connection:
            self._many_exactly(connection, SETTLE, rows)

    def note_repeats(
        self, target: str, source: str, resource_type: str, batch_id: str, repeats: Iterable[Repeat]
    ) -> None:
        """Later appearances of known records. A line that the batch has an outcome for already keeps that."""
        now = self.now()
        rows = [
            (target, batch_id, r.line, source, resource_type, *r[1:], now, target, batch_id, r.line) for r in repeats
        ]
        with self._writing.begin() as connection:
            self._many(connection, NOTE_REPEAT, rows)

    # -- rejects

    def reject(
        self, target: str, source: str, resource_type: str, batch_id: str, rejects: Iterable[Reject]
    ) -> list[str]:
        """Sets records aside; gives their ids in order. One met again counts an attempt and gets today's reasons."""
        now = self.now()
        with self._writing.begin() as connection:
            named = named_rejects(connection, target, source, resource_type, batch_id, list(rejects), now)
            rows = [
                (target, name, batch_id, r.line, r.lines, source, resource_type, *r[2:4], now, now, *r[4:7])
                for name, r in named.items()
            ]
            reasons = [
                (name, position, *reason[:4], int(reason.retryable))
                for name, r in named.items()
                for position, reason in enumerate(r.reasons)
            ]
            self._many(connection, SET_ASIDE, rows)
            self._many(connection, FORGET_REASONS, [(name,) for name in named])
            self._many(connection, ADD_REASON, reasons)
        return list(named)

    def close_rejects(
        self,
        target: str,
        source: str,
        resource_type: str,
        keys: Iterable[str],
        *,
        batch_id: str,
        ids: Iterable[str] = (),
    ) -> int:
        """Closes the open rejects that accepted rows of the batch answer, by key or reject id; gives how many."""
        accepted, answered = set(keys), set(ids)
        reject = t.reject.c
        with self._writing.begin() as connection:
            opened = connection.execute(
                select(reject.reject_id, reject.source_key).where(
                    reject.target == target,
                    reject.source == source,
                    reject.resource_type == resource_type,
                    reject.state.in_(("open", "resubmitted")),
                )
            )
            closing_ids = [name for name, key in opened if key in accepted or name in answered]
            self._many(connection, CLOSE_REJECT, [(batch_id, target, name) for name in closing_ids])
        return len(closing_ids)

    # -- targets, batches, runs, publications

    def note_target(self, target_id: str, base_url: str) -> list[str]:
        """Notes the target (its address may have moved) and gives the ids of all the others that this ledger knows."""
        with self._writing.begin() as connection:
            seen = list(connection.execute(select(t.target.c.target_id)).scalars())
            if target_id in seen:
                connection.execute(update(t.target).where(t.target.c.target_id == target_id).values(base_url=base_url))
            else:
                row = {"target_id": target_id, "base_url": base_url, "first_seen_at": self.now()}
                connection.execute(t.target.insert().values(row))
        return [each for each in seen if each != target_id]

    def start_batch(self, target: str, batch_id: str, **values: Any) -> bool:
        """Notes a new batch as `running`; False, and nothing changed, when it is known already."""
        row = {"received_at": self.now(), **values, "target": target, "batch_id": batch_id, "state": "running"}
        with self._writing.begin() as connection:
            if self._batch(connection, target, batch_id) is not None:
                return False
            connection.execute(t.batch.insert().values(row))
        return True

    def finish_batch(self, target: str, batch_id: str, state: str, counts: Mapping[str, int] | None = None) -> None:
        """Sets the batch's state and, where given, its counts: those of its rows' first outcomes.

        A batch that was finished before keeps the time when it was.
        """
        finished = case((t.batch.c.state == "finished", t.batch.c.finished_at), else_=self.now())
        self._change(t.batch, (target, batch_id), state=state, finished_at=finished, **(counts or {}))

    def start_run(self, target: str, batch_id: str, **values: Any) -> int:
        """Notes a run of the batch; gives its number, from 1."""
        with self._writing.begin() as connection:
            here = (t.run.c.target == target, t.run.c.batch_id == batch_id)
            number = 1 + (connection.execute(select(func.max(t.run.c.run)).where(*here)).scalar() or 0)
            row = {"started_at": self.now(), **values, "target": target, "batch_id": batch_id, "state": "running"}
            connection.execute(t.run.insert().values(run=number, **row))
        return number

    def finish_run(
        self, target: str, batch_id: str, run: int, *, state: str, counts: Mapping[str, int], message: str | None = None
    ) -> None:
        """Sets what became of the run (`finished`, `stopped`, `failed`), its counts, and why unless finished."""
        self._change(t.run, (target, batch_id, run), state=state, message=message, finished_at=self.now(), **counts)

    def batches(self, target: str | None = None) -> list[dict[str, Any]]:
        """Batches, oldest first, as dicts of the table's columns."""
        query = select(t.batch).order_by(t.batch.c.received_at, t.batch.c.batch_id)
        return self._dicts(query if target is None else query.where(t.batch.c.target == target))

    def batch(self, target: str, batch_id: str) -> dict[str, Any] | None:
        with self.engine.connect() as connection:
            return self._batch(connection, target, batch_id)

    def runs(self, target: str, batch_id: str) -> list[dict[str, Any]]:
        query = select(t.run).where(t.run.c.target == target, t.run.c.batch_id == batch_id).order_by(t.run.c.run)
        return self._dicts(query)

    def row_counts(self, target: str, batch_id: str) -> dict[str, tuple[int, int]]:
        """Rows of the batch and their cents by first outcome, whatever became of them since; repeats included."""
        counts: dict[str, tuple[int, int]] = {}
        repeat = t.repeat.c
        of_repeats = select(repeat.state, func.count(), func.coalesce(func.sum(repeat.amount_cents), 0)).where(
            repeat.target == target, repeat.batch_id == batch_id
        )
        with self.engine.connect() as connection:
            for query in (first_outcomes(connection, target, batch_id), of_repeats.group_by(repeat.state)):
                for state, rows, cents in connection.execute(query):
                    before = counts.get(state, (0, 0))
                    counts[state] = (before[0] + rows, before[1] + int(cents))
        return counts

    def note_publication(self, **values: Any) -> None:
        with self._writing.begin() as connection:
            connection.execute(t.publication.insert().values({"published_at": self.now(), **values}))

    # -- decisions by hand

    def note_decisions(self, target: str, user: str, command: str, subjects: Iterable[str], why: str | None) -> None:
        """Keeps who decided what, when and why: one row a subject (a batch, a reject, a row as `<batch>:<line>`)."""
        with self._writing.begin() as connection:
            self.add_decisions(connection, target, user, command, subjects, why)

    def add_decisions(
        self, connection: Connection, target: str, user: str, command: str, subjects: Iterable[str], why: str | None
    ) -> None:
        """The same within a transaction that also does what was decided."""
        about = {"target": target, "at": self.now(), "user": user, "command": command, "why": why}
        if rows := [{**about, "decision_id": uuid.uuid4().hex, "subject": subject} for subject in subjects]:
            connection.execute(t.decision.insert(), rows)

    def decisions(self, target: str | None = None) -> list[dict[str, Any]]:
        """Decisions, oldest first, as dicts of the table's columns."""
        query = select(t.decision).order_by(t.decision.c.at, t.decision.c.subject)
        return self._dicts(query if target is None else query.where(t.decision.c.target == target))

    # -- reading whole tables, for publishing

    @contextmanager
    def snapshot(self) -> Iterator[Snapshot]:
        """The ledger as of one moment, however much others write meanwhile."""
        level = {} if self.engine.dialect.name == "sqlite" else {"isolation_level": "REPEATABLE READ"}
        with self.engine.connect().execution_options(**level) as connection, connection.begin():
            yield Snapshot(connection)

    def tables(self) -> dict[str, pa.Table]:
        """Every table of the ledger as Arrow."""
        with self.snapshot() as snapshot:
            return {name: snapshot.reader(name).read_all() for name in t.metadata.tables}

    # -- for the modules beside this one (`ledger_*.py`)

    @contextmanager
    def changing(self) -> Iterator[Connection]:
        """A transaction that writes."""
        with self._writing.begin() as connection:
            yield connection

    @contextmanager
    def writing(self, lease: Lease) -> Iterator[Callable[[str, list[tuple[Any, ...]]], int]]:
        """The same under a lease, for statements with `?` and their rows. Raises `LeaseLost`."""
        with self._writing.begin() as connection:
            self._check(connection, lease)
            yield lambda statement, rows: self._many(connection, statement, rows)

    # -- within

    def _check(self, connection: Connection, lease: Lease) -> None:
        lease.check()
        lock = LOCKS_A_ROW.get(self.engine.dialect.name, "")
        query = self._native(f"SELECT 1 FROM lease WHERE target = ? AND owner = ?{lock}")
        if connection.exec_driver_sql(query, (lease.target, lease.owner)).one_or_none() is None:
            raise LeaseLost(f"another loader took over the target {lease.target}")

    def _native(self, statement: str) -> str:
        return _with_placeholder(statement, self._placeholder)

    def _many(self, connection: Connection, statement: str, rows: list[tuple[Any, ...]]) -> int:
        """Rows as plain tuples to the driver: about ten times as fast as dicts through the compiler."""
        return connection.exec_driver_sql(self._native(statement), rows).rowcount if rows else 0

    def _many_exactly(self, connection: Connection, statement: str, rows: list[tuple[Any, ...]]) -> None:
        changed = self._many(connection, statement, rows)
        if changed != len(rows):
            raise LedgerError(f"the ledger has {changed} of {len(rows)} records that were to be changed")

    def _change(self, table: Table, where: tuple[Any, ...], **values: Any) -> None:
        keys = and_(*(column == value for column, value in zip(table.primary_key.columns, where, strict=True)))
        with self._writing.begin() as connection:
            if connection.execute(update(table).where(keys).values(values)).rowcount != 1:
                raise LedgerError(f"the ledger has no such {table.name}: {where[1]}")

    def _batch(self, connection: Connection, target: str, batch_id: str) -> dict[str, Any] | None:
        query = select(t.batch).where(t.batch.c.target == target, t.batch.c.batch_id == batch_id)
        row = connection.execute(query).one_or_none()
        return None if row is None else dict(row._mapping)

    def _dicts(self, query: Any) -> list[dict[str, Any]]:
        with self.engine.connect() as connection:
            return [dict(row._mapping) for row in connection.execute(query)]


@cache
def _with_placeholder(statement: str, placeholder: str) -> str:
    return statement.replace("?", placeholder)


@cache
def _marks(number: int) -> str:
    return ", ".join("?" * number)


def _parts(items: Iterable[str], size: int) -> Iterator[list[str]]:
    all_items = list(items)
    return (all_items[start : start + size] for start in range(0, len(all_items), size))
