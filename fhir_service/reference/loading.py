"""Loading reference data (decision D5): patients first, then by type, in chunks, each in one transaction of the writer.

The files are read once for the patients and to see what types they hold, and once more for each of the other types they
hold: memory does not grow with them, and the order of the files does not matter.
"""

from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TypedDict

from sqlalchemy import Connection

from fhir_service.interface.resources.questionnaire_response import AUTOMATION
from fhir_service.interface.site import Site
from fhir_service.reference import storing
from fhir_service.reference.examining import ReadyRecord, check_name, examine, ready
from fhir_service.reference.reading import Record, files, first_of_foreign, records
from fhir_service.reference.references import TYPES
from fhir_service.store.store import Store
from fhir_service.writing.writer import Writer

MOST_RECORDS = 500
"""The records of a transaction. Other writes take their turn between two transactions."""
MOST_BYTES = 16 * 1024 * 1024


class TypeCounts(TypedDict):
    """Counts of the records of a type. `unresolved`: their references to loadable records that are not stored."""

    type: str
    created: int
    unchanged: int
    updated: int
    refused: int
    unresolved: int


class RecordProblem(TypedDict):
    """One thing that is wrong with a record: FHIRPath and what, without a value."""

    expression: str
    text: str


class RefusedRecord(TypedDict):
    """A record that was not loaded."""

    file: str
    line: int
    type: str | None
    id: str | None
    problems: list[RecordProblem]


class LoadReport(TypedDict):
    """The result of a load: counts by type, in the order of loading; and the refused records, by file and line."""

    counts: list[TypeCounts]
    refused: list[RefusedRecord]


def load(
    paths: Sequence[Path],
    writer: Writer,
    store: Store,
    clock: Callable[[], datetime],
    new_id: Callable[[], str],
    site: Site,
    apart: Container[Path] = (),
) -> LoadReport:
    """Load files, or folders of them, into the store. Raises FileNotFoundError before anything is done.

    apart: files that hold no reference data, each of which is refused as one record.
    """
    return _Load(writer, store, clock, new_id, site).run(files(paths), apart)


class _Load:
    """One load, and its counts so far."""

    def __init__(
        self, writer: Writer, store: Store, clock: Callable[[], datetime], new_id: Callable[[], str], site: Site
    ) -> None:
        self._writer, self._store, self._clock, self._new_id, self._site = writer, store, clock, new_id, site
        self._verdicts: Counter[tuple[str, str]] = Counter()
        self._targets: Counter[tuple[str, str]] = Counter()
        self._refused: list[RefusedRecord] = []

    def run(self, paths: list[Path], apart: Container[Path]) -> LoadReport:
        for path in paths:
            if path in apart and (first := first_of_foreign(path)):
                self._refuse(first)
        holding: dict[Path, set[str]] = {path: set() for path in paths if path not in apart}
        self._load(self._survey(holding))
        for kind in TYPES[1:]:
            self._load(record for path, kinds in holding.items() if kind in kinds for record in _of_type(path, kind))
        return self._report(paths)

    def _survey(self, holding: dict[Path, set[str]]) -> Iterator[Record]:
        """Yield the patients of all files. Note the types in each file, and refuse records without a type."""
        for path, kinds in holding.items():
            for record in records(path):
                check_name(record)
                if record.flaws:
                    self._refuse(record)
                elif record.type == "Patient":
                    yield record
                else:
                    kinds.add(record.type or "")

    def _load(self, found: Iterable[Record]) -> None:
        for chunk in self._chunks(found):
            differing = self._differing(chunk)
            verdicts = dict[str, storing.Verdict].fromkeys((record.reference for record in chunk), "unchanged")
            if differing:
                names = [record.reference for record in differing]
                records = set(names) if storing.is_plain(differing[0].record.type) else None
                verdicts |= zip(
                    names, self._writer.transact(partial(self._store_chunk, differing), records=records), strict=True
                )
            for record, verdict in zip(chunk, verdicts.values(), strict=True):
                kind = record.record.type or ""
                if verdict == "refused":
                    self._refuse(record.record)
                    continue
                self._verdicts[kind, verdict] += 1
                self._targets.update((kind, target) for target in record.targets)

    def _chunks(self, found: Iterable[Record]) -> Iterator[list[ReadyRecord]]:
        """Yield the records in chunks of bounded number and size. No id is twice in a chunk."""
        chunk: dict[str, ReadyRecord] = {}
        size = 0
        for record in found:
            made = ready(record, self._site)
            if record.flaws:
                self._refuse(record)
                continue
            if len(chunk) >= MOST_RECORDS or size >= MOST_BYTES or made.reference in chunk:
                yield list(chunk.values())
                chunk, size = {}, 0
            chunk[made.reference] = made
            size += record.size
        if chunk:
            yield list(chunk.values())

    def _differing(self, chunk: list[ReadyRecord]) -> list[ReadyRecord]:
        """Return the records that differ from the stored ones, examined. Equal ones need no transaction."""
        with self._store.read(creates=False) as connection:
            known = storing.known_rows(connection, self._store.dialect, {record.reference for record in chunk})
        differing = [
            each for each in chunk if not ((stored := known.get(each.reference)) and stored.digest == each.digest)
        ]
        for record in differing:
            examine(record, self._site)
        return differing

    def _store_chunk(self, chunk: list[ReadyRecord], connection: Connection) -> list[storing.Verdict]:
        tools = storing.StoringContext(self._store.dialect, self._writer.next_seq, self._clock(), self._new_id)
        return storing.Chunk(connection, tools, chunk).store()

    def _refuse(self, record: Record) -> None:
        self._verdicts[record.type or "", "refused"] += 1
        problems: list[RecordProblem] = [{"expression": at, "text": text} for at, text in record.flaws]
        self._refused.append(
            {"file": record.file, "line": record.line, "type": record.type, "id": record.id, "problems": problems}
        )

    def _report(self, paths: list[Path]) -> LoadReport:
        wanted = {target for _, target in self._targets} - {AUTOMATION}
        with self._store.read() as connection:
            missing = storing.unresolved(connection, self._store.dialect, wanted)
        unresolved = storing.by_type(self._targets, missing)
        met = {kind for kind, _ in self._verdicts}
        kinds = [*(kind for kind in TYPES if kind in met), *sorted(met.difference(TYPES))]
        order = {str(path): number for number, path in enumerate(paths)}
        self._refused.sort(key=lambda refused: (order[refused["file"]], refused["line"]))
        return {"counts": [self._counts(kind, unresolved.get(kind, 0)) for kind in kinds], "refused": self._refused}

    def _counts(self, kind: str, unresolved: int) -> TypeCounts:
        return {
            "type": kind,
            "created": self._verdicts[kind, "created"],
            "unchanged": self._verdicts[kind, "unchanged"],
            "updated": self._verdicts[kind, "updated"],
            "refused": self._verdicts[kind, "refused"],
            "unresolved": unresolved,
        }


def _of_type(path: Path, kind: str) -> Iterator[Record]:
    """The records of a type in a file, but for those that were refused already."""
    for record in records(path):
        if record.type == kind:
            check_name(record)
            if not record.flaws:
                yield record
