"""The commands `views`: what they print and write, and what they say of what they cannot use."""

import json
from pathlib import Path
from typing import Any

import duckdb
import pytest

from pipelines.cli import run

REPORTS = [
    {"resourceType": "DiagnosticReport", "id": "r2", "code": {"text": "B, b"}, "category": [{"text": "x"}]},
    {"resourceType": "DiagnosticReport", "id": "r1", "code": {"text": "A"}, "category": [{"text": "y"}, {"text": "z"}]},
    {"resourceType": "Observation", "id": "o1"},
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "reports.ndjson").write_text("".join(json.dumps(each) + "\n\n" for each in REPORTS))
    put(tmp_path / "good.view.json", "code.text")
    put(tmp_path / "many.view.json", "category.text")
    put(tmp_path / "bad.view.json", "code..text")
    return tmp_path


def put(path: Path, text: str) -> None:
    columns: list[dict[str, Any]] = [
        {"name": "id", "path": "id", "type": "id", "description": "Its id."},
        {"name": "text", "path": text, "type": "string"},
    ]
    path.write_text(json.dumps({"resource": "DiagnosticReport", "select": [{"column": columns}]}))


def test_check_prints_the_columns_of_good_views_and_every_mistake_of_bad_ones(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """VIEW-02"""
    assert run(["views", "check", "good.view.json"]) == 0
    told = "good.view.json: of DiagnosticReport, 2 columns\n  id VARCHAR: Its id.\n  text VARCHAR: code.text\n"
    assert capsys.readouterr().out == told
    assert run(["views", "check", "bad.view.json", "good.view.json", "none.view.json"]) == 4
    printed = capsys.readouterr()
    assert printed.out == told
    assert printed.err.splitlines() == [
        "chartferry: bad.view.json: select[0].column[1].path: `.` at character 6 is not expected there",
        "chartferry: none.view.json: cannot be read: No such file or directory",
    ]


def test_check_says_of_a_view_in_the_home_why_it_would_hold_up_publications(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """VIEW-02: elsewhere the file may be for `views run` alone."""
    views = folder / "home" / "views"
    views.mkdir(parents=True)
    bodies = {
        "good": {"name": "good"},
        "other": {"name": "else"},
        "payment": {"name": "payment"},
        "condition": {"name": "condition", "resource": "Condition"},
    }
    usual = json.loads((folder / "good.view.json").read_text())
    for name, body in bodies.items():
        (views / f"{name}.view.json").write_text(json.dumps({**usual, **body}))
    checked = sorted(map(str, views.iterdir()))
    assert run(["--home", "home", "views", "check", *checked]) == 4
    said = [line.removeprefix("chartferry: not published: ") for line in capsys.readouterr().err.splitlines()]
    assert [line.partition("; ")[0] for line in said] == [
        (
            "condition.view.json: resource: views are published of DiagnosticReport, Observation, PaymentNotice, "
            "Questionnaire, QuestionnaireResponse, Task"
        ),
        "other.view.json: name: must be that of the file, in lower-case letters, digits and `_`",
        "payment.view.json: the table `payment` is declared by payment.sql already",
    ]
    assert run(["--home", "home", "views", "check", "good.view.json", checked[1]]) == 0
    (folder / "link").symlink_to(views, target_is_directory=True)
    (views / "linked.view.json").symlink_to(folder / "good.view.json")
    for file in ("home/views/../views/other.view.json", "link/other.view.json", "home/views/linked.view.json"):
        assert run(["--home", "home", "views", "check", file]) == 4


def test_check_prints_a_select_that_runs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """VIEW-02"""
    assert run(["views", "check", "--sql", "good.view.json"]) == 0
    select = capsys.readouterr().out.split("\n", 3)[3]
    with duckdb.connect() as db:
        db.execute(
            "CREATE TABLE resource AS SELECT unnest(?::VARCHAR[])::JSON AS body", [list(map(json.dumps, REPORTS))]
        )
        assert sorted(db.execute(select).fetchall()) == [("r1", "A"), ("r2", "B, b")]


def test_run_reads_files_and_writes_a_table(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """VIEW-02"""
    assert run(["--home", "home", "views", "run", "good.view.json", "reports.ndjson"]) == 0
    assert capsys.readouterr().out == 'id,text\nr1,A\nr2,"B, b"\n'
    assert list(Path("home").iterdir()) == []
    for name in ("out.csv", "out.ndjson", "out.parquet"):
        assert run(["--home", "home", "views", "run", "good.view.json", "reports.ndjson", "--out", name]) == 0
        assert capsys.readouterr().out == f"{name}: 2 rows\n"
        assert duckdb.execute(f"FROM '{name}'").fetchall() == [("r1", "A"), ("r2", "B, b")]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["many.view.json", "reports.ndjson"], "many.view.json: select[0].column[1]: a path gives more than one value"),
        (["bad.view.json", "reports.ndjson"], "bad.view.json: select[0].column[1].path: `.` at character 6 is not"),
        (["good.view.json", "none.ndjson"], "none.ndjson: cannot be read: No such file or directory"),
        (["good.view.json", "good.view.json", "odd.ndjson"], "odd.ndjson line 2: not JSON; a file holds one resource"),
        (["good.view.json", "reports.ndjson", "--out", "x.xlsx"], "--out: x.xlsx must end in .csv, .ndjson, .parquet"),
    ],
)
def test_run_says_in_one_sentence_what_it_cannot_use(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    """VIEW-02"""
    Path("odd.ndjson").write_text('{}\n{"resourceType": MARKER\n')
    assert run(["--home", "home", "views", "run", *arguments]) == 4
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith(f"chartferry: {said}")
    assert len(printed.err.splitlines()) == 1
    assert "MARKER" not in printed.err


def test_test_counts_and_writes_a_report(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """VIEW-01"""
    view = json.loads(Path("good.view.json").read_text())
    (folder / "suite").mkdir()
    tests = [
        {
            "title": "right",
            "tags": ["own"],
            "view": view,
            "expect": [{"id": "r1", "text": "A"}, {"id": "r2", "text": "B, b"}],
        },
        {"title": "wrong", "view": view, "expect": []},
    ]
    (folder / "suite" / "mine.json").write_text(json.dumps({"resources": REPORTS, "tests": tests}))
    assert run(["views", "test", "suite"]) == 3
    assert capsys.readouterr().out.splitlines() == [
        "failed: mine.json, wrong: 2 rows too many, 0 missing",
        "1 of 2 tests passed; report: test_report.json",
    ]
    assert json.loads(Path("test_report.json").read_text()) == {
        "mine.json": {
            "tests": [
                {"name": "right", "tags": ["own"], "result": {"passed": True}},
                {"name": "wrong", "tags": [], "result": {"passed": False, "reason": "2 rows too many, 0 missing"}},
            ]
        }
    }
    (folder / "suite" / "mine.json").unlink()
    assert run(["views", "test", "suite"]) == 4
    assert capsys.readouterr().err == "chartferry: suite: the folder holds no test files\n"


HALF = {"resource": "DiagnosticReport", "select": [{"column": [{"name": "x", "path": "id = '\ud83d'"}]}]}
ODD_FILES = [
    (
        [{"resourceType": "DiagnosticReport", "id": "\ud83d"}],
        {},
        "not JSON: an escape such as \\ud83d is half of a character",
    ),
    ([], {"view": HALF}, "not JSON: an escape such as \\ud83d is half of a character"),
    *(
        ([], odd, "a test file has `resources` and `tests`, each test `title` and `view`")
        for odd in ({"tags": None}, {"expect": 3}, {"expect": ["x"]})
    ),
]


@pytest.mark.parametrize(("resources", "odd", "said"), ODD_FILES)
def test_views_test_names_what_is_wrong_with_a_test_file(
    folder: Path, capsys: pytest.CaptureFixture[str], resources: list[Any], odd: dict[str, Any], said: str
) -> None:
    """VIEW-01"""
    usual = {"title": "t", "view": json.loads(Path("good.view.json").read_text())}
    (folder / "suite").mkdir()
    (folder / "suite" / "mine.json").write_text(json.dumps({"resources": resources, "tests": [usual | odd]}))
    assert run(["views", "test", "suite"]) == 4
    assert capsys.readouterr().err == f"chartferry: mine.json: {said}\n"


def test_run_reads_the_resources_of_the_target(home, target, chartferry):
    """VIEW-02: without files, what a search at the target gives."""
    (home / "inbox" / "tasks.csv").write_text(
        "task_id,patient_id,description,status,requester_id\nt1,p1,Call,requested,d1\nt2,p1,Write,completed,d1\n"
    )
    assert chartferry("import")[0] == 0
    column = {"name": "patient", "path": "for.getReferenceKey(Patient)", "type": "id"}
    view = {"resource": "Task", "select": [{"column": [column, {"name": "status", "path": "status", "type": "code"}]}]}
    (home / "task.view.json").write_text(json.dumps(view))
    code, out, err = chartferry("views", "run", home / "task.view.json")
    assert (code, out, err) == (0, "patient,status\np1,completed\np1,requested\n", "")


def test_run_counts_the_numbers_that_a_column_does_not_hold(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """VIEW-02: a tag asks to round; nothing asks for an empty cell."""
    found = ["0.1", "4e-10", "1e30", "123456789012345.67", "-0.10", "7"]
    Path("o.ndjson").write_text(
        "".join(f'{{"resourceType":"Observation","valueQuantity":{{"value":{n}}}}}\n' for n in found)
    )
    value = {"path": "value.ofType(Quantity).value", "type": "decimal"}
    columns = [
        {"name": "v", **value},
        {"name": "all", **value, "collection": True},
        {"name": "cents", **value, "tag": [{"name": "ansi/type", "value": "DECIMAL(18,2)"}]},
        {"name": "kept", **value, "tag": [{"name": "ansi/type", "value": "DOUBLE"}]},
    ]
    Path("o.view.json").write_text(json.dumps({"resource": "Observation", "select": [{"column": columns}]}))
    assert run(["views", "run", "o.view.json", "o.ndjson"]) == 0
    printed = capsys.readouterr()
    said = "1 is empty and 1 is rounded, since DECIMAL(38,9) does not hold them"
    assert printed.err.splitlines() == [
        f"chartferry: o.view.json: v: of its numbers, {said}",
        f"chartferry: o.view.json: all: of its numbers, {said}",
        "chartferry: o.view.json: cents: of its numbers, 1 is empty, since DECIMAL(18,2) does not hold them",
    ]
    assert {row.rpartition(",")[2] for row in printed.out.splitlines()} >= {"4e-10", "1e+30", "0.1"}


def test_no_column_has_a_number_that_its_type_does_not_hold(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """VIEW-02: the client hands `1e999` on as a text."""
    lines = [f'{{"resourceType":"Observation","valueQuantity":{{"value":"{n}"}}}}\n' for n in ("1e999", "NaN", "2.5")]
    Path("o.ndjson").write_text("".join(lines))
    value = {"path": "value.ofType(Quantity).value", "type": "decimal"}
    columns = [value | {"name": "v"}, value | {"name": "kept", "tag": [{"name": "ansi/type", "value": "DOUBLE"}]}]
    Path("o.view.json").write_text(json.dumps({"resource": "Observation", "select": [{"column": columns}]}))
    assert run(["views", "run", "o.view.json", "o.ndjson"]) == 0
    printed = capsys.readouterr()
    said = "of its numbers, 2 are empty, since DECIMAL(38,9) does not hold them"
    assert printed.err == f"chartferry: o.view.json: v: {said}\n"
    assert printed.out.splitlines() == ["v,kept", "2.500000000,2.5", ",", ","]
