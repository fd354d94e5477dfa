"""Check a view, or run it as a table over resources: of files, or as a search at the target gives them."""

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import duckdb
import orjson
import pyarrow as pa

from pipelines.home import arrow
from pipelines.home.files import session
from pipelines.reports.views.compile import compile_view
from pipelines.reports.views.definition import BadView, View, columns_of, read_view
from pipelines.reports.views.operators import told_by
from pipelines.reports.views.values import quoted

_FORMATS = {".csv": "FORMAT csv, HEADER", ".ndjson": "FORMAT json", ".parquet": "FORMAT parquet, COMPRESSION zstd"}
SUFFIXES = tuple(_FORMATS)
AT_ONCE = 1_000
MAX_LINE_BYTES = 64 << 20
_BODIES = pa.schema([("body", pa.string())])


def check_view(file: Path, with_select: bool) -> list[str]:
    """Return the lines that tell a view's columns, and its SELECT if that is asked for. Raises `BadView`."""
    view = read_view(file)
    compiled = compile_view(view, "resource")
    lines = [f"{file.name}: of {view.resource}, {len(compiled.columns)} columns"]
    for (name, kind), column in zip(compiled.columns, columns_of(view.select), strict=True):
        lines.append(f"  {name} {kind}: {column.description or column.path.text}")
    return [*lines, *(compiled.sql.splitlines() if with_select else [])]


def run_view(view: View, resources: Iterable[bytes], spill: Path, out: Path) -> int:
    """Write the rows of the view to a file: Parquet, NDJSON or CSV by its suffix. Return how many rows there are.

    Args:
        view: The definition.
        resources: JSON of resources; those of another type than the view's are left out.
        spill: A folder for what memory cannot hold.
        out: The file to be written.

    Raises:
        BadView: The view cannot be compiled, or a path gives what it may not.
    """
    sql = compile_view(view, "resource").sql
    with session(spill) as db:
        db.execute("CREATE TEMP TABLE resource (body JSON)")
        for batch in _batches(resources):
            db.register("bodies", batch)
            db.execute("INSERT INTO resource SELECT body FROM bodies")
        try:
            db.execute(f"CREATE TEMP TABLE found AS SELECT * FROM (\n{sql}\n) ORDER BY ALL")
        except duckdb.Error as error:
            raise BadView(
                told_by(error) or f"{view.file}: the view could not be run ({type(error).__name__})"
            ) from None
        [(rows,)] = db.execute("SELECT count(*) FROM found").fetchall()
        db.execute(f"COPY found TO {quoted(str(out))} ({_FORMATS[out.suffix]})")
    return int(rows)


def _batches(resources: Iterable[bytes]) -> Iterator[pa.Table]:
    waiting = iter(resources)
    while some := list(islice(waiting, AT_ONCE)):
        yield arrow.table_of_rows([(each.decode(),) for each in some], _BODIES)


def resources_of(paths: Iterable[Path]) -> Iterator[bytes]:
    """Yield the JSON of the resources in NDJSON files, or in JSON files with one resource each. Raises `BadView`."""
    for path in paths:
        try:
            yield from _of_file(path)
        except OSError as error:
            raise BadView(f"{path.name}: cannot be read ({error.strerror})") from None


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
    """Yield the JSON of resources that were read."""
    for each in resources:
        yield orjson.dumps(each, default=float)
