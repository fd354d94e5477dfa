"""Map the rows of a chunk to `MAPPED`: the content of each row under its key, or its faults."""

from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
import orjson
import pyarrow as pa
from numpy.typing import NDArray

from pipelines.feeds.files.catalog import Feed
from pipelines.feeds.mapping.chunk import Cells
from pipelines.feeds.mapping.mapping import Crosswalks, Mapper
from pipelines.feeds.reading.chunks import Chunk, SourceRow, printable
from pipelines.feeds.terms.columns import MISSING, RecordFault, RecordKind, ValueFault, Values
from pipelines.feeds.terms.times import micros
from pipelines.home import arrow
from pipelines.validation.content import canonical, dump, sha
from pipelines.validation.tables import MAPPED


class MappedChunk(NamedTuple):
    """Rows of `MAPPED` in the order of their lines, and the number of the chunk's lines that the feed does not take."""

    rows: pa.RecordBatch
    not_taken: int


Row = tuple[Any, ...]
"""A row of `MAPPED`."""


class ChunkMapper:
    """Mapper of one chunk after another. tables: the feed's crosswalks."""

    def __init__(
        self, feed: Feed, header: list[str] | None, file_name: str, tables: Crosswalks, known_as: Mapping[str, str]
    ) -> None:
        self._mapper = Mapper(feed, header, file_name, tables, known_as)

    def __call__(self, chunk: Chunk) -> MappedChunk:
        mapper, good, not_taken = self._mapper, chunk.good, 0
        bad = [row for row in chunk.rows if row.fault] if len(good) < len(chunk.rows) else []
        rows = [*_of_bad([row for row in bad if not row.is_doubtful], mapper)]
        rows += _of_doubtful([row for row in bad if row.is_doubtful], mapper)
        taken = mapper.taken(mapper.rows([row.cells for row in good]))
        if not taken.all():
            not_taken = sum(row.lines for row, wanted in zip(good, taken, strict=True) if not wanted)
            good = [row for row, wanted in zip(good, taken, strict=True) if wanted]
        if mapper.feed.file.resources:
            whole = [row for row in good if type(row.cells) is dict and "resourceType" in row.cells]
            rows += _of_resources(whole, mapper)
            good = [row for row in good if not (type(row.cells) is dict and "resourceType" in row.cells)]
        others = [*_of_rows(good, mapper)] if good else []
        in_order = sorted([*rows, *others], key=itemgetter(0)) if rows else others
        return MappedChunk(arrow.batch_of_rows(in_order, MAPPED), not_taken)


def _of_bad(bad: Sequence[SourceRow], mapper: Mapper) -> Iterator[Row]:
    """Yield unreadable rows, set aside. If rows share records, their keys are kept, since a record is sent with all its
    rows or not at all.
    """
    keys = mapper.keys_of_broken(bad) if mapper.feed.kind.grouped else [None] * len(bad)
    for row, found in zip(bad, keys, strict=True):
        raw, key = printable(row.raw), found and printable(found)
        yield row.line, row.lines, key, None, None, sha(raw), _of_parsing(row.fault), raw, False


def _of_doubtful(bad: Sequence[SourceRow], mapper: Mapper) -> Iterator[Row]:
    """Yield rows that may have been misread, set aside with their content. Those that cannot be mapped are bad rows."""
    if not bad or not mapper.feed.file.columns:
        yield from _of_bad(bad, mapper)
        return
    mapped = _mapped([row.cells for row in bad], mapper)
    yield from _of_bad([row for place, row in enumerate(bad) if place in mapped.faults], mapper)
    for place, row in enumerate(bad):
        if place not in mapped.faults:
            said = (mapped.keys[place], mapped.times[place], mapped.records[place], sha(mapped.records[place]))
            yield row.line, row.lines, *said, _of_parsing(row.fault), printable(row.raw), True


def _of_parsing(fault: ValueFault | None) -> str:
    return dump([("parse", fault.rule, None, None, fault.message)] if fault else [])


def _of_rows(rows: Sequence[SourceRow], mapper: Mapper) -> Iterator[Row]:
    kind = mapper.feed.kind
    if not mapper.feed.file.columns:
        said = f"not a FHIR resource; this feed takes only {kind.resource}"
        fault = dump([("map", "FEED-FILE-05", kind.resource, None, said)])
        for row in rows:
            yield row.line, row.lines, None, None, None, sha(row.raw), fault, row.raw, False
        return
    mapped = _mapped([row.cells for row in rows], mapper)
    known = zip(rows, mapped.keys, mapped.times, mapped.records, strict=True)
    for place, ((_, line, lines, raw, *_), key, time, record) in enumerate(known):
        content, faults = record, None
        if wrong := mapped.faults.get(place):
            content = raw
            faults = dump([("map", f.fault.rule, f.element, f.column, f.fault.message) for f in wrong])
        yield line, lines, key, time, record, sha(content), faults, raw, False


class MappedRows(NamedTuple):
    """Keys, microseconds to sort by, and the contents of rows as JSON; by place, the faults of those that have some."""

    keys: Sequence[Any] | NDArray[np.object_]
    times: Sequence[int | None]
    records: list[str]
    faults: Mapping[int, list[RecordFault]]


def _mapped(given: Sequence[Any], mapper: Mapper) -> MappedRows:
    kind, rows = mapper.feed.kind, mapper.rows(given)
    mapped, absent = mapper.map(rows), [None] * len(given)
    _remove_empty_labels(mapped.columns)
    records = _records(kind, mapped.columns, absent)
    times = [micros(time) for time in mapped.columns[kind.sort]] if kind.sort else absent
    return MappedRows(mapped.columns[kind.key], times, records, mapped.faults)


def _records(kind: RecordKind, columns: Mapping[str, Cells], absent: Sequence[None]) -> list[str]:
    every = [columns.get(column.name, absent) for column in kind.columns[1:]]
    return [orjson.dumps(values).decode() for values in zip(*every, strict=True)]


def _remove_empty_labels(columns: Mapping[str, Cells]) -> None:
    """Make empty labels absent, since `""`, `";"` and `[]` mean the same as no element."""
    labels = columns.get("labels")
    if labels is not None:
        labels[[found == [] for found in labels]] = None


def _of_resources(rows: Sequence[SourceRow], mapper: Mapper) -> Iterator[Row]:
    """Yield rows that are FHIR resources. The id is the key; elements that a create ignores are left out."""
    kind = mapper.feed.kind
    for resource, line, lines, raw, *_ in rows:
        found = resource.get("id")
        record_key = mapper.key(found) if isinstance(found, str) else None
        values = kind.whole({name: value for name, value in resource.items() if name not in ("id", "meta")})
        fault = _resource_fault(kind, resource, record_key)
        record = dump(values)
        faults = dump([("map", fault.rule, kind.resource, None, fault.message)]) if fault else None
        known = record_key if isinstance(record_key, str) else None
        about = (sha(raw if fault else canonical(values)), faults, raw, False)
        yield line, lines, known, values.get("at"), record, *about


def _resource_fault(kind: RecordKind, resource: Values, record_key: object) -> ValueFault | None:
    if resource["resourceType"] != kind.resource:
        return ValueFault("FEED-FILE-05", f"not a {kind.resource}; this feed takes no other resource")
    if record_key is None:
        return ValueFault(kind.columns[0].rule, f"id: {MISSING}")
    return record_key if isinstance(record_key, ValueFault) else None
