"""The ledger's tables. How its database is opened, made and brought to today's form is in `database.py`.

Ids, keys, codes, line numbers and cents only: no name and no text of a record ever comes here. Times are UTC text of
fixed width (`2026-11-21T08:47:16.000000Z`), which sorts and compares alike in every database.
"""

from typing import Any

from sqlalchemy import BigInteger, Column, Index, Integer, MetaData, ScalarSelect, Table, Text, select, text

from pipelines.ledger.states import OUTCOMES

SCHEMA_VERSION = 8

LINE_COUNTS = ("header", "lines", "not_taken", "records", "accepted", "rejected")
AMOUNTS = ("amount_received", "amount_accepted", "amount_created")
COPAYMENTS = ("copayments", "amount_copayments")
COUNTS = LINE_COUNTS + OUTCOMES + AMOUNTS + COPAYMENTS
"""What a batch and a run count: lines, records, outcomes, three amounts in cents; of accepted payments those with a
claim, and their cents: empty where nobody counted them."""
LARGEST = 10**18 - 1
"""The largest count, and sum of cents, that is kept: what a published amount has digits for."""

metadata = MetaData()


def _text(name: str, **options: bool) -> Column[str]:
    return Column(name, Text, **options)  # type: ignore[arg-type]


def _texts(*names: str, **options: bool) -> list[Column[str]]:
    return [_text(name, **options) for name in names]


def _counts() -> list[Column[int]]:
    told = [Column(name, BigInteger, nullable=False, server_default="0") for name in COUNTS if name not in COPAYMENTS]
    return [*told, *(Column(name, BigInteger) for name in COPAYMENTS)]


def _cents() -> Column[int]:
    return Column("amount_cents", BigInteger)


schema_version = Table("schema_version", metadata, Column("version", Integer, primary_key=True))

position = Table(
    "position",
    metadata,
    _text("journal", primary_key=True),
    Column("segment", BigInteger, nullable=False),
    Column("number", BigInteger, nullable=False),
    Column("end", BigInteger, nullable=False),
)
"""How far the tables have the journal beside them; see `journal.Position`."""

journal = Table(
    "journal",
    metadata,
    Column("number", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    _text("at", nullable=False),
    _text("facts", nullable=False),
)
"""The journal of a ledger on a server, a row for each transaction. A ledger in a file has it beside that."""

target = Table(
    "target", metadata, _text("target_id", primary_key=True), _text("base_url"), _text("first_seen_at", nullable=False)
)

alias = Table("alias", metadata, _text("target_id", primary_key=True), _text("known_as", nullable=False))
"""Ids that targets show by now which the ledger knew by their addresses before, and knows so still."""

batch = Table(
    "batch",
    metadata,
    _text("target", primary_key=True),
    _text("batch_id", primary_key=True),
    *_texts("feed", "source", "resource_type", "state", "file_name", "file_sha256", "received_at", "finished_at"),
    *_counts(),
)

run = Table(
    "run",
    metadata,
    _text("target", primary_key=True),
    _text("batch_id", primary_key=True),
    Column("run", Integer, primary_key=True, autoincrement=False),
    *_texts("started_at", "finished_at", "state", "feed_hash", "rules_version", "software_version", "message"),
    *_counts(),
)


def _record(*more: str) -> list[Column[Any]]:
    """The columns of a record. `more`: what its primary key has besides.

    first_attempt_at: of this generation, and what a record without a date of its own is sent with. first_sent_at: the
    first attempt of the key, set once and kept over all its generations.
    """
    return [
        _text("target", primary_key=True),
        _text("source", primary_key=True),
        _text("resource_type", primary_key=True),
        _text("key", primary_key=True),
        *(Column(name, Integer, primary_key=True, autoincrement=False) for name in more),
        _text("batch_id", nullable=False),
        Column("line", BigInteger, nullable=False),
        _text("content_hash", nullable=False),
        _text("feed_hash", nullable=False),
        _text("state", nullable=False),
        _text("resource_id"),
        _text("patient_id"),
        _text("source_at"),
        _cents(),
        Column("attempts", Integer, nullable=False),
        Column("http_status", Integer),
        _text("first_attempt_at"),
        _text("finished_at"),
        _text("first_sent_at"),
    ]


term = Table(
    "term",
    metadata,
    Column("term_id", Integer, primary_key=True),
    _text("text", nullable=False, unique=True),
)
"""Texts that many records share, each once: what holds their numbers is half as large, its indexes a quarter."""
TERMS = ("target", "source", "resource_type", "batch_id", "feed_hash")
"""Columns that entries and appearances hold as numbers of terms."""


def _kept(name: str, shown: Table) -> Table:
    """The table behind a view: the same columns, with numbers in the place of terms."""
    return Table(name, metadata, *(_number_of(c) if c.name in TERMS else c._copy() for c in shown.columns))


def _number_of(term: Column[str]) -> Column[int]:
    return Column(term.name, Integer, primary_key=term.primary_key, nullable=False, autoincrement=False)


record = Table("record", MetaData(), *_record("generation"))
"""A view: the entries, each with its texts. What is read of records is read here."""

entry = _kept("entry", record)
"""Records as they are kept and written."""
BY_BATCH = Index("entry_by_batch", entry.c.target, entry.c.batch_id)
"""Without the line: payments are sent by date, so that each would be put in at another place of the index."""
_SENDING = text("state = 'sending'")
Index("entry_sending", entry.c.target, sqlite_where=_SENDING, postgresql_where=_SENDING)

repeat = Table(
    "repeat",
    MetaData(),
    _text("target", primary_key=True),
    _text("batch_id", primary_key=True),
    Column("line", BigInteger, primary_key=True, autoincrement=False),
    *_texts("source", "resource_type", "key", "state", nullable=False),
    *_texts("resource_id", "patient_id", "source_at"),
    _cents(),
    Column("attempts", Integer, nullable=False),
    Column("http_status", Integer),
    _text("finished_at"),
)

"""A view, as `record` is: later appearances of records."""

appearance = _kept("appearance", repeat)
"""Repeats as they are kept and written."""

VIEWS = ((record, entry), (repeat, appearance))

reject = Table(
    "reject",
    metadata,
    _text("target", primary_key=True),
    _text("reject_id", primary_key=True),
    _text("batch_id", nullable=False),
    Column("line", BigInteger, nullable=False),
    Column("lines", BigInteger, nullable=False),
    *_texts("source", "resource_type", nullable=False),
    _text("source_key"),
    *_texts("stage", "state", nullable=False),
    Column("attempts", Integer, nullable=False),
    *_texts("first_seen_at", "last_seen_at", "closed_by_batch", "patient_id", "source_at"),
    _cents(),
    _text("content_hash"),
)
"""content_hash: of a record that was mapped; where that content is at the target, the reject is closed."""
Index("reject_by_key", reject.c.target, reject.c.source, reject.c.resource_type, reject.c.source_key)

reject_reason = Table(
    "reject_reason",
    metadata,
    _text("reject_id", primary_key=True),
    Column("position", Integer, primary_key=True, autoincrement=False),
    *_texts("rule_id", "expression", "column_name", "message"),
    Column("retryable", Integer, nullable=False),
    Column("line", BigInteger),
)
"""line: of a record of several rows, the one that the reason is about; empty where it is about all of them."""

resubmission = Table(
    "resubmission",
    metadata,
    _text("target", primary_key=True),
    _text("batch_id", primary_key=True),
    Column("line", BigInteger, primary_key=True, autoincrement=False),
    _text("reject_id", primary_key=True),
    _text("seen_at", nullable=False),
)
"""Records of later files that answer a reject: the newest of them is what stands for it now."""
Index("resubmission_of_reject", resubmission.c.target, resubmission.c.reject_id)

lease = Table(
    "lease",
    metadata,
    _text("target", primary_key=True),
    *_texts("owner", "host", "machine", nullable=False),
    Column("pid", Integer, nullable=False),
    *_texts("taken_at", "heartbeat_at", nullable=False),
)

publication = Table(
    "publication",
    metadata,
    _text("published_at", primary_key=True),
    _text("target"),
    _text("sweep_started_at"),
    Column("reports_total", BigInteger, nullable=False),
    Column("batches", BigInteger, nullable=False),
    _text("software_version"),
)

former = Table(
    "former",
    metadata,
    *_record("version"),
    Column("generation", Integer, nullable=False),
    _text("fate", nullable=False),
    _text("kept_at", nullable=False),
)
"""What a record was before it was changed, superseded or taken back, oldest version first.

fate: of the resource it had: `kept` (the same one was updated), `standing` (to be taken back), `withdrawn`, or `gone`.
"""

shared_note = Table(
    "shared_note",
    metadata,
    _text("target", primary_key=True),
    _text("source", primary_key=True),
    _text("key", primary_key=True),
    Column("generation", Integer, primary_key=True, autoincrement=False),
    *_texts("patient_id", "day", nullable=False),
)
"""Responses that share the note of a patient and local day (`notes = "patient-day"`)."""
Index(
    "shared_note_by_day",
    shared_note.c.target,
    shared_note.c.source,
    shared_note.c.patient_id,
    shared_note.c.day,
)

sighting = Table(
    "sighting",
    metadata,
    _text("target", primary_key=True),
    _text("resource_type", primary_key=True),
    _text("patient_id", primary_key=True),
    _text("noted_at", primary_key=True),
    Column("ahead_us", BigInteger),
    _text("ids"),
)
"""What was at a target with the bare interface before anything was sent: how far (microseconds) its clock is ahead of
ours at least, and the ids of the patient's resources, with blanks between; empty where they could not be read."""

decision = Table(
    "decision",
    metadata,
    _text("decision_id", primary_key=True),
    _text("target"),
    *_texts("at", "user", "command", "subject", nullable=False),
    _text("why"),
)
"""What people decided by hand. `subject`: a batch, a reject's id, or a row in doubt as `<batch>:<line>`."""


class LedgerError(Exception):
    """The ledger cannot be used as asked: one sentence, without data of a record."""


class NotPossible(LedgerError):
    """What was asked for cannot be done: one sentence why. Nothing was changed."""


_BEHIND = (term, position, journal, *(kept for _, kept in VIEWS))
readable = {table.name: table for table in (*metadata.tables.values(), record, repeat) if table not in _BEHIND}
"""What can be read of a ledger, by name."""


def term_of(said: str) -> ScalarSelect[int]:
    """The number of a term, within a statement; nothing equals that of one that is not there."""
    return select(term.c.term_id).where(term.c.text == said).scalar_subquery()
