"""The sentences about a run that has ended, beside its counts."""

from collections.abc import Iterator

from pipelines.home.counted import counted, word_for
from pipelines.loading.load_counts import LoadCounts
from pipelines.runs.run import Run
from pipelines.validation.outcome import ValidationResult
from pipelines.validation.sums import total_said

STAY = ("stays as it was", "stay as they were")
BACK = ("record is at the target under its key, but was", "records are at the target under their keys, but were")
"""The words for one row, and for several."""


def run_sentences(run: Run, validated: ValidationResult, loaded: LoadCounts) -> str | None:
    """Return the sentences about a run; None if there are none."""
    said = (*_of_rows(run, validated), *_of_records(run, loaded))
    return "; ".join(f"{run.received.batch_id}: {each}" for each in said) or None


def _of_rows(run: Run, validated: ValidationResult) -> Iterator[str]:
    """Yield the sentences about what was read."""
    if validated.not_taken and run.feed.file.take and not validated.records:
        rows, columns = counted(validated.not_taken, "row"), " and ".join(run.feed.file.take)
        yield (
            f"[take] of the feed took none of its {rows}; if some of them are records, correct [take], since the export"
            f" writes other texts in {columns} than the feed expects"
        )
    if total := total_said(validated):
        yield total


def _of_records(run: Run, loaded: LoadCounts) -> Iterator[str]:
    """Yield the sentences about what the load found."""
    noted, again = loaded.noted, f"chartferry import --again {run.received.batch_id} loads"
    taken_back = []
    if number := noted["undone"]:
        rows = counted(number, "of these was", "of these were")
        taken_back.append(f"{rows} taken back by undo; {again} {word_for(number, 'it', 'them')} again")
    if number := noted["taken back"]:
        taken_back.append(f"{counted(number, *BACK)} taken back there; {again} {word_for(number, 'it', 'them')} again")
    if taken_back:
        yield ". ".join(taken_back)
    if number := noted["other"]:
        yield (
            f"{counted(number, 'task was', 'tasks were')} at the target already, with another status, person, due time"
            f" or label than {word_for(number, 'its row', 'their rows')}, and {word_for(number, *STAY)}; a user of the"
            " chart may have changed that, or another home has loaded an earlier file"
        )
    if (number := noted["outdated"]) and run.feed.file.changed != "skip":
        rows, its = counted(number, "row was", "rows were"), word_for(number, "its record", "their records")
        yield (
            f"{rows} skipped, since a later file changed {its}; to go back to what this file says, put"
            f" {word_for(number, 'that row', 'those rows')} into another file"
        )
    if number := noted["read otherwise"]:
        yield (
            f"{counted(number, 'row is', 'rows are')} read differently since the feed file changed, and"
            f" {word_for(number, *STAY)} loaded; chartferry import --remap applies the feed's policy to"
            f' {word_for(number, "it", "them")} (changed = "{run.feed.file.changed}")'
        )
    if loaded.waits_for:
        yield (
            f"rows wait for rows of the same patient, encounter or note in {', '.join(sorted(loaded.waits_for))};"
            " chartferry import goes on once those are settled, and chartferry status BATCH names those in doubt"
        )
