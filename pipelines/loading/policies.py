"""Apply a feed's policy to other content under a known key: update tasks, take superseded responses back.

A superseding response is sent like any row. Once it is at the target, the old one is taken back here. A resource that
has the old one's id but is not the old one stays as it is, and the old one is looked for by its identifier. If the
target surely does not have the old one, it is noted as gone; else it stays, and the load says how many stay.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from pipelines.client.comparison import TAKEN_BACK
from pipelines.client.replies import NoResult
from pipelines.client.threads import threads
from pipelines.ledger.former_versions import FormerVersion, earlier_versions, superseded_versions, withdrawn
from pipelines.ledger.rows import KnownRecord
from pipelines.ledger.states import ASKED, UNDECIDED
from pipelines.loading.book import Book
from pipelines.loading.changes import Changes
from pipelines.loading.ownership import GIVEN_AGAIN, GONE, KnownResource, places
from pipelines.loading.row import AcceptedRow, RowResult

NOT_THERE = (GONE, GIVEN_AGAIN)
"""Outcomes that show that the resource is not under its id. A resource without any identifier may still be it."""
LEFT = (
    "superseded responses could not be taken back; the next load of their source tries again, "
    "and chartferry verify names those that remain"
)


def update_tasks(book: Book, updates: Sequence[tuple[AcceptedRow, KnownRecord]]) -> None:
    """Update tasks to their rows, several side by side; no two rows may be of one record."""
    if not updates:
        return
    changes = _changes(book)
    with threads(book.load.batch.pace.at_once, "update") as pool:
        for some in changes.parts(updates, book.step.bundle):
            if book.is_ending():
                return
            made = _made(book, some)
            rows = book.intents.write_updates(some)
            bodies = [(one, row.body) for one, row in zip(made, rows, strict=True)]
            posted = changes.update(bodies, book.step.bundle, pool)
            book.loaded.unusable = next((each.unusable for each in posted if each.unusable), None)
            results = (_left(record, each.result) for (_, record), each in zip(some, posted, strict=True))
            book.write_down([], list(zip(rows, results, strict=True)))


def _left(before: KnownRecord, result: RowResult) -> RowResult:
    """Return the result of an update. One that was not sent stays in doubt if an earlier attempt was."""
    return result._replace(state="in_doubt") if result.state == "planned" and before.state in ASKED else result


def take_back_superseded(book: Book) -> None:
    """Take back superseded versions, of this run or of an earlier one that ended before it could.

    If the target could not be used, or asked for one that is not under its id, they are left to the next run.
    """
    if book.load.resource not in TAKEN_BACK:
        return
    old = {each: KnownResource.of(each) for each in superseded_versions(book.load.ledger, *book.load.of)}
    if not book.loaded.unusable:
        _take_all_back(book, old)
    book.loaded.is_cut_short |= bool(old and book.loaded.unusable)


def _take_all_back(book: Book, old: Mapping[FormerVersion, KnownResource]) -> None:
    """Take the resources of earlier versions back, also those that have other ids by now. Say how many stay."""
    refused = _take_back(book, old)
    there = _there(book, list(refused), old)
    moved = {
        each: old[each]._replace(resource_id=ids[0])
        for each, ids in there.items()
        if len(ids) == 1 and ids[0] != each.resource_id
    }
    gone = [each for each, ids in there.items() if refused[each] in NOT_THERE and not ids]
    withdrawn(book.load.ledger, book.load.batch.target, gone, "gone")
    left = len(refused) - len(gone) - len(moved) + len(_take_back(book, moved))
    if left:
        book.load.progress.say(f"{left:,} {LEFT}")


def _take_back(book: Book, old: Mapping[FormerVersion, KnownResource]) -> dict[FormerVersion, Mapping[str, Any] | None]:
    """Take the resources of earlier versions back.

    Returns:
        The versions whose resource is missing, is another's, or cannot be changed, each with its outcome.
    """
    changes, refused = _changes(book), dict[FormerVersion, Mapping[str, Any] | None]()
    with threads(book.load.batch.pace.at_once, "take back") as pool:
        for some in changes.parts(list(old), book.step.bundle):
            results = changes.take_back([old[each] for each in some], book.step.bundle, pool)
            posted = dict(zip(some, results, strict=True))
            book.loaded.unusable = book.loaded.unusable or next(filter(None, (each.unusable for each in results)), None)
            back = [version for version, each in posted.items() if each.result.state == "undone"]
            withdrawn(book.load.ledger, book.load.batch.target, back)
            refused |= {version: e.result.outcome for version, e in posted.items() if e.result.state == "refused"}
    return refused


def _there(
    book: Book, versions: Sequence[FormerVersion], old: Mapping[FormerVersion, KnownResource]
) -> dict[FormerVersion, list[str]]:
    """Return the ids at the target by earlier versions' identifiers; an empty dict if the target does not answer."""
    if not book.load.owner.shown:
        return {version: [] for version in versions}
    try:
        found = places(book.load.client, book.load.owner.identity, [old[version].value for version in versions])
    except NoResult:
        book.loaded.is_cut_short = True
        return {}
    return {version: found[old[version].value] for version in versions}


def _changes(book: Book) -> Changes:
    return Changes(book.load.client, book.confirm, book.load.owner)


def _made(book: Book, updates: Sequence[tuple[AcceptedRow, KnownRecord]]) -> list[KnownResource]:
    """Return the resources to update. Each may belong to the patient before the update, or to the one in the row."""
    begun = [record.key for _, record in updates if record.state in UNDECIDED]
    before = {each.key: each.patient_id for each in earlier_versions(book.load.ledger, *book.load.of, begun, "kept")}
    return [KnownResource.of(record, row.patient_id, before.get(record.key)) for row, record in updates]
