"""The asset checks of an import: statements that are true if no row and no cent was lost.

Each check compares a stage's counts for a batch with its files or the ledger, and yields every difference. Differences
name counts and numbers only. A blocking check that fails stops the later stages.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

import dagster as dg
import pyarrow.compute as pc

from fhir_service.paths import exists
from pipelines.home.spill import batches
from pipelines.importing.current_problems import none_taken, not_known
from pipelines.ledger.states import LANDED, OUTCOMES
from pipelines.runs.run import RunResult
from pipelines.validation.outcome import ValidationResult

ERROR, WARN = dg.AssetCheckSeverity.ERROR, dg.AssetCheckSeverity.WARN
Violations = Iterator[str]
Facts = TypeVar("Facts")


@dataclass(frozen=True)
class LoadedBatch:
    """A batch after its load.

    * rows: rows and cents of the batch in the ledger, by state.
    * first: True if no row had an outcome before this try of the run. Only then must the counts of the run and of the
      ledger agree: a later run counts rows that were sent before as unchanged.
    """

    result: RunResult
    rows: Mapping[str, tuple[int, int]]
    first: bool


@dataclass(frozen=True)
class CheckStatement(Generic[Facts]):
    """An asset check. by_file: if it fails for some files of a run, the other files continue."""

    name: str
    description: str
    violations: Callable[[Facts], Violations]
    blocking: bool = False
    by_file: bool = False
    severity: dg.AssetCheckSeverity = ERROR

    def spec(self, asset: Sequence[str]) -> dg.AssetCheckSpec:
        return dg.AssetCheckSpec(
            self.name, asset=dg.AssetKey(list(asset)), description=self.description, blocking=self.blocking
        )

    def result(self, batches: Mapping[str, Facts], asset: Sequence[str]) -> dg.AssetCheckResult:
        """Return the verdict over the batches of a run; only a warning if a check by file fails for some of them."""
        found = {batch_id: list(self.violations(facts)) for batch_id, facts in batches.items()}
        broken = {batch_id: sentences for batch_id, sentences in found.items() if sentences}
        severity = WARN if self.by_file and 0 < len(broken) < len(batches) else self.severity
        return dg.AssetCheckResult(
            passed=not broken,
            asset_key=dg.AssetKey(list(asset)),
            check_name=self.name,
            severity=severity,
            description="; ".join(f"{batch_id}: {', '.join(each)}" for batch_id, each in broken.items()) or None,
            metadata={"batches": len(batches), "batches_failed": len(broken)},
        )


# -- after validate


def every_line_is_accounted_for(validated: ValidationResult) -> Violations:
    v, files = validated, counted_in(validated.folder)
    of_records = sum(each.lines for name, each in files.items() if name != "known")
    yield from _equal("lines", v.lines, "header + not taken + lines of records", v.header + v.not_taken + of_records)
    yield from _equal("records", v.records, "accepted + rejected", v.accepted + v.rejected)
    known = files["known"].rows
    held = {"accepted": v.accepted - v.skipped - known, "rejects": v.rejected + known, "skipped": v.skipped}
    for name, count in held.items():
        yield from _equal(f"{name} as counted", count, "rows of its file", files[name].rows)


def every_cent_is_accounted_for(validated: ValidationResult) -> Violations:
    v, files = validated, counted_in(validated.folder)
    set_aside = v.amount_received - v.amount_accepted
    accepted = sum(files[name].cents for name in ("accepted", "skipped", "known"))
    yield from _same("the amount accepted", v.amount_accepted, "that of the files", accepted)
    yield from _same("the amount set aside", set_aside, "that of the rejects", files["rejects"].cents)


STOPS = (
    (
        "control_totals_agree",
        "control_mismatch",
        "If there is a `.control.json` beside the file, its numbers of rows and cents are those of the file.",
    ),
    ("rejects_stay_within_the_limit", "over_limit", "No more records were rejected than the feed allows."),
    (
        "the_names_are_what_they_were",
        "known_elsewhere",
        "The records are not known under another source or other keys.",
    ),
    (
        "copayments_are_confirmed",
        "unconfirmed",
        "The first file of its feed in which all payments are copayments was confirmed.",
    ),
)
"""Statements that must be true before anything of a file is sent, each with the reason's member of `ValidationResult`.
"""


def _unless_stopped(name: str, why_not: str, description: str) -> CheckStatement[ValidationResult]:
    def violations(validated: ValidationResult) -> Violations:
        if said := getattr(validated, why_not):
            yield said

    return CheckStatement(
        name, f"{description} If this fails, nothing of the file is sent.", violations, blocking=True, by_file=True
    )


AFTER_VALIDATE: tuple[CheckStatement[ValidationResult], ...] = (
    CheckStatement(
        "every_line_is_accounted_for",
        "lines = header + not taken + lines of records; records = accepted + rejected; the stored files have as many.",
        every_line_is_accounted_for,
        blocking=True,
    ),
    CheckStatement(
        "every_cent_is_accounted_for",
        "The amount received is the amount accepted plus the amount set aside, to the cent.",
        every_cent_is_accounted_for,
        blocking=True,
    ),
    *(_unless_stopped(*stop) for stop in STOPS),
)


# -- after load


def every_accepted_record_has_an_outcome(loaded: LoadedBatch) -> Violations:
    count = loaded.result.count
    outcomes = sum(count(name) for name in OUTCOMES)
    yield from _equal("records", count("records"), "accepted + rejected", count("accepted") + count("rejected"))
    yield from _equal("accepted", count("accepted"), "sum of the outcomes", outcomes)


def the_ledger_says_the_same(loaded: LoadedBatch) -> Violations:
    if loaded.first:
        for name in OUTCOMES:
            yield from _equal(name, loaded.result.count(name), "rows in the ledger", loaded.rows.get(name, (0, 0))[0])
        cents = loaded.rows.get("created", (0, 0))[1]
        yield from _same("the amount created", loaded.result.count("amount_created"), "that in the ledger", cents)


def no_row_is_in_doubt(loaded: LoadedBatch) -> Violations:
    if number := loaded.result.count("in_doubt"):
        yield not_known(number)


def some_record_was_taken(loaded: LoadedBatch) -> Violations:
    count = loaded.result.count
    if count("records") and not any(map(count, LANDED)) and not count("in_doubt"):
        yield none_taken(count("records"))


def every_record_was_taken(loaded: LoadedBatch) -> Violations:
    for name in ("rejected", "refused"):
        if number := loaded.result.count(name):
            yield f"{number:,} {name}"


AFTER_LOAD: tuple[CheckStatement[LoadedBatch], ...] = (
    CheckStatement(
        "every_accepted_record_has_an_outcome",
        "accepted = created + adopted + unchanged + updated + superseded + skipped + refused + in doubt.",
        every_accepted_record_has_an_outcome,
        blocking=True,
    ),
    CheckStatement(
        "the_ledger_says_the_same",
        "The ledger has as many rows of each outcome, and as many cents created, as the run counted.",
        the_ledger_says_the_same,
        blocking=True,
    ),
    CheckStatement("no_row_is_in_doubt", "No row is in doubt: the outcome of every row is known.", no_row_is_in_doubt),
    CheckStatement(
        "some_record_was_taken",
        "If the file has records, at least one was created, adopted, unchanged, updated, superseded or skipped.",
        some_record_was_taken,
    ),
    CheckStatement(
        "every_record_was_taken",
        "No record was rejected or refused. If this fails, it is a warning: the rejects have the records and reasons.",
        every_record_was_taken,
        severity=WARN,
    ),
)


def _equal(one: str, number: int, other: str, same: int) -> Violations:
    if number != same:
        yield f"{one} ({number:,}) is not {other} ({same:,})"


def _same(one: str, cents: int, other: str, same: int) -> Violations:
    """Yield a sentence if two amounts differ, without the difference, which may be one person's payment."""
    if cents != same:
        yield f"{one} is not {other}"


class FileSums(NamedTuple):
    """Rows, physical lines and cents of a Parquet file that validation wrote."""

    rows: int
    lines: int
    cents: int


def counted_in(folder: Path) -> dict[str, FileSums]:
    """Return the sums of each file of a validated run. The rows of `known` are in `rejects` too."""
    found = {name: _sums(folder / f"{name}.parquet") for name in ("accepted", "rejects", "skipped")}
    known = folder / "known.parquet"
    return found | {"known": _sums(known) if exists(known) else FileSums(0, 0, 0)}


def _sums(path: Path) -> FileSums:
    rows = lines = cents = 0
    for part in batches(path, 50_000, ["lines", "amount_cents"]):
        rows += part.num_rows
        lines += pc.sum(part.column("lines")).as_py() or 0
        cents += pc.sum(part.column("amount_cents")).as_py() or 0
    return FileSums(rows, lines, cents)
