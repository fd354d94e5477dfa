"""The published files as their readers open them: DuckDB, pandas and Polars find the same rows and the right types."""

from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import duckdb
import pandas as pd
import polars as pl
import pytest

from pipelines.reports.publication import Publication
from pipelines.reports.tables import ReportTable, report_tables
from tests.support.crossing import every_second
from tests.support.publishing import World, import_payments

IN_PANDAS = {
    "VARCHAR": "str",
    "VARCHAR[]": "object",
    "BIGINT": "int64",
    "DOUBLE": "float64",
    "BOOLEAN": "bool",
    "TIMESTAMPTZ": "datetime64[us, UTC]",
    "DATE": "object",
    "DECIMAL(18,2)": "object",
}
"""DuckDB's types, and what pandas makes of a column of them that has no empty cell."""
IN_POLARS = {
    "VARCHAR": pl.String(),
    "VARCHAR[]": pl.List(pl.String()),
    "BIGINT": pl.Int64(),
    "DOUBLE": pl.Float64(),
    "BOOLEAN": pl.Boolean(),
    "TIMESTAMPTZ": pl.Datetime("us", "UTC"),
    "DATE": pl.Date(),
    "DECIMAL(18,2)": pl.Decimal(18, 2),
}
TABLES = {table.name: table for table in report_tables()}


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Publication]:
    world = World(tmp_path_factory.mktemp("home"))
    import_payments(world)
    yield world.publish()
    world.ledger.close()


def parquet(published: Publication, table: ReportTable) -> Path:
    return published.path.parent / "parquet" / f"{table.name}.parquet"


@pytest.fixture(scope="module")
def db(published: Publication) -> Iterator[duckdb.DuckDBPyConnection]:
    """The published file, opened once."""
    with duckdb.connect(published.path, read_only=True) as db:
        db.execute("SET TimeZone = 'UTC'")
        yield db


@pytest.mark.parametrize("name", every_second(TABLES))
def test_duckdb_pandas_and_polars_read_the_same_rows(
    name: str, published: Publication, db: duckdb.DuckDBPyConnection
) -> None:
    """REPORT-01, REPORT-02"""
    rows, path = db.table(name).fetchall(), parquet(published, TABLES[name])
    assert db.read_parquet(str(path)).fetchall() == rows
    assert db.table(name).pl().rows() == pl.read_parquet(path).rows() == rows
    frame = pd.read_parquet(path)
    cells = frame.astype(object).where(frame.notna(), None)
    assert [tuple(row) for row in cells.itertuples(index=False, name=None)] == rows


@pytest.mark.parametrize("name", every_second(TABLES, 1))
def test_types_are_exact(name: str, published: Publication) -> None:
    """REPORT-02: amounts are decimals, times carry their zone, counts are whole numbers."""
    table = TABLES[name]
    path = parquet(published, table)
    assert dict(pl.read_parquet_schema(path)) == {column.name: IN_POLARS[column.type] for column in table.columns}
    frame = pd.read_parquet(path)
    full = [column for column in table.columns if len(frame) and frame[column.name].notna().all()]
    assert {column.name: str(frame[column.name].dtype) for column in full} == {
        column.name: IN_PANDAS[column.type] for column in full
    }


def test_cents_days_and_instants_arrive_as_they_are(published: Publication) -> None:
    """REPORT-02, REPORT-18"""
    payments = parquet(published, TABLES["payment"])
    for cells in (pl.read_parquet(payments).rows(named=True), pd.read_parquet(payments).to_dict("records")):
        found = next(row for row in cells if row["source_key"] == "k8")
        assert (found["amount"], found["paid_on"]) == (Decimal("4.90"), date(2026, 2, 1))
    reports = parquet(published, TABLES["diagnostic_report"])
    instant = datetime(2026, 1, 10, 10, 0, 0, 500_000, tzinfo=UTC)
    assert pl.read_parquet(reports).filter(pl.col("report_id") == "r2")["effective_at"].item() == instant
    frame = pd.read_parquet(reports).set_index("report_id")
    assert frame.loc["r2", "effective_at"] == pd.Timestamp(instant)
