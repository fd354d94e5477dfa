"""Sort and group `MAPPED` in chunks: the rows of each record together, in the order of sending."""

import random
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipelines.feeds.terms.record import RecordKind
from pipelines.home import arrow, spill
from pipelines.home.spill import BATCH, BATCH_SIZE
from pipelines.validation.content import dump
from pipelines.validation.long_texts import aside_of, restored_texts

ROWS = 2_000
SHOWN = "line lines key record hash faults raw is_doubtful text_hash".split()
MOST_ROWS = 5_000
"""The most rows of one record: no questionnaire has as many questions."""
FOUND = pa.schema({"first_line": pa.int64(), "differs": pa.bool_()})
REPEATS = pa.schema({"file_row_number": pa.int64(), **{field.name: field.type for field in FOUND}})
"""The rows whose keys come more than once, by their places in `MAPPED`."""
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
"""Only for repeated keys are hashes compared: hashes of all keys would be most of the memory."""
KEYS_AT_ONCE = 200_000
BYTES_AT_HAND = 1 << 20
"""The most bytes of a file whose repeated keys are found in Python, since opening a database takes longer."""
BYTES_SORTED_AT_ONCE = 12 << 20
MOST_STRETCHES = 500
"""The most files open at once. Beyond some twenty million payments, each stretch is longer."""
LOOKED_AT = 200
"""The number of random rows for each stretch of time, by which its bounds are set."""
WITHOUT_TIME = 2**63 - 1
Place = tuple[int, int]
"""A row's place in the order of sending: its time and its line."""
Repeat = tuple[int, int, bool | None]
"""A row of `REPEATS`."""
APART = """
    select 1 from (select key, max(file_row_number) - min(file_row_number) + 1 as span, count(*) as row_count
        from numbered where key is not null group by key)
    where span <> row_count or row_count > {most} limit 1"""


def _dealt(batches: Iterator[pa.RecordBatch], mapped: Path) -> list[Path]:
    """Distribute the rows over files beside `mapped`, one for each stretch of time; return them in order of time."""
    bounds, of_stretch = _bounds(mapped), dict[int, Path]()
    with ExitStack() as files:
        writers: dict[int, Any] = {}
        for batch in batches:
            rows_of = defaultdict[int, list[int]](list)
            for row, place in enumerate(_places(batch)):
                rows_of[bisect_right(bounds, place)].append(row)
            for number, rows in rows_of.items():
                if number not in writers:
                    of_stretch[number] = mapped.with_name(f"{mapped.stem}-{number}.arrow")
                    writers[number] = files.enter_context(pa.ipc.new_stream(str(of_stretch[number]), batch.schema))
                writers[number].write_batch(batch.take(arrow.column(rows, pa.int64())))
    return [of_stretch[number] for number in sorted(of_stretch)]


def _by_time(stretches: Sequence[Path]) -> Iterator[pa.RecordBatch]:
    """Yield the rows in the order of sending. Each stretch of time is sorted in memory."""
    keys = [("at", "ascending", "at_end"), ("line", "ascending", "at_end")]
    for stretch in stretches:
        with pa.OSFile(str(stretch)) as file, pa.ipc.open_stream(file) as stream:
            rows = stream.read_all().combine_chunks()
        stretch.unlink()
        in_order = pc.sort_indices(rows, sort_keys=keys)
        rows = rows.drop_columns("at")
        for start in range(0, len(rows), ROWS):
            # Each part is taken on its own: a slice of a larger table would go to a helper with the whole table.
            yield from rows.take(in_order.slice(start, ROWS)).to_batches()
        del rows, in_order
        pa.default_memory_pool().release_unused()


def _places(batch: pa.RecordBatch) -> Iterator[Place]:
    times, lines = (batch.column(name).to_pylist() for name in ("at", "line"))
    return zip((WITHOUT_TIME if at is None else at for at in times), lines, strict=True)


def _bounds(mapped: Path) -> list[Place]:
    """Return the first place of each stretch but the earliest. The stretches have about equal sizes."""
    stretches = min(1 + _size(mapped) // BYTES_SORTED_AT_ONCE, MOST_STRETCHES)
    if stretches == 1:
        return []
    share = stretches * LOOKED_AT / pq.read_metadata(mapped).num_rows
    dice = random.Random(0)  # noqa: S311 - no secret
    every = (place for batch in spill.batches(mapped, BATCH, ["at", "line"]) for place in _places(batch))
    return sorted(place for place in every if dice.random() < share)[LOOKED_AT::LOOKED_AT]


def _size(mapped: Path) -> int:
    """Return the bytes of a file's rows before compression."""
    about = pq.read_metadata(mapped)
    return sum(about.row_group(number).total_byte_size for number in range(about.num_row_groups))


def _repeats_at_hand(mapped: Path) -> Iterator[Repeat]:
    """Yield the rows of a small file with repeated keys, in its order, as `REPEATED_KEYS` finds them."""
    asked = ["key", "line", "hash", "is_doubtful"]
    rows = [row for batch in spill.batches(mapped, BATCH, asked) for row in _rows_of(batch)]
    of_key = defaultdict[str, list[tuple[int, str | None]]](list)
    for key, line, content, is_doubtful in rows:
        if key is not None and is_doubtful is False:
            of_key[key].append((line, content))
    for place, (key, *_) in enumerate(rows):
        if len(some := of_key.get(key, ())) > 1:
            contents = {content for _, content in some if content is not None}
            yield place, min(line for line, _ in some), len(contents) > 1 if contents else None


def _find_repeated_keys(database: Any, mapped: Path) -> None:
    """Make a table of repeated keys, with a part of all keys at a time."""
    parts = 1 + pq.read_metadata(mapped).num_rows // KEYS_AT_ONCE
    database.execute("create temp table keys (key varchar, first_line bigint, differs boolean)")
    for part in range(parts):
        database.execute(f"insert into keys {REPEATED_KEYS.format(parts=parts, part=part)}")


def _together(database: Any) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a grouped kind, those of a record together."""
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
    """True if the rows of each record are next to each other and not too many. Only keys are read for that."""
    return not database.sql(APART.format(most=MOST_ROWS)).fetchall()


def _records_as_they_stand(mapped: Path) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a grouped kind from a file that has each record's rows next to each other."""
    key = first = None
    for batch in spill.batches(mapped, ROWS, SHOWN):
        found: list[tuple[int | None, bool | None]] = []
        for line, its_key in zip(batch.column("line").to_pylist(), batch.column("key").to_pylist(), strict=True):
            first = line if its_key is None or its_key != key else first
            key = its_key
            found.append((first, None if key is None else False))
        more = arrow.batch_of_rows(found, FOUND)
        yield pa.record_batch([*batch.columns, *more.columns], names=[*SHOWN, *FOUND.names])


def _repeats(database: Any, mapped: Path) -> Path:
    """Write the rows with repeated keys to a file beside `mapped`, in its order."""
    _find_repeated_keys(database, mapped)
    query = "select file_row_number, first_line, differs from numbered join keys using (key) order by file_row_number"
    repeats = mapped.with_name(f"{mapped.stem}-repeats.parquet")
    with spill.ParquetWriter(repeats, REPEATS) as out:
        for batch in database.sql(query).to_arrow_reader(BATCH):
            out.add_batch(batch)
    return repeats


def _read_once(repeats: Path) -> Iterator[Repeat]:
    """Yield the rows of a file of repeats, which is removed after the last."""
    for batch in spill.batches(repeats, BATCH, REPEATS.names):
        yield from _rows_of(batch)
    repeats.unlink()


def _as_they_stand(
    mapped: Path, found_again: Iterator[Repeat], shown: Sequence[str] = SHOWN
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of an ungrouped kind in the order of the file, with the findings on repeated keys.

    Rows are identified by their places: in a joined file the lines are those of the second file, in no order.
    """
    ahead, begin = next(found_again, None), 0
    for batch in spill.batches(mapped, ROWS, shown):
        found = dict[int, tuple[Any, ...]]()
        while ahead and ahead[0] < begin + batch.num_rows:
            found[ahead[0]] = ahead[1:]
            ahead = next(found_again, None)
        places = range(begin, begin + batch.num_rows)
        more = arrow.batch_of_rows([found.get(place, (None, None)) for place in places], FOUND)
        yield pa.record_batch([*batch.columns, *more.columns], names=[*shown, *FOUND.names])
        begin += batch.num_rows


def _rows_of(batch: pa.RecordBatch) -> Iterator[Any]:
    return zip(*(column.to_pylist() for column in batch.columns), strict=True)


def chunks(mapped: Path, kind: RecordKind) -> Iterator[pa.RecordBatch]:
    """Yield the rows some thousand at a time, or fewer long ones, with the rows of a record in one chunk.

    mapped: in a folder where sorting may spill.
    """
    whole = restored_texts(_in_order(mapped, kind), aside_of(mapped), ("record", "raw"))
    parts = (part for batch in whole for part in _bounded(batch))
    return _whole_records(parts) if kind.grouped else parts


def _in_order(mapped: Path, kind: RecordKind) -> Iterator[pa.RecordBatch]:
    """Yield the rows in the order of sending. Unless DuckDB sorts them, they come after it has released its memory."""
    if not kind.grouped and _size(mapped) <= BYTES_AT_HAND:
        yield from _ungrouped(mapped, kind, _repeats_at_hand(mapped))
        return
    with spill.sorter(mapped.parent) as database:
        source = str(mapped).replace("'", "''")
        for view, numbered in (("mapped", "false"), ("numbered", "true")):
            database.execute(f"create view {view} as from read_parquet('{source}', file_row_number = {numbered})")
        if kind.grouped and not _stand_together(database):
            yield from _together(database)
            return
        repeats = None if kind.grouped else _repeats(database, mapped)
    if repeats is None:
        yield from _records_as_they_stand(mapped)
    else:
        yield from _ungrouped(mapped, kind, _read_once(repeats))


def _ungrouped(mapped: Path, kind: RecordKind, repeats: Iterator[Repeat]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of an ungrouped kind in the order of sending."""
    if kind.sort:
        yield from _by_time(_dealt(_as_they_stand(mapped, repeats, [*SHOWN, "at"]), mapped))
    else:
        yield from _as_they_stand(mapped, repeats)


def _bounded(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield a batch in parts of limited size."""
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
