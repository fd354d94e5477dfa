"""The summary that a command prints at the end, as text and as JSON, and its exit code. It has counts only."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pipelines.home.batch import printable_name
from pipelines.home.counted import counted, listed, word_for
from pipelines.home.exits import ALL_LOADED, IN_DOUBT, SET_ASIDE, UNREADABLE, UNUSABLE
from pipelines.ledger.columns import AMOUNTS
from pipelines.ledger.failures import exit_and_message
from pipelines.ledger.states import MADE, OUTCOMES
from pipelines.ledger.tables import LedgerError
from pipelines.runs.lines import IN_DOUBT_NEXT, aligned, dollars, undo_left
from pipelines.runs.run import RunResult
from pipelines.session.waiting_files import LeftFile
from pipelines.validation.reasons import WARNINGS

COUNTED = (*"lines header not_taken records accepted rejected".split(), *OUTCOMES)
GIVEN_BACK = "chartferry rejects export gives them back, each with its reasons; chartferry rules ID says what to do"
NOT_HERE_NEXT = "run chartferry import where they were received, or, if that machine is lost, import them again"
LACKING = {"FEED-ANS-03", "QR-12"}
"""Rules that an answer breaks if its questionnaire is missing."""
COLUMNS_SHOWN = 40
FILES_SHOWN = 5
LONGEST_COLUMN = 80
ALWAYS = ("records", "accepted", "rejected", "created", "unchanged")
TAKEN = (*MADE, "unchanged", "in_doubt", "waiting")
"""Counts of records that the target has taken, may have taken, or may still take."""
LARGEST_SUM = 999_999_999_999_999_999
"""The largest sum in cents that the tables can hold: DECIMAL(18,2)."""
TOO_LARGE = "is more than the tables can hold, and is empty there; check that the feed reads the right column"


@dataclass
class Summary:
    """The results of an import, the files that no feed takes, and what was published.

    store: of the bundled service.
    left_there: unfinished batches at other targets, by target.
    without_end: unfinished batches of other files here, by name, with their file names.
    not_here: unfinished batches whose files are not in this home, with file names.
    nothing_new: feeds whose databases have no new rows.
    open_elsewhere: open rejects of other batches.
    not_loaded: by name, earlier files that were not loaded and have records that nothing answers.
    undo_left: by batch, records that an undo may have taken back.
    remarks: facts that readers of the tables must know, a sentence each.
    looked_in: the files and folders that were asked for.
    """

    target: str
    target_id: str
    other_targets: Sequence[str] = ()
    looked_in: Sequence[Path] = ()
    results: list[RunResult] = field(default_factory=list)
    unmatched: Sequence[LeftFile] = field(default_factory=list)
    published: Path | None = None
    tables: Mapping[str, int] = field(default_factory=dict)
    remarks: Sequence[str] = ()
    error: str | None = None
    store: Path | None = None
    left_there: Mapping[str, int] = field(default_factory=dict)
    without_end: Mapping[str, str] = field(default_factory=dict)
    not_here: Mapping[str, str] = field(default_factory=dict)
    nothing_new: list[str] = field(default_factory=list)
    open_elsewhere: int = 0
    not_loaded: Mapping[str, str] = field(default_factory=dict)
    undo_left: Mapping[str, int] = field(default_factory=dict)

    def take(self, work: Callable[[], RunResult | None]) -> bool:
        """Add the result of a run, if there is one. Return False if no further run can follow; see `error`."""
        try:
            result = work()
        except LedgerError as error:
            self.error = str(error)
            return False
        if result is None:
            return True
        self.results.append(result)
        if result.unusable:
            self.error = result.message
        return not result.unusable

    @contextmanager
    def saying_why(self) -> Iterator[None]:
        """Turn an error of machine or target in the block into `error`, so that earlier files' results are shown."""
        try:
            yield
        except Exception as error:
            code, why = exit_and_message(error)
            if code != UNUSABLE:
                raise
            self.error = why

    @property
    def exit_code(self) -> int:
        """The highest exit code that applies."""
        codes = [ALL_LOADED, *(code for result in self.results for code in _codes(result))]
        if any(left.is_file for left in self.unmatched):
            codes.append(UNREADABLE)
        if self.error:
            codes.append(UNUSABLE)
        return max(codes)

    def as_json(self) -> dict[str, Any]:
        return {
            "target": self.target,
            "target_id": self.target_id,
            "other_targets": list(self.other_targets),
            "batches": [asdict(result) for result in self.results],
            "totals": dict(_totals(self.results)),
            "without_end": list(self._still_without_end()),
            "not_here": list(self.not_here),
            "nothing_new": self.nothing_new,
            "open_elsewhere": self.open_elsewhere,
            "not_loaded": list(self.not_loaded),
            "undo_left": dict(self.undo_left),
            "unmatched": [str(left.path) for left in self.unmatched],
            "published": str(self.published) if self.published else None,
            "tables": dict(self.tables),
            "remarks": list(self.remarks),
            "error": self.error,
        }

    def lines(self) -> Iterable[str]:
        """Yield the summary for people. The first line names the target."""
        yield f"target: {self.target}"
        for other in self.other_targets:
            yield f"note: the ledger of this home also knows the target {other}{self._waiting_at(other)}"
        for name in self._still_without_end():
            yield f"note: {name} ({self.without_end[name]}) is not finished yet; chartferry import goes on with it"
        yield from self._table()
        for result in self.results:
            yield from _notes(result)
        for name in self.nothing_new:
            yield f"{name}: its database has no new rows"
        yield from self._of_earlier_files()
        for left in self.unmatched:
            yield f"{printable_name(left.path)}: {left.why}; left where it is"
        if self._took_nothing():
            yield "note: no record was loaded. Does this target have the patients and questionnaires of these files?"
            if self.store:
                yield f"note: if not, load the reference data first: fhir-service load --store {self.store} FOLDER"
        yield from (f"note: {remark}" for remark in self.remarks)
        if self.published:
            yield from self._set_aside()
            folder, home = self.published.parent, self.published.parent.parent
            yield f"published: {self.published}, {folder / 'parquet'} and {folder / 'report.html'}"
            yield f"kept: {home / 'batches'}: each file, with the outcome of each row"
        if self.error:
            yield f"error: {self.error}"

    def _of_earlier_files(self) -> Iterable[str]:
        if self.open_elsewhere:
            yield f"note: open rejects of other batches: {self.open_elsewhere:,}; chartferry rejects export has them"
        if self.not_here:
            yield f"note: unfinished files that are not in this home: {_files(self.not_here)}; {NOT_HERE_NEXT}"
        if self.not_loaded:
            files = _files(self.not_loaded)
            yield f"note: earlier files that were not loaded: {files}; chartferry status BATCH says why, and what to do"
        for name, records in self.undo_left.items():
            yield f"note: {undo_left(name, records)}"

    def _set_aside(self) -> Iterable[str]:
        if any(result.reasons for result in self.results):
            yield f"rows set aside: {GIVEN_BACK}"

    def _still_without_end(self) -> Iterable[str]:
        ended = {result.batch_id for result in self.results}
        return (name for name in self.without_end if name not in ended)

    def _waiting_at(self, other: str) -> str:
        number = self.left_there.get(other, 0)
        return (
            f", with {counted(number, 'unfinished batch', 'unfinished batches')}; chartferry import goes on with"
            f" {word_for(number, 'it', 'them')} when that is the target again"
            if number
            else ""
        )

    def _took_nothing(self) -> bool:
        """True if no record of files that came for the first time landed, as at an empty target, or another
        practice's. The target refused rows or lacks their questionnaires.
        """
        totals = _totals(result for result in self.results if result.state != "stopped")
        first = [result for result in self.results if result.state != "stopped" and (result.run or 1) == 1]
        missing = any(result.count("refused") or not LACKING.isdisjoint(result.reasons) for result in first)
        return missing and not self.error and not any(totals[name] for name in TAKEN)

    def _table(self) -> Iterable[str]:
        if not self.results:
            if not self.error:
                where = f" in {listed([*map(str, self.looked_in)], 3)}" if self.looked_in else ""
                yield f"nothing to import{where}"
            return
        totals = _totals(self.results)
        shown = [name for name in (*COUNTED, "waiting") if totals[name] or name in ALWAYS]
        money = [name for name in AMOUNTS if totals[name]]
        rows = [["batch", "state", *shown, *money]]
        for result in self.results:
            counts = {**result.counts, "waiting": result.waiting}
            rows.append([result.batch_id or result.file, result.state, *_cells(counts, shown, money)])
        if len(self.results) > 1:
            rows.append(["all", "", *_cells(totals, shown, money)])
        yield from aligned([[cell.replace("_", " ") for cell in rows[0]], *rows[1:]])


def _totals(results: Iterable[RunResult]) -> Counter[str]:
    totals: Counter[str] = Counter()
    for result in results:
        totals.update({**result.counts, "waiting": result.waiting})
    return totals


def _files(batches: Mapping[str, str]) -> str:
    """Return batches in words, by their file names."""
    return listed([f"{printable_name(file)} ({name})" for name, file in batches.items()], FILES_SHOWN)


def _codes(result: RunResult) -> Iterable[int]:
    if result.count("rejected") or result.count("refused") or result.taken_back:
        yield SET_ASIDE
    if result.state in ("failed", "stopped") and not result.unusable:
        yield UNREADABLE
    if result.count("in_doubt") or result.waits_for:
        yield IN_DOUBT
    if result.unusable:
        yield UNUSABLE


def _cells(counts: Mapping[str, int], shown: Sequence[str], money: Sequence[str]) -> list[str]:
    return [f"{counts.get(name, 0):,}" for name in shown] + [dollars(counts.get(name, 0)) for name in money]


def _notes(result: RunResult) -> Iterable[str]:
    name = result.batch_id or result.file
    if result.message:
        yield result.message if result.message.startswith(f"{name}: ") else f"{name}: {result.message}"
    if result.found_in:
        yield f"{name}: not checked again; its records and rejects are those that its {result.found_in} found"
    for amount in AMOUNTS:
        if abs(result.count(amount)) > LARGEST_SUM:
            yield f"{name}: its {amount.replace('_', ' ')} {TOO_LARGE}"
    if result.reasons:
        yield f"{name}: set aside by {_by_rule(result.reasons)}"
    if number := result.reasons.get("TAKEN-BACK"):
        rows, them = counted(number, "row was", "rows were"), word_for(number, "it", "them")
        yield f"{name}: {rows} taken back by a person: chartferry rejects retry --taken-back loads {them}"
    if number := result.count("copayments"):
        have = word_for(number, "has", "have")
        sums = f"{number:,} of the payments, {dollars(result.count('amount_copayments'))}, {have} a claim"
        yield f"{name}: {sums}: copayments, which may take the balance below zero{_others(result.without_claim)}"
    if result.warnings:
        told = {f"{rule}, {WARNINGS[rule]}" if rule in WARNINGS else rule: n for rule, n in result.warnings.items()}
        yield f"{name}: warnings by {_by_rule(told)}"
    if number := result.count("in_doubt"):
        rows, them = counted(number, "row"), word_for(number, "it", "them")
        yield f"{name}: {rows} in doubt: it is not known whether the target has {them}; {IN_DOUBT_NEXT}"
    if result.waiting and result.state == "running":
        behind = "; rows behind a row in doubt wait until that is settled" if IN_DOUBT in _codes(result) else ""
        yield f"{name}: {counted(result.waiting, 'row waits', 'rows wait')} for {result.sent_by}{behind}"
    if result.unnamed_columns:
        columns = listed([*map(_column, result.unnamed_columns)], COLUMNS_SHOWN)
        yield f"{name}: columns that the feed does not name: {columns}"


def _others(payments: Sequence[int] | None) -> str:
    """Return words for the payments that are not copayments: number and sum."""
    return f"; without a claim: {payments[0]:,}, {dollars(payments[1])}" if payments else ""


def _column(name: str) -> str:
    """Return a column's name for a list. A name in NDJSON may be empty, or very long."""
    return f"{name[:LONGEST_COLUMN]}..." if len(name) > LONGEST_COLUMN else name or "(no name)"


def _by_rule(counts: Mapping[str, int]) -> str:
    """Return counts in words, the highest first."""
    ordered = sorted(counts.items(), key=lambda each: (-each[1], each[0]))
    return ", ".join(f"{rule} ({number:,})" for rule, number in ordered)
