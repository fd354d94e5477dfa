"""The charts of the page, each with its table: reports by month, turnaround, imports, rejects, money.

They show counts, sums, file names and rules, and never a patient or a record's key.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC
from decimal import Decimal
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

import duckdb

from fhir_service.interface.resources.payment_notice import MOST
from pipelines.home.counted import counted
from pipelines.reports.attention import BatchNow
from pipelines.reports.charts import NARROW, WIDE, Chart, Series, Size, columns, rows, shortened
from pipelines.reports.document import Cell, dollars
from pipelines.reports.reasons import ENOUGH, ISSUE_TYPES, most_said, names_in

MONTHS = 24
CATEGORIES = 5
LONGEST_LIST = 15
BATCHES = 20
EARLIER, LATER, UNDATED = "Earlier", "Later", "Without a date"

Rows = list[tuple[Any, ...]]


@dataclass(frozen=True)
class Table:
    """A table of the page; the first cell of a row is its name. `total`: True if the last row sums the others."""

    heads: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    total: bool = False


@dataclass(frozen=True)
class Figure:
    """A chart with its table.

    * chart, narrow: the chart for a wide screen and for a telephone; None if there is no data yet.
    * notes: sentences that explain the counts.
    """

    name: str
    title: str
    says: str
    chart: Chart | None
    narrow: Chart | None
    table: Table
    notes: Sequence[str] = ()


def figures_of(
    db: duckdb.DuckDBPyConnection, batches: Sequence[BatchNow], month: str, with_money: bool = True
) -> list[Figure]:
    """Return the charts of the published tables in `db`, each with its table.

    month: the month of the publication. with_money: True to show sums of payments. These must stay where patient data
    may be: a month can have few payments, and two charts of a month can differ by few.
    """
    money = [_money(db, month)] if with_money else []
    return [_imports(batches), _rejects(db), *money, _volumes(db, month), _turnaround(db)]


def whole_dollars(amount: float) -> str:
    return f"${amount:,.0f}" if amount == int(amount) else dollars(amount)


def count(number: float) -> str:
    return f"{number:,.0f}" if number == int(number) else ""


class Unit(NamedTuple):
    """A unit of turnaround. `an_hour`: how many of it make an hour."""

    sign: str
    an_hour: int
    name: str


UNITS = (Unit("h", 1, "hours"), Unit("min", 60, "minutes"), Unit("s", 3600, "seconds"))


def timed(number: float, unit: str) -> str:
    return f"{number:,.0f} {unit}" if number >= 100 or number == int(number) else f"{number:.1f} {unit}"


def _figure(
    name: str, title: str, says: str, table: Table, notes: Sequence[str], draw: Callable[[Size], Chart] | None
) -> Figure:
    """Return a figure with its chart drawn in both sizes."""
    return Figure(name, title, says, draw and draw(WIDE), draw and draw(NARROW), table, notes)


def _rows(db: duckdb.DuckDBPyConnection, query: str, *values: object) -> Rows:
    return db.execute(query, list(values)).fetchall()


def _total(heads: Sequence[str], body: Rows, first: int = 1) -> Table:
    """Return the table with a last row that sums every column from `first` on. A table without rows gets no total."""
    sums = [sum(row[at] for row in body) for at in range(first, len(heads))]
    return Table(heads, [*body, ("Total", *[""] * (first - 1), *sums)] if body else [], total=bool(body))


def _bucket(month: str) -> str:
    """Return SQL for a month as text, or for the word for months outside the chart."""
    return f"""CASE WHEN {month} IS NULL THEN '{UNDATED}' WHEN {month} > last_month THEN '{LATER}'
        WHEN {month} <= last_month - INTERVAL {MONTHS} MONTH THEN '{EARLIER}'
        ELSE strftime({month}, '%Y-%m') END"""


def _reach(db: duckdb.DuckDBPyConnection, months: str, published: str) -> str:
    """Return the latest month of a query that is not after the publication's month; that month if there is none."""
    [(last,)] = _rows(
        db, f"SELECT strftime(max(month), '%Y-%m') FROM ({months}) WHERE month <= (? || '-01')::DATE", published
    )
    return last or published


def _months(found: set[str], last: str) -> tuple[list[str], list[str]]:
    """Return all months from the first found to the last, and the table's rows: these and the other buckets."""
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
        FROM diagnostic_report WHERE status IS DISTINCT FROM 'entered-in-error' GROUP BY category_code
    )
    SELECT {_bucket("volume.month")} AS bucket, least(place, {CATEGORIES + 1}) AS rank,
        min(CASE WHEN place > {CATEGORIES} THEN 'Other categories' ELSE name END), sum(reports)::BIGINT
    FROM report_volume_by_month AS volume
    JOIN ranked ON volume.category_code IS NOT DISTINCT FROM ranked.category_code,
    (SELECT (? || '-01')::DATE AS last_month)
    WHERE status IS DISTINCT FROM 'entered-in-error'
    GROUP BY ALL ORDER BY rank"""
VOLUME_MONTHS = "SELECT month FROM report_volume_by_month WHERE status IS DISTINCT FROM 'entered-in-error'"
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
    left_out = counted(wrong, "report entered in error is", "reports entered in error are")
    return _figure(
        "volumes",
        "Reports by month and category",
        "Stacked columns: diagnostic reports per month of their effective date, by first category.",
        _total(["Month", *names.values(), "All"], body),
        [f"Months are UTC; the chart shows the last {MONTHS}. {left_out} left out."],
        (lambda size: columns(shown, series, count, size=size)) if shown else None,
    )


TURNAROUND = f"""
    WITH words AS (SELECT category_code, max(category_display) AS word FROM diagnostic_report GROUP BY category_code)
    SELECT coalesce(code_display, code, 'No code') AS name, coalesce(word, category_code, '') AS category, reports,
        p50_hours, p90_hours, max_hours, issued_before_effective
    FROM report_turnaround LEFT JOIN words USING (category_code) WHERE p50_hours IS NOT NULL
    ORDER BY reports DESC, name, category LIMIT {LONGEST_LIST}"""


def _turnaround(db: duckdb.DuckDBPyConnection) -> Figure:
    told = _rows(db, TURNAROUND)
    unit = _unit_of(max((row[4] for row in told), default=0))
    found = [(*row[:3], *(hours * unit.an_hour for hours in row[3:6]), *row[6:]) for row in told]
    names = [f"{shortened(name, 19)} · {shortened(category, 12)}" if category else name for name, category, *_ in found]
    median, slowest = (Series(name, [row[at] for row in found]) for name, at in (("Median", 3), ("90th percentile", 4)))
    times = [f"{name} {unit.sign}" for name in ("Median", "90th percentile", "Longest")]
    return _figure(
        "turnaround",
        "Turnaround by report code",
        f"Bars: median {unit.name} from a report's effective time to its issue; a stroke marks the 90th percentile.",
        Table(["Code", "Category", "Reports", *times, "Issued before"], found),
        [
            f"The {LONGEST_LIST} codes with most reports. Reports dated without a time have no turnaround;",
            "those issued before their effective time are counted in the last column only.",
        ],
        (lambda size: rows(names, [median], partial(timed, unit=unit.sign), mark=slowest, size=size))
        if found
        else None,
    )


def _unit_of(hours: float) -> Unit:
    """Return the largest unit that makes the time 1 or more; hours for a time of 0."""
    return next((unit for unit in UNITS if hours * unit.an_hour >= 1 or not hours), UNITS[-1])


OUTCOMES = ("Carried over", "Known already", "Rejected", "Refused", "In doubt")
LESS_USUAL = ("Taken back", "Not sent")
"""Outcomes that are shown only if a file has some of them."""


def _imports(batches: Sequence[BatchNow]) -> Figure:
    found = batches[:BATCHES]
    every = [(e.carried, e.known, e.rejected, e.refused, e.doubts, e.made - e.carried, e.not_sent) for e in found]
    of = [at for at, name in enumerate((*OUTCOMES, *LESS_USUAL)) if name in OUTCOMES or any(e[at] for e in every)]
    names = [(*OUTCOMES, *LESS_USUAL)[at] for at in of]
    outcomes = [(each, [numbers[at] for at in of]) for each, numbers in zip(found, every, strict=True)]
    drawn = [(each, numbers) for each, numbers in outcomes if sum(numbers)]
    series = [Series(name, [numbers[at] for _, numbers in drawn]) for at, name in enumerate(names)]
    heads = ["File", "Feed", "Now", "Received (UTC)", "Records", *names, "Still set aside"]
    body = [
        (
            each.file,
            each.feed,
            each.now,
            f"{each.received_at.astimezone(UTC):%Y-%m-%d %H:%M}",
            each.records,
            *numbers,
            each.open,
        )
        for each, numbers in outcomes
    ]
    return _figure(
        "imports",
        "Files and the outcomes of their records",
        "Horizontal bars of equal length, one per file, newest first: the share of its records by outcome.",
        _total(heads, body, 4),
        [
            f"The last {BATCHES} files, with their numbers of records at the right.",
            "Each record counts by its first outcome; still set aside are those that nothing has settled since.",
            "Carried over: created, adopted, updated or superseded, and not taken back since.",
            "A record that a later file changed counts in both files.",
            "Known already: unchanged or skipped.",
            *["Not sent: nothing of the file was sent, or the record still waits."] * ("Not sent" in names),
        ],
        (lambda size: rows([each.file for each, _ in drawn], series, count, shares=True, size=size)) if drawn else None,
    )


OTHER_CODE = "another code"
CODED = f"""
    CASE WHEN rule_id <> lower(rule_id) OR rule_id IN {ISSUE_TYPES} OR rule_id IN (SELECT rule_id FROM rule)
        THEN rule_id ELSE '{OTHER_CODE}' END"""
"""The name of a rule in the chart. Our rule ids have capitals. Of a target's codes, only FHIR's are shown."""
REJECTS = f"""
    SELECT {CODED} AS name, sum(still_open)::BIGINT AS still_open, sum(rejects - still_open)::BIGINT AS settled,
        any_value(rule.sentence), any_value(rule.advice), coalesce(any_value(rule.basis), 'target') = 'target'
    FROM reject_by_rule LEFT JOIN rule USING (rule_id)
    GROUP BY name ORDER BY still_open DESC, sum(rejects) DESC, name"""
REASONS = f"""
    SELECT {CODED} AS name, expression, message, count(DISTINCT reject_id),
        (list(DISTINCT patient_id ORDER BY patient_id) FILTER (WHERE patient_id IS NOT NULL))[:{ENOUGH}]
    FROM reject_reason JOIN reject USING (reject_id) WHERE {CODED} IN (FROM unnest(?)) GROUP BY ALL ORDER BY ALL"""
ROWS_AT_ONCE = 1_000
NAMES = "SELECT name FROM (SELECT name FROM practitioner UNION SELECT name FROM care_group) WHERE name IS NOT NULL"
OLD = "SELECT coalesce(sum(rejects), 0)::BIGINT FROM reject_by_age WHERE age_from_days >= 7"


def _rejects(db: duckdb.DuckDBPyConnection) -> Figure:
    found = _rows(db, REJECTS)
    [(old,)] = _rows(db, OLD)
    examples = _examples(db, {rule: of_target for rule, *_, of_target in found})
    drawn = found[:LONGEST_LIST]
    series = [Series("Open", [row[1] for row in drawn]), Series("Settled", [row[2] for row in drawn])]
    heads = ["Rule", "Open", "Settled", "Must be true", "Most frequent reason", "To do"]
    body = [
        (rule, still_open, settled, sentence, examples.get(rule, ""), advice)
        for rule, still_open, settled, sentence, advice, _ in found
    ]
    return _figure(
        "rejects",
        "Records set aside, by rule",
        "Horizontal bars: records set aside, by the rule that they break, those still open first.",
        Table(heads, body),
        [
            f"A record that breaks several rules counts for each; at most {LONGEST_LIST} rules are drawn.",
            f"{counted(old, 'open reject is', 'open rejects are')} older than a week.",
            "Reasons are shown without the values that they quote; chartferry rejects export has every record.",
        ],
        (lambda size: rows([_label(row[0], row[3], size) for row in drawn], series, count, size=size))
        if drawn
        else None,
    )


def _label(rule: str, sentence: str | None, size: Size) -> str:
    return shortened(f"{rule} · {sentence}" if sentence else rule, size.letters)


def _examples(db: duckdb.DuckDBPyConnection, rules: Mapping[str, bool]) -> dict[str, str]:
    """Return the most frequent message of each rule. rules: True by rule if its messages are the target's."""
    names = names_in(name for (name,) in _rows(db, NAMES)) if any(rules.values()) else ()
    asked = db.execute(REASONS, [list(rules)])
    told = (row for chunk in iter(partial(asked.fetchmany, ROWS_AT_ONCE), []) for row in chunk)
    found = {
        rule: most_said((row[1:] for row in of_rule), rules[rule], names)
        for rule, of_rule in groupby(told, key=itemgetter(0))
    }
    return {rule: f"{said} ({said.records:,})" for rule, said in found.items() if said}


MONEY_MONTHS = f"SELECT date_trunc('month', paid_on) AS month FROM payment WHERE abs(amount) <= {MOST}"
MONEY = f"""
    SELECT {_bucket("date_trunc('month', paid_on)")} AS bucket,
        coalesce(sum(amount), 0),
        coalesce(sum(amount) FILTER (WHERE fate = 'created'), 0),
        coalesce(sum(amount) FILTER (WHERE fate = 'refused'), 0),
        coalesce(sum(amount) FILTER (WHERE fate IN ('open', 'not sent')), 0)
    FROM payment, (SELECT (? || '-01')::DATE AS last_month) WHERE abs(amount) <= {MOST} GROUP BY bucket"""
ABSURD = f"SELECT count(*) FROM payment WHERE abs(amount) > {MOST}"


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
    return _figure(
        "money",
        "Money received and created",
        "Pairs of columns: payments read from files and payments now at the target, per month of payment.",
        _total(["Month", "Received", "Created", "Refused or rejected", "Open, in doubt or not sent"], body),
        [
            "US dollars, by the day of payment in the source.",
            "Received = created + refused or rejected + open, in doubt or not sent.",
            *absurd_said(db),
        ],
        (lambda size: columns(shown, series, whole_dollars, stacked=False, size=size)) if shown else None,
    )


def absurd_said(db: duckdb.DuckDBPyConnection) -> list[str]:
    """Return the sentence about amounts too high for a payment, left out of every sum; empty if there are none."""
    [(number,)] = _rows(db, ABSURD)
    if not number:
        return []
    amounts = counted(number, "amount is", "amounts are")
    return [f"{amounts} above {dollars(MOST)}, too high for a payment, and left out of every sum: see the rejects."]
