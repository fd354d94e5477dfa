"""Entries for rows that are not sent: one for each row whose record is known from another line, with its state."""

from collections.abc import Iterable, Sequence
from functools import cached_property

from fhir_service.paths import exists
from pipelines.home.spill import batches
from pipelines.ledger.rejects import found_there
from pipelines.ledger.rows import Repeat
from pipelines.loading.accepted import ROWS_A_LOOK, plain_columns
from pipelines.loading.load import Load
from pipelines.loading.load_counts import LoadCounts
from pipelines.loading.row import AcceptedRow
from pipelines.session.answered_rejects import LoadAnswers

SKIPPED = "line key patient_id source_at amount_cents".split()


class Repeats:
    """Writer of the repeats of one load."""

    def __init__(self, load: Load, answers: LoadAnswers) -> None:
        self._load, self._answers = load, answers

    def note(self, repeats: Sequence[Repeat], at: str | None = None) -> None:
        """Note rows whose records are known from elsewhere. at: their moment (UTC text); None for now.

        If the batch has a record of another key on a line, by an earlier content of the feed, that line keeps only
        this one.
        """
        if not repeats:
            return
        ledger, batch = self._load.ledger, self._load.batch
        self.found(each.line for each in repeats)
        if self.is_read_otherwise:
            keys = ledger.keys_on(batch.target, batch.batch_id, [each.line for each in repeats])
            repeats = [each for each in repeats if keys.get(each.line, each.key) == each.key]
        ledger.note_repeats(*self._load.of, batch.batch_id, repeats, at)

    def note_unchanged(self, lines: Sequence[int], keys: Sequence[str]) -> None:
        """Note rows whose records have the same content. Not for a batch that was read by another feed before."""
        if keys:
            self._load.ledger.note_unchanged(*self._load.of, self._load.batch.batch_id, lines, keys)

    def found(self, lines: Iterable[int]) -> None:
        """Note that these rows are not sent, for those of them that answer rejects."""
        if self._answers and (answers := self._answers.of_lines(lines)):
            found_there(self._load.ledger, self._load.of[0], self._load.batch.batch_id, answers)

    def note_skipped(self, loaded: LoadCounts) -> None:
        """Count and note equal repeats within the file, which count once, and doubtful records that the target has.

        Nothing else happens to these rows, so this comes before all others.
        """
        for name, state in (("skipped", "skipped"), ("known", "unchanged")):
            path = self._load.batch.folder / f"{name}.parquet"
            for part in batches(path, ROWS_A_LOOK, SKIPPED) if exists(path) else ():
                rows = list(zip(*plain_columns(part, SKIPPED), strict=True))
                self.note([Repeat(line, key, state, None, *rest) for line, key, *rest in rows])
                for *_, cents in rows:
                    loaded.add(state, cents)

    @cached_property
    def is_read_otherwise(self) -> bool:
        """True if the batch has records that were read by another content of the feed."""
        batch = self._load.batch
        return self._load.ledger.is_read_otherwise(batch.target, batch.batch_id, batch.feed.hash)


def as_repeat(row: AcceptedRow, state: str, resource_id: str | None) -> Repeat:
    """Return the entry of a row whose record is from another line."""
    return Repeat(row.line, row.key, state, resource_id, row.patient_id, row.source_at, row.amount_cents)
