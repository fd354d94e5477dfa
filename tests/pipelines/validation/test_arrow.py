"""Columns made of buffers are those that pyarrow makes, and no process that imports a file loads pandas."""

import os
import subprocess
import sys
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.home import arrow
from pipelines.validation.tables import REASON

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
STRUCT = pa.struct({"name": pa.string(), "at": pa.int64(), "is_new": pa.bool_()})
VALUES = {
    pa.string(): TEXT,
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float64(): st.floats(allow_nan=False),
    pa.bool_(): st.booleans(),
    pa.timestamp("us", tz="UTC"): st.integers(-(2**53), 2**53),
}
ROW = st.tuples(st.none() | TEXT, st.none() | VALUES[pa.int64()], st.none() | st.booleans())


def assert_equal(made: pa.Array, values: list[Any], kind: pa.DataType) -> None:
    made.validate(full=True)
    assert made.equals(pa.array(values, kind))


@pytest.mark.alike
@pytest.mark.parametrize("kind", VALUES, ids=str)
@given(data=st.data())
def test_columns_are_those_of_pyarrow(kind: pa.DataType, data: st.DataObject) -> None:
    values = data.draw(st.lists(st.none() | VALUES[kind]))
    assert_equal(arrow.column(values, kind), values, kind)
    assert_equal(arrow.column(np.array([*values, None], dtype=object), kind), [*values, None], kind)


@given(st.lists(st.none() | st.lists(st.none() | ROW)))
def test_lists_of_structs_are_those_of_pyarrow(lists: list[list[tuple[Any, ...] | None] | None]) -> None:
    kind = pa.list_(STRUCT)
    named = [None if rows is None else [by_name(row) for row in rows] for rows in lists]
    assert_equal(arrow.column(lists, kind), named, kind)


def by_name(row: tuple[Any, ...] | None) -> dict[str, Any] | None:
    return None if row is None else dict(zip(("name", "at", "is_new"), row, strict=True))


def test_memory_that_arrow_no_longer_needs_goes_back_to_the_system_that_of_parquet_too() -> None:
    shown = "import pipelines, pyarrow; print(pyarrow.default_memory_pool().backend_name)"
    given = {name: value for name, value in os.environ.items() if not name.startswith("ARROW_")}
    done = subprocess.run([sys.executable, "-c", shown], env=given, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["system"] == [pa.default_memory_pool().backend_name]


def test_half_a_character_is_refused() -> None:
    with pytest.raises(UnicodeEncodeError):
        arrow.column(["\ud800"], pa.string())


def test_a_type_that_is_not_made_is_named() -> None:
    with pytest.raises(TypeError, match="decimal"):
        arrow.column([1], pa.decimal128(18, 2))


def test_an_empty_list_of_rows_is_an_empty_batch() -> None:
    assert arrow.batch_of_rows([], pa.schema({"a": pa.string(), "reasons": pa.list_(REASON)})).num_rows == 0


IMPORT = """
import sys
from pathlib import Path
import duckdb
from pipelines.loading.accepted import accepted_rows
from pipelines.verifying.staging import StagingTable
from tests.support.golden import GOLDEN, validated
for case in ("payments_csv", "tasks_csv", "answers_csv"):
    folder = Path(sys.argv[1], case)
    folder.mkdir()
    found = validated(GOLDEN / case / "input", folder)
    assert found.rejected
    assert [*accepted_rows(folder / "run-1" / "accepted.parquet", "2026-11-01T00:00:00.000000Z")]
with duckdb.connect() as db:
    with StagingTable(db, "there", "id cents") as there:
        there.add(("a", 1))
    assert db.execute("FROM there").fetchall() == [("a", 1)]
assert "pyarrow" in sys.modules
assert "pandas" not in sys.modules
"""
HELPER = """
import sys
import pipelines.validation.helper_process
unused = {"duckdb", "sqlalchemy", "httpx", "pandas", "pyarrow.compute", "pyarrow.parquet"}
assert not unused & set(sys.modules)
"""


def test_a_helper_that_only_checks_chunks_loads_no_database_and_no_files() -> None:
    subprocess.run([sys.executable, "-c", HELPER], check=True)


@pytest.mark.long
def test_validating_verifying_and_reading_what_was_accepted_load_no_pandas(tmp_path) -> None:
    pytest.importorskip("pandas")
    subprocess.run([sys.executable, "-c", IMPORT, str(tmp_path)], check=True)
