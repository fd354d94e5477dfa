"""Columns that several of the ledger's tables share: texts, cents, and the counts of batches and runs."""

from typing import Any

from sqlalchemy import BigInteger, Column, Integer, MetaData, Text

from pipelines.ledger.states import OUTCOMES

LINE_COUNTS = ("header", "lines", "not_taken", "records", "accepted", "rejected")
AMOUNTS = ("amount_received", "amount_accepted", "amount_created")
COPAYMENTS = ("copayments", "amount_copayments")
LINES = (*LINE_COUNTS, "amount_received", "amount_accepted", *COPAYMENTS)
"""The counts of a batch that validation makes."""
COUNTS = LINE_COUNTS + OUTCOMES + AMOUNTS + COPAYMENTS
"""The counts of a batch and of a run: lines, records, outcomes, three amounts in cents, and copayments.

Copayments are the number of accepted payments with a claim, and their cents; both are empty if they were not counted.
"""
LARGEST = 10**18
"""The largest count or sum of cents that is kept. Larger values are stored as this one: published amounts have no
digits for more.
"""

metadata = MetaData()


def text_column(name: str, **options: bool) -> Column[str]:
    return Column(name, Text, **options)  # type: ignore[arg-type]


def text_columns(*names: str, **options: bool) -> list[Column[str]]:
    return [text_column(name, **options) for name in names]


def count_columns() -> list[Column[int]]:
    told = [Column(name, BigInteger, nullable=False, server_default="0") for name in COUNTS if name not in COPAYMENTS]
    return [*told, *(Column(name, BigInteger) for name in COPAYMENTS)]


def cents_column() -> Column[int]:
    return Column("amount_cents", BigInteger)


def outcome_columns() -> list[Column[Any]]:
    """Return the columns of a record's outcome, now or in an earlier version."""
    attempts = [Column("attempts", Integer, nullable=False), Column("http_status", Integer)]
    moments = text_columns("first_attempt_at", "finished_at", "first_sent_at")
    return [*text_columns("resource_id", "patient_id", "source_at"), cents_column(), *attempts, *moments]


def holder_columns() -> list[Column[Any]]:
    """Return the columns of the process that holds a lease: the fields of `lease.Holder`."""
    texts = text_columns("owner", "host", "machine", nullable=False)
    return [*texts, Column("pid", Integer, nullable=False), *text_columns("taken_at", "heartbeat_at", nullable=False)]
