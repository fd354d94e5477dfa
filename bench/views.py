"""Views of SQL on FHIR beside hand-written SQL for the same tables, over the same reports.

usage: views.py [--reports 100000] [--rounds 5] [--out FILE]
Both make their table in one DuckDB session on two threads, in turns; the shortest round counts. The hand-written SQL
reads each body once, by `json_transform`. The tables must be equal. Prints a table and writes `bench/views.json`.
"""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import duckdb

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from bench.reports import make_reference  # noqa: E402 - see bench/service.py
from bench.run import CORES, about, keep_to  # noqa: E402
from pipelines.reports.views.compile import compile_view  # noqa: E402
from pipelines.reports.views.definition import view_of  # noqa: E402

CODING = '{"system": "VARCHAR", "code": "VARCHAR", "display": "VARCHAR"}'


def view(*selects: dict[str, Any]) -> dict[str, Any]:
    return {"resource": "DiagnosticReport", "select": list(selects)}


def columns(**paths: str) -> dict[str, Any]:
    return {"column": [{"name": name, "path": path, "type": "string"} for name, path in paths.items()]}


TABLES: dict[str, tuple[dict[str, Any], str]] = {
    "one row per report": (
        view(
            columns(
                report_id="id",
                status="status",
                category_code="category.coding.code.first()",
                code_system="code.coding.system.first()",
                code="code.coding.code.first()",
                code_display="code.coding.display.first()",
                code_text="code.text",
                patient_id="subject.getReferenceKey(Patient)",
                effective="effective.ofType(dateTime)",
                issued="issued",
            )
        ),
        f"""
        SELECT report.id AS report_id, report.status, report.category[1].coding[1].code AS category_code,
            report.code.coding[1].system AS code_system, report.code.coding[1].code AS code,
            report.code.coding[1].display AS code_display, report.code.text AS code_text,
            nullif(regexp_extract(report.subject.reference, '(?:^|/)Patient/([^/]+)', 1), '') AS patient_id,
            report.effectivedatetime AS effective, report.issued
        FROM (SELECT json_transform(body, '{{
            "id": "VARCHAR", "status": "VARCHAR", "category": [{{"coding": [{{"code": "VARCHAR"}}]}}],
            "code": {{"coding": [{CODING}], "text": "VARCHAR"}}, "subject": {{"reference": "VARCHAR"}},
            "effectiveDateTime": "VARCHAR", "issued": "VARCHAR"}}') AS report FROM resource)""",
    ),
    "one row per performer": (
        view(
            columns(report_id="id"),
            {"forEach": "performer", **columns(practitioner_id="getReferenceKey(Practitioner)")},
        ),
        """
        SELECT report_id,
            nullif(regexp_extract(each.reference, '(?:^|/)Practitioner/([^/]+)', 1), '') AS practitioner_id
        FROM (
            SELECT report.id AS report_id, unnest(report.performer) AS each
            FROM (SELECT json_transform(body, '{"id": "VARCHAR", "performer": [{"reference": "VARCHAR"}]}') AS report
                FROM resource))""",
    ),
    "one row per coding": (
        view(
            columns(report_id="id"),
            {
                "unionAll": [
                    {"forEach": path, **columns(element=f"'{name}'", system="system", code="code", display="display")}
                    for name, path in (("category", "category.coding"), ("code", "code.coding"))
                ]
            },
        ),
        f"""
        WITH report AS MATERIALIZED (
            SELECT report.id AS report_id, report.code.coding AS codes,
                flatten(list_transform(report.category, lambda each: each.coding)) AS categories
            FROM (SELECT json_transform(body, '{{"id": "VARCHAR", "category": [{{"coding": [{CODING}]}}],
                "code": {{"coding": [{CODING}]}}}}') AS report FROM resource)
        )
        SELECT report_id, element, each.system, each.code, each.display
        FROM (
            SELECT report_id, 'category' AS element, unnest(categories) AS each FROM report
            UNION ALL
            SELECT report_id, 'code' AS element, unnest(codes) AS each FROM report)""",
    ),
}


def seconds(db: duckdb.DuckDBPyConnection, table: str, select: str) -> float:
    began = time.perf_counter()
    db.execute(f"CREATE OR REPLACE TEMP TABLE {table} AS {select}")
    return time.perf_counter() - began


def measure(db: duckdb.DuckDBPyConnection, rounds: int) -> list[dict[str, Any]]:
    [(reports,)] = db.execute("SELECT count(*) FROM resource").fetchall()
    rows = []
    for what, (body, by_hand) in TABLES.items():
        compiled = compile_view(view_of(body, "view"), "resource").sql
        took = [(seconds(db, "by_view", compiled), seconds(db, "by_hand", by_hand)) for _ in range(rounds)]
        differ = "(FROM by_view EXCEPT ALL FROM by_hand) UNION ALL (FROM by_hand EXCEPT ALL FROM by_view)"
        if db.execute(f"SELECT count(*) FROM ({differ})").fetchall() != [(0,)]:
            sys.exit(f"{what}: the two tables differ")
        view_seconds, hand_seconds = map(min, zip(*took, strict=True))
        rows.append(
            {
                "what": what,
                "view_seconds": view_seconds,
                "hand_seconds": hand_seconds,
                "times": view_seconds / hand_seconds,
                "reports_per_second": reports / view_seconds,
            }
        )
    return rows


def compared(reports: int, rounds: int) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory(prefix="chartferry-bench-") as folder:
        reference = Path(folder) / "reference"
        make_reference(reference, reports)
        with duckdb.connect(config={"threads": CORES}) as db:
            path = str(reference / "diagnostic_report.ndjson")
            db.execute("CREATE TABLE resource AS SELECT json AS body FROM read_ndjson_objects(?)", [path])
            return measure(db, rounds)


def table(rows: list[dict[str, Any]]) -> str:
    lines = [f"{'':<24}{'view s':>8}{'by hand s':>11}{'times':>7}{'reports/s':>11}"]
    lines += [
        f"{row['what']:<24}{row['view_seconds']:>8.2f}{row['hand_seconds']:>11.2f}{row['times']:>7.2f}"
        f"{row['reports_per_second']:>11,.0f}"
        for row in rows
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description="Measures views of SQL on FHIR beside SQL written by hand.")
    parser.add_argument("--reports", type=int, default=100_000, metavar="N")
    parser.add_argument("--rounds", type=int, default=5, metavar="N")
    parser.add_argument("--out", type=Path, default=HERE / "views.json", metavar="FILE")
    given = parser.parse_args()
    where = about(keep_to(CORES))
    rows = compared(given.reports, given.rounds)
    print(table(rows))
    given.out.write_text(
        json.dumps({"about": where, "reports": given.reports, "rows": rows}, indent=1) + "\n", encoding="utf-8"
    )
    print(f"written to {given.out}")


if __name__ == "__main__":
    main()
