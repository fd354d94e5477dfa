"""Answers to a questionnaire with a score: a response that lacks one is accepted with a warning."""

import json
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from fhir_service.interface.resources.questionnaire import Questionnaire
from pipelines.cli import run
from pipelines.session.questionnaires import Snapshot
from pipelines.validation.outcome import ValidationResult
from pipelines.validation.scoring import INCOMPLETE
from tests.support import validating

LOINC = "http://loinc.org"
OPTIONS = [{"valueCoding": {"system": LOINC, "code": code, "display": code}} for code in ("LA1", "LA2")]
ROWS = "response_id,patient_id,questionnaire,question,answer_code,answer_text,answer_number\n"
WHOLE = "1,p1,{0},a,LA1,,\n1,p1,{0},b,LA2,,\n"
PART = "2,p1,{0},a,LA1,,\n2,p1,{0},words,,fine,\n"
FEED = """
kind = "answers"
files = "form*.csv"
SCORED
[columns]
response_id = "response_id"
patient_id = "patient_id"
questionnaire = "questionnaire"
question = "question"
answer_code = "answer_code"
answer_text = "answer_text"
"""


COUNTED = {"a": "44250-9", "b": "44255-8"}


def choice(link: str, **more: object) -> dict:
    code = [{"system": LOINC, "code": COUNTED.get(link, link)}]
    return {"linkId": link, "type": "choice", "code": code, "answerOption": OPTIONS} | more


def questionnaire(id: str, code: str) -> Questionnaire:
    """Two choices that everybody is asked, one in a group; a text, a number, and choices that depend on another."""
    condition = {"question": "a", "operator": "=", "answerCoding": {"system": LOINC, "code": "LA2"}}
    items = [
        choice("a", item=[choice("a-why")]),
        {"linkId": "group", "type": "group", "item": [choice("b")]},
        choice("c", enableWhen=[condition]),
        {"linkId": "words", "type": "text"},
        {"linkId": "total", "type": "decimal"},
    ]
    codes = [{"system": LOINC, "code": code}]
    return Questionnaire.model_validate({"id": id, "name": f"N-{id}", "status": "active", "code": codes, "item": items})


def panel(id: str, code: str, *questions: str) -> Questionnaire:
    """Choices that everybody is asked, with LOINC codes as the standard panel has them."""
    items = [choice(f"q{each}", code=[{"system": LOINC, "code": each}]) for each in questions]
    codes = [{"system": LOINC, "code": code}]
    return Questionnaire.model_validate({"id": id, "name": f"N-{id}", "status": "active", "code": codes, "item": items})


GAD_7 = ("69725-0", "68509-9", "69733-4", "69734-2", "69735-9", "69689-8", "69736-7")
DIFFICULTY = "69722-7"
SNAPSHOT = Snapshot.of(
    [questionnaire("phq", "44249-1"), questionnaire("own", "own"), panel("gad", "69737-5", *GAD_7, DIFFICULTY)]
)


def validated(folder: Path, text: str, scored: str | None = None) -> ValidationResult:
    if scored is None:
        return validating.validated(ROWS + text, folder, "answers.csv", snapshot=SNAPSHOT)
    return validating.validated(ROWS + text, folder, "form.csv", FEED.replace("SCORED", scored), SNAPSHOT)


@pytest.mark.parametrize(
    ("scored", "named", "warned"),
    [
        (None, "phq", 1),
        (None, "own", 0),
        ("", "phq", 1),
        ("scored = []", "phq", 0),
        ('scored = "N-own"', "own", 1),
        ('scored = ["http://loinc.org|own"]', "N-own", 1),
        ('scored = ["N-own"]', "phq", 0),
        ('scored = "N-own"\nscored_questions = "44250-9"', "own", 0),
        ('scored = "N-own"\nscored_questions = ["a", "b"]', "own", 1),
    ],
)
def test_a_response_without_all_answers_to_a_scored_questionnaire_is_accepted_with_a_warning(
    scored: str | None, named: str, warned: int, tmp_path: Path
) -> None:
    """QR-RULE-02, QR-RULE-01: choices under a condition or another question, texts and numbers are not asked for."""
    found = validated(tmp_path, (WHOLE + PART).format(named), scored)
    assert (found.accepted, found.rejected) == (2, 0)
    assert found.warnings == Counter({INCOMPLETE: warned} if warned else {})
    if warned:
        [told] = pq.read_table(tmp_path / "run-1" / "warnings.parquet").to_pylist()
        assert told["message"] == "answers that a score needs are missing: b"
        assert (told["line"], told["rule_id"]) == (len(ROWS.splitlines()) + WHOLE.count("\n") + 1, INCOMPLETE)


@pytest.mark.parametrize("scored", [None, 'scored = ["N-gad"]'])
@pytest.mark.parametrize(("left_out", "warned"), [(DIFFICULTY, 0), (GAD_7[3], 1)])
def test_only_unanswered_questions_that_count_towards_the_score_give_a_warning(
    left_out: str, warned: int, scored: str | None, tmp_path: Path
) -> None:
    """QR-RULE-02: the panel asks how difficult the problems made things, which is no part of its score."""
    asked = [each for each in (*GAD_7, DIFFICULTY) if each != left_out]
    found = validated(tmp_path, "".join(f"1,p1,gad,q{each},LA1,,\n" for each in asked), scored)
    assert (found.accepted, found.warnings) == (1, Counter({INCOMPLETE: warned} if warned else {}))


def test_a_rejected_response_is_not_warned_of(tmp_path: Path) -> None:
    """QR-RULE-02."""
    assert validated(tmp_path, "2,p1,phq,a,nonsense,,\n").warnings == Counter()


def test_a_whole_resource_is_looked_at_as_well(tmp_path: Path) -> None:
    """QR-RULE-02, FEED-FILE-05."""
    answer = {"valueCoding": OPTIONS[0]["valueCoding"]}
    body: dict[str, object] = {
        "resourceType": "QuestionnaireResponse",
        "id": "1",
        "status": "completed",
        "questionnaire": "phq",
    }
    body |= {"subject": {"reference": "Patient/p1"}, "item": [{"linkId": "a", "answer": [answer]}]}
    found = validating.validated(json.dumps(body), tmp_path, "answers.ndjson", snapshot=SNAPSHOT)
    assert (found.accepted, found.warnings) == (1, Counter({INCOMPLETE: 1}))


def test_a_feed_says_which_questionnaires_it_takes_for_scored(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """QR-RULE-02, CLI-CMD-14."""
    (tmp_path / "form.toml").write_text(FEED.replace("SCORED", 'scored = ["N-own"]'))
    assert run(["feeds", "check", str(tmp_path / "form.toml")]) == 0
    assert "warns of responses without all answers to: N-own\n" in capsys.readouterr().out
