"""Check a view, or run it as a table over resources from files or from a search at the target."""

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import duckdb
import orjson
import pyarrow as pa

from pipelines.home import arrow
from pipelines.home.batch import reading_file
from pipelines.home.counted import counted
from pipelines.home.files import session
from pipelines.reports.views.compile import TAG, compile_view
from pipelines.reports.views.definition import BadView, Select, View, columns_of, read_view
from pipelines.reports.views.operators import told_by
from pipelines.reports.views.values import quoted, quoted_name

_FORMATS = {".csv": "FORMAT csv, HEADER", ".ndjson": "FORMAT json", ".parquet": "FORMAT parquet, COMPRESSION zstd"}
SUFFIXES = tuple(_FORMATS)
AT_ONCE = 1_000
MAX_LINE_BYTES = 64 << 20
_BODIES = pa.schema([("body", pa.string())])


def check_view(file: Path, with_select: bool) -> list[str]:
    """Return lines that describe a view's columns, and its SELECT if `with_select`. Raises `BadView`."""
    view = read_view(file)
    compiled = compile_view(view, "resource")
    lines = [f"{file.name}: of {view.resource}, {counted(len(compiled.columns), 'column')}"]
    for (name, kind), column in zip(compiled.columns, columns_of(view.select), strict=True):
        lines.append(f"  {name} {kind}: {column.description or column.path.text}")
    return [*lines, *(compiled.sql.splitlines() if with_select else [])]


def run_view(view: View, resources: Iterable[bytes], spill: Path, out: Path) -> tuple[int, list[str]]:
    """Write the rows of the view to a file: Parquet, NDJSON or CSV by its suffix.

    Returns the number of rows, and a sentence on each column whose type cannot hold all of its numbers.

    Args:
        view: The definition.
        resources: JSON of resources; resources of another type than the view's are left out.
        spill: A folder for data that does not fit in memory.
        out: The file to write.

    Raises:
        BadView: The view cannot be compiled, or a path gives an unsuitable value.
    """
    compiled = compile_view(view, "resource")
    with session(spill) as db:
        db.execute("CREATE TEMP TABLE resource (body JSON)")
        for batch in _batches(resources):
            db.register("bodies", batch)
            db.execute("INSERT INTO resource SELECT body FROM bodies")
        try:
            db.execute(f"CREATE TEMP TABLE found AS SELECT * FROM (\n{compiled.sql}\n) ORDER BY ALL")
            told = list(_not_held(db, view, {name: kind for name, kind in compiled.columns if "DECIMAL" in kind}))
        except duckdb.Error as error:
            raise BadView(
                told_by(error) or f"{view.file}: the view could not be run ({type(error).__name__})"
            ) from None
        [(rows,)] = db.execute("SELECT count(*) FROM found").fetchall()
        db.execute(f"COPY found TO {quoted(str(out))} ({_FORMATS[out.suffix]})")
    return int(rows), told


def _not_held(db: duckdb.DuckDBPyConnection, view: View, decimals: Mapping[str, str]) -> Iterator[str]:
    """Yield a sentence on each of these columns that loses numbers: they become empty, or rounded without a tag.

    The view is run once more with the columns as texts, which show the numbers as DuckDB reads them. A column with a
    type tag asks for rounding.
    """
    if not decimals:
        return
    exact = replace(view, select=tuple(_as_texts(each, decimals) for each in view.select))
    db.execute(f"CREATE TEMP TABLE exact AS {compile_view(exact, 'resource').sql}")
    tagged = {column.name for column in columns_of(view.select) if TAG in column.tags}
    for name, kind in decimals.items():
        one, values = kind.removesuffix("[]"), quoted_name(name)
        said = f"unnest({values})" if kind.endswith("[]") else values
        [(empty, rounded)] = db.execute(f"""
            SELECT count(*) FILTER (held IS NULL), count(*) FILTER (abs(held::DOUBLE - said) > abs(said) * 1e-14)
            FROM (SELECT try_cast(said AS DOUBLE) AS said, try_cast(said AS {one}) AS held
                FROM (SELECT {said} AS said FROM exact))
            WHERE said IS NOT NULL""").fetchall()
        lost = [f"{counted(empty, 'is', 'are')} empty"] if empty else []
        lost += [f"{counted(rounded, 'is', 'are')} rounded"] if rounded and name not in tagged else []
        if lost:
            yield f"{name}: of its numbers, {' and '.join(lost)}, since {one} does not hold them"


def _as_texts(select: Select, decimals: Container[str]) -> Select:
    """Return a part of a view with the type VARCHAR for the columns of these names."""
    return replace(
        select,
        columns=tuple(
            replace(each, tags={**each.tags, TAG: "VARCHAR"}) if each.name in decimals else each
            for each in select.columns
        ),
        selects=tuple(_as_texts(each, decimals) for each in select.selects),
        union=tuple(_as_texts(each, decimals) for each in select.union),
    )


def _batches(resources: Iterable[bytes]) -> Iterator[pa.Table]:
    waiting = iter(resources)
    while some := list(islice(waiting, AT_ONCE)):
        yield arrow.table_of_rows([(each.decode(),) for each in some], _BODIES)


def resources_of(paths: Iterable[Path]) -> Iterator[bytes]:
    """Yield the JSON of the resources in NDJSON files, or in JSON files with one resource each. Raises `BadView`."""
    for path in paths:
        with reading_file(path.name, BadView):
            yield from _of_file(path)


def _of_file(path: Path) -> Iterator[bytes]:
    if path.suffix == ".json":
        yield orjson.dumps(_parsed(path.read_bytes(), path, 1))
        return
    with path.open("rb") as file:
        for number, line in enumerate(iter(lambda: file.readline(MAX_LINE_BYTES), b""), 1):
            if line.strip():
                yield orjson.dumps(_parsed(line, path, number))


def _parsed(text: bytes, path: Path, line: int) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        raise BadView(f"{path.name} line {line}: not JSON; a file holds one resource, or one in each line") from None


def as_bytes(resources: Iterable[dict[str, Any]]) -> Iterator[bytes]:
    """Yield the JSON of parsed resources."""
    for each in resources:
        yield orjson.dumps(each, default=float)
