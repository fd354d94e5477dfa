"""Numbers that no double can be: whoever reads them as doubles could read no page that holds one."""

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from fhir_service.interface.resources.response_model import Answer
from tests.conftest import Running
from tests.support.commands import run

RESPONSE = {
    "resourceType": "QuestionnaireResponse",
    "status": "completed",
    "subject": {"reference": "Patient/p1"},
    "item": [{"linkId": "1", "answer": [{"valueDecimal": "NUMBER"}]}],
}
TOO_LONG = ["1e999", "-1e400", "1" * 400, "1e-999"]


def text_of(body: dict[str, Any], number: str) -> str:
    """A body as JSON, with a number that Python would not write."""
    return json.dumps(body).replace('"NUMBER"', number)


@pytest.mark.parametrize("number", TOO_LONG)
@pytest.mark.parametrize("more", ["", ' "unknown": 1,'], ids=["plain", "not plain"])
def test_an_answer_that_no_double_can_be_is_a_bad_request(service: Running, number: str, more: str) -> None:
    """COMMON-35: by the quick reader and by the models, single and in a bundle."""
    body = text_of(RESPONSE | {"questionnaire": f"{service.url}/Questionnaire/q1"}, number)
    body = body.replace("{", f"{{{more}", 1)
    headers = {"content-type": "application/json"}
    answer = service.client.post("/QuestionnaireResponse", content=body, headers=headers)
    assert (answer.status_code, answer.json()["issue"][0]["code"]) == (400, "invalid")
    entry = {"request": {"method": "POST", "url": "QuestionnaireResponse"}, "resource": "BODY"}
    bundle = json.dumps({"resourceType": "Bundle", "type": "batch", "entry": [entry]}).replace('"BODY"', body)
    (entry,) = service.client.post("/", content=bundle, headers=headers).json()["entry"]
    assert entry["response"]["status"] == "400"
    if not more:
        assert "the number is larger or smaller than other programs can read" in answer.text


@pytest.mark.parametrize("number", ["1e300", "0", "0.000", "-1e-300", "12.50"])
def test_other_numbers_are_taken(number: str) -> None:
    assert Answer(valueDecimal=Decimal(number)).valueDecimal == Decimal(number)


@pytest.mark.alike
@pytest.mark.parametrize("number", TOO_LONG)
def test_reference_data_with_one_is_refused_by_line(tmp_path: Path, number: str) -> None:
    """REF-LOAD-05"""
    good = {"resourceType": "Patient", "id": "p1", "name": [{"family": "A"}]}
    claim = json.dumps({"resourceType": "Claim", "id": "c1", "total": {"value": 0}}).replace(
        '"value": 0', f'"value": {number}'
    )
    (tmp_path / "data.ndjson").write_text(f"{json.dumps(good)}\n{claim}\n")
    done = run("fhir-service", "load", "--store", tmp_path / "service.duckdb", tmp_path / "data.ndjson")
    assert done.returncode == 3
    [refused] = (tmp_path / "service.duckdb.refused.ndjson").read_text().splitlines()
    assert (json.loads(refused)["line"], number in refused) == (2, False)
