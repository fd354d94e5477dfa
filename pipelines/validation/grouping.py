"""Sort and group `MAPPED` in chunks: the rows of each record together, in the order of sending."""

import random
from array import array
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from pipelines.feeds.terms.columns import RecordKind
from pipelines.home import arrow, spill
from pipelines.home.spill import BATCH, BATCH_SIZE
from pipelines.validation.content import dump

ROWS = 2_000
SHOWN = "line lines key record hash faults raw is_doubtful".split()
MOST_ROWS = 5_000
"""The most rows of one record: no questionnaire has as many questions."""
FOUND = pa.schema({"first_line": pa.int64(), "differs": pa.bool_()})
SHARED = (
    f"more than {MOST_ROWS:,} rows of this file have this key, and no record has so many; check that the feed maps the"
    " column that identifies each record"
)
KEYS_AT_ONCE = 200_000
"""The most repeated keys that are in memory at once."""
BYTES_SORTED_AT_ONCE = 12 << 20
MOST_STRETCHES = 500
"""The most files open at once. Beyond some twenty million payments, each stretch is longer."""
LOOKED_AT = 200
"""The number of random rows for each stretch, by which its bounds are set."""
WITHOUT_TIME = 2**63 - 1
Place = tuple[int, int]
"""A row's place in the order of sending: its time, or the first line of its record, and its line."""
Repeat = tuple[int, int, bool]
"""A row whose key comes more than once: its place in `MAPPED`, the key's first line, and True if contents differ."""


def _dealt(batches: Iterator[pa.RecordBatch], mapped: Path, bounds: Sequence[Place], by: str) -> list[Path]:
    """Distribute the rows over files beside `mapped`, one for each stretch of places; return them in order."""
    of_stretch = dict[int, Path]()
    with ExitStack() as files:
        writers: dict[int, Any] = {}
        for batch in batches:
            rows_of = defaultdict[int, list[int]](list)
            for row, place in enumerate(_places(batch, by)):
                rows_of[bisect_right(bounds, place)].append(row)
            for number, rows in rows_of.items():
                if number not in writers:
                    of_stretch[number] = mapped.with_name(f"{mapped.stem}-{number}.arrow")
                    writers[number] = files.enter_context(pa.ipc.new_stream(str(of_stretch[number]), batch.schema))
                writers[number].write_batch(batch.take(arrow.column(rows, pa.int64())))
    return [of_stretch[number] for number in sorted(of_stretch)]


def _in_order_of(by: str, stretches: Sequence[Path]) -> Iterator[pa.RecordBatch]:
    """Yield the rows in order of a column and their lines. Each stretch is sorted in memory."""
    keys = [(by, "ascending", "at_end"), ("line", "ascending", "at_end")]
    for stretch in stretches:
        with pa.OSFile(str(stretch)) as file, pa.ipc.open_stream(file) as stream:
            rows = stream.read_all().combine_chunks()
        stretch.unlink()
        in_order = pc.sort_indices(rows, sort_keys=keys)
        rows = rows.select([*SHOWN, *FOUND.names])
        for start in range(0, len(rows), ROWS):
            # Each part is taken on its own: a slice of a larger table would go to a helper with the whole table.
            yield from rows.take(in_order.slice(start, ROWS)).to_batches()
        del rows, in_order
        pa.default_memory_pool().release_unused()


def _places(batch: pa.RecordBatch, by: str) -> Iterator[Place]:
    values, lines = (batch.column(name).to_pylist() for name in (by, "line"))
    return zip((WITHOUT_TIME if value is None else value for value in values), lines, strict=True)


def _bounds(places: Iterator[Place], mapped: Path) -> list[Place]:
    """Return the first place of each stretch but the earliest. The stretches have about equal sizes."""
    stretches = min(1 + _size(mapped) // BYTES_SORTED_AT_ONCE, MOST_STRETCHES)
    if stretches == 1:
        return []
    share = stretches * LOOKED_AT / pq.read_metadata(mapped).num_rows
    dice = random.Random(0)  # noqa: S311 - no secret
    return sorted(place for place in places if dice.random() < share)[LOOKED_AT::LOOKED_AT]


def _size(mapped: Path) -> int:
    """Return the bytes of a file's rows before compression."""
    about = pq.read_metadata(mapped)
    return sum(about.row_group(number).total_byte_size for number in range(about.num_row_groups))


def _repeats(mapped: Path) -> Iterator[Repeat]:
    """Yield the rows whose keys come more than once, in the order of the file. Doubtful rows do not count.

    Of all keys, only hashes are in memory. Of the keys that come again by their hashes, it is some at a time.
    """
    rows = spill.rows_of(mapped, "key", "is_doubtful")
    again = _twice(array("q", (hash(key) for key, is_doubtful in rows if key is not None and not is_doubtful)))
    parts = np.array_split(again, 1 + len(again) // KEYS_AT_ONCE)
    places, firsts, differ = array("q"), array("q"), bytearray()
    for part in parts:
        for place, first, differs in _repeats_of({*part.tolist()}, mapped):
            places.append(place)
            firsts.append(first)
            differ.append(differs)
    order = np.argsort(np.asarray(places))
    for some in np.array_split(order, 1 + len(order) // ROWS):
        yield from ((places[at], firsts[at], bool(differ[at])) for at in some.tolist())


def _twice(hashes: "array[int]") -> NDArray[np.int64]:
    """Return the hashes that come more than once. They are sorted in place: those of a large file are many."""
    found = np.asarray(hashes)
    found.sort()
    return np.unique(found[1:][found[1:] == found[:-1]])


def _repeats_of(hashes: Collection[int], mapped: Path) -> Iterator[Repeat]:
    """Yield those of the rows whose keys have these hashes."""
    known: dict[str, tuple[int, str]] = {}
    again: dict[str, tuple[int, bool]] = {}
    for key, line, content, is_doubtful in (
        spill.rows_of(mapped, "key", "line", "hash", "is_doubtful") if hashes else ()
    ):
        if key is None or is_doubtful or hash(key) not in hashes:
            continue
        if key in known:
            first, differs = again.get(key, (known[key][0], False))
            again[key] = min(first, line), differs or content != known[key][1]
        else:
            known[key] = line, content
    for place, (key,) in enumerate(spill.rows_of(mapped, "key") if again else ()):
        if key in again:
            yield place, *again[key]


def _together(mapped: Path) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a grouped kind, those of a record together. Of all rows, only the keys are in memory."""
    firsts, numbers = dict[str, int](), Counter[str]()
    for key, line in spill.rows_of(mapped, "key", "line"):
        if key is not None:
            firsts[key] = min(line, firsts.get(key, line))
            numbers[key] += 1
    shared = frozenset(key for key, number in numbers.items() if number > MOST_ROWS)
    firsts = {key: first for key, first in firsts.items() if key not in shared}
    places = ((firsts.get(key, line), line) for key, line in spill.rows_of(mapped, "key", "line"))
    found = _with_firsts(mapped, firsts, shared)
    return _in_order_of("first_line", _dealt(found, mapped, _bounds(places, mapped), "first_line"))


def _with_firsts(mapped: Path, firsts: Mapping[str, int], shared: frozenset[str]) -> Iterator[pa.RecordBatch]:
    """Yield the rows with the first lines of their keys. A row whose key is of too many rows is a reject of its own."""
    fault = dump([("map", "LEDGER-13", None, None, SHARED)])
    for batch in spill.batches(mapped, ROWS, SHOWN):
        keys, lines = (batch.column(name).to_pylist() for name in ("key", "line"))
        rows = batch
        if not shared.isdisjoint(keys):
            alone = {"record": None, "faults": fault, "is_doubtful": False}
            every = ({**row, **alone} if row["key"] in shared else row for row in batch.to_pylist())
            rows = arrow.batch_of_rows([[*row.values()] for row in every], batch.schema)
        found = [(firsts.get(key, line), None if key is None else False) for key, line in zip(keys, lines, strict=True)]
        yield _with_found(rows, found)


def _with_found(batch: pa.RecordBatch, found: Sequence[tuple[Any, ...]]) -> pa.RecordBatch:
    """Return the rows with two more columns, those of `FOUND`."""
    more = arrow.batch_of_rows(found, FOUND)
    return pa.record_batch([*batch.columns, *more.columns], names=[*batch.schema.names, *FOUND.names])


def _stand_together(mapped: Path) -> bool:
    """True if the rows of each record are next to each other and not too many."""
    begun = array("q")
    for key, rows in groupby(key for (key,) in spill.rows_of(mapped, "key")):
        if key is not None:
            if sum(1 for _ in rows) > MOST_ROWS:
                return False
            begun.append(hash(key))
    return not len(_twice(begun))


def _records_as_they_stand(mapped: Path) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a grouped kind from a file that has each record's rows next to each other."""
    key = first = None
    for batch in spill.batches(mapped, ROWS, SHOWN):
        found: list[tuple[int | None, bool | None]] = []
        for line, its_key in zip(batch.column("line").to_pylist(), batch.column("key").to_pylist(), strict=True):
            first = line if its_key is None or its_key != key else first
            key = its_key
            found.append((first, None if key is None else False))
        yield _with_found(batch, found)


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
        yield _with_found(batch, [found.get(place, (None, None)) for place in places])
        begin += batch.num_rows


def chunks(mapped: Path, kind: RecordKind) -> Iterator[pa.RecordBatch]:
    """Yield the rows some thousand at a time, or fewer long ones, with the rows of a record in one chunk.

    mapped: in a folder where sorting may spill.
    """
    parts = (part for batch in _in_order(mapped, kind) for part in _bounded(batch))
    return _whole_records(parts) if kind.grouped else parts


def _in_order(mapped: Path, kind: RecordKind) -> Iterator[pa.RecordBatch]:
    """Yield the rows in the order of sending."""
    if kind.grouped:
        yield from _records_as_they_stand(mapped) if _stand_together(mapped) else _together(mapped)
    elif kind.sort:
        every = (place for batch in spill.batches(mapped, BATCH, ["at", "line"]) for place in _places(batch, "at"))
        rows = _as_they_stand(mapped, _repeats(mapped), [*SHOWN, "at"])
        yield from _in_order_of("at", _dealt(rows, mapped, _bounds(every, mapped), "at"))
    else:
        yield from _as_they_stand(mapped, _repeats(mapped))


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
