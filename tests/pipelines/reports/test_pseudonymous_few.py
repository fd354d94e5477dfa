"""The pseudonymous publication of few: cells, parts, codes and traits that few patients share are left out or empty."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from pipelines.reports.pseudonymous import shown_tables
from pipelines.reports.service_data import PATIENTS, keep_told
from pipelines.reports.tables import report_tables
from tests.pipelines.reports.test_claim_balance import telling
from tests.support.pseudonymity import publish, with_a_form
from tests.support.publishing import LAB, TARGET, World, publish_only, report
from tests.support.responses_of_others import items, response


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = with_a_form(tmp_path)
    yield made
    made.ledger.close()


def of_many(world: World, **chosen: int) -> None:
    """Responses of as many patients as are given for each option, of which one answered both questions."""
    world.reports = [report("r1")]
    world.responses = [
        response(f"x{option}{number}", *items(low=option), subject={"reference": f"Patient/{option}{number}"})
        for option, patients in chosen.items()
        for number in range(patients)
    ]
    world.read()


def test_small_cells_and_those_from_which_they_could_be_computed_are_left_out(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """REPORT-30: a code has three answers. Since another table has the total, a second code is left out."""
    publish_only(monkeypatch, "answer_by_code", "answer_by_question")
    of_many(world, no=40, yes=12, maybe=3)
    tables = publish(world)
    assert {row["code"]: row["answers"] for row in tables["answer_by_code"]} == {"no": 40}
    assert {row["code"]: row["answers"] for row in publish(world, 3)["answer_by_code"]} == {
        "no": 40,
        "yes": 12,
        "maybe": 3,
    }
    [asked] = tables["answer_by_question"]
    assert (asked["responses"], asked["answered"], asked["answered_percent"]) == (55, 55, 100)


@pytest.mark.long
def test_a_part_that_is_small_or_leaves_few_is_empty(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """REPORT-30: of 25 responses two leave the question out."""
    publish_only(monkeypatch, "answer_by_question")
    of_many(world, no=23)
    world.responses += [response(f"none{number}") for number in range(2)]
    world.time += timedelta(days=1)
    world.read()
    [asked] = publish(world)["answer_by_question"]
    assert asked == asked | {"responses": 25, "answered": None, "answered_percent": None, "answers": None}


def test_a_code_or_a_unit_is_a_text_unless_it_is_known_or_many_patients_share_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """REPORT-30: a target of another make may write a name where a code belongs."""
    publish_only(monkeypatch, "observation", "observation_coding", "code", "question")
    loinc, local = "http://loinc.org", "urn:local"
    said = [
        (loinc, "718-7", "g/dL", "H"),
        (loinc, "Anna Smith", "per Anna", "Anna"),
        ("urn:anna", "4711", "{anna}/d", "X"),
        *((local, "SHARED", "drops", "bad") for _ in range(10)),
    ]
    world.reports = [
        report(
            f"r{number}",
            subject={"reference": f"Patient/x{number}"},
            code={"coding": [{"system": system, "code": code}]},
            result=[{"reference": f"Observation/o{number}"}],
        )
        for number, (system, code, *_) in enumerate(said)
    ]
    world.results = [
        {
            "resourceType": "Observation",
            "id": f"o{number}",
            "status": "final",
            "subject": {"reference": f"Patient/x{number}"},
            "code": {"coding": [{"system": system, "code": code}]},
            "valueQuantity": {"value": 1, "unit": unit},
            "interpretation": [{"coding": [{"code": flag}]}],
        }
        for number, (system, code, unit, flag) in enumerate(said)
    ]
    world.read()
    tables = publish(world)
    found = [(row["code_system"], row["code"], row["unit"], row["interpretation"]) for row in tables["observation"]]
    shared = [(local, "SHARED", "drops", "bad")] * 10
    assert sorted(found, key=str) == sorted(
        [(loinc, "718-7", "g/dL", "H"), (loinc, None, None, None), (None, None, None, None), *shared], key=str
    )
    codes = {row["code"] for name in ("diagnostic_report_code", "observation_coding", "code") for row in tables[name]}
    assert codes - {"H", "bad", "yes", "no"} == {"718-7", "SHARED", None} | {LAB["code"]}
    assert "Anna" not in str(tables)


def test_traits_that_few_patients_share_are_empty(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """REPORT-30: and so are the fewest others, where those left out would be too few together."""
    publish_only(monkeypatch, "patient")
    (world.home / "reports.toml").write_text("publish_patients = true\n")
    people = [*(["female", 1971] for _ in range(30)), *(["male", 1971] for _ in range(12)), ["male", 2001]]
    rows = [{"id": f"x{place}", "gender": sex, "birthYear": year} for place, (sex, year) in enumerate(people)]
    keep_told(telling(*rows), world.home, TARGET, PATIENTS)
    world.read()
    found = [(row["sex"], row["birth_years"]) for row in publish(world)["patient"]]
    assert sorted(found, key=str) == [("female", "1970-1979")] * 30 + [(None, None)] * 13


def test_remarks_on_a_table_are_not_shown() -> None:
    """They may count few people."""
    table = replace(
        next(each for each in report_tables() if each.name == "observation"), remarks=("2 are of another.",)
    )
    [left] = shown_tables([table])
    assert table.described.endswith("2 are of another.")
    assert left.described == table.comment
