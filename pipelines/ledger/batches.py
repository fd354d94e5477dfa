"""The ledger's targets, batches and runs, its publications, and the decisions of people."""

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cache
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Row, Select, Table, and_, bindparam, case, func, or_, select, union, update

from pipelines.ledger import tables as t
from pipelines.ledger.access import LedgerAccess
from pipelines.ledger.columns import LARGEST
from pipelines.ledger.inserting import insert_new, is_inserted, keep_others_out
from pipelines.ledger.lease import LATEST, utc_text
from pipelines.ledger.rows import SoFar
from pipelines.ledger.states import UNDECIDED
from pipelines.ledger.tables import LedgerError, NotPossible
from pipelines.ledger.verbs import verb

R = TypeVar("R")
SHOWN = [column for column in t.batch.columns if column.name != "batch_no"]
"""The columns of a batch without its number, which only the ledger uses."""
BATCHES = select(*SHOWN).order_by(t.batch.c.received_at, t.batch.c.batch_id)
BATCHES_OF_TARGET = BATCHES.where(t.batch.c.target == bindparam("target"))
BATCH = select(*SHOWN).where(t.batch.c.target == bindparam("target"), t.batch.c.batch_id == bindparam("batch_id"))
RUNS = (
    select(t.run)
    .where(t.run.c.target == bindparam("target"), t.run.c.batch_id == bindparam("batch_id"))
    .order_by(t.run.c.run)
)
"""Queries that are built once: commands ask them often, and building one takes longer than reading a few rows."""
ON_LINE = ("stream_id", "key", "batch_no", "line")


class BatchLedger(LedgerAccess):
    """The ledger's batches and runs. A batch counts the first outcomes of its rows; every run has counts of its own."""

    # -- targets, batches, runs, publications

    @verb
    def note_target(self, target_id: str, base_url: str) -> list[str]:
        """Note the target with its present address; return the ids of all other targets that this ledger knows."""
        seen = [name for (name,) in self.read(select(t.target.c.target_id))]
        row = {"target_id": target_id, "base_url": base_url, "first_seen_at": self.now()}
        if target_id in seen or not is_inserted(self, t.target, row):
            self.execute(update(t.target).where(t.target.c.target_id == target_id).values(base_url=base_url))
        return [each for each in seen if each != target_id]

    @verb
    def note_alias(self, target_id: str, known_as: str) -> None:
        """Note the id of a target that the ledger knew only by its address. Of two machines at once, one succeeds."""
        insert_new(self, t.alias, [{"target_id": target_id, "known_as": known_as}])

    @verb
    def start_batch(self, target: str, batch_id: str, **values: Any) -> bool:
        """Note a new batch as `running`. Return False, and change nothing, if the batch is known."""
        row = {"received_at": self.now(), **values, "target": target, "batch_id": batch_id, "state": "running"}
        return self.batch(target, batch_id) is None and is_inserted(self, t.batch, row)

    @verb
    def read_batch_as(self, target: str, batch_id: str, source: str, resource_type: str) -> None:
        """Note the source and type that a corrected feed gives to a batch, before any row of it was sent."""
        self._change("batch", {"target": target, "batch_id": batch_id}, source=source, resource_type=resource_type)

    @verb
    def note_mark(self, target: str, feed: str, query_hash: str, batch_id: str, kind: str, value: str) -> None:
        """Note how far the database of a feed was read. batch_id: the batch that has the rows up to this mark."""
        row = {"query_hash": query_hash, "batch_id": batch_id, "kind": kind, "value": value, "noted_at": self.now()}
        this = (t.query_mark.c.target == target, t.query_mark.c.feed == feed)
        if not is_inserted(self, t.query_mark, {"target": target, "feed": feed, **row}):
            self.execute(update(t.query_mark).where(*this).values(row))

    def mark(self, target: str, feed: str, query_hash: str) -> tuple[str, str] | None:
        """Return kind and value of a query's mark; None if the query is new or was changed."""
        mark = t.query_mark.c
        this = (mark.target == target, mark.feed == feed, mark.query_hash == query_hash)
        return next(
            ((str(kind), str(value)) for kind, value in self.read(select(mark.kind, mark.value).where(*this))), None
        )

    @verb
    def reopen_batch(self, target: str, batch_id: str) -> None:
        """Set a finished batch to `running` before its rows are sent, so that a killed run leaves it in that state."""
        self._change("batch", {"target": target, "batch_id": batch_id}, state="running")

    @verb
    def count_batch(self, target: str, batch_id: str, counts: Mapping[str, int | None]) -> None:
        """Write the counts so far of a batch that is still running."""
        self._set("batch", {"target": target, "batch_id": batch_id, "state": "running"}, counts)

    @verb
    def finish_batch(
        self,
        target: str,
        batch_id: str,
        state: str,
        counts: Mapping[str, int | None] | None = None,
        finished_at: str | None = None,
    ) -> None:
        """Set the batch's state and, if given, its counts, which are those of its rows' first outcomes.

        finished_at: the end to keep for a batch that was reopened. A batch that is `finished` keeps its earlier end.
        """
        this, finished = {"target": target, "batch_id": batch_id}, finished_at or self.now()
        self._change("batch", this, state=state, finished_at=finished, **_held(counts or {}))

    @verb
    def start_run(self, target: str, batch_id: str, **values: Any) -> int:
        """Note a run of the batch; return its number, from 1."""
        this = (t.batch.c.target == target, t.batch.c.batch_id == batch_id)
        # If two machines begin at once, the second waits here: else both would take one number.
        self.read(select(t.batch.c.batch_id).where(*this).with_for_update())
        here = (t.run.c.target == target, t.run.c.batch_id == batch_id)
        number = 1 + int(self.value(select(func.max(t.run.c.run)).where(*here)) or 0)
        row = {"started_at": self.now(), **values, "target": target, "batch_id": batch_id, "state": "running"}
        self.execute(t.run.insert().values(run=number, **row))
        return number

    @verb
    def count_run(self, target: str, so_far: SoFar) -> None:
        """Write the counts so far of a run. They show its progress, and remain if the run is killed."""
        this: dict[str, str | int] = {"target": target, "batch_id": so_far.batch_id, "run": so_far.run}
        self._set("run", this, _held(so_far.counts))

    @verb
    def finish_run(
        self,
        target: str,
        batch_id: str,
        run: int,
        *,
        state: str,
        counts: Mapping[str, int | None],
        message: str | None = None,
        finished_at: str | None = None,
    ) -> None:
        """Set the outcome of a run (`finished`, `stopped`, `failed`), its counts, and the reason if it did not finish.

        finished_at: the end of a run that the ledger had lost.
        """
        ended = {"state": state, "message": message, "finished_at": finished_at or self.now()}
        self._change("run", {"target": target, "batch_id": batch_id, "run": run}, **ended, **_held(counts))

    @verb
    def cut_off_run(self, target: str, batch_id: str, run: int, state: str, message: str) -> None:
        """Set state and message of a run that has not ended; leave a run that has ended as it is."""
        this = (t.run.c.target == target, t.run.c.batch_id == batch_id, t.run.c.run == run)
        self.execute(update(t.run).where(*this, t.run.c.finished_at.is_(None)).values(state=state, message=message))

    def batches(self, target: str | None = None) -> list[dict[str, Any]]:
        """Return the batches, oldest first, as dicts of the table's columns."""
        return _dicts(self.read(BATCHES) if target is None else self.read(BATCHES_OF_TARGET, target=target))

    def batch(self, target: str, batch_id: str) -> dict[str, Any] | None:
        return next(iter(_dicts(self.read(BATCH, target=target, batch_id=batch_id))), None)

    def known_batch(self, target: str, batch_id: str) -> dict[str, Any]:
        """Return a batch. Raises `NotPossible` if the target has no batch of this id."""
        found = self.batch(target, batch_id)
        if found is None:
            raise NotPossible(f"{batch_id}: no such batch at this target (chartferry status lists them)")
        return found

    def runs(self, target: str, batch_id: str) -> list[dict[str, Any]]:
        return _dicts(self.read(RUNS, target=target, batch_id=batch_id))

    def worked_on_at(self, batch: Mapping[str, Any]) -> str:
        """Return when a batch was last worked on: its last run began or ended, or it came, where no run has begun."""
        runs = self.runs(batch["target"], batch["batch_id"])
        return max((str(run["finished_at"] or run["started_at"]) for run in runs), default=str(batch["received_at"]))

    def newest_run(self, batch_id: str) -> int:
        """Return the highest run number of a batch at any target; 0 if it has no run."""
        return int(self.value(select(func.max(t.run.c.run)).where(t.run.c.batch_id == batch_id)) or 0)

    def ended_runs(self, target: str) -> dict[str, list[int]]:
        """Return the numbers of the ended runs at a target, by batch."""
        found: dict[str, list[int]] = {}
        ended = select(t.run.c.batch_id, t.run.c.run).where(t.run.c.target == target, t.run.c.finished_at.is_not(None))
        for batch, number in self.read(ended):
            found.setdefault(batch, []).append(number)
        return found

    def runs_ended(self, target: str) -> tuple[int, str | None]:
        """Return the number of ended runs at a target, and when the last one ended."""
        run = t.run.c
        query = select(func.count(), func.max(run.finished_at)).where(
            run.target == target, run.finished_at.is_not(None)
        )
        [(number, last)] = self.read(query)
        return int(number), last

    def row_counts(self, target: str, batch_id: str) -> dict[str, tuple[int, int]]:
        """Return the number of rows of the batch and their cents, by the first outcome of each line.

        A row that was undone, lost with the ledger and then found again counts as adopted.
        """
        this = (t.batch.c.target == target, t.batch.c.batch_id == batch_id)
        with self.reading():
            number = self.value(select(t.batch.c.batch_no).where(*this))
            found = self.read(OUTCOMES, batch_no=number)
        return {outcome: (rows, int(cents)) for outcome, rows, cents in found}

    @verb
    def date_batches_back(self, moment: str) -> None:
        """Move batches dated after a moment to just before it, in their order. Used where a clock had been ahead.

        moment: as UTC text.
        """
        batch = t.batch.c
        ahead = select(batch.batch_no).where(batch.received_at > moment)
        found = self.read(ahead.order_by(batch.received_at, batch.target, batch.batch_id))
        for at, (batch_no,) in _before(moment, found):
            self.execute(update(t.batch).where(batch.batch_no == batch_no).values(received_at=at))

    @verb
    def date_publications_back(self, moment: str) -> None:
        """Move publications dated after a moment (UTC text) to just before it, in their order."""
        dated = t.publication.c.published_at
        found = self.read(select(dated).where(dated > moment).order_by(dated))
        for at, (ahead,) in _before(moment, found):
            self.execute(update(t.publication).where(dated == ahead).values(published_at=at))

    @verb
    def date_rejects_back(self, moment: str) -> None:
        """Move times of rejects after a moment (UTC text) to just before it, in their order.

        Move times of records along with them, since the order of both decides if a reject is closed.
        """
        reject, again = t.reject.c, t.resubmission.c
        set_aside = (reject.first_seen_at, reject.last_seen_at, reject.tried_since, again.seen_at, again.tried_since)
        done = tuple(each for table in (t.records.c, t.versions.c) for each in (table.finished_at, table.first_sent_at))
        ahead = union(*(select(each).where(each > moment) for each in set_aside)).subquery()
        last, spans = moment, list[tuple[str, str]]()
        for (at,) in self.read(select(*ahead.c).order_by(*ahead.c)):
            spans += [(last, at), (at, at)]
            last = at
        for at, (begin, end) in _before(moment, [*spans, (last, LATEST)]):
            for each in (*set_aside, *done):
                this = each == end if begin == end else and_(each > begin, each < end)
                self.execute(update(each.table).where(this).values({each.name: at}))

    @verb
    def note_publication(self, **values: Any) -> None:
        self.execute(t.publication.insert().values({"published_at": self.now(), **values}))

    # -- decisions by hand

    @verb
    def note_decisions(
        self, target: str | None, user: str, command: str, subjects: Collection[str], why: str | None
    ) -> None:
        """Note who decided what, when and why: one row for each subject. A subject is a batch, a reject, a row as
        `<batch>:<line>`, or a moment.
        """
        keep_others_out(self)  # else two machines would give one number twice
        about = {"target": target, "at": self.now(), "user": user, "command": command, "why": why}
        number = int(self.value(select(func.count()).select_from(t.decision)))
        if rows := [
            {**about, "decision_id": _decision_id(at, subject), "subject": subject}
            for at, subject in enumerate(subjects, number)
        ]:
            self.execute(t.decision.insert(), rows)

    def decisions(self, target: str | None = None, batch_id: str | None = None) -> list[dict[str, Any]]:
        """Return the decisions, oldest first, as dicts of the table's columns. batch_id: only those about this batch
        or a row of it.
        """
        decision, of_row = t.decision.c, f"{batch_id}:"
        query = select(t.decision).order_by(decision.at, decision.subject)
        if batch_id is not None:
            query = query.where(or_(decision.subject == batch_id, decision.subject.startswith(of_row, autoescape=True)))
        return _dicts(self.read(query if target is None else query.where(decision.target == target)))

    def decided(self, command: str, target: str | None = None) -> set[str]:
        """Return the subjects of all decisions by a command."""
        decision = t.decision.c
        query = select(decision.subject).where(decision.command == command)
        found = self.read(query if target is None else query.where(decision.target == target))
        return {subject for (subject,) in found}

    def _change(self, table: str, this: Mapping[str, str | int], **values: Any) -> None:
        if self._set(table, this, values) != 1:
            raise LedgerError(f"the ledger has no such {table}: {this['batch_id']}")

    def _set(self, table: str, these: Mapping[str, str | int], values: Mapping[str, Any]) -> int:
        """Set columns of the rows that have these values; return how many rows there are."""
        return self.write(_setting(table, tuple(values), tuple(these)), [(*values.values(), *these.values())])


def _dicts(rows: Iterable[Row[Any]]) -> list[dict[str, Any]]:
    return [dict(row._mapping) for row in rows]


def _outcomes() -> Select[Any]:
    """Select outcome, rows and cents of a batch's lines: those of its records, and those whose record is of another
    line now.

    A line's outcome is the first one that its record had there. Later outcomes belong to other lines or to people's
    decisions.
    """
    record, version = t.records.c, t.versions.c
    here: ColumnElement[int] = bindparam("batch_no")
    own = select(_first_of(t.records).label("state"), record.amount_cents).where(record.batch_no == here)
    stands = select(record.key).where(*(record[name] == version[name] for name in ON_LINE)).exists()
    # For a batch without records, such as that of a file that came before, no key is looked up.
    has_records = select(record.key).where(record.batch_no == here).exists()
    # A record that was changed, or taken back and loaded again, here and then from another line, had an outcome before.
    was_here = version.fate.is_not(None)
    left = select(case((was_here, _first_of(t.versions)), else_=version.state), version.amount_cents)
    left = left.where(version.batch_no == here, t.IS_OUTCOME, ~and_(has_records, stands))
    lines = own.union_all(left).subquery().c
    outcome = case((lines.state == "undone", "adopted"), else_=lines.state).label("outcome")
    return select(outcome, func.count(), func.coalesce(func.sum(lines.amount_cents), 0)).group_by("outcome")


def _first_of(lines: Table) -> ColumnElement[str]:
    """Select the state of the first decided version that a record had on its line; else the record's own state."""
    version = t.versions.alias("earlier").c
    same = (version[name] == lines.c[name] for name in ON_LINE)
    decided = (version.fate.is_not(None), version.state.not_in(UNDECIDED))
    query = select(version.state).where(*same, *decided).order_by(version.version).limit(1)
    return func.coalesce(query.correlate(lines).scalar_subquery(), lines.c.state)


OUTCOMES = _outcomes()


def _before(moment: str, rows: Sequence[R]) -> Iterator[tuple[str, R]]:
    """Yield rows, the last one first, with moments one microsecond apart that end just before `moment`."""
    for number, row in enumerate(reversed(rows), 1):
        yield utc_text(datetime.fromisoformat(moment) - timedelta(microseconds=number)), row


def _held(counts: Mapping[str, int | None]) -> dict[str, int]:
    """Return counts limited to what the ledger can hold. Larger sums of amounts are never meant."""
    return {name: max(-LARGEST, min(number or 0, LARGEST)) for name, number in counts.items()}


def _decision_id(number: int, subject: str) -> str:
    """Return a name for the n-th decision, made only of known facts: a replay of the journal gives an equal name."""
    return hashlib.sha256(f"{number}|{subject}".encode()).hexdigest()[:32]


@cache
def _setting(table: str, columns: tuple[str, ...], keys: tuple[str, ...]) -> str:
    """Return the update statement as text: loads commit often, and building it takes longer than executing it.

    A finished batch keeps its end.
    """
    kept = "CASE WHEN state = 'finished' THEN finished_at ELSE ? END" if table == "batch" else "?"
    sets = ", ".join(f"{name} = {kept if name == 'finished_at' else '?'}" for name in columns)
    return f"UPDATE {table} SET {sets} WHERE {' AND '.join(f'{name} = ?' for name in keys)}"
