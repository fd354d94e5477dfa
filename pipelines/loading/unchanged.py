"""Find rows that the target has unchanged, by comparing whole pages, and write them in sets.

Most rows of an export that comes each night are such rows. All other rows, and those that this comparison cannot
decide, are judged one by one (`judging.py`). `ledger/standing.py` decides which records are at the target.
"""

from collections.abc import Collection, Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

import pyarrow as pa

from pipelines.home import arrow
from pipelines.ledger.lease import LATEST
from pipelines.ledger.standing import RecordContent, contents_of
from pipelines.loading.accepted import plain_columns
from pipelines.loading.book import Book

Plain = tuple[Any, ...]
"""A `RecordContent` as a plain tuple, since there are many."""
ELSEWHERE = (None,)
"""The line of a content that is from another batch."""
ROWS_A_COMMIT = 20_000
"""A set is large, since its lines may be from all over the file: each set changes most pages of the ledger's index."""


class LeftOfPage(NamedTuple):
    """The rows of a page that are judged one by one, and the keys of the page that the ledger knows."""

    page: pa.RecordBatch
    known: Collection[str]


class UnchangedRows:
    """Notes of the rows of one load that came before and are unchanged."""

    def __init__(self, book: Book) -> None:
        self._book, self._load = book, book.load
        self._kept: list[Plain] = []
        self._elsewhere: list[Plain] = []

    def note(self, page: pa.RecordBatch, held: Collection[str] = ()) -> LeftOfPage:
        """Take the rows of a page whose content is their record's, if that is at the target; return the others.

        Rows that an earlier worker of this part has sent are among the others, since they count with their outcomes.
        held: lanes whose rows may have to wait, which are all among the others.
        """
        batch = self._load.batch
        came = [*zip(*plain_columns(page, RecordContent._fields), strict=True)]
        since = batch.part.since if batch.part else ""
        contents = contents_of(
            self._load.ledger, self._load.of, batch.batch_id, [row[0] for row in came], since or LATEST
        )
        known: Mapping[str, Plain] = {content[0]: content for content in contents}
        apart = {*self._book.loaded.undecided}  # counted in this load, and to be counted once
        if held:
            lanes = page.column("lane").to_pylist()
            apart |= {row[0] for row, lane in zip(came, lanes, strict=True) if lane in held}
        settled = {key: content for key, content in known.items() if key not in apart} if apart else known
        is_own, is_elsewhere = self._told_at_once(came, settled)
        is_kept = list(map(bool.__or__, is_own, is_elsewhere))
        if not any(is_kept):
            return LeftOfPage(page, known.keys())
        self._kept += _those(came, is_kept)
        self._elsewhere += _those(came, is_elsewhere)
        if len(self._kept) >= ROWS_A_COMMIT:
            self.write()
        is_left = arrow.column([not kept for kept in is_kept], pa.bool_())
        return LeftOfPage(page.filter(is_left), known.keys())

    def _told_at_once(self, came: Sequence[Plain], known: Mapping[str, Plain]) -> tuple[list[bool], list[bool]]:
        """Return for each row if it is its record's own and unchanged, and if it equals a record of another batch."""
        said = [known.get(row[0]) for row in came]
        is_own = [content == row for content, row in zip(said, came, strict=True)]
        if all(is_own):
            return is_own, [False] * len(came)
        is_elsewhere = [content == row[:-1] + ELSEWHERE for content, row in zip(said, came, strict=True)]
        if any(is_elsewhere) and self._book.repeats.is_read_otherwise:
            is_elsewhere = [False] * len(came)
        return is_own, is_elsewhere

    def write(self) -> None:
        """Count the rows taken as unchanged, and write them in one commit with the counts of the run.

        After a kill, the next run takes the rows that were not written.
        """
        if not self._kept:
            return
        book, ledger, batch = self._book, self._load.ledger, self._load.batch
        book.loaded.add_all("unchanged", len(self._kept), sum(row[4] or 0 for row in self._kept))
        self._elsewhere.sort(key=itemgetter(-1))
        with ledger.transaction():
            book.repeats.found(row[-1] for row in self._kept)
            book.repeats.note_unchanged([row[-1] for row in self._elsewhere], [row[0] for row in self._elsewhere])
            if so_far := book.so_far():
                ledger.count_run(batch.target, so_far)
        self._load.progress.advance(len(self._kept))
        self._kept, self._elsewhere = [], []


def _those(rows: Sequence[Plain], are_wanted: Sequence[bool]) -> list[Plain]:
    return [row for row, is_wanted in zip(rows, are_wanted, strict=True) if is_wanted]
