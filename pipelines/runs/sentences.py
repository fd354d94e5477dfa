"""What a person is told of a run: totals among the rows, rows taken back, read otherwise, or waiting."""

from pipelines.loading.loaded import Loaded
from pipelines.runs.run import Run
from pipelines.validation.outcome import Validated
from pipelines.validation.sums import total_said


def told(run: Run, validated: Validated, loaded: Loaded) -> str | None:
    """Return the sentences about a run, or None."""
    said = [_total(run, validated), _taken_back(run, loaded), _read_otherwise(run, loaded), _waits(run, loaded)]
    return "; ".join(each for each in said if each) or None


def _total(run: Run, validated: Validated) -> str | None:
    said = total_said(validated)
    return f"{run.received.batch_id}: {said}" if said else None


def _read_otherwise(run: Run, loaded: Loaded) -> str | None:
    if not loaded.read_otherwise:
        return None
    return (
        f"{run.received.batch_id}: {loaded.read_otherwise:,} rows are read otherwise since the feed file changed, and"
        f" stay as they were loaded; chartferry import --remap applies the feed's policy to them"
        f' (changed = "{run.feed.changed}")'
    )


def _waits(run: Run, loaded: Loaded) -> str | None:
    if not loaded.waits_for:
        return None
    names = ", ".join(sorted(loaded.waits_for))
    return (
        f"{run.received.batch_id}: rows wait for others of their patient, encounter or note in {names}; chartferry"
        f" import goes on once those are settled, and chartferry status BATCH names their rows in doubt"
    )


def _taken_back(run: Run, loaded: Loaded) -> str | None:
    batch_id, said = run.received.batch_id, []
    if loaded.undone:
        said.append(f"{loaded.undone:,} of these were taken back by undo; chartferry import --again {batch_id}")
    if loaded.taken_back:
        said.append(
            f"{loaded.taken_back:,} rows are at the target under their keys and have been taken back there; chartferry"
            f" import --again {batch_id} makes them anew"
        )
    return f"{batch_id}: {'. '.join(said)}" if said else None
