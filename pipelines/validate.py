"""The second stage: a received file becomes records that the interface takes, and rejects with every reason.

Read and map a chunk at a time into `mapped.parquet`; sort and group that; build each record's body and check it.
"""

import hashlib
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import pyarrow as pa

from fhir_service.interface.datatypes import Malformed, instant_text, parse_json
from fhir_service.interface.registry import RESOURCES
from fhir_service.interface.site import Site
from fhir_service.interface.vocabulary import Problem, check
from pipelines import spill
from pipelines.batch import Received
from pipelines.feeds.catalog import CONTROL, Feed
from pipelines.feeds.columns import MISSING, Fault, key, micros
from pipelines.feeds.mapping import Mapper, path_heads, source_label, unnamed_columns
from pipelines.feeds.reading import BadRow, Chunk, Reader, printable
from pipelines.feeds.record import Around, Built, Found, Kind, Values
from pipelines.snapshot import Snapshot

TIME = pa.timestamp("us", tz="UTC")
MAPPED = pa.schema(
    {
        "line": pa.int64(),
        "lines": pa.int32(),
        "key": pa.string(),
        "at": pa.int64(),
        "record": pa.string(),
        "hash": pa.string(),
        "faults": pa.string(),
        "raw": pa.string(),
    }
)
ACCEPTED = pa.schema(
    {
        "line": pa.int64(),
        "lines": pa.int32(),
        "key": pa.string(),
        "lane": pa.string(),
        "position": pa.int64(),
        "content_hash": pa.string(),
        "patient_id": pa.string(),
        "source_at": TIME,
        "amount_cents": pa.int64(),
        "body": pa.string(),
    }
)
REASON = pa.struct(
    {
        "rule_id": pa.string(),
        "expression": pa.string(),
        "column": pa.string(),
        "message": pa.string(),
        "retryable": pa.bool_(),
    }
)
REJECTS = pa.schema(
    {
        "line": pa.int64(),
        "lines": pa.int32(),
        "key": pa.string(),
        "stage": pa.string(),
        "patient_id": pa.string(),
        "amount_cents": pa.int64(),
        "record": pa.string(),
        "reasons": pa.list_(REASON),
    }
)
SKIPPED = pa.schema(
    {
        "line": pa.int64(),
        "lines": pa.int32(),
        "key": pa.string(),
        "first_line": pa.int64(),
        "patient_id": pa.string(),
        "source_at": TIME,
        "amount_cents": pa.int64(),
    }
)


@dataclass
class Validated:
    """What became of a file. Amounts in cents; `accepted` holds the equal repeats of `skipped` too.

    lines = header + not_taken + the lines of all records; records = accepted + rejected. control_mismatch,
    over_limit: a sentence why nothing of this file may be sent, or None. reasons, warnings: records by rule broken.
    """

    folder: Path
    header: int = 0
    lines: int = 0
    not_taken: int = 0
    rows: int = 0
    records: int = 0
    accepted: int = 0
    rejected: int = 0
    skipped: int = 0
    amount_received: int = 0
    amount_accepted: int = 0
    amount_skipped: int = 0
    control_mismatch: str | None = None
    over_limit: str | None = None
    unnamed_columns: list[str] = field(default_factory=list)
    reasons: Counter[str] = field(default_factory=Counter)
    warnings: Counter[str] = field(default_factory=Counter)

    @property
    def stop(self) -> str | None:
        """Why nothing of this file may be sent."""
        return self.control_mismatch or self.over_limit


def validate(
    received: Received,
    feed: Feed,
    snapshot: Snapshot,
    site: Site,
    folder: Path,
    *,
    strict: bool = True,
    progress: Callable[[int], None] = lambda _: None,
) -> Validated:
    """Writes `accepted.parquet`, `rejects.parquet` and `skipped.parquet` into `folder` and counts.

    strict: whether a decided rule rejects (else it is counted as a warning). progress: told how many records are done.
    Raises Unreadable when the rows of the file cannot be told apart.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = Validated(folder)
    mapped = folder / "mapped.parquet"
    try:
        _map_file(received, feed, mapped, found)
        _check_records(
            mapped, feed, Around(site, snapshot, instant_text(received.received_at)), strict, found, progress
        )
    finally:
        mapped.unlink(missing_ok=True)
        shutil.rmtree(folder / ".spill", ignore_errors=True)
    found.records = found.accepted + found.rejected
    found.control_mismatch = _control_mismatch(received, found)
    found.over_limit = _over_limit(feed, found)
    return found


# --- Mapping --------------------------------------------------------------------------------------


def _map_file(received: Received, feed: Feed, to: Path, found: Validated) -> None:
    """The file's rows as `MAPPED`: what each says, under its key, or what is wrong with it."""
    form = feed.format_of(received.file_name)
    with Reader(received.path_in_batch, received.file_name, feed.file, form) as reader, spill.Writer(to, MAPPED) as out:
        mapper = Mapper(feed, reader.header, received.file_name)
        heads: set[str] = set()
        for chunk in reader.chunks():
            found.rows += len(chunk.rows) + len(chunk.bad)
            _write_bad(chunk.bad, feed, reader.header, out)
            if reader.header is None:
                heads = _more_heads(heads, chunk)
            _write_chunk(chunk, mapper, out, found)
    counted = reader.counted
    found.header, found.lines, found.not_taken = counted.header, counted.lines, found.not_taken + counted.blank
    found.unnamed_columns = _unnamed(feed, reader.header, heads)


def _more_heads(heads: set[str], chunk: Chunk) -> set[str]:
    """The names that objects of the file begin with, up to a number that can still be listed."""
    return heads.union(*chunk.rows) if len(heads) < 1000 else heads


def _unnamed(feed: Feed, header: list[str] | None, heads: set[str]) -> list[str]:
    if header is not None:
        return unnamed_columns(feed, header)
    return [] if feed.file.resources and "resourceType" in heads else sorted(heads - path_heads(feed))


def _write_bad(bad: Sequence[BadRow], feed: Feed, header: list[str] | None, out: spill.Writer) -> None:
    """Rows that could not be read. Of answers the key is kept, so that no response goes on without one of its rows."""
    value = feed.file.columns[feed.kind.key].column
    place = header.index(value) if header and value in header else None
    for row in bad:
        key = None
        if feed.kind.grouped and row.cells and place is not None and place < len(row.cells):
            key = row.cells[place].strip() or None
        raw = printable(row.raw)
        fault = ("parse", row.fault.rule, None, None, row.fault.message)
        out.add_columns(
            [row.line], [row.lines], [key and printable(key)], [None], [None], [_sha(raw)], [_dump([fault])], [raw]
        )


def _write_chunk(chunk: Chunk, mapper: Mapper, out: spill.Writer, found: Validated) -> None:
    resources = [mapper.feed.file.resources and "resourceType" in row for row in chunk.rows]
    if mapper.feed.file.resources and any(resources):
        for wanted, write in ((True, _write_resources), (False, _write_rows)):
            part = [place for place, is_resource in enumerate(resources) if is_resource == wanted]
            write(_pick(chunk, part), mapper, out)
        return
    taken = mapper.taken(mapper.rows(chunk.rows))
    if taken is not None and not taken.all():
        found.not_taken += sum(lines for lines, wanted in zip(chunk.lines, taken, strict=True) if not wanted)
        chunk = _pick(chunk, [int(place) for place in taken.nonzero()[0]])
    _write_rows(chunk, mapper, out)


def _pick(chunk: Chunk, places: Sequence[int]) -> Chunk:
    columns = (chunk.rows, chunk.line, chunk.lines, chunk.raw)
    return Chunk(*([column[place] for place in places] for column in columns))  # type: ignore[arg-type]


def _write_rows(chunk: Chunk, mapper: Mapper, out: spill.Writer) -> None:
    if not chunk.rows:
        return
    kind = mapper.feed.kind
    mapped = mapper.map(mapper.rows(chunk.rows))
    absent = [None] * len(chunk.rows)
    columns = [mapped.columns.get(column.name, absent) for column in kind.columns[1:]]
    records = [orjson.dumps(values).decode() for values in zip(*columns, strict=True)]
    hashes = [_sha(record) for record in records]
    faults: list[str | None] = [None] * len(records)
    for row, wrong in mapped.faults.items():
        faults[row] = _dump([_reason("map", fault) for fault in wrong])
        hashes[row] = _sha(chunk.raw[row])
    times = [micros(time) for time in mapped.columns[kind.sort]] if kind.sort else [None] * len(records)
    out.add_columns(chunk.line, chunk.lines, mapped.columns[kind.key], times, records, hashes, faults, chunk.raw)


def _reason(stage: str, found: Found) -> tuple[Any, ...]:
    return stage, found.fault.rule, found.element, found.column, found.fault.message


def _write_resources(chunk: Chunk, mapper: Mapper, out: spill.Writer) -> None:
    """Rows that are FHIR resources. The id is the key; what the interface would ignore on create is left out."""
    kind = mapper.feed.kind
    for resource, line, lines, raw in zip(chunk.rows, chunk.line, chunk.lines, chunk.raw, strict=True):
        found = resource.get("id")
        record_key = key(found) if isinstance(found, str) else None
        values = kind.whole({name: value for name, value in resource.items() if name not in ("id", "meta")})
        fault = _resource_fault(kind, resource, record_key)
        record = _dump(values)
        faults = _dump([("map", fault.rule, kind.resource, None, fault.message)]) if fault else None
        known = record_key if isinstance(record_key, str) else None
        out.add(
            line, lines, known, values.get("at"), record, _sha(raw if fault else record), faults, raw, size=2 * len(raw)
        )


def _resource_fault(kind: Kind, resource: Values, record_key: object) -> Fault | None:
    if resource["resourceType"] != kind.resource:
        return Fault("FEED-FILE-05", f"not a {kind.resource}: this feed takes no other resource")
    if record_key is None:
        return Fault(kind.columns[0].rule, f"id: {MISSING}")
    return record_key if isinstance(record_key, Fault) else None


def _dump(found: Any) -> str:
    return orjson.dumps(found, default=_number).decode()


def _number(value: object) -> orjson.Fragment:
    """A decimal as JSON, digit for digit."""
    if isinstance(value, Decimal):
        return orjson.Fragment(str(value))
    raise TypeError


def _sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


# --- Checking -------------------------------------------------------------------------------------


class Row(NamedTuple):
    """A row of `MAPPED`, and what is known of its key: the first line that has it, and whether its rows differ."""

    line: int
    lines: int
    key: str | None
    record: str | None
    hash: str
    faults: str | None
    raw: str
    first_line: int | None
    differs: bool | None


def _query(mapped: Path, kind: Kind) -> str:
    """The records in the order of sending; of a grouped kind the rows of a record together."""
    file = str(mapped).replace("'", "''")
    order = "first_line, line" if kind.grouped else '"at" nulls last, line' if kind.sort else "line"
    having = "" if kind.grouped else "having count(*) > 1"
    first = "coalesce(first_line, line) as first_line" if kind.grouped else "first_line"
    return f"""
        with keys as (
            select key, min(line) as first_line, min(hash) <> max(hash) as differs
            from '{file}' where key is not null group by key {having}
        )
        select line, lines, key, record, hash, faults, raw, {first}, differs
        from '{file}' left join keys using (key) order by {order}
    """


def _check_records(
    mapped: Path, feed: Feed, around: Around, strict: bool, found: Validated, progress: Callable[[int], None]
) -> None:
    folder = found.folder
    with (
        spill.sorter(folder / ".spill") as database,
        spill.Writer(folder / "accepted.parquet", ACCEPTED) as accepted,
        spill.Writer(folder / "rejects.parquet", REJECTS) as rejects,
        spill.Writer(folder / "skipped.parquet", SKIPPED) as skipped,
    ):
        checker = Checker(feed, around, strict, found, accepted, rejects, skipped)
        for done, rows in enumerate(_records(database, mapped, feed.kind), 1):
            checker.take(rows)
            if done % spill.BATCH == 0:
                progress(done)


def _records(database: Any, mapped: Path, kind: Kind) -> Iterator[list[Row]]:
    rows = map(Row._make, spill.rows(database, _query(mapped, kind)))
    if not kind.grouped:
        return ([row] for row in rows)
    return (list(group) for _, group in groupby(rows, key=itemgetter(7)))


def _repeated(rows: list[Row]) -> list[list[Row]]:
    """The rows of a record, cut into equal parts where the record stands in the file several times as a whole."""
    hashes = [row.hash for row in rows]
    for size in range(1, len(rows) // 2 + 1):
        if len(rows) % size == 0 and hashes == hashes[:size] * (len(rows) // size):
            return [rows[start : start + size] for start in range(0, len(rows), size)]
    return [rows]


class Checker:
    """Builds, checks and writes one record after another."""

    def __init__(
        self,
        feed: Feed,
        around: Around,
        strict: bool,
        found: Validated,
        accepted: spill.Writer,
        rejects: spill.Writer,
        skipped: spill.Writer,
    ) -> None:
        self.kind = feed.kind
        self.found = found
        self.strict = strict
        self.around = around
        self.accepted, self.rejects, self.skipped = accepted, rejects, skipped
        self.check = partial(check, RESOURCES[feed.resource], site=around.site, lookup=around.questionnaires)
        self.names = [column.name for column in self.kind.columns[1:]]
        self.labels = {name: source_label(value) for name, value in feed.file.columns.items()}
        self.mapped = [column for column in self.kind.columns if column.name in self.labels]

    def take(self, rows: list[Row]) -> None:
        """A record: one row, or several of a grouped kind, which may stand in the file more than once as a whole."""
        first, (rows, *repeats) = rows[0], _repeated(rows)
        values = [self._values(row.record) | ({"faulty": True} if row.faults else {}) for row in rows if row.record]
        faults = [Reason(*fault) for row in rows if row.faults for fault in orjson.loads(row.faults)]
        if first.differs and not self.kind.grouped:
            faults.append(self._differs(first))
        missing = self._stand_in(values) if faults else set()
        built = self.kind.build(first.key, values, self.around) if values else None
        if built:
            faults.extend(self._found(fault) for fault in built.faults)
            faults.extend(self._problems(built, {fault.expression for fault in faults}))
            if "patient_id" in missing:
                built = built._replace(patient_id=None)
            if "amount" in missing:
                built = built._replace(cents=None)
            self.found.amount_received += built.cents or 0
        if faults or built is None:
            self._reject([row for part in (rows, *repeats) for row in part], built, faults)
        elif first.first_line is not None and first.first_line != first.line:
            self._skip(rows, built, first.first_line)
        else:
            self._accept(rows, built)
            for repeat in repeats:
                self._skip(repeat, built, first.line)

    def _values(self, record: str) -> Values:
        if record[0] == "{":
            return parse_json(record)  # type: ignore[no-any-return]
        return dict(zip(self.names, orjson.loads(record), strict=True))

    def _found(self, found: Found) -> "Reason":
        """A fault that the builder found: it knows our columns, a reason names the source's."""
        return Reason("map", found.fault.rule, found.element, self.labels.get(found.column), found.fault.message)

    def _differs(self, row: Row) -> "Reason":
        message = f"the key stands in this file more than once, first on line {row.first_line}, with different content"
        key = self.kind.columns[0]
        return Reason("map", "LEDGER-13", key.element, self.labels[key.name], message)

    def _stand_in(self, values: list[Values]) -> set[str]:
        """Fills in what is required and missing, so that the rules can speak of the rest."""
        filled = set()
        for row in values:
            for column in self.kind.columns:
                if column.stand_in and "resource" not in row and row[column.name] is None:
                    row[column.name] = column.stand_in
                    filled.add(column.name)
        return filled

    def _problems(self, built: Built, told: set[str | None]) -> Iterator["Reason"]:
        """What the interface's rules say, apart from elements of which something was said already."""
        problems = self.check(body=built.body).problems
        hidden = tuple(element for element in told if element and element != self.kind.member)
        for problem in problems:
            if hidden and problem.expression.startswith(hidden):
                continue
            if problem.given or self.strict:
                yield self._reason(problem)
            else:
                self.found.warnings[problem.rule] += 1

    def _reason(self, problem: Problem) -> "Reason":
        retryable = problem.rule.startswith(RETRYABLE)
        column = self._column(problem.expression)
        return Reason("rule", problem.rule, problem.expression, column, problem.message or problem.text, retryable)

    def _column(self, expression: str) -> str | None:
        """The source column that an element came from."""
        near = [column for column in self.mapped if expression.startswith(column.element)]
        exact = [column for column in near if column.tail and column.tail in expression]
        return next((self.labels[column.name] for column in exact or near), None)

    def _accept(self, rows: list[Row], built: Built) -> None:
        first = rows[0]
        content = first.hash if not self.kind.grouped else _sha("".join(sorted(row.hash for row in rows)))
        lines = first.lines if len(rows) == 1 else sum(row.lines for row in rows)
        self.found.accepted += 1
        self.found.amount_accepted += built.cents or 0
        body = orjson.dumps(built.body, default=_number).decode()
        self.accepted.add(
            first.line,
            lines,
            first.key,
            built.lane,
            self.accepted.count,
            content,
            built.patient_id,
            built.at,
            built.cents,
            body,
            size=len(body),
        )

    def _skip(self, rows: list[Row], built: Built, first_line: int) -> None:
        lines = sum(row.lines for row in rows)
        self.found.accepted += 1
        self.found.skipped += 1
        self.found.amount_accepted += built.cents or 0
        self.found.amount_skipped += built.cents or 0
        self.skipped.add(rows[0].line, lines, rows[0].key, first_line, built.patient_id, built.at, built.cents)

    def _reject(self, rows: list[Row], built: Built | None, reasons: list["Reason"]) -> None:
        first = rows[0]
        stages = {reason.stage for reason in reasons}
        self.found.rejected += 1
        self.found.reasons.update({reason.rule for reason in reasons})
        record = "".join(row.raw for row in rows)
        self.rejects.add(
            first.line,
            sum(row.lines for row in rows),
            first.key,
            next(stage for stage in ("parse", "map", "rule") if stage in stages),
            built and built.patient_id,
            built and built.cents,
            record,
            [reason.struct() for reason in reasons],
            size=len(record),
        )


RETRYABLE = ("QR-12", "QR-13", "QR-ITEM-", "QR-CREATE-", "FEED-ANS-03")


class Reason(NamedTuple):
    """Why a record is rejected. retryable: whether the target may think otherwise tomorrow."""

    stage: str
    rule: str
    expression: str | None
    column: str | None
    message: str
    retryable: bool = False

    def struct(self) -> dict[str, Any]:
        return dict(zip(REASON.names, self[1:], strict=True))


# --- What stops a file ----------------------------------------------------------------------------


def _control_mismatch(received: Received, found: Validated) -> str | None:
    """The difference between the file and the totals that came with it, as a sentence."""
    control = received.path_in_batch.with_name(received.path_in_batch.name + CONTROL)
    if not control.exists():
        return None
    try:
        totals = parse_json(control.read_bytes())
        rows, amount = totals.get("rows"), totals.get("amount")
        expected = None if amount is None else int(Decimal(amount).scaleb(2))
    except (Malformed, AttributeError, TypeError, ArithmeticError, ValueError):
        return f'{control.name} is no JSON object of the form {{"rows": 1, "amount": "0.00"}}'
    if rows is not None and rows != found.rows:
        return f"{control.name} says {rows} rows, the file has {found.rows}"
    if expected is not None and expected != found.amount_received:
        return f"{control.name} says an amount of {amount}, the file has {Decimal(found.amount_received).scaleb(-2)}"
    return None


def _over_limit(feed: Feed, found: Validated) -> str | None:
    """Whether more records were rejected than the feed allows, as a sentence."""
    limit = feed.max_rejects
    if limit is None:
        return None
    most = int(limit * found.records) if isinstance(limit, Decimal) and limit < 1 else int(limit)
    if found.rejected <= most:
        return None
    return f"{found.rejected} of {found.records} records are rejected; the feed {feed.name} allows {most}"
