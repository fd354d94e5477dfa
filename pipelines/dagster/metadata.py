"""The metadata of a stage in Dagster: counts, amounts, rates and durations as numbers, which Dagster plots.

It never holds a row of data.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import dagster as dg

from pipelines.feeds.files.catalog import Feed
from pipelines.feeds.terms.rulebook import rules
from pipelines.home.batch import ReceivedFile
from pipelines.home.small_sums import may_be_told
from pipelines.ledger.columns import LINE_COUNTS
from pipelines.ledger.states import MADE, OUTCOMES
from pipelines.runs.run import RunResult
from pipelines.validation.outcome import ValidationResult

Metadata = dict[str, Any]
ROWS = "dagster/row_count"
AT_TARGET = (*MADE, "unchanged")
"""Outcomes of records that are at the target. A repeat within a file is not a record of its own."""
ROWS_OF_TABLE = 50


def of_received(received: ReceivedFile) -> Metadata:
    return {
        "file": received.file_name,
        "size_bytes": received.size,
        "sha256": received.sha256,
        "received_at": dg.MetadataValue.timestamp(received.received_at),
    }


def of_validated(file_name: str, validated: ValidationResult, seconds: float, money: bool) -> Metadata:
    """Return the metadata of a validated batch. Its row count is the number of records to load.

    It has a rate only if the run checked the file, else the name of the run that did. Columns that the feed does not
    name are only counted, since their names come from the file.
    """
    return {
        "file": file_name,
        **({"nothing_is_sent": validated.stop} if validated.stop else {}),
        ROWS: validated.accepted - validated.skipped,
        **{name: getattr(validated, name) for name in (*LINE_COUNTS, "skipped")},
        **(_dollars(_validated_sums(validated)) if money else {}),
        **(
            {"seconds": round(seconds, 3), "found_in": validated.found_in}
            if validated.found_in
            else pace(validated.records, seconds)
        ),
        "columns_not_named": len(validated.unnamed_columns),
        "rejects_by_rule": by_rule(validated.reasons),
        "warnings_by_rule": by_rule(validated.warnings),
    }


def of_loaded(result: RunResult, target: str, money: bool, taken_back: int = 0) -> Metadata:
    """Return the metadata of a loaded batch. Its row count is the number of its records at the target.

    target: its name in the ledger and the published tables. taken_back: how many of these records were taken back
    since.
    """
    count = result.count
    landed = sum(count(name) for name in AT_TARGET)
    return {
        "file": result.file,
        "target": target,
        "state": result.state,
        "run": result.run or 0,
        ROWS: landed,
        "records": count("records"),
        "rejected": count("rejected"),
        **{name: count(name) for name in OUTCOMES},
        "waiting": result.waiting,
        **(_dollars(_loaded_sums(result)) if money else {}),
        **pace(count("records"), result.seconds),
        "set_aside_by_rule": by_rule(result.reasons),
        **(of_taken_back(landed, taken_back) if taken_back else {}),
    }


def of_taken_back(landed: int, taken_back: int) -> Metadata:
    """Return the metadata that changes when records are taken back. landed: the records at the target before."""
    left = max(landed - taken_back, 0)
    return {ROWS: left, "taken_back": taken_back, "state": "some taken back" if left else "taken back"}


def by_rule(counts: Mapping[str, int]) -> dg.TableMetadataValue:
    """Return a table of rules, the number of records that broke each, and its sentence; most frequent first."""
    known = rules()
    ordered = sorted(counts.items(), key=lambda each: (-each[1], each[0]))
    rows = [(rule, number, known[rule].sentence if rule in known else "") for rule, number in ordered]
    return table(
        [
            ("rule", "string", "The rule's id."),
            ("records", "int", "Records that broke it."),
            ("must_hold", "string", "The rule in words. Empty for a code of the target."),
        ],
        rows,
    )


def table(columns: Sequence[tuple[str, str, str]], rows: Sequence[Sequence[Any]]) -> dg.TableMetadataValue:
    """Return a table of at most `ROWS_OF_TABLE` rows. columns: name, type, description."""
    names = [name for name, _, _ in columns]
    records = [dg.TableRecord(dict(zip(names, row, strict=True))) for row in rows[:ROWS_OF_TABLE]]
    return dg.MetadataValue.table(records, schema(columns))


def schema(columns: Sequence[tuple[str, str, str]]) -> dg.TableSchema:
    return dg.TableSchema([dg.TableColumn(name, kind, description=what) for name, kind, what in columns])


def tells_sums(feed: Feed, run: int | None) -> bool:
    """True for the first run of a batch of payments. Sums of two runs differ by the few records that came between."""
    return feed.resource == "PaymentNotice" and run == 1


class CentsSum(NamedTuple):
    """A sum in cents, with the number of its amounts, each record once; a lower number if nobody counted them."""

    name: str
    cents: int
    amounts: int


def _validated_sums(validated: ValidationResult) -> list[CentsSum]:
    received = CentsSum("amount_received", validated.amount_received, validated.amounts)
    return [received, CentsSum("amount_accepted", validated.amount_accepted, validated.amounts_accepted)]


def _loaded_sums(result: RunResult) -> list[CentsSum]:
    accepted = result.amounts_accepted or result.count("accepted") - result.count("skipped")
    numbers = {
        "amount_received": max(result.amounts, accepted),
        "amount_accepted": accepted,
        "amount_created": result.count("created"),
    }
    return [CentsSum(name, result.count(name), amounts) for name, amounts in numbers.items()]


def _dollars(sums: Sequence[CentsSum]) -> Metadata:
    """Return sums in dollars, for plots; exact amounts are in the ledger and the published tables.

    A sum of few amounts reveals a person's payment, and is left out. The difference between two sums can reveal it too.
    If two sums differ by few amounts, or by an unknown number, only the first is shown.
    """
    shown: list[CentsSum] = []
    for each in sums:
        unexplained = any(other.amounts == each.amounts and other.cents != each.cents for other in shown)
        if may_be_told(each.amounts, [other.amounts for other in shown]) and not unexplained:
            shown.append(each)
    return {each.name: each.cents / 100 for each in shown}


def pace(records: int, seconds: float) -> Metadata:
    """Return the duration, and the rate if the duration is not zero."""
    pace = {"records_per_second": round(records / seconds, 1)} if seconds else {}
    return {"seconds": round(seconds, 3), **pace}
