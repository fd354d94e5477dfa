"""`MAPPED` sorted and grouped, in chunks: the rows of one record after another, in the order of sending."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pipelines.feeds.terms.record import Kind
from pipelines.home import arrow, spill
from pipelines.home.spill import BATCH_SIZE
from pipelines.validation.aside import aside_of, restored
from pipelines.validation.content import dump

ROWS = 2_000
SHOWN = "line lines key record hash faults raw is_doubtful text_hash".split()
MOST_ROWS = 5_000
"""Rows of one record: no questionnaire has as many questions."""
FOUND = pa.schema({"first_line": pa.int64(), "differs": pa.bool_()})
SHARED = (
    f"more than {MOST_ROWS:,} rows of this file share the key, and no record has so many: is it another column that"
    " tells the records apart?"
)
EVERY_KEY = """
    select key, min(line) as first_line, false as differs, count(*) as row_count
    from mapped where key is not null group by key"""
REPEATED_KEYS = """
    select key, min(line) as first_line, min(hash) <> max(hash) as differs from mapped
    where key in (select key from mapped where key is not null and not is_doubtful group by key having count(*) > 1)
    and not is_doubtful group by key"""
"""Hashes are compared for keys that come more than once alone: held for every key, they would be most of the memory."""
APART = """
    select 1 from (select key, max(file_row_number) - min(file_row_number) + 1 as span, count(*) as row_count
        from numbered where key is not null group by key)
    where span <> row_count or row_count > {most} limit 1"""


def _sorted(database: Any, kind: Kind) -> Iterator[pa.RecordBatch]:
    """The rows in the order of sending; of a grouped kind those of a record together."""
    query = f"""
        with keys as ({REPEATED_KEYS})
        select {", ".join(SHOWN)}, first_line, differs from mapped left join keys using (key)
        order by "at" nulls last, line
    """
    if kind.grouped:
        shared = dump([("map", "LEDGER-13", None, None, SHARED)]).replace("'", "''")
        query = f"""
            with keys as ({EVERY_KEY}),
            counted as (select mapped.*, first_line, differs, coalesce(row_count > {MOST_ROWS}, false) as is_shared
                from mapped left join keys using (key))
            select line, lines, key, case when not is_shared then record end as record, hash,
                case when is_shared then '{shared}' else faults end as faults, raw,
                is_doubtful and not is_shared as is_doubtful, text_hash,
                case when is_shared then line else coalesce(first_line, line) end as first_line, differs
            from counted order by first_line, line
        """
    yield from database.sql(query).to_arrow_reader(ROWS)


def _stand_together(database: Any) -> bool:
    """True if no record has other rows between its own, or more than one may have. Only keys are read for it."""
    return not database.sql(APART.format(most=MOST_ROWS)).fetchall()


def _records_as_they_stand(mapped: Path) -> Iterator[pa.RecordBatch]:
    """The rows of a grouped kind in whose file the rows of each record stand together."""
    key = first = None
    for batch in spill.batches(mapped, ROWS, SHOWN):
        found: list[tuple[int | None, bool | None]] = []
        for line, its_key in zip(batch.column("line").to_pylist(), batch.column("key").to_pylist(), strict=True):
            first = line if its_key is None or its_key != key else first
            key = its_key
            found.append((first, None if key is None else False))
        more = arrow.batch_of_rows(found, FOUND)
        yield pa.record_batch([*batch.columns, *more.columns], names=[*SHOWN, *FOUND.names])


def _as_they_stand(database: Any, mapped: Path) -> Iterator[pa.RecordBatch]:
    """The rows of a kind that is sent in the order of the file: only of keys that come more than once is more asked.
    Rows are told by their places: in a joined file their lines, which are those of the second, are in no order.
    """
    query = f"""
        with keys as ({REPEATED_KEYS})
        select file_row_number, first_line, differs from numbered join keys using (key) order by file_row_number"""
    repeats = spill.rows(database, query)
    ahead, begin = next(repeats, None), 0
    for batch in spill.batches(mapped, ROWS, SHOWN):
        found = dict[int, tuple[Any, ...]]()
        while ahead and ahead[0] < begin + batch.num_rows:
            found[ahead[0]] = ahead[1:]
            ahead = next(repeats, None)
        places = range(begin, begin + batch.num_rows)
        more = arrow.batch_of_rows([found.get(place, (None, None)) for place in places], FOUND)
        yield pa.record_batch([*batch.columns, *more.columns], names=[*SHOWN, *FOUND.names])
        begin += batch.num_rows


def chunks(database: Any, mapped: Path, kind: Kind) -> Iterator[pa.RecordBatch]:
    """The rows some thousand at a time, or fewer long ones; the rows of a record in one chunk."""
    file = str(mapped).replace("'", "''")
    database.execute(f"create view mapped as from read_parquet('{file}')")
    database.execute(f"create view numbered as from read_parquet('{file}', file_row_number = true)")
    if kind.grouped and _stand_together(database):
        batches = _records_as_they_stand(mapped)
    else:
        batches = _sorted(database, kind) if kind.grouped or kind.sort else _as_they_stand(database, mapped)
    whole = restored(batches, aside_of(mapped), ("record", "raw"))
    parts = (part for batch in whole for part in _bounded(batch))
    return _whole_records(parts) if kind.grouped else parts


def _bounded(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield a batch in parts of a bounded size."""
    rows = max(1, batch.num_rows * BATCH_SIZE // max(batch.nbytes, 1))
    return (batch.slice(start, rows) for start in range(0, batch.num_rows, rows))


def _whole_records(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows in batches that are cut only between records."""
    held: list[pa.RecordBatch] = []
    for batch in batches:
        begins = batch.column("first_line")
        last = pc.index(begins, begins[-1]).as_py()
        if last or (held and held[0].column("first_line")[0] != begins[0]):
            held.append(batch.slice(0, last))
            yield pa.concat_batches(held)
            held = [batch.slice(last)]
        else:
            held.append(batch)
    if held:
        yield pa.concat_batches(held)
