"""The validate stage: turn a received file into records that the interface accepts, and rejects with every reason.

Read and map a chunk at a time into `mapped.parquet`; sort and group that; build each record's body and check it.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from fhir_service.interface.site import Site
from pipelines.feeds.files.catalog import Feed
from pipelines.feeds.mapping.mapping import NOBODY, Crosswalks
from pipelines.feeds.terms.columns import BuilderContext
from pipelines.home.batch import ReceivedFile
from pipelines.session.questionnaires import Snapshot
from pipelines.validation.checking import check_records
from pipelines.validation.earlier import EarlierRuns, ValidationBasis
from pipelines.validation.mapping import map_file
from pipelines.validation.outcome import ValidationResult
from pipelines.validation.side_by_side import at_work
from pipelines.validation.totals import control_mismatch, over_limit


def validate(
    received: ReceivedFile,
    feed: Feed,
    snapshot: Snapshot,
    site: Site,
    folder: Path,
    *,
    strict: bool = True,
    progress: Callable[[int], None] = lambda _: None,
    only: Mapping[int, Sequence[str]] | None = None,
    before: Mapping[int, str] = {},
    known_as: Mapping[str, str] = {},
    words: Mapping[str, str] = {},
    people: Crosswalks = NOBODY,
    processes: int | None = None,
) -> ValidationResult:
    """Write `accepted.parquet`, `rejects.parquet` and `skipped.parquet` into `folder` and count.

    strict: True to reject by decided rules, which else only warn. progress: is called with the number of records done.
    only: the first lines of the records to check, each with the rejects that it answers; None for all records.
    before: by line, the rejects that an earlier run made of this file: its records answer them.
    known_as: by their spellings, keys that the ledger has in another form than they would be read in today.
    words: members of a body as the interface has them, each with its replacement at the target.
    people: crosswalks that the target was asked for.
    processes: how many work on the file, this one included; None to decide by its size and the machine.
    A file that answers rejects also gets `answers.parquet`, and has no limit of rejects: its rows were set aside
    before.
    Raises Unreadable if the file's rows cannot be told apart.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = ValidationResult(folder)
    around = BuilderContext(site, snapshot, feed.file.numbers, words)
    earlier = EarlierRuns(folder, ValidationBasis(received, feed, around, strict, known_as)) if only is None else None
    if earlier and (as_before := earlier.found(before)):
        progress(as_before.records)
        return as_before
    with at_work(folder, received.size, processes) as (inner, work):
        mapped = inner / "mapped.parquet"
        answers, trailer_mismatch = map_file(received, feed, mapped, found, work, known_as, people)
        check_records(mapped, feed, around, strict, found, progress, work, _both(answers, before), only)
    found.records = found.accepted + found.rejected
    if earlier:
        found.control_mismatch = control_mismatch(received, found) or (None if answers else trailer_mismatch(found))
        found.over_limit = None if answers else over_limit(feed, found)
        if not answers:
            earlier.keep(found)
    return found


def _both(answers: Mapping[int, str], before: Mapping[int, str]) -> Mapping[int, str]:
    """Return, by line, the rejects that a row names and those that an earlier run made of it."""
    return {line: f"{answers.get(line, '')} {before.get(line, '')}" for line in {*answers, *before}}
