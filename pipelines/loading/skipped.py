"""Rows of a file that are not loaded as nothing is to be done with them: they are written down before all others."""

from pipelines.home.spill import batches
from pipelines.ledger.rows import Repeat
from pipelines.loading.accepted import ROWS_A_LOOK, plain_columns
from pipelines.loading.book import Book

SKIPPED = "line key patient_id source_at amount_cents".split()


def note_skipped(book: Book) -> None:
    """Write down equal repeats within the file, which count once, and doubtful records that the target has so."""
    for name, state in (("skipped", "skipped"), ("known", "unchanged")):
        path = book.load.batch.folder / f"{name}.parquet"
        for part in batches(path, ROWS_A_LOOK, SKIPPED) if path.exists() else ():
            rows = list(zip(*plain_columns(part, SKIPPED), strict=True))
            book.repeats.note([Repeat(line, key, state, None, *rest) for line, key, *rest in rows])
            for *_, cents in rows:
                book.loaded.add(state, cents)
