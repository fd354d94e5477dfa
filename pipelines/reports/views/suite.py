"""Run the test files of SQL on FHIR: views with resources and the rows, or the error, that they give."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import duckdb

from fhir_service.paths import matching
from pipelines.home.counted import counted
from pipelines.reports.views.compile import compile_view
from pipelines.reports.views.definition import HALF_A_CHARACTER, BadView, view_of


class CaseResult(NamedTuple):
    """The result of one test. reason: why it failed; empty if it passed."""

    file: str
    title: str
    tags: Sequence[str]
    reason: str


def run_folder(folder: Path) -> Iterator[CaseResult]:
    """Yield the result of every test in the JSON files of a folder. Raises `BadView` for a file that is not JSON."""
    for path in matching(folder, "*.json"):
        body = _read(path)
        if "tests" in body:
            yield from run_file(path.name, body)


def _read(path: Path) -> dict[str, Any]:
    try:
        body = json.loads(path.read_bytes())
        json.dumps(body, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise BadView(f"{path.name}: {HALF_A_CHARACTER}") from None
    except (OSError, ValueError, RecursionError):
        raise BadView(f"{path.name}: cannot be read as JSON") from None
    return body if isinstance(body, dict) else {}


def run_file(name: str, body: dict[str, Any]) -> Iterator[CaseResult]:
    """Yield the result of every test of a parsed file. Raises `BadView` if it is not a test file."""
    try:
        resources = [json.dumps(each) for each in body["resources"]]
        tests = [(each["title"], tuple(each.get("tags", ())), each["view"], each) for each in body["tests"]]
        expected = [Counter(map(_comparable, each.get("expect", ()))) for each in body["tests"]]
    except (KeyError, TypeError, AttributeError):
        raise BadView(f"{name}: a test file has `resources` and `tests`, each test `title` and `view`") from None
    with duckdb.connect() as db:
        db.execute("CREATE TABLE resource AS SELECT unnest(?::VARCHAR[])::JSON AS body", [resources])
        for (title, tags, view, test), rows in zip(tests, expected, strict=True):
            yield CaseResult(name, title, tags, _reason(db, view, test, rows))


def _reason(db: duckdb.DuckDBPyConnection, view: Any, test: dict[str, Any], expected: Counter[str]) -> str:
    try:
        found = db.execute(
            compile_view(view_of(json.loads(json.dumps(view), parse_float=Decimal), "view"), "resource").sql
        )
        names = [column[0] for column in found.description or ()]
        rows = found.fetchall()
    except (BadView, duckdb.Error) as error:
        return "" if test.get("expectError") else f"an error: {str(error).splitlines()[0]}"
    if test.get("expectError"):
        return "no error, where one is expected"
    if test.get("expectColumns", names) != names:
        return f"the columns are {', '.join(names)}"
    given = Counter(_comparable(dict(zip(names, row, strict=True))) for row in rows)
    return (
        ""
        if given == expected
        else f"{counted((given - expected).total(), 'row')} too many, {(expected - given).total()} missing"
    )


def _comparable(row: dict[str, Any]) -> str:
    return json.dumps({name: _plain(value) for name, value in row.items()}, sort_keys=True)


def _plain(value: Any) -> Any:
    """Return a value as text if it is a number, so that 1, 1.0 and 1.00 are equal."""
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return value if isinstance(value, str | bool | None) else str(value)
    return f"number {Decimal(str(value)).normalize():f}"


def report(results: Sequence[CaseResult]) -> dict[str, Any]:
    """Return the results in the form of the suite's reports: by file, the tests with their results."""
    by_file: dict[str, Any] = {}
    for each in results:
        result = {"passed": not each.reason} | ({"reason": each.reason} if each.reason else {})
        by_file.setdefault(each.file, {"tests": []})["tests"].append(
            {"name": each.title, "tags": list(each.tags), "result": result}
        )
    return by_file
