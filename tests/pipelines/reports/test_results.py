"""Results of reports: which are read, and their tables: values, components, the series of each patient, codes."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from pipelines.reports.readings import RESULTS, note_reading
from tests.support.publishing import START, TARGET, World, publish_only
from tests.support.results import report_of, result


def coded(code: str) -> dict[str, Any]:
    return {"interpretation": [{"coding": [{"code": code}]}]}


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    publish_only(
        monkeypatch, "observation_component", "diagnostic_report_result", "result_by_patient", "result_by_code"
    )
    made = World(tmp_path)
    made.reports = []
    yield made
    made.ledger.close()


def test_results_of_reports_are_read_by_id_and_joined_to_their_reports(world: World) -> None:
    """REPORT-01"""
    world.reports = [report_of("r1", "o1", "o2", "gone"), report_of("r2", "o1")]
    world.results = [result("o1", 6.1), result("o2", subject={"reference": "Patient/p2"}), result("not-named", 1)]
    world.publish()
    assert world.rows("SELECT observation_id, patient_id, code, value, unit FROM observation") == [
        ("o1", "p1", "4548-4", 6.1, "%"),
        ("o2", "p2", "4548-4", None, None),
    ]
    assert world.rows("SELECT report_id, observation_id, state FROM diagnostic_report_result ORDER BY ALL") == [
        ("r1", "gone", "not read"),
        ("r1", "o1", "read"),
        ("r1", "o2", "other patient"),
        ("r2", "o1", "read"),
    ]
    said = "Of 4 results that reports name, 1 is of another patient than its report's and 1 is not at the target"
    assert world.published.remarks == [f"diagnostic_report_result: {said}: the column state says which."]
    world.results = [result("o1", 6.2)]
    world.publish()
    assert world.rows("SELECT observation_id, value, changes FROM observation") == [("o1", 6.2, 1)]


def test_results_contained_in_a_report_are_rows_and_one_named_twice_is_one_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """REPORT-01: without a patient of their own they are of the report's patient."""
    publish_only(
        monkeypatch, "diagnostic_report_result", "result_by_patient", "report_by_performer", "observation_coding"
    )
    world, within = World(tmp_path), result("w1", 5.0, effectiveDateTime="2026-01-02")
    del within["subject"]
    people = [{"reference": "Practitioner/dr"}] * 2
    first = report_of("r1", "o1", "o1", performer=people)
    first["result"] += [{"reference": "#w1"}, {"reference": "#w1"}, {"reference": "#none"}, {"reference": "#"}]
    first["contained"] = [
        within,
        within,
        {"resourceType": "Practitioner", "id": "x"},
        result("not-named"),
        result("a b"),
    ]
    second = report_of("r2")
    second |= {"result": [{"reference": "#w1"}], "contained": [result("w1", 7.0, subject={"reference": "Patient/p2"})]}
    world.reports, world.results = [first, second], [result("o1", 6.0, effectiveDateTime="2026-01-01")]
    world.publish()
    assert world.rows("SELECT observation_id, patient_id, code, value FROM observation") == [
        ("o1", "p1", "4548-4", 6.0),
        ("r1#w1", "p1", "4548-4", 5.0),
        ("r2#w1", "p2", "4548-4", 7.0),
    ]
    assert world.rows("SELECT report_id, observation_id, state FROM diagnostic_report_result ORDER BY ALL") == [
        ("r1", "o1", "read"),
        ("r1", "r1#none", "not read"),
        ("r1", "r1#w1", "read"),
        ("r2", "r2#w1", "other patient"),
    ]
    assert world.rows("SELECT report_id, result_count, performer_count FROM diagnostic_report") == [
        ("r1", 3, 1),
        ("r2", 1, 0),
    ]
    assert world.rows("SELECT observation_id, change FROM result_by_patient") == [("o1", None), ("r1#w1", -1.0)]
    assert world.rows("SELECT DISTINCT observation_id FROM observation_coding ORDER BY ALL")[1:] == [
        ("r1#w1",),
        ("r2#w1",),
    ]
    world.ledger.close()


def test_unreadable_results_are_shown_as_last_read_and_not_as_missing_at_the_target(world: World) -> None:
    world.reports, world.results = [report_of("r1", "o1")], [result("o1", 5)]
    world.publish()
    note_reading(world.home, TARGET, RESULTS, START, is_read=True)
    for days in (1, 2):
        note_reading(world.home, TARGET, RESULTS, START + timedelta(days=days), is_read=False)
    world.reports, world.results = [report_of("r1", "o1", "o2")], []
    world.publish()
    told = (
        "Results of reports could not be read from the target since 02 March 2026, 12:00 UTC: "
        "rows made of them are as last read, on 01 March 2026, 12:00 UTC, and new ones are missing."
    )
    few = "Of 2 results that reports name, 1 was not read: the column state says which."
    of = {said: set(names.split(", ")) for names, _, said in (each.partition(": ") for each in world.published.remarks)}
    series = {"result_by_patient", "result_by_code"}
    assert of == {
        few: {"diagnostic_report_result"},
        told: {"observation", "observation_component", "diagnostic_report_result", *series},
    }
    [(comment,)] = world.rows("SELECT comment FROM duckdb_tables() WHERE table_name = 'result_by_code'")
    assert comment.endswith(told)
    note_reading(world.home, TARGET, RESULTS, START + timedelta(days=3), is_read=True)
    world.publish()
    assert world.published.remarks == [
        f"diagnostic_report_result: {few.replace('was not read', 'is not at the target')}"
    ]


def test_a_patients_results_are_in_the_order_of_time_by_code_and_unit(world: World) -> None:
    """REPORT-01: what was entered in error, has no time or is of another patient than its report's is in no series."""
    world.results = [
        result("b", 7.0, effectiveDateTime="2026-02-01T00:00:00Z", **coded("H")),
        result("a", 6.0, effectivePeriod={"start": "2026-01-01"}, **coded("N")),
        result("c", 5.0, effectiveInstant="2026-02-11T12:00:00Z", status=None),
        result("wrong", 9.0, effectiveDateTime="2026-01-05", status="entered-in-error"),
        result("undated", 9.0),
        result("else", 9.0, effectiveDateTime="2026-01-05", subject={"reference": "Patient/p2"}),
        result("mmol", effectiveDateTime="2026-01-07", valueQuantity={"value": 42, "unit": "mmol/mol"}),
    ]
    world.reports = [report_of("r1", *(each["id"] for each in world.results))]
    world.publish()
    assert world.rows(
        """SELECT observation_id, unit, number, value, is_abnormal, previous_value, change, days_since_previous
        FROM result_by_patient ORDER BY unit, number"""
    ) == [
        ("a", "%", 1, 6.0, False, None, None, None),
        ("b", "%", 2, 7.0, True, 6.0, 1.0, 31),
        ("c", "%", 3, 5.0, None, 7.0, -2.0, 10),
        ("mmol", "mmol/mol", 1, 42.0, None, None, None, None),
    ]
    assert world.rows(
        "SELECT code, unit, results, patients, lowest, p50_value, highest, judged, abnormal FROM result_by_code"
    ) == [("4548-4", "%", 3, 1, 5.0, 6.0, 7.0, 2, 1), ("4548-4", "mmol/mol", 1, 1, 42.0, 42.0, 42.0, 0, 0)]
    assert world.rows("SELECT effective_at FROM observation WHERE observation_id = 'c'") == [
        (datetime(2026, 2, 11, 12, tzinfo=UTC),)
    ]


def test_a_result_is_in_its_patients_series_if_a_report_of_that_patient_names_it_that_holds(world: World) -> None:
    """REPORT-01: neither a withdrawn report nor one that another patient's report misnames decides alone."""
    day = {"effectiveDateTime": "2026-01-05"}
    world.results = [result(name, 6.0, **day) for name in ("withdrawn", "again")]
    world.results.append(result("misnamed", 6.0, subject={"reference": "Patient/p2"}, **day))
    world.reports = [
        report_of("r1", "withdrawn", "again", status="entered-in-error"),
        report_of("r2", "again", "misnamed"),
        report_of("r3", "misnamed", subject={"reference": "Patient/p2"}),
    ]
    world.publish()
    shown = "SELECT patient_id, observation_id FROM result_by_patient"
    assert world.rows(shown) == [("p1", "again"), ("p2", "misnamed")]
    assert world.rows("SELECT sum(results) FROM result_by_code") == [(2,)]
    [remark] = world.published.remarks
    assert "1 is of another patient than its report's" in remark


def in_units(value: dict[str, str], bounds: dict[str, str]) -> dict[str, Any]:
    """A value with a range, in units that are given by word, by code or not at all."""
    return {
        "valueQuantity": {"value": 90, **value},
        "referenceRange": [{"low": {"value": 3.9, **bounds}, "high": {"value": 5.6, **bounds}}],
    }


JUDGED: list[tuple[dict[str, Any], tuple[float | None, float | None, bool | None]]] = [
    (coded("HH"), (None, None, True)),
    (coded("S"), (None, None, None)),
    ({"referenceRange": [{"low": {"value": 4}, "high": {"value": 6, "unit": "%"}}]}, (4.0, 6.0, True)),
    ({"referenceRange": [{"low": {"value": 4}}]}, (4.0, None, False)),
    ({"referenceRange": [{"low": {"value": 9}}], **coded("N")}, (9.0, None, False)),
    ({"referenceRange": [{"low": {"value": 4}}, {"low": {"value": 5}}]}, (None, None, None)),
    ({"referenceRange": [{"high": {"value": 6, "unit": "mmol/mol"}}]}, (None, None, None)),
    (in_units({"unit": "mg/dL", "code": "mg/dL"}, {"code": "mmol/L"}), (None, None, None)),
    (in_units({"unit": "mg/dL"}, {"code": "mmol/L"}), (None, None, None)),
    (in_units({"code": "mg/dL"}, {"unit": "mmol/L"}), (None, None, None)),
    (in_units({}, {"code": "mmol/L"}), (None, None, None)),
    (in_units({"unit": "mmol/l", "code": "mmol/L"}, {"unit": "mmol/L", "code": "mmol/L"}), (3.9, 5.6, True)),
    (in_units({"unit": "mmol/L"}, {"code": "mmol/L"}), (3.9, 5.6, True)),
    (in_units({"code": "mmol/L"}, {}), (3.9, 5.6, True)),
    ({"referenceRange": [{"low": {"value": 4, "unit": "%"}, "high": {"value": 6, "unit": "g"}}]}, (None, None, None)),
    ({"referenceRange": [{"high": {"value": 6}, "appliesTo": [{"text": "women"}]}]}, (None, None, None)),
    ({"referenceRange": [{"high": {"value": 6}, "type": {"coding": [{"code": "critical"}]}}]}, (None, None, None)),
    ({"referenceRange": [{"text": "below 6"}]}, (None, None, None)),
    (
        {"valueQuantity": {"value": 6.5, "comparator": ">"}, "referenceRange": [{"high": {"value": 6}}]},
        (None, 6.0, None),
    ),
]


@pytest.mark.long
def test_a_result_is_abnormal_by_its_interpretation_else_by_its_one_range(world: World) -> None:
    """REPORT-01: a bound is held against no range."""
    world.results = [result(f"o{n:02}", 6.5, **fields) for n, (fields, _) in enumerate(JUDGED)]
    world.reports = [report_of("r1", *(each["id"] for each in world.results))]
    world.publish()
    found = world.rows("SELECT range_low, range_high, is_abnormal FROM observation ORDER BY observation_id")
    assert found == [expected for _, expected in JUDGED]


VALUES: list[tuple[dict[str, Any], tuple[Any, ...]]] = [
    ({"valueInteger": 3}, (3.0, None, None, None)),
    ({"valueBoolean": True}, (None, "true", None, None)),
    ({"valueCodeableConcept": {"coding": [{"code": "POS", "display": "Positive"}]}}, (None, "POS", "Positive", None)),
    ({"valueString": "PLANTED"}, (None, None, None, None)),
    ({"valueQuantity": "odd"}, (None, None, None, None)),
    ({"dataAbsentReason": {"coding": [{"code": "unknown"}]}}, (None, None, None, None)),
]


def test_results_of_every_value_type_fill_their_columns(world: World) -> None:
    """PRIVACY-01: without the setting, text is in no table."""
    world.results = [result(f"o{n}", **fields) for n, (fields, _) in enumerate(VALUES)]
    world.reports = [report_of("r1", *(each["id"] for each in world.results))]
    world.publish()
    found = world.rows("SELECT value, value_code, value_display, value_text FROM observation ORDER BY observation_id")
    assert found == [expected for _, expected in VALUES]


@pytest.mark.parametrize("number", ["1e999", "-1e999", "NaN", "Infinity"])
def test_no_table_has_a_number_that_no_double_holds(world: World, number: str) -> None:
    """REPORT-01: the client hands such numbers on as texts."""
    bounds = {"low": {"value": number}, "high": {"value": 5}}
    world.results = [result("o1", valueQuantity={"value": number}), result("o2", 6, referenceRange=[bounds])]
    world.reports = [report_of("r1", "o1", "o2")]
    world.publish()
    found = world.rows("SELECT value, range_low, range_high, is_abnormal FROM observation ORDER BY observation_id")
    assert found == [(None, None, None, None), (6.0, None, 5.0, True)]


def test_free_text_is_published_only_by_the_setting(world: World) -> None:
    """PRIVACY-01"""
    (world.home / "reports.toml").write_text("publish_free_text = true\n")
    world.reports, world.results = [report_of("r1", "o1")], [result("o1", valueString="said")]
    world.publish()
    assert world.rows("SELECT value_text FROM observation") == [("said",)]


@pytest.mark.long
def test_components_are_rows_of_their_own(world: World) -> None:
    parts = [
        {"code": {"coding": [{"code": code}]}, "valueQuantity": {"value": value, "unit": "mmHg"}}
        for code, value in (("8480-6", 120), ("8462-4", 80))
    ]
    world.reports, world.results = [report_of("r1", "bp")], [result("bp", component=parts)]
    world.publish()
    assert world.rows("SELECT position, code, value, unit FROM observation_component") == [
        (1, "8480-6", 120.0, "mmHg"),
        (2, "8462-4", 80.0, "mmHg"),
    ]
    assert world.rows("SELECT component_count FROM observation") == [(2,)]
