"""The sentences about a run that has ended, beside its counts."""

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
    said = [_took_none(run, validated), _total(run, validated), _taken_back(run, loaded), _is_other(run, loaded)]
    said += [_read_otherwise(run, loaded), _waits(run, loaded)]
    return "; ".join(each for each in said if each) or None


def _took_none(run: Run, validated: ValidationResult) -> str | None:
    if validated.records or not (validated.not_taken and run.feed.file.take):
        return None
    rows, columns = counted(validated.not_taken, "row"), " and ".join(run.feed.file.take)
    return (
        f"{run.received.batch_id}: [take] of the feed took none of its {rows}; if some of them are records, correct"
        f" [take], since the export writes other texts in {columns} than the feed expects"
    )


def _total(run: Run, validated: ValidationResult) -> str | None:
    said = total_said(validated)
    return f"{run.received.batch_id}: {said}" if said else None


def _read_otherwise(run: Run, loaded: LoadCounts) -> str | None:
    if not loaded.read_otherwise:
        return None
    rows, stay = counted(loaded.read_otherwise, "row is", "rows are"), word_for(loaded.read_otherwise, *STAY)
    return (
        f"{run.received.batch_id}: {rows} read differently since the feed file changed, and {stay} loaded; chartferry"
        f" import --remap applies the feed's policy to {word_for(loaded.read_otherwise, 'it', 'them')}"
        f' (changed = "{run.feed.file.changed}")'
    )


def _is_other(run: Run, loaded: LoadCounts) -> str | None:
    if not loaded.is_other:
        return None
    tasks, stay = counted(loaded.is_other, "task was", "tasks were"), word_for(loaded.is_other, *STAY)
    rows = word_for(loaded.is_other, "its row", "their rows")
    return (
        f"{run.received.batch_id}: {tasks} at the target already, with another status, person, due time or label than"
        f" {rows}, and {stay}; a user of the chart may have changed that, or another home has loaded an earlier file"
    )


def _waits(run: Run, loaded: LoadCounts) -> str | None:
    if not loaded.waits_for:
        return None
    names = ", ".join(sorted(loaded.waits_for))
    return (
        f"{run.received.batch_id}: rows wait for rows of the same patient, encounter or note in {names}; chartferry"
        f" import goes on once those are settled, and chartferry status BATCH names those in doubt"
    )


def _taken_back(run: Run, loaded: LoadCounts) -> str | None:
    batch_id, said = run.received.batch_id, []
    if loaded.undone:
        undone, them = counted(loaded.undone, "of these was", "of these were"), word_for(loaded.undone, "it", "them")
        said.append(f"{undone} taken back by undo; chartferry import --again {batch_id} loads {them} again")
    if loaded.taken_back:
        back = counted(loaded.taken_back, *BACK)
        again = f"chartferry import --again {batch_id} loads {word_for(loaded.taken_back, 'it', 'them')} again"
        said.append(f"{back} taken back there; {again}")
    return f"{batch_id}: {'. '.join(said)}" if said else None
