"""`chartferry target`: what the target says of itself, and how rows will be sent."""

import json

import pytest

from pipelines.cli import run
from tests.support.commands import forget_settings
from tests.support.work import payment


def answer(chartferry, *arguments):
    code, said, _ = chartferry("target", *arguments)
    return code, said


def test_the_step_and_the_risk_of_each_type_are_shown(chartferry, target):
    """TARGET-01"""
    code, said = answer(chartferry)
    assert code == 0
    first, *lines = said.splitlines()
    assert first == f"target: {target.url} (urn:uuid:fake)"
    assert lines[:5] == [
        "software: not said",
        "profile: interface",
        "balances: left to the target",
        "bundles: batch",
        "conditional create: PaymentNotice, Task, QuestionnaireResponse",
    ]
    assert lines[7:10] == [
        "PaymentNotice: batch: conditional creates in batches of up to 500 rows",
        "  risk: none: a repeated create finds the first one",
        "  look-up: found nothing, as it should",
    ]
    assert target.writes == 0


@pytest.mark.parametrize(
    ("says", "step"),
    [
        (["transaction", "conditional"], "transaction"),
        (["conditional"], "conditional"),
        (["identifier"], "look-up"),
        ([], "bare"),
    ],
)
def test_the_description_of_the_target_is_also_printed_as_json(chartferry, target, says, step):
    """TARGET-01"""
    target.additions, target.promised = False, says
    code, said = answer(chartferry, "--json")
    found = json.loads(said)
    assert (code, found["exit_code"]) == (0, 0)
    assert [each["step"] for each in found["types"]] == [step] * 3
    assert target.writes == 0


def test_a_target_whose_search_ignores_the_identifier_is_reported(chartferry, target, monkeypatch):
    target.additions, target.promised = False, ["identifier"]
    target.stored["r1"] = {**json.loads(payment(1)[-1]), "id": "r1"}
    monkeypatch.setattr(target, "found", lambda kind, _: target.of(kind))
    code, said = answer(chartferry)
    assert code == 6
    assert "look-up: finds what it was not asked for" in said


def test_without_a_target_the_bundled_service_of_a_new_home_is_shown(tmp_path, monkeypatch, capsys):
    """TARGET-01"""
    forget_settings(monkeypatch)
    assert run(["--home", str(tmp_path / "new"), "target", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["software"].startswith("Chartferry fhir-service")
    assert {each["step"] for each in found["types"]} == {"batch"}


def test_a_target_that_does_not_answer_is_reported_in_one_line(chartferry, monkeypatch):
    monkeypatch.setenv("FHIR_BASE_URL", "http://127.0.0.1:1")
    code, said, error = chartferry("target")
    assert (code, said) == (6, "")
    assert error.startswith("chartferry: http://127.0.0.1:1 does not answer")
