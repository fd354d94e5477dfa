"""The page `report.html`: an overview of a publication, in one file that loads nothing from elsewhere.

It shows counts and sums of the published tables, and never a patient, a record's key or a file name.
"""

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from pipelines.reports.charts import Chart, Series, columns, rows, shortened

TEMPLATES = Path(__file__).parent / "templates"
MONTHS = 24
CATEGORIES = 5
LONGEST_LIST = 15
BATCHES = 20
EARLIER, LATER, UNDATED = "Earlier", "Later", "Without a date"

Cell = int | float | Decimal | str | None
Rows = list[tuple[Any, ...]]


@dataclass(frozen=True)
class Table:
    """A table of the page; the first cell of a row is its name. `total`: the last row is the sum of the others."""

    heads: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    total: bool = False


@dataclass(frozen=True)
class Figure:
    """A chart with its table. `notes`: sentences that explain the counts. `chart`: None if there is no data yet."""

    name: str
    title: str
    says: str
    chart: Chart | None
    table: Table
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Tile:
    """A number at the top of the page. `alarms`: it is not zero, but should be."""

    name: str
    value: str
    more: str = ""
    alarms: bool = False


def page_of(db: duckdb.DuckDBPyConnection, older: str = "") -> str:
    """Return the HTML page of the published tables in `db`. older: a sentence if newer reports may exist, or empty."""
    [(published_at, target, version, _)] = _rows(db, LAST_PUBLICATION)
    style = (TEMPLATES / "report.css").read_text(encoding="utf-8")
    return (
        _templates()
        .get_template("report.html")
        .render(
            style=Markup(style),  # noqa: S704 - our own file
            style_hash=base64.b64encode(hashlib.sha256(style.encode()).digest()).decode(),
            published_at=published_at,
            target=target,
            version=version,
            older=older,
            tiles=_tiles(db),
            figures=figures_of(db),
        )
    )


def figures_of(db: duckdb.DuckDBPyConnection) -> list[Figure]:
    """Return the charts of the published tables in `db`, each with its table."""
    [(*_, month)] = _rows(db, LAST_PUBLICATION)
    return [_volumes(db, month), _turnaround(db), _imports(db), _rejects(db), _money(db, month)]


@cache
def _templates() -> Environment:
    made = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"told": told, "px": lambda number: f"{number:.1f}".rstrip("0").rstrip(".")}
    made.tests |= {"text": lambda cell: isinstance(cell, str)}
    return made


def told(cell: Cell) -> str:
    """Return the text of a cell; money with its dollar sign, and no text for an empty cell."""
    if isinstance(cell, Decimal):
        return dollars(cell)
    if isinstance(cell, float):
        return f"{cell:,.1f}"
    return f"{cell:,}" if isinstance(cell, int) else cell or ""


def dollars(amount: Decimal | float) -> str:
    return f"{'-' if amount < 0 else ''}${abs(amount):,.2f}"


def whole_dollars(amount: float) -> str:
    return f"${amount:,.0f}" if amount == int(amount) else dollars(amount)


def count(number: float) -> str:
    return f"{number:,.0f}" if number == int(number) else ""


def hours(number: float) -> str:
    return f"{number:,.0f} h" if number >= 100 or number == int(number) else f"{number:.1f} h"


def _rows(db: duckdb.DuckDBPyConnection, query: str, *values: object) -> Rows:
    return db.execute(query, list(values)).fetchall()


def _total(heads: Sequence[str], body: Rows, first: int = 1) -> Table:
    """Return the table with a last row that sums every column from `first` on; without it if there are no rows."""
    sums = [sum(row[at] for row in body) for at in range(first, len(heads))]
    return Table(heads, [*body, ("Total", *[""] * (first - 1), *sums)] if body else [], total=bool(body))


LAST_PUBLICATION = """
    SELECT strftime(published_at, '%d %B %Y, %H:%M UTC'), target, software_version,
        strftime(published_at, '%Y-%m')
    FROM publication ORDER BY published_at DESC LIMIT 1"""
TILES = """
    SELECT
        (SELECT count(*) FROM diagnostic_report),
        (SELECT count(DISTINCT patient_id) FROM diagnostic_report),
        (SELECT count(*) FROM batch),
        (SELECT coalesce(sum(records), 0)::BIGINT FROM batch),
        (SELECT count(*) FROM batch WHERE state IN ('failed', 'stopped') AND NOT EXISTS (
            SELECT 1 FROM batch AS mended WHERE mended.state = 'finished' AND mended.feed = batch.feed
                AND mended.file_name = batch.file_name AND mended.finished_at > batch.received_at
                AND (mended.records = 0 OR mended.records > mended.rejected + mended.refused + mended.in_doubt))),
        (SELECT count(*) FROM reject WHERE state = 'open'),
        (SELECT count(*) FROM import_row JOIN here USING (target) WHERE import_row.state IN ('in_doubt', 'sending')),
        (SELECT coalesce(sum(amount), 0) FROM payment),
        (SELECT coalesce(sum(amount) FILTER (WHERE fate = 'created'), 0) FROM payment)"""
HERE = """
    WITH here AS (SELECT target FROM publication ORDER BY published_at DESC LIMIT 1),
    batch AS (SELECT import_batch.* FROM import_batch JOIN here USING (target))"""


def _tiles(db: duckdb.DuckDBPyConnection) -> list[Tile]:
    [found] = _rows(db, HERE + TILES)
    reports, patients, batches, records, broken, rejects, doubts, received, created = found
    return [
        Tile("Reports", count(reports), f"of {count(patients)} patients"),
        Tile("Records read", count(records), f"in {count(batches)} batches"),
        Tile("Batches failed or stopped", count(broken), "not mended by a later file", alarms=broken > 0),
        Tile("Open rejects", count(rejects), "records set aside", alarms=rejects > 0),
        Tile("Rows in doubt", count(doubts), "outcome not known", alarms=doubts > 0),
        Tile("Money created", dollars(created), f"of {dollars(received)} received, repeats counted once"),
    ]


def _bucket(month: str) -> str:
    """Return SQL for the month as text, or for the word for months outside the chart."""
    return f"""CASE WHEN {month} IS NULL THEN '{UNDATED}' WHEN {month} > last_month THEN '{LATER}'
        WHEN {month} <= last_month - INTERVAL {MONTHS} MONTH THEN '{EARLIER}'
        ELSE strftime({month}, '%Y-%m') END"""


def _reach(db: duckdb.DuckDBPyConnection, months: str, published: str) -> str:
    """Return the latest month of a query that is not after that of the publication, else that of the publication."""
    [(last,)] = _rows(
        db, f"SELECT strftime(max(month), '%Y-%m') FROM ({months}) WHERE month <= (? || '-01')::DATE", published
    )
    return last or published


def _months(found: set[str], last: str) -> tuple[list[str], list[str]]:
    """Return all months from the first found to the last, and these together with the other buckets found."""
    dated = sorted(found - {EARLIER, LATER, UNDATED})
    shown = [month for month in _months_until(last) if dated and month >= dated[0]]
    before = [EARLIER] if EARLIER in found else []
    return shown, [*before, *shown, *(each for each in (LATER, UNDATED) if each in found)]


def _months_until(last: str) -> list[str]:
    year, month = map(int, last.split("-"))
    numbers = range(year * 12 + month - MONTHS, year * 12 + month)
    return [f"{number // 12:04}-{number % 12 + 1:02}" for number in numbers]


VOLUMES = f"""
    WITH ranked AS (
        SELECT category_code, coalesce(max(category_display), category_code, 'No category') AS name,
            row_number() OVER (ORDER BY count(*) DESC, category_code) AS place
        FROM diagnostic_report WHERE status <> 'entered-in-error' GROUP BY category_code
    )
    SELECT {_bucket("volume.month")} AS bucket, least(place, {CATEGORIES + 1}) AS rank,
        min(CASE WHEN place > {CATEGORIES} THEN 'Other categories' ELSE name END), sum(reports)::BIGINT
    FROM report_volume_by_month AS volume
    JOIN ranked ON volume.category_code IS NOT DISTINCT FROM ranked.category_code,
    (SELECT (? || '-01')::DATE AS last_month)
    WHERE status <> 'entered-in-error'
    GROUP BY ALL ORDER BY rank"""
VOLUME_MONTHS = "SELECT month FROM report_volume_by_month WHERE status <> 'entered-in-error'"
LEFT_OUT = "SELECT count(*) FROM diagnostic_report WHERE status = 'entered-in-error'"


def _volumes(db: duckdb.DuckDBPyConnection, published: str) -> Figure:
    month = _reach(db, VOLUME_MONTHS, published)
    found = _rows(db, VOLUMES, month)
    names = {rank: name for _, rank, name, _ in found}
    cells = {(bucket, rank): number for bucket, rank, _, number in found}
    shown, buckets = _months({bucket for bucket, *_ in found}, month)
    series = [Series(name, [cells.get((each, rank), 0) for each in shown]) for rank, name in names.items()]
    body = [(each, *(row := [cells.get((each, rank), 0) for rank in names]), sum(row)) for each in buckets]
    [(wrong,)] = _rows(db, LEFT_OUT)
    return Figure(
        "volumes",
        "Reports by month and category",
        "Stacked columns: diagnostic reports per month of their effective date, by first category.",
        columns(shown, series, count) if shown else None,
        _total(["Month", *names.values(), "All"], body),
        [f"Months are UTC; the chart shows the last {MONTHS}. {count(wrong)} reports entered in error are left out."],
    )


TURNAROUND = f"""
    SELECT coalesce(code_display, code, 'No code') AS name, coalesce(category_code, '') AS category, reports,
        p50_hours, p90_hours, max_hours, issued_before_effective
    FROM report_turnaround WHERE p50_hours IS NOT NULL
    ORDER BY reports DESC, name, category LIMIT {LONGEST_LIST}"""


def _turnaround(db: duckdb.DuckDBPyConnection) -> Figure:
    found = _rows(db, TURNAROUND)
    names = [f"{shortened(name, 22)} · {shortened(category, 9)}" if category else name for name, category, *_ in found]
    median, slowest = (Series(name, [row[at] for row in found]) for name, at in (("Median", 3), ("90th percentile", 4)))
    return Figure(
        "turnaround",
        "Turnaround by report code",
        "Bars: median hours from the effective time of a report to its issue; a stroke marks the 90th percentile.",
        rows(names, [median], hours, mark=slowest) if found else None,
        Table(["Code", "Category", "Reports", "Median h", "90th percentile h", "Longest h", "Issued before"], found),
        [
            f"The {LONGEST_LIST} codes with most reports. Reports dated without a time have no turnaround;",
            "those issued before their effective time are counted in the last column only.",
        ],
    )


IMPORTS = (
    HERE
    + f"""
    SELECT batch_id, state, strftime(received_at, '%Y-%m-%d %H:%M'), records,
        created + adopted + updated + superseded, unchanged + skipped, rejected, refused, in_doubt
    FROM batch ORDER BY received_at DESC, batch_id LIMIT {BATCHES}"""
)
OUTCOMES = ("Carried over", "Known already", "Rejected", "Refused", "In doubt")


def _imports(db: duckdb.DuckDBPyConnection) -> Figure:
    found = _rows(db, IMPORTS)
    with_records = [row for row in found if row[3]]
    series = [Series(name, [row[4 + at] for row in with_records]) for at, name in enumerate(OUTCOMES)]
    return Figure(
        "imports",
        "Imports and what became of their records",
        "Lying bars of equal length, one per batch, newest first: the share of its records by outcome.",
        rows([row[0] for row in with_records], series, count, shares=True) if with_records else None,
        _total(["Batch", "State", "Received (UTC)", "Records", *OUTCOMES], found, 3),
        [
            f"The last {BATCHES} batches; at the right the number of records.",
            "Carried over: created, adopted, updated or superseded. Known already: unchanged or skipped.",
            "These are first outcomes: rejects that were corrected since still count here.",
        ],
    )


REJECTS = f"""
    SELECT rule_id, string_agg(stage, ', ' ORDER BY stage), sum(still_open)::BIGINT AS still_open,
        sum(rejects - still_open)::BIGINT AS settled, sum(rejects)::BIGINT AS rejects
    FROM reject_by_rule GROUP BY rule_id ORDER BY still_open DESC, rejects DESC, rule_id LIMIT {LONGEST_LIST}"""
OLD = "SELECT coalesce(sum(rejects), 0)::BIGINT FROM reject_by_age WHERE age_from_days >= 7"


def _rejects(db: duckdb.DuckDBPyConnection) -> Figure:
    found = _rows(db, REJECTS)
    [(old,)] = _rows(db, OLD)
    series = [Series("Open", [row[2] for row in found]), Series("Settled", [row[3] for row in found])]
    return Figure(
        "rejects",
        "Rejects by rule",
        "Lying bars: records set aside, by the rule that they break, those still open first.",
        rows([row[0] for row in found], series, count) if found else None,
        Table(["Rule", "Stage", "Open", "Settled", "All"], found),
        [
            f"A record that breaks several rules counts for each; at most {LONGEST_LIST} rules are shown.",
            f"{count(old)} open rejects are older than a week.",
        ],
    )


MONEY_MONTHS = "SELECT date_trunc('month', paid_on) AS month FROM payment"
MONEY = f"""
    SELECT {_bucket("date_trunc('month', paid_on)")} AS bucket,
        coalesce(sum(amount), 0),
        coalesce(sum(amount) FILTER (WHERE fate = 'created'), 0),
        coalesce(sum(amount) FILTER (WHERE fate = 'refused'), 0),
        coalesce(sum(amount) FILTER (WHERE fate = 'open'), 0)
    FROM payment, (SELECT (? || '-01')::DATE AS last_month) GROUP BY bucket"""


def _money(db: duckdb.DuckDBPyConnection, published: str) -> Figure:
    month = _reach(db, MONEY_MONTHS, published)
    found = {bucket: sums for bucket, *sums in _rows(db, MONEY, month)}
    shown, buckets = _months(set(found), month)
    nothing = [Decimal("0.00")] * 4
    body: Rows = [(each, *found.get(each, nothing)) for each in buckets]
    series = [
        Series(name, [float(found.get(each, nothing)[at]) for each in shown])
        for at, name in enumerate(("Received", "Created"))
    ]
    return Figure(
        "money",
        "Money received and created",
        "Pairs of columns: payments read from files and payments now at the target, per month of payment.",
        columns(shown, series, whole_dollars, stacked=False) if shown else None,
        _total(["Month", "Received", "Created", "Refused or rejected", "Open or in doubt"], body),
        [
            "US dollars, by the day of payment in the source.",
            "Received = created + refused or rejected + open or in doubt.",
        ],
    )
