"""Map the rows of a chunk to `MAPPED`: the content of each row under its key, or its faults."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import orjson
import pyarrow as pa
from numpy.typing import NDArray

from pipelines.feeds.files.catalog import Feed
from pipelines.feeds.mapping.chunk import Cells
from pipelines.feeds.mapping.mapping import Crosswalks, Mapper
from pipelines.feeds.reading.chunks import Chunk
from pipelines.feeds.reading.row_faults import BadRow, printable
from pipelines.feeds.terms.columns import MISSING, ValueFault
from pipelines.feeds.terms.record import RecordFault, RecordKind, Values
from pipelines.feeds.terms.times import micros
from pipelines.home import arrow
from pipelines.validation.content import NO_HASH, canonical, dump, sha
from pipelines.validation.tables import MAPPED


class MappedChunk(NamedTuple):
    """Rows of `MAPPED` in the order of their lines, and the number of the chunk's lines that the feed does not take."""

    rows: pa.RecordBatch
    not_taken: int


class GatheredRows:
    """The rows of a chunk as they are made, one by one or some thousand at once."""

    def __init__(self) -> None:
        self._rows: list[tuple[Any, ...]] = []
        self._batches: list[pa.RecordBatch] = []

    def add(self, *row: Any) -> None:
        self._rows.append(row)

    def add_columns(self, *columns: Sequence[Any] | NDArray[np.object_]) -> None:
        self._batches.append(arrow.batch(columns, MAPPED))

    def in_order(self) -> pa.RecordBatch:
        """Return all rows in the order of their lines."""
        if len(self._batches) == 1 and not self._rows:
            return self._batches[0]
        return pa.concat_batches([*self._batches, arrow.batch_of_rows(self._rows, MAPPED)]).sort_by("line")


class ChunkMapper:
    """Mapper of one chunk after another. tables: the feed's crosswalks."""

    def __init__(
        self,
        feed: Feed,
        header: list[str] | None,
        file_name: str,
        tables: Crosswalks,
        known_as: Mapping[str, str],
    ) -> None:
        self._mapper = Mapper(feed, header, file_name, tables, known_as)

    def __call__(self, chunk: Chunk) -> MappedChunk:
        out = GatheredRows()
        _write_bad([row for row in chunk.bad if not row.is_doubtful], self._mapper, out)
        _write_doubtful([row for row in chunk.bad if row.is_doubtful], self._mapper, out)
        not_taken = _write_chunk(chunk, self._mapper, out)
        return MappedChunk(out.in_order(), not_taken)


def _write_bad(bad: Sequence[BadRow], mapper: Mapper, out: GatheredRows) -> None:
    """Set unreadable rows aside. If rows share records, their keys are kept, since a record is sent with all its rows
    or not at all.
    """
    keys = mapper.keys_of_broken(bad) if mapper.feed.kind.grouped else [None] * len(bad)
    for row, found in zip(bad, keys, strict=True):
        raw = printable(row.raw)
        fault = ("parse", row.fault.rule, None, None, row.fault.message)
        out.add(row.line, row.lines, found and printable(found), None, None, sha(raw), dump([fault]), raw, False, None)


def _write_doubtful(bad: Sequence[BadRow], mapper: Mapper, out: GatheredRows) -> None:
    """Set aside rows that may have been misread, with their content. Those that cannot be mapped are bad rows."""
    if not bad:
        return
    if not mapper.feed.file.columns:
        _write_bad(bad, mapper, out)
        return
    chunk = Chunk(
        [row.cells for row in bad], [row.line for row in bad], [row.lines for row in bad], [row.raw for row in bad]
    )
    mapped = _mapped(chunk, mapper)
    _write_bad([row for place, row in enumerate(bad) if place in mapped.faults], mapper, out)
    for place, row in enumerate(bad):
        if place not in mapped.faults:
            fault = ("parse", row.fault.rule, None, None, row.fault.message)
            said = (mapped.keys[place], mapped.times[place], mapped.records[place], sha(mapped.records[place]))
            out.add(row.line, row.lines, *said, dump([fault]), printable(row.raw), True, mapped.former.get(place))


def _write_chunk(chunk: Chunk, mapper: Mapper, out: GatheredRows) -> int:
    """Map the taken rows of a chunk; return the number of lines that the feed does not take."""
    file = mapper.feed.file
    taken, not_taken = mapper.taken(mapper.rows(chunk.rows)), 0
    if not taken.all():
        not_taken = sum(lines for lines, wanted in zip(chunk.lines, taken, strict=True) if not wanted)
        chunk = chunk.part(taken.nonzero()[0].tolist())
    resources = [type(row) is dict and "resourceType" in row for row in chunk.rows] if file.resources else ()
    if any(resources):
        for wanted, write in ((True, _write_resources), (False, _write_rows)):
            part = [place for place, is_resource in enumerate(resources) if is_resource == wanted]
            write(chunk.part(part), mapper, out)
    else:
        _write_rows(chunk, mapper, out)
    return not_taken


def _write_rows(chunk: Chunk, mapper: Mapper, out: GatheredRows) -> None:
    if not chunk.rows:
        return
    if not mapper.feed.file.columns:
        kind = mapper.feed.kind
        fault = dump(
            [("map", "FEED-FILE-05", kind.resource, None, f"no FHIR resource: this feed takes {kind.resource}")]
        )
        nothing, every = [None] * len(chunk.rows), [fault] * len(chunk.rows)
        hashes, sound = [*map(sha, chunk.raw)], [False] * len(chunk.rows)
        out.add_columns(chunk.line, chunk.lines, nothing, nothing, nothing, hashes, every, chunk.raw, sound, nothing)
        return
    keys, times, records, wrong, former = _mapped(chunk, mapper)
    hashes = [sha(record) for record in records]
    faults: list[str | None] = [None] * len(records)
    for row, found in wrong.items():
        faults[row] = dump([("map", f.fault.rule, f.element, f.column, f.fault.message) for f in found])
        hashes[row] = sha(chunk.raw[row])
    sound, formerly = [False] * len(records), [former.get(row) for row in range(len(records))]
    out.add_columns(chunk.line, chunk.lines, keys, times, records, hashes, faults, chunk.raw, sound, formerly)


class MappedRows(NamedTuple):
    """Keys, microseconds to sort by, and the contents of rows as JSON; by place, the faults of those that have some.

    former: by place, the hashes by which ledgers of older versions may know rows, separated by blanks.
    """

    keys: Sequence[Any] | NDArray[np.object_]
    times: Sequence[int | None]
    records: list[str]
    faults: Mapping[int, list[RecordFault]]
    former: Mapping[int, str]


def _mapped(chunk: Chunk, mapper: Mapper) -> MappedRows:
    kind, rows = mapper.feed.kind, mapper.rows(chunk.rows)
    mapped, absent = mapper.map(rows), [None] * len(chunk.rows)
    former = _without_empty_labels(kind, mapped.columns, absent) | _as_before(chunk, mapper, sorted(rows.were_other))
    records = _records(kind, mapped.columns, absent)
    times = [micros(time) for time in mapped.columns[kind.sort]] if kind.sort else absent
    return MappedRows(mapped.columns[kind.key], times, records, mapped.faults, former)


def _records(kind: RecordKind, columns: Mapping[str, Cells], absent: Sequence[None]) -> list[str]:
    every = [columns.get(column.name, absent) for column in kind.columns[1:]]
    return [orjson.dumps(values).decode() for values in zip(*every, strict=True)]


def _without_empty_labels(kind: RecordKind, columns: Mapping[str, Cells], absent: Sequence[None]) -> dict[int, str]:
    """Make empty labels absent, since `""`, `";"` and `[]` mean the same as no element.

    Return, by place, the hashes that older versions made of such rows with an empty list.
    """
    labels = columns.get("labels")
    empty = [] if labels is None else [place for place, found in enumerate(labels) if found == []]
    if labels is None or not empty:
        return {}
    before = _records(kind, columns, absent)
    labels[empty] = None
    return {place: sha(before[place]) for place in empty}


def _as_before(chunk: Chunk, mapper: Mapper, places: Sequence[int]) -> dict[int, str]:
    """Return, by place, the hashes that earlier versions made of rows, so that their records count as unchanged.

    Those versions read dates that mean none as dates, and texts that mean nothing as texts if blanks were around them.
    There is one hash for each choice of such dates that a feed may not have named then.
    """
    if not places:
        return {}
    rows = [chunk.rows[place] for place in places]
    hashes = [_hashes_by(former, rows) for former in mapper.formers]
    return {place: " ".join(of_row) for place, of_row in zip(places, zip(*hashes, strict=True), strict=True)}


def _hashes_by(former: Mapper, rows: Sequence[Any]) -> list[str]:
    """Return the hashes of rows as one version read them; of a row which it rejected, a hash that matches no content.

    Rows with labels have two hashes each: with an empty list, and without it.
    """
    kind, mapped, absent = former.feed.kind, former.map(former.rows(rows)), [None] * len(rows)
    every = [_records(kind, mapped.columns, absent)]
    if "labels" in mapped.columns:
        _without_empty_labels(kind, mapped.columns, absent)
        every.append(_records(kind, mapped.columns, absent))
    of_rows = enumerate(zip(*every, strict=True))
    none = " ".join([NO_HASH] * len(every))
    return [none if place in mapped.faults else " ".join(map(sha, records)) for place, records in of_rows]


def _write_resources(chunk: Chunk, mapper: Mapper, out: GatheredRows) -> None:
    """Map rows that are FHIR resources. The id is the key; elements that a create ignores are left out."""
    kind = mapper.feed.kind
    for resource, line, lines, raw in chunk.each():
        found = resource.get("id")
        record_key = mapper.key(found) if isinstance(found, str) else None
        values = kind.whole({name: value for name, value in resource.items() if name not in ("id", "meta")})
        fault = _resource_fault(kind, resource, record_key)
        record = dump(values)
        faults = dump([("map", fault.rule, kind.resource, None, fault.message)]) if fault else None
        known = record_key if isinstance(record_key, str) else None
        about = (sha(raw if fault else canonical(values)), faults, raw, False, sha(record))
        out.add(line, lines, known, values.get("at"), record, *about)


def _resource_fault(kind: RecordKind, resource: Values, record_key: object) -> ValueFault | None:
    if resource["resourceType"] != kind.resource:
        return ValueFault("FEED-FILE-05", f"not a {kind.resource}: this feed takes no other resource")
    if record_key is None:
        return ValueFault(kind.columns[0].rule, f"id: {MISSING}")
    return record_key if isinstance(record_key, ValueFault) else None
