"""Questionnaires are looked over before answers are checked against them."""

from pathlib import Path

import pyarrow.parquet as pq

from fhir_service.interface.resources.questionnaire import Questionnaire
from pipelines.session.questionnaires import Snapshot
from tests.support.validating import validated

LOINC = "http://loinc.org"


def option(code: str) -> dict:
    return {"valueCoding": {"system": LOINC, "code": code, "display": code}}


def questionnaire(id: str, name: str, *codes: str) -> Questionnaire:
    items = [
        {"linkId": link, "type": "choice", "code": [{"system": LOINC, "code": "q"}], "answerOption": map(option, codes)}
        for link in ("a", "b")
    ]
    body = {"id": id, "name": name, "status": "active", "code": [{"system": LOINC, "code": name}]}
    return Questionnaire.model_validate(
        body | {"item": [{**item, "answerOption": list(item["answerOption"])} for item in items]}
    )


def test_ambiguities_of_the_questionnaires_in_use_are_counted_as_warnings(tmp_path: Path) -> None:
    """QR-CREATE-01, QNR-RULE-03, FEED-ANS-03."""
    snapshot = Snapshot.of(
        [questionnaire("odd", "odd", "x", "x", "y"), questionnaire("idle", "idle", "x", "x")]
        + [questionnaire(id, "twin", "x") for id in ("twin-1", "twin-2")]
    )
    head = "response_id,patient_id,questionnaire,question,answer_code"
    text = f"{head}\n1,p1,odd,a,y\n2,p1,odd,b,x\n3,p1,twin,a,x\n4,p1,twin,a,x\n"
    found = validated(text, tmp_path, "answers.csv", snapshot=snapshot)
    assert (found.accepted, found.rejected) == (1, 3)
    assert dict(found.warnings) == {"QR-CREATE-01": 2, "QNR-RULE-03": 1, "FEED-ANS-03": 1}
    told = pq.read_table(found.folder / "warnings.parquet").select(["line", "rule_id", "message"]).to_pylist()
    assert [tuple(each.values()) for each in told] == [
        (None, "QR-CREATE-01", f"Questionnaire/odd: 2 options of question a have the code {LOINC}|x"),
        (None, "QR-CREATE-01", f"Questionnaire/odd: 2 options of question b have the code {LOINC}|x"),
        (None, "QNR-RULE-03", f"Questionnaire/odd: 2 questions have the code {LOINC}|q"),
        (None, "FEED-ANS-03", "several active questionnaires have the name or code twin"),
    ]
