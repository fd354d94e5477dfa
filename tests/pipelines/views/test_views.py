"""SQL on FHIR: the project's own cases, the public suite where it is present, and what is said of a bad view."""

import json
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest

from pipelines.reports.views.compile import compile_view
from pipelines.reports.views.definition import BadView, read_view, view_of
from pipelines.reports.views.expressions import Expressions
from pipelines.reports.views.suite import CaseResult, report, run_file, run_folder
from tests.support.realdata import MISSING, REALDATA

CASES = Path(__file__).parent / "cases"
SUITE = REALDATA / "sql_on_fhir"


def failed(results: list[CaseResult]) -> list[str]:
    return [f"{each.file}, {each.title}: {each.reason}" for each in results if each.reason]


def test_the_own_cases_pass() -> None:
    """VIEW-01"""
    results = list(run_folder(CASES))
    assert failed(results) == []
    assert len(results) >= 20


@pytest.mark.parametrize("name", Expressions.FUNCTIONS)
def test_every_function_has_a_case(name: str) -> None:
    """VIEW-01"""
    assert any(f"{name}(" in path.read_text() for path in CASES.glob("*.json"))


@pytest.mark.skipif(not SUITE.is_dir(), reason=MISSING)
def test_the_public_suite_passes(tmp_path: Path) -> None:
    """VIEW-01: shareable and experimental."""
    results = list(run_folder(SUITE))
    (tmp_path / "test_report.json").write_text(json.dumps(report(results), indent=2))
    assert failed(results) == []
    assert len(results) == 144
    assert sum(len(file["tests"]) for file in report(results).values()) == 144
    assert {tag for each in results for tag in each.tags} == {"shareable", "experimental"}


def test_a_case_that_differs_fails_with_the_difference() -> None:
    view = {"resource": "Patient", "select": [{"column": [{"name": "id", "path": "id", "type": "id"}]}]}
    body = {
        "resources": [{"resourceType": "Patient", "id": "p"}],
        "tests": [
            {"title": "rows", "view": view, "expect": [{"id": "q"}, {"id": "r"}]},
            {"title": "columns", "view": view, "expect": [{"id": "p"}], "expectColumns": ["other"]},
            {"title": "no error", "view": view, "expectError": True},
            {"title": "an error", "view": {}, "expect": []},
        ],
    }
    results = list(run_file("own.json", body))
    assert [each.reason for each in results] == [
        "1 row too many, 2 missing",
        "the columns are id",
        "no error, where one is expected",
        "an error: view: resource: must be there, as a string",
    ]
    assert report(results)["own.json"]["tests"][0] == {
        "name": "rows",
        "tags": [],
        "result": {"passed": False, "reason": "1 row too many, 2 missing"},
    }


def of_column(**column: Any) -> dict[str, Any]:
    return {"resource": "DiagnosticReport", "select": [{"column": [{"name": "x", "path": "id", **column}]}]}


def of_path(path: Any) -> dict[str, Any]:
    return of_column(path=path)


COLUMN = "bad.view.json: select[0].column[0]"
MISTAKES: list[tuple[Any, str]] = [
    ([], "bad.view.json: must be a JSON object"),
    (of_path("id") | {"resource": "Pation"}, "bad.view.json: resource: `Pation` is not a resource of FHIR R4"),
    (of_path("id") | {"resourceType": "Library"}, "bad.view.json: resourceType: must be ViewDefinition"),
    (of_path("id") | {"were": []}, "bad.view.json: `were` is not known there; allowed are constant, description, "),
    (of_path(None), f"{COLUMN}.path: must be a FHIRPath expression, as a string"),
    (of_path("a..b"), f"{COLUMN}.path: `.` at character 3 is not expected there"),
    (of_path("name.(a)"), f"{COLUMN}.path: `(` at character 6 is not expected there"),
    (of_path("(id"), f"{COLUMN}.path: the expression ends early, where `)` is needed"),
    (of_path("@@"), f"{COLUMN}.path: `@@` at character 1 is not FHIRPath"),
    (of_path("id in 'x'"), f"{COLUMN}.path: the operator `in` is outside the profile; allowed are or and = != "),
    (of_path("code.count()"), f"{COLUMN}.path `code.count()`: the function `count` is outside the profile; allowed "),
    (of_path("code.first(1)"), f"{COLUMN}.path `code.first(1)`: `first` has 1 arguments, where 0 are allowed"),
    (of_path("%who"), f"{COLUMN}.path: the constant `%who` is not declared; declared are %rowIndex"),
    (of_path("status.code"), f"{COLUMN}.path `status.code`: `code` is asked of the type code, which has no elements"),
    (of_path("status = 1"), f"{COLUMN}.path `status = 1`: `=` compares the types code and integer"),
    (
        of_path("status and true"),
        f"{COLUMN}.path `status and true`: gives the type code, where true or false is needed",
    ),
    (of_path("code = 'x'"), f"{COLUMN}.path `code = 'x'`: compares a whole CodeableConcept; `=` compares single "),
    (of_path("status * 2"), f"{COLUMN}.path `status * 2`: `*` computes with the type code; it takes numbers"),
    (of_path("value.ofType(Nothing)"), f"{COLUMN}.path `value.ofType(Nothing)`: `Nothing` is not a type of FHIR R4"),
    (of_path("code.lowBoundary()"), f"{COLUMN}.path `code.lowBoundary()`: `lowBoundary` takes a decimal, date, "),
    (of_path("category[id]"), f"{COLUMN}.path `category[id]`: a place in brackets must be a number or a constant"),
    (of_path("(" * 99 + "id" + ")" * 99), f"{COLUMN}.path: the expression is nested deeper than 60 steps"),
    (of_path(".".join("a" * 99)), f"{COLUMN}.path: the expression is nested deeper than 60 steps"),
    (of_path("a" * 10_001), f"{COLUMN}.path: the expression has more than 10000 characters"),
    (of_path("9" * 40), f"{COLUMN}.path `{'9' * 40}`: a number has more than 28 digits"),
    (of_path("code.text.join(id)"), f"{COLUMN}.path `code.text.join(id)`: `join` takes a text or a constant between"),
    (
        of_path("extension.where(" * 5 + "true" + ")" * 5),
        f"{COLUMN}.path `{'extension.where(' * 5}true)))))`: criteria of `where` and `exists` are nested deeper than 4",
    ),
    (
        {"resource": "Patient", "select": [{"forEach": "name", "column": [{"name": "x", "path": "use"}]}] * 101},
        "bad.view.json: select[100]: the view has more than 100 of forEach, forEachOrNull, repeat and unionAll",
    ),
    (of_column(type="Nothing"), f"{COLUMN}.type: `Nothing` is not a type of FHIR R4"),
    (of_column(type="boolean"), f"{COLUMN}.path `id`: gives the type id, where the column is BOOLEAN"),
    (of_column(name="1x"), f"{COLUMN}.name: must be a letter, then letters, digits and `_`, at most 128"),
    (of_column(collection="yes"), f"{COLUMN}.collection: must be true or false"),
    (of_column(tag=[{"name": "ansi/type", "value": "BLOB"}]), f"{COLUMN}.path `id`: the tag ansi/type is `BLOB`; all"),
    *(
        (of_column(tag=[{"name": "ansi/type", "value": tag}]), f"{COLUMN}.path `id`: the tag ansi/type is `{tag}`; all")
        for tag in ("DECIMAL(39,0)", "DECIMAL(0,0)", "DECIMAL(2,3)")
    ),
    *(
        (
            of_column(path=path, tag=[{"name": "ansi/type", "value": "DATE"}]),
            f"{COLUMN}.path `{path}`: gives the type {kind}, where the column is DATE",
        )
        for path, kind in (("code", "CodeableConcept"), ("1 + 1", "number"), ("status = 'final'", "boolean"))
    ),
    ({"resource": "Patient", "select": []}, "bad.view.json: select: the view has no columns"),
    (
        {"resource": "Patient", "select": [{"column": [{"name": n, "path": "id"} for n in ("a", "A")]}]},
        "bad.view.json: select[0].column[1]: the column `A` is there already; names differ by more than case",
    ),
    (
        of_path("id") | {"where": [{"path": "code.text"}]},
        "bad.view.json: where[0].path `code.text`: gives the type string, where true or false is needed",
    ),
    (
        of_path("id") | {"constant": [{"name": "c", "valueInteger": "1"}]},
        "bad.view.json: constant[0].valueInteger: the value is not of the type integer",
    ),
    (
        {"resource": "Patient", "select": [{"forEach": "name", "repeat": ["link"], "column": []}]},
        "bad.view.json: select[0]: has forEach and repeat, where one of them is allowed",
    ),
    (
        {"resource": "Patient", "select": [{"repeat": [], "column": [{"name": "a", "path": "id"}]}]},
        "bad.view.json: select[0].repeat: must name at least one path",
    ),
    (
        {"resource": "Patient", "select": [{"repeat": ["$this"], "column": [{"name": "a", "path": "id"}]}]},
        "bad.view.json: select[0].repeat[0] `$this`: repeat takes a path to elements below, such as `item`",
    ),
    (
        {"resource": "Patient", "select": [{"repeat": ["Patient"], "column": [{"name": "a", "path": "id"}]}]},
        "bad.view.json: select[0].repeat[0] `Patient`: repeat takes a path to elements below, such as `item`",
    ),
    (
        {"resource": "Patient", "select": [{"repeat": ["id", "link"], "column": [{"name": "a", "path": "id"}]}]},
        "bad.view.json: select[0].repeat[0] `id`: gives the type id, which has no elements to repeat for",
    ),
    (
        {
            "resource": "Patient",
            "select": [{"unionAll": [{"column": [{"name": "a", "path": p}]} for p in ("id", "active")]}],
        },
        "bad.view.json: select[0].unionAll[1].column[0]: the column `a` is BOOLEAN, and in the union's first part ",
    ),
]


@pytest.mark.parametrize(("body", "said"), MISTAKES, ids=range(len(MISTAKES)))
def test_a_bad_view_is_reported_in_one_sentence(body: Any, said: str) -> None:
    """VIEW-02"""
    with pytest.raises(BadView) as told:
        compile_view(view_of(body, "bad.view.json"), "resource")
    assert str(told.value).startswith(said)
    assert len(str(told.value).splitlines()) == 1


NUMBERS = "value.ofType(Quantity).value"
TIMESTAMPTZ = "TIMESTAMP WITH TIME ZONE"
TYPED = [
    ("DECIMAL(10,2)", NUMBERS, 2.5, Decimal("2.50")),
    ("numeric (1, 1)", NUMBERS, 0.5, Decimal("0.5")),
    ("NUMERIC(1,1)", NUMBERS, 1, None),
    ("DECIMAL(38,0)", NUMBERS, 1e37, Decimal(10**37)),
    ("SMALLINT", NUMBERS, 7, 7),
    ("SMALLINT", NUMBERS, 40_000, None),
    ("INT", NUMBERS, 40_000, 40_000),
    ("BIGINT", NUMBERS, 2**40, 2**40),
    ("REAL", NUMBERS, 2.5, 2.5),
    ("DOUBLE PRECISION", NUMBERS, 1e300, 1e300),
    ("REAL", NUMBERS, "infinity", None),
    ("DOUBLE", NUMBERS, "NaN", None),
    ("VARCHAR(64)", NUMBERS, 2.5, "2.5"),
    ("CHARACTER VARYING", "status", "final", "final"),
    ("BOOLEAN", "status = 'final'", "final", True),
    ("TIME", "effective.ofType(dateTime)", "10:30:00", time(10, 30)),
    ("DATE", "effective.ofType(dateTime)", "2026", date(2026, 1, 1)),
    ("DATE", "effective.ofType(dateTime)", "2026-05", date(2026, 5, 1)),
    ("DATE", "effective.ofType(dateTime)", "2026-05-03T23:30:00-05:00", date(2026, 5, 3)),
    ("DATE", "effective.ofType(dateTime)", "2016-12-31T23:59:60Z", date(2016, 12, 31)),
    ("DATE", "effective.ofType(dateTime)", "0001-01-01", date(1, 1, 1)),
    ("DATE", "effective.ofType(dateTime)", "9999-12-31", date(9999, 12, 31)),
    ("DATE", "effective.ofType(dateTime)", "infinity", None),
    ("DATE", "effective.ofType(dateTime)", "20260503", None),
    (TIMESTAMPTZ, "effective.ofType(dateTime)", "2026-05", datetime(2026, 5, 1, tzinfo=UTC)),
    (TIMESTAMPTZ, "effective.ofType(dateTime)", "2026-05-03T23:30:00-05:00", datetime(2026, 5, 4, 4, 30, tzinfo=UTC)),
    (TIMESTAMPTZ, "effective.ofType(dateTime)", "9999-12-31T23:59:59-10:00", None),
    (TIMESTAMPTZ, "effective.ofType(dateTime)", "0001-01-01T00:00:00+10:00", None),
]


def rows_of(column: dict[str, Any], body: dict[str, Any]) -> list[Any]:
    """The cells of a view of observations with one column."""
    view = {"resource": "Observation", "select": [{"column": [{"name": "x", **column}]}]}
    with duckdb.connect() as db:
        db.execute("SET TimeZone = 'UTC'")
        db.execute("CREATE TABLE resource AS SELECT ?::JSON AS body", [json.dumps(body)])
        return [cell for (cell,) in db.execute(compile_view(view_of(view, "view"), "resource").sql).fetchall()]


@pytest.mark.parametrize("as_list", [False, True])
@pytest.mark.parametrize(("tag", "path", "given", "expected"), TYPED)
def test_a_column_has_the_type_of_its_tag_or_is_empty(
    tag: str, path: str, given: Any, expected: Any, as_list: bool
) -> None:
    """VIEW-01: a value that the type cannot hold, or that readers of tables cannot, is empty and stops nothing."""
    elements = {
        NUMBERS: {"valueQuantity": {"value": given}},
        "effective.ofType(dateTime)": {"effectiveDateTime": given},
    }
    body = {"resourceType": "Observation", **elements.get(path, {"status": given})}
    found = rows_of({"path": path, "tag": [{"name": "ansi/type", "value": tag}], "collection": as_list}, body)
    assert found == [[expected] if as_list else expected]


@pytest.mark.parametrize(
    ("path", "kind", "expected"),
    [
        ("code", "CodeableConcept", '{"text":"A"}'),
        ("code", None, '{"text":"A"}'),
        ("code", "string", '{"text":"A"}'),
        (NUMBERS, "decimal", Decimal("1.5")),
        (NUMBERS, "integer", 2),
        ("component.value.ofType(integer)", "integer64", 2**40),
        ("component.value.ofType(integer)", "integer", None),
        ("unknown", None, "a"),
        ("unknown", "string", "a"),
        ("unknown", "CodeableConcept", '"a"'),
        ("status", "CodeableConcept", '"final"'),
        ("code.exists()", "boolean", True),
    ],
)
def test_a_column_has_the_type_that_it_declares_or_that_its_path_gives(
    path: str, kind: str | None, expected: Any
) -> None:
    """VIEW-01: a complex element is JSON, and one that R4 does not know is a text."""
    body = {
        "resourceType": "Observation",
        "status": "final",
        "code": {"text": "A"},
        "unknown": "a",
        "valueQuantity": {"value": 1.5},
        "component": [{"valueInteger": 2**40}],
    }
    assert rows_of({"path": path} | ({"type": kind} if kind else {}), body) == [expected]


def test_a_collection_is_a_list_also_without_a_type() -> None:
    """VIEW-01"""
    body = {"resourceType": "Observation", "category": [{"coding": [{"code": "a"}, {"code": "b"}]}, {"text": "c"}]}
    assert rows_of({"path": "category.coding.code", "collection": True}, body) == [["a", "b"]]
    assert rows_of({"path": "category.text", "collection": True}, {"resourceType": "Observation"}) == [[]]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "x.view.json line 1: not JSON: Expecting property name enclosed in double quotes"),
        ('{"resource": "Patient", "resource": "Task"}', "x.view.json: not JSON: a name occurs twice in one object"),
        ("[" * 100_000, "x.view.json: not JSON: nested too deeply"),
        (" " * (1 << 20) + "{}", "x.view.json: the file has more than 1048576 bytes"),
        ("\udcff", "x.view.json: not JSON: the text is not UTF-8"),
        (r'{"description": "\ud83d"}', r"x.view.json: not JSON: an escape such as \ud83d is half of a character"),
        (r'{"\udc00": 1}', r"x.view.json: not JSON: an escape such as \ud83d is half of a character"),
    ],
)
def test_a_file_without_a_view_is_reported_in_one_sentence(tmp_path: Path, content: str, said: str) -> None:
    """VIEW-02"""
    path = tmp_path / "x.view.json"
    path.write_bytes(content.encode(errors="surrogateescape"))
    with pytest.raises(BadView) as told:
        read_view(path)
    assert str(told.value) == said


DEEPEST = {
    "arithmetic": "(1 + " * 28 + "1" + ")" * 28,
    "texts": "unknown" + ".join('-')" * 57,
    "criteria": "unknown.where(" * 4 + "$this = 'a'" + ").exists()" * 4,
    "comparison": "((unknown = 'a') = " * 10 + "true" + ")" * 10,
    "elements": "unknown" + ".part" * 57,
}


@pytest.mark.parametrize("path", DEEPEST.values(), ids=DEEPEST)
def test_the_deepest_path_runs_at_once(path: str) -> None:
    """VIEW-01: what DuckDB plans in a time that doubles with each step is written so that it does not, or refused."""
    sql = compile_view(view_of(of_path(path), "view"), "resource").sql
    with duckdb.connect() as db:
        body = {"resourceType": "DiagnosticReport", "unknown": ["a"]}
        db.execute("CREATE TABLE resource AS SELECT ?::JSON AS body", [json.dumps(body)])
        assert len(db.execute(sql).fetchall()) == 1


def test_a_path_that_gives_several_values_is_reported_without_the_values() -> None:
    """PRIVACY: the message names the place."""
    body = {"resource": "Patient", "select": [{"column": [{"name": "family", "path": "name.family"}]}]}
    patient = {"resourceType": "Patient", "name": [{"family": "Marker"}, {"family": "Marker2"}]}
    with duckdb.connect() as db:
        db.execute("CREATE TABLE resource AS SELECT ?::JSON AS body", [json.dumps(patient)])
        with pytest.raises(duckdb.InvalidInputException) as told:
            db.execute(compile_view(view_of(body, "x.view.json"), "resource").sql)
    assert "x.view.json: select[0].column[0]: a path gives more than one value where one is allowed" in str(told.value)
    assert "Marker" not in str(told.value)
