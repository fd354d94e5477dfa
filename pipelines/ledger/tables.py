"""The ledger's tables. `database.py` opens and makes its database, and brings it to today's form.

The tables hold only ids, keys, codes, line numbers and cents, never a name or a text of a record. Times are UTC text
of fixed width (`2026-11-21T08:47:16.000000Z`), which sorts and compares alike in every database.
"""

from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnCollection,
    ColumnElement,
    FromClause,
    Index,
    Integer,
    ScalarSelect,
    Subquery,
    Table,
    UniqueConstraint,
    and_,
    literal_column,
    select,
    text,
)

from pipelines.home.exits import ExplainedError, WronglyAsked
from pipelines.ledger.columns import (
    cents_column,
    count_columns,
    holder_columns,
    metadata,
    outcome_columns,
    text_column,
    text_columns,
)

SCHEMA_VERSION = 15
OF_STREAM = ("target", "source", "resource_type")
Of = tuple[str, str, str]
"""Target, source and resource type."""


schema_version = Table("schema_version", metadata, Column("version", Integer, primary_key=True))
IS_EARLIER = schema_version.c.version < SCHEMA_VERSION
"""True for the version before a step of the schema. Its row remains until a fact says that the tables are mended."""

position = Table(
    "position",
    metadata,
    text_column("journal", primary_key=True),
    Column("segment", BigInteger, nullable=False),
    Column("number", BigInteger, nullable=False),
    Column("end", BigInteger, nullable=False),
)
"""The position of the tables in the journal beside them; see `journal.Position`."""

journal = Table(
    "journal",
    metadata,
    Column("number", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    text_column("at", nullable=False),
    text_column("facts", nullable=False),
)
"""The journal of a ledger on a server, a row for each transaction. In a ledger in a file, it is another file."""

target = Table(
    "target",
    metadata,
    text_column("target_id", primary_key=True),
    text_column("base_url"),
    text_column("first_seen_at", nullable=False),
)

alias = Table("alias", metadata, text_column("target_id", primary_key=True), text_column("known_as", nullable=False))
"""Ids of targets that the ledger first knew by their addresses, and still knows under these."""

batch = Table(
    "batch",
    metadata,
    Column("batch_no", Integer, primary_key=True),
    *text_columns("target", "batch_id", nullable=False),
    *text_columns("feed", "source", "resource_type", "state", "file_name", "file_sha256", "received_at", "finished_at"),
    *count_columns(),
    text_column("content_sha256"),
    UniqueConstraint("target", "batch_id"),
)
"""content_sha256: of the content of a packed file. It is empty for a file that was not packed, and in rows of versions
that did not note it.
"""

run = Table(
    "run",
    metadata,
    *text_columns("target", "batch_id", primary_key=True),
    Column("run", Integer, primary_key=True, autoincrement=False),
    *text_columns("started_at", "finished_at", "state", "feed_hash", "rules_version", "software_version", "message"),
    *count_columns(),
    text_column("key_hash"),
)
"""key_hash: of the feed file's settings of the key; empty for runs of versions that did not note it."""


stream = Table(
    "stream",
    metadata,
    Column("stream_id", Integer, primary_key=True),
    *text_columns(*OF_STREAM, nullable=False),
    UniqueConstraint(*OF_STREAM),
)
"""Records of one type, from one source, at one target. Within a stream a key names one record."""

feed_version = Table(
    "feed_version",
    metadata,
    Column("feed_no", Integer, primary_key=True),
    text_column("feed_hash", nullable=False, unique=True),
)
"""The contents of feeds by which records were read."""

records = Table(
    "record",
    metadata,
    Column("stream_id", Integer, primary_key=True, autoincrement=False),
    text_column("key", primary_key=True),
    Column("generation", Integer, nullable=False),
    Column("batch_no", Integer, nullable=False),
    Column("line", BigInteger, nullable=False),
    text_column("content_hash", nullable=False),
    Column("feed_no", Integer, nullable=False),
    text_column("state", nullable=False),
    *outcome_columns(),
)
"""Each record as it is now, with the line that it is from. `record` shows it with names in place of numbers.

first_attempt_at: of this generation; it also dates a record that has no date of its own. first_sent_at: the first
attempt of the key, set once and kept over all its generations.
"""
Index("record_by_batch", records.c.batch_no)
"""Without the line: payments are sent by date, so each would go to another place of the index."""
_SENDING = text("state = 'sending'")
Index("record_sending", records.c.stream_id, sqlite_where=_SENDING, postgresql_where=_SENDING)
IS_UNDONE = records.c.state == literal_column("'undone'")
"""A literal, not a parameter: only so is the index of such records used."""
Index("record_undone", records.c.batch_no, sqlite_where=IS_UNDONE, postgresql_where=IS_UNDONE)

versions = Table(
    "version",
    metadata,
    Column("version_no", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("stream_id", Integer, nullable=False),
    text_column("key", nullable=False),
    Column("batch_no", Integer, nullable=False),
    Column("line", BigInteger, nullable=False),
    Column("is_outcome", Integer, nullable=False),
    Column("generation", Integer),
    text_column("content_hash"),
    Column("feed_no", Integer),
    text_column("state", nullable=False),
    *outcome_columns(),
    Column("version", Integer),
    *text_columns("fate", "kept_at"),
)
"""Past versions of records, and outcomes of lines whose record is from another line. `former` and `repeat` show the
two kinds.

is_outcome: 1 for the outcome of a line whose record has moved to another line, or came from another. A line has one.
fate: of the resource of an earlier version. `kept`: the resource was updated; `standing`: it is to be taken back;
`withdrawn`; `gone`; empty if nothing else of the record was changed. version: numbers the versions of a key that have
a fate.
"""
_OUTCOME = text("is_outcome = 1")
Index(
    "version_by_line",
    versions.c.batch_no,
    versions.c.line,
    unique=True,
    sqlite_where=_OUTCOME,
    postgresql_where=_OUTCOME,
)
_FORMER = text("fate IS NOT NULL")
IS_OUTCOME = versions.c.is_outcome == literal_column("1")
"""A literal, not a parameter: only so is the index of outcomes used."""
Index(
    "version_by_key",
    versions.c.stream_id,
    versions.c.key,
    versions.c.version,
    unique=True,
    sqlite_where=_FORMER,
    postgresql_where=_FORMER,
)


def of_batch(lines: Table, target: str, batch_id: str) -> ColumnElement[bool]:
    """True for the records or versions of a batch. With the names of `record`, SQLite would read all batches."""
    number = select(batch.c.batch_no).where(batch.c.target == target, batch.c.batch_id == batch_id)
    return lines.c.batch_no == number.scalar_subquery()


def of_stream(columns: ColumnCollection[str, Any], of: Of) -> ColumnElement[bool]:
    """True for the rows of a target, source and type."""
    return and_(*(columns[name] == value for name, value in zip(OF_STREAM, of, strict=True)))


def number_of(of: Of) -> ScalarSelect[Any]:
    """The number that records and versions have for a target, source and type."""
    return select(stream.c.stream_id).where(of_stream(stream.c, of)).scalar_subquery()


def _named(kept: Table, name: str, columns: str, *where: ColumnElement[bool]) -> Subquery:
    """Return records or versions as a table of these columns, with the names of their stream, batch and feed."""
    tables = kept.join(stream, kept.c.stream_id == stream.c.stream_id).join(batch, kept.c.batch_no == batch.c.batch_no)
    names: dict[str, Any] = {**{name: stream.c[name] for name in OF_STREAM}, "batch_id": batch.c.batch_id}
    if "feed_hash" in (wanted := columns.split()):
        tables = tables.join(feed_version, kept.c.feed_no == feed_version.c.feed_no)
        names["feed_hash"] = feed_version.c.feed_hash
    shown = [names[each] if each in names else kept.c[each] for each in wanted]
    return select(*shown).select_from(tables).where(*where).subquery(name)


_RECORD = """target source resource_type key generation batch_id line content_hash feed_hash state resource_id
    patient_id source_at amount_cents attempts http_status first_attempt_at finished_at first_sent_at"""
record = _named(records, "record", _RECORD)
"""Records with the names of their stream, batch and feed."""
former = _named(versions, "former", f"{_RECORD} version fate kept_at", versions.c.fate.is_not(None))
"""Records as they were before a change, supersede or undo. The oldest version has number 1."""
repeat = _named(
    versions,
    "repeat",
    """target batch_id line source resource_type key state resource_id patient_id source_at amount_cents attempts
    http_status finished_at first_sent_at""",
    IS_OUTCOME,
)
"""Outcomes of lines whose records are from other lines."""

reject = Table(
    "reject",
    metadata,
    *text_columns("target", "reject_id", primary_key=True),
    text_column("batch_id", nullable=False),
    Column("line", BigInteger, nullable=False),
    Column("lines", BigInteger, nullable=False),
    *text_columns("source", "resource_type", nullable=False),
    text_column("source_key"),
    *text_columns("stage", "state", nullable=False),
    Column("attempts", Integer, nullable=False),
    *text_columns("first_seen_at", "last_seen_at", "closed_by_batch", "patient_id", "source_at"),
    cents_column(),
    *text_columns("content_hash", "tried_since"),
)
"""content_hash: of a record that was mapped. The reject is closed once that content is at the target.

tried_since: of the reject's own row; as in `resubmission`.
"""
Index("reject_by_key", *(reject.c[name] for name in (*OF_STREAM, "source_key")))
Index("reject_by_state", *(reject.c[name] for name in ("target", "state", "batch_id", "line", "first_seen_at")))
"""Dagster's sensors count open rejects by its columns alone, at each look."""

reject_reason = Table(
    "reject_reason",
    metadata,
    text_column("reject_id", primary_key=True),
    Column("position", Integer, primary_key=True, autoincrement=False),
    *text_columns("rule_id", "expression", "column_name", "message"),
    Column("retryable", Integer, nullable=False),
    Column("line", BigInteger),
)
"""line: the row that the reason is about, in a record of several rows; empty if it is about all of them."""

resubmission = Table(
    "resubmission",
    metadata,
    *text_columns("target", "batch_id", primary_key=True),
    Column("line", BigInteger, primary_key=True, autoincrement=False),
    text_column("reject_id", primary_key=True),
    text_column("seen_at", nullable=False),
    *text_columns("key", "tried_since"),
)
"""Records of later files that answer a reject. The newest of them represents the reject now.

key: of a row that was set aside at `seen_at`; empty if it could not be read, none if it was never set aside.
tried_since: when the row was put in, or tried again, after that. It is empty once the row was found unchanged at the
target, and none while the row is set aside.
"""
Index("resubmission_of_reject", resubmission.c.target, resubmission.c.reject_id)
_WRONG = resubmission.c.key.is_not(None)
Index("resubmission_by_key", resubmission.c.target, resubmission.c.key, sqlite_where=_WRONG, postgresql_where=_WRONG)

lease = Table("lease", metadata, text_column("target", primary_key=True), *holder_columns())

part = Table(
    "part",
    metadata,
    text_column("target", primary_key=True),
    Column("part", Integer, primary_key=True, autoincrement=False),
    Column("attempts", Integer, nullable=False),
    *holder_columns(),
    *text_columns("counts", "outcome"),
)
"""The parts of the batch that is being loaded into a target, each with its own lease. A part without an owner is free.

attempts: how often the part was begun. counts: of its rows so far. outcome: set when it has ended. Both are JSON.
"""

publication = Table(
    "publication",
    metadata,
    text_column("published_at", primary_key=True),
    text_column("target"),
    text_column("sweep_started_at"),
    Column("reports_total", BigInteger, nullable=False),
    Column("batches", BigInteger, nullable=False),
    text_column("software_version"),
)

shared_note = Table(
    "shared_note",
    metadata,
    *text_columns("target", "source", "key", primary_key=True),
    Column("generation", Integer, primary_key=True, autoincrement=False),
    *text_columns("patient_id", "day", nullable=False),
)
"""Responses that share the note of a patient and local day (`notes = "patient-day"`)."""
Index("shared_note_by_day", *(shared_note.c[name] for name in ("target", "source", "patient_id", "day")))

sighting = Table(
    "sighting",
    metadata,
    *text_columns("target", "resource_type", "patient_id", "noted_at", primary_key=True),
    Column("ahead_us", BigInteger),
    text_column("ids"),
)
"""A patient's resources at a bare target, before anything was sent.

`ahead_us`: microseconds that the target's clock is ahead of ours, at least. `ids`: separated by blanks; empty if they
could not be read.
"""

decision = Table(
    "decision",
    metadata,
    text_column("decision_id", primary_key=True),
    text_column("target"),
    *text_columns("at", "user", "command", "subject", nullable=False),
    text_column("why"),
)
"""Decisions of people. `subject`: a batch, a reject's id, or a row in doubt as `<batch>:<line>`."""


query_mark = Table(
    "query_mark",
    metadata,
    *text_columns("target", "feed", primary_key=True),
    *text_columns("query_hash", "batch_id", "kind", "value", "noted_at", nullable=False),
)
"""The watermark up to which the database of a feed was read: a time, a date or a number. The next query begins there.

query_hash: of the query that was asked. batch_id: the batch of the rows that it returned.
"""


class LedgerError(ExplainedError):
    """The ledger cannot be used as asked. The text is one sentence, without data of a record."""


class NotPossible(LedgerError, WronglyAsked):
    """A command cannot do what was asked, and has changed nothing. The text is one sentence with the reason."""


_BEHIND = (position, journal, part, stream, feed_version, records, versions)
readable: dict[str, FromClause] = {
    **{table.name: table for table in metadata.tables.values() if table not in _BEHIND},
    **{shown.name: shown for shown in (record, former, repeat)},
}
"""The tables that readers see, by name."""
