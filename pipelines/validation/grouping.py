"""`MAPPED` sorted and grouped, in chunks: the rows of one record after another, in the order of sending."""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

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
    where key in (select key from mapped where key is not null and not is_doubtful and hash(key) % {parts} = {part}
        group by key having count(*) > 1)
    and not is_doubtful group by key"""
"""Hashes are compared for keys that come more than once alone: held for every key, they would be most of the memory."""
KEYS_AT_ONCE = 200_000
BYTES_SORTED_AT_ONCE = 32 << 20
"""A third of what DuckDB may have: it sorts on the disk what it has no memory for, but may fail where that is less."""
LOOKED_AT = 200
"""Rows at random for each stretch of time, by which its bounds are set."""
PLACE = f"""(coalesce("at", {2**63 - 1})::hugeint * {2**63}::hugeint + line)"""
"""A row's place in the order of sending, as one number."""
FIRST, LAST = -(2**126), 2**126
APART = """
    select 1 from (select key, max(file_row_number) - min(file_row_number) + 1 as span, count(*) as row_count
        from numbered where key is not null group by key)
    where span <> row_count or row_count > {most} limit 1"""


def _by_time(database: Any, mapped: Path) -> Iterator[Path]:
    """Write the rows in the order of sending, a stretch of time to a file; yield the files."""
    _find_repeated_keys(database, mapped)
    for number, (begin, end) in enumerate(pairwise(_bounds(database, mapped))):
        file = mapped.with_name(f"{mapped.stem}-{number}.parquet")
        query = f"""
            select {", ".join(SHOWN)}, first_line, differs from mapped left join keys using (key)
            where {PLACE} >= {begin}::hugeint and {PLACE} < {end}::hugeint order by "at" nulls last, line"""
        database.execute(f"copy ({query}) to '{_quoted(file)}' (format parquet, row_group_size 5000)")
        yield file


def _bounds(database: Any, mapped: Path) -> list[int]:
    """Return the places between stretches of about equal size, from before all rows to behind them."""
    about = pq.read_metadata(mapped)
    size = sum(about.row_group(number).total_byte_size for number in range(about.num_row_groups))
    stretches = 1 + size // BYTES_SORTED_AT_ONCE
    sample = f"select {PLACE} from mapped using sample reservoir({stretches * LOOKED_AT}) repeatable (0) order by all"
    found = database.sql(sample).fetchall() if stretches > 1 else []
    return [FIRST, *(place for (place,) in found[LOOKED_AT::LOOKED_AT]), LAST]


def _find_repeated_keys(database: Any, mapped: Path) -> None:
    """Make a table of the keys that come more than once, looked for among some of all keys at a time."""
    parts = 1 + pq.read_metadata(mapped).num_rows // KEYS_AT_ONCE
    database.execute("create temp table keys (key varchar, first_line bigint, differs boolean)")
    for part in range(parts):
        database.execute(f"insert into keys {REPEATED_KEYS.format(parts=parts, part=part)}")


def _together(database: Any) -> Iterator[pa.RecordBatch]:
    """The rows of a grouped kind, those of a record together."""
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
    _find_repeated_keys(database, mapped)
    query = "select file_row_number, first_line, differs from numbered join keys using (key) order by file_row_number"
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


def chunks(mapped: Path, kind: Kind) -> Iterator[pa.RecordBatch]:
    """The rows some thousand at a time, or fewer long ones; the rows of a record in one chunk.

    mapped: in a folder where sorting may spill.
    """
    whole = restored(_in_order(mapped, kind), aside_of(mapped), ("record", "raw"))
    parts = (part for batch in whole for part in _bounded(batch))
    return _whole_records(parts) if kind.grouped else parts


def _in_order(mapped: Path, kind: Kind) -> Iterator[pa.RecordBatch]:
    """The rows in the order of sending. DuckDB has given back its memory before rows come that it need not hold."""
    with spill.sorter(mapped.parent) as database:
        for view, numbered in (("mapped", "false"), ("numbered", "true")):
            source = f"read_parquet('{_quoted(mapped)}', file_row_number = {numbered})"
            database.execute(f"create view {view} as from {source}")
        if kind.grouped and not _stand_together(database):
            yield from _together(database)
            return
        if not (kind.grouped or kind.sort):
            yield from _as_they_stand(database, mapped)
            return
        stretches = [] if kind.grouped else [*_by_time(database, mapped)]
    if kind.grouped:
        yield from _records_as_they_stand(mapped)
    for stretch in stretches:
        yield from spill.batches(stretch, ROWS, [*SHOWN, *FOUND.names])


def _quoted(path: Path) -> str:
    return str(path).replace("'", "''")


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
