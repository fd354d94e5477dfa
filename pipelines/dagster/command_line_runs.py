"""The stages of a Dagster run that only reports the command line: their results, read from the ledger."""

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from fhir_service.paths import exists
from pipelines.dagster import metadata
from pipelines.dagster.checks import LoadedBatch, counted_in
from pipelines.dagster.stages.outcome import NOTHING_SENT, StageOutcome
from pipelines.feeds.files.catalog import Feed
from pipelines.home.batch import received_before
from pipelines.ledger.columns import COPAYMENTS, COUNTS, LINES
from pipelines.ledger.ledger import Ledger
from pipelines.ledger.manifests import KeptRun, runs_in
from pipelines.ledger.standing import undone_by_batch
from pipelines.runs.run import FINISHED, RunResult
from pipelines.session.ledger import open_ledger
from pipelines.validation.outcome import ValidationResult


@dataclass(frozen=True)
class KnownBatch:
    """A batch in the ledger. row: its row in the ledger. run: the row of its newest run."""

    home: Path
    feed: Feed
    ledger: Ledger
    row: Mapping[str, Any]
    run: Mapping[str, Any]

    @cached_property
    def first(self) -> tuple[Path, dict[str, Any]]:
        """Return folder and manifest of the first run that sent all records to the target; {} if it is lost."""
        here = ((folder, of) for _, folder, of in self.runs_kept if of.get("state") not in NOTHING_SENT)
        return next(here, (self.folder, {}))

    @cached_property
    def runs_kept(self) -> list[KeptRun]:
        return runs_in(self.folder, self.row["target"])

    @property
    def found_in(self) -> str | None:
        """Return the folder of the run whose findings the newest run reused; None if it checked the file itself."""
        newest = (of for number, _, of in self.runs_kept if number == self.run["run"])
        return next(newest, {}).get("found_in")

    @property
    def folder(self) -> Path:
        return self.ledger.batches_in(self.home).folder(str(self.row["batch_id"]))

    @property
    def seconds(self) -> float:
        began, ended = (datetime.fromisoformat(self.run[name]) for name in ("started_at", "finished_at"))
        return (ended - began).total_seconds()


def tell(
    home: Path, environ: Mapping[str, str], feed: Feed, target: str, batch_ids: Sequence[str], stage: str
) -> StageOutcome:
    """Return the result of a stage for these batches, read from the ledger and the run's files."""
    told = StageOutcome()
    with closing(open_ledger(home, environ)) as ledger:
        for batch_id in batch_ids:
            runs, row = ledger.runs(target, batch_id), ledger.batch(target, batch_id)
            if row is None or not runs or not runs[-1]["finished_at"]:
                told.fail(batch_id, "the ledger no longer has it, or it is still running")
            else:
                _tell_one(KnownBatch(home, feed, ledger, row, runs[-1]), stage, told)
    return told


def _tell_one(known: KnownBatch, stage: str, told: StageOutcome) -> None:
    batch_id, state = str(known.row["batch_id"]), known.row["state"]
    if stage == "received":
        told.done[batch_id] = _received(known)
    elif state in NOTHING_SENT or (stage == "loaded" and state != FINISHED):
        told.fail(batch_id, known.run["message"] or f"it is {state}")
    elif stage == "validated":
        told.done[batch_id] = _validated(known)
        if exists(known.first[0] / "accepted.parquet"):
            told.facts[batch_id] = _as_its_files_say(known)
    else:
        result = _result(known)
        told.done[batch_id] = metadata.of_loaded(
            result,
            known.row["target"],
            metadata.tells_sums(known.feed, known.run["run"]),
            undone_by_batch(known.ledger, batch_id)[known.row["target"], batch_id],
        )
        told.facts[batch_id] = LoadedBatch(result, known.ledger.row_counts(known.row["target"], batch_id), first=True)


def _received(known: KnownBatch) -> metadata.Metadata:
    if found := received_before(known.folder):
        return metadata.of_received(found)
    return {"file": known.row["file_name"], "sha256": known.row["file_sha256"]}


def _validated(known: KnownBatch) -> metadata.Metadata:
    validated = ValidationResult(known.folder, **{name: known.row[name] for name in (*LINES, "skipped")})
    validated.found_in = known.found_in
    validated.amounts_rejected = max(0, known.first[1].get("amounts", 0) - validated.amounts_accepted)
    set_aside, refused, validated.warnings = (
        Counter(known.first[1].get(name, {})) for name in ("reasons", "refused_by", "warnings")
    )
    validated.reasons = set_aside - refused
    tells = metadata.tells_sums(known.feed, known.run["run"])
    return metadata.of_validated(known.row["file_name"], validated, known.seconds, tells)


def _as_its_files_say(known: KnownBatch) -> ValidationResult:
    """Return the counts of the first run: lines, records and cents from its manifest, the rest from its files."""
    folder, manifest = known.first
    files, counts = counted_in(folder), manifest["counts"]
    said = {name: counts[name] for name in ("header", "lines", "not_taken", "records", "amount_received")}
    said |= {name: counts.get(name, 0) for name in COPAYMENTS}
    accepted, skipped, there = (files[name] for name in ("accepted", "skipped", "known"))
    return ValidationResult(
        folder,
        **said,
        accepted=accepted.rows + skipped.rows + there.rows,
        rejected=files["rejects"].rows - there.rows,
        skipped=skipped.rows,
        amount_accepted=accepted.cents + skipped.cents + there.cents,
    )


def _result(known: KnownBatch) -> RunResult:
    row = known.row
    counts = {name: int(row[name] or 0) for name in COUNTS}
    result = RunResult(row["batch_id"], known.run["run"], known.feed.name, row["file_name"], row["state"], counts)
    about = known.first[1]
    result.seconds, result.reasons = known.seconds, about.get("reasons", {})
    result.amounts, result.amounts_accepted = about.get("amounts", 0), about.get("amounts_accepted", 0)
    return result
