"""Answers and scores of responses that an undo took back are in no table; loaded again, they are there once."""

from pathlib import Path
from typing import Any

import duckdb
import pytest

from tests.support.exports import put
from tests.support.publishing import publish_nothing

LOINC = "http://loinc.org"
ORDINAL = "http://hl7.org/fhir/StructureDefinition/ordinalValue"
HEADER = "response_id,patient_id,questionnaire,authored,author,question,answer_code,answer_text,answer_number\n"
TABLES = {
    "questionnaire_response": "source_key, is_imported, questions_answered",
    "answer": "response_id IS NOT NULL, link_id, option_code",
    "answer_by_code": "link_id, code, answers, patients",
    "response_mood": "patient_id, low, tired",
    "score": "score_name, value, complete",
    "score_by_patient": "patient_id, value",
}
"""The tables that answers are in, with columns that are the same under any id."""


def question(link: str) -> dict[str, Any]:
    options = [
        {"valueCoding": {"system": LOINC, "code": code, "extension": [{"url": ORDINAL, "valueDecimal": value}]}}
        for code, value in (("no", 0), ("yes", 2))
    ]
    return {"linkId": link, "type": "choice", "text": f"{link}?", "answerOption": options}


MOOD = {
    "resourceType": "Questionnaire",
    "id": "q1",
    "name": "Mood",
    "status": "active",
    "code": [{"system": LOINC, "code": "1"}],
    "item": [question("low"), question("tired")],
}


def shown(home: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Return the rows of each table; no rows of a table that does not exist."""
    with duckdb.connect(home / "published" / "reports.duckdb", read_only=True) as db:
        there = {name for (name,) in db.sql("SELECT table_name FROM duckdb_tables()").fetchall()}
        return {
            name: db.sql(f"SELECT {columns} FROM {name} ORDER BY ALL").fetchall() if name in there else []
            for name, columns in TABLES.items()
        }


def ids(home: Path) -> set[str]:
    """The ids of responses in all tables that name one."""
    with duckdb.connect(home / "published" / "reports.duckdb", read_only=True) as db:
        return {
            name
            for table in ("answer", "score", "response_mood")
            for (name,) in db.sql(f"SELECT response_id FROM {table}").fetchall()
        }


@pytest.mark.long
@pytest.mark.publishes(*(name for name in TABLES if name != "response_mood"), wide=True)
def test_responses_that_were_undone_are_in_no_table_and_reloaded_ones_are_there_once(
    home: Path, target: Any, asked: Any, chartferry: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SCORE-01: whether or not the target shows its responses to others."""
    target.stored["q1"] = MOOD
    rows = ("a1,p1,Mood,2026-01-02,,low,yes,,", "a1,p1,Mood,2026-01-02,,tired,no,,", "a2,p2,Mood,2026-01-03,,low,yes,,")
    put(home, "answers.csv", HEADER + "\n".join(rows) + "\n")
    [batch] = asked("import")["batches"]
    assert batch["counts"]["created"] == 2
    before, first = shown(home), ids(home)
    assert before["score"] == [("Mood", 2.0, False), ("Mood", 2.0, True)]
    assert before["response_mood"] == [("p1", "yes", "no"), ("p2", "yes", None)]
    assert before["answer_by_code"] == [("low", "yes", 2, 2), ("tired", "no", 1, 1)]

    with monkeypatch.context() as patched:
        publish_nothing(patched)
        assert chartferry("undo", batch["batch_id"])[0] == 0
    assert {body["status"] for body in target.of("QuestionnaireResponse")} == {"entered-in-error"}
    assert chartferry("reports")[0] == 0
    assert shown(home) == {name: [] for name in TABLES}

    assert chartferry("import", "--again", batch["batch_id"])[0] == 0
    assert shown(home) == before
    assert len(ids(home)) == 2
    assert not ids(home) & first
