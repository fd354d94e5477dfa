"""Apply a feed's policy to other content under a known key: update tasks, take superseded responses back.

A superseding response is sent like any row. The old one is taken back here, once the new one is at the target.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from pipelines.client.client import FhirClient
from pipelines.client.comparison import TAKEN_BACK
from pipelines.ledger.former import Former, earlier_versions, withdrawn
from pipelines.ledger.ledger import Ledger
from pipelines.ledger.rows import KnownRecord
from pipelines.ledger.states import LANDED
from pipelines.loading.answered import Result
from pipelines.loading.changes import Changes
from pipelines.loading.loaded import Batch, Loaded
from pipelines.loading.sending import Posted, Row

UPDATES_A_COMMIT = 64


class Book(Protocol):
    """The parts of the load's book that policies need."""

    batch: Batch
    client: FhirClient
    ledger: Ledger
    loaded: Loaded
    source: str
    resource: str

    def intend_updates(self, updates: Sequence[tuple[Row, KnownRecord]]) -> list[Row]: ...
    def write_down(self, intended: Sequence[Row], results: Sequence[tuple[Row, Result]]) -> None: ...
    def confirm(self) -> None: ...


def update_tasks(book: Book, updates: Sequence[tuple[Row, KnownRecord]]) -> None:
    """Bring tasks to what their rows say, some side by side; no two are of one record."""
    if not updates:
        return
    changes = Changes(book.client, book.confirm)
    with ThreadPoolExecutor(book.batch.pace.at_once, "update") as pool:
        for start in range(0, len(updates), UPDATES_A_COMMIT):
            if book.loaded.unusable:
                return
            some = updates[start : start + UPDATES_A_COMMIT]
            rows = book.intend_updates(some)
            ids = [str(record.resource_id) for _, record in some]
            posted = list(pool.map(lambda row, name: changes.update(name, row.body), rows, ids))
            book.loaded.unusable = next((each.unusable for each in posted if each.unusable), None)
            book.write_down([], [(row, each.result) for row, each in zip(rows, posted, strict=True)])


def take_back_superseded(book: Book) -> None:
    """Take back what has been superseded, in this run or in an earlier one that ended before it could."""
    if book.resource not in TAKEN_BACK or book.loaded.unusable:
        return
    of = (book.batch.target, book.source, book.resource)
    left = earlier_versions(book.ledger, *of)
    known = book.ledger.known(*of, {version.key for version in left})
    old = [version for version in left if _is_superseded(version, known.get(version.key))]

    changes = Changes(book.client, book.confirm)

    def done(version: Former) -> Posted:
        return changes.take_back(book.resource, str(version.resource_id))

    with ThreadPoolExecutor(book.batch.pace.at_once, "take back") as pool:
        for version, posted in zip(old, pool.map(done, old), strict=True):
            book.loaded.unusable = book.loaded.unusable or posted.unusable
            if posted.result.state in ("undone", "refused"):
                fate = "withdrawn" if posted.result.state == "undone" else "gone"
                withdrawn(book.ledger, book.batch.target, [version], fate)


def _is_superseded(version: Former, record: KnownRecord | None) -> bool:
    """True if the record is there in a later generation (a version of the same one waits for an undo)."""
    return record is not None and record.generation > version.generation and record.state in (*LANDED, "undone")
