"""Answers that repeat the request, as gateways do: nothing of them is printed or stored outside the ledger.

But for the words of a refusal, which the ledger keeps and nothing else does.
"""

import pytest

from tests.pipelines.test_privacy_of_faults import ROWS
from tests.support.fake_answers import Said
from tests.support.privacy import leaks, mark

ECHO = mark("echo")
ISSUE = {"severity": "error", "code": ECHO, "details": {"text": ECHO}, "diagnostics": ECHO, "expression": [ECHO]}
OUTCOME = {"resourceType": "OperationOutcome", "id": ECHO, "issue": [ISSUE]}
PAGE = f"<html>{ECHO}</html>".encode()
RESPONSE = {"status": ECHO, "location": ECHO, "outcome": OUTCOME}

ANSWERS = {
    "an error page": Said(500, PAGE),
    "an error": Said(500, OUTCOME),
    "another place": Said(307, None, [("location", f"/{ECHO}?{ECHO}")]),
    "a place that is none": Said(201, None, [("location", f"/Task/{ECHO} {ECHO}")]),
    "no bundle": Said(200, {"resourceType": ECHO, "entry": [{"response": RESPONSE}]}),
    "a bundle": Said(200, {"type": "batch-response", "entry": [{"response": RESPONSE}] * 3}),
    "not what it says": Said(200, ECHO.encode(), [("content-encoding", "gzip")]),
}


@pytest.mark.alike
@pytest.mark.parametrize("answer", ANSWERS)
def test_the_text_of_an_answer_that_echoes_the_request_is_neither_printed_nor_stored(answer, chartferry, home, target):
    """REPORT-25"""
    (home / "inbox" / "tasks.csv").write_text(ROWS, encoding="utf-8")
    target.faults = [ANSWERS[answer]] * 20
    said = [*chartferry("import"), *chartferry("status"), *chartferry("doubts", "resolve")]
    assert len(target.faults) < 20
    assert leaks(home, *map(str, said)) == {}


def test_the_words_of_a_refusal_are_kept_in_the_ledger_alone(chartferry, home, target):
    """REPORT-25, LEDGER-11: and a code that is none is not its rule, which summaries and metadata tell."""
    (home / "inbox" / "tasks.csv").write_text(ROWS, encoding="utf-8")
    target.additions, target.faults = False, [Said(422, OUTCOME)] * 20
    code, *said = chartferry("import")
    said += [*chartferry("status")[1:], *chartferry("rejects", "retry")[1:]]
    assert code == 3
    assert "HTTP-422" in said[0]
    assert leaks(home, *said).keys() <= {"ledger.db", "ledger.db-wal", "journal.ndjson"}
    assert leaks(home, *said)
