"""Numbers beyond what other programs can read are rejected with their lines, in NDJSON and in cells."""

import json
from pathlib import Path

import pytest

from pipelines.feeds.terms.columns import ValueFault, number
from pipelines.feeds.terms.numbers import PLAIN
from tests.support.validating import accepted, rejected, validated

ROW = {"payment_id": "a", "patient_id": "p1", "amount": 1.5, "paid_on": "2024-01-01"}


@pytest.mark.parametrize("text", ["1e999", "-1E+999", "1e-999", "1" * 400, "1e9999999999999999999"])
def test_a_line_with_such_a_number_is_rejected(text: str, tmp_path: Path) -> None:
    """FEED-FILE-04: wherever in the row it stands, mapped or not."""
    whole = json.dumps(ROW)
    rows = [whole, whole.replace('"a"', '"b"')[:-1] + f', "more": [{{"x": {text}}}]}}', whole.replace('"a"', '"c"')]
    found = validated("\n".join(rows) + "\n", tmp_path, "payments.ndjson")
    assert accepted(found) == [(1, "a"), (3, "c")]
    ((line, _, message),) = rejected(found)
    assert line == 2
    assert message.startswith("not a JSON object: a number")


def test_a_text_that_only_looks_like_a_huge_number_is_taken(tmp_path: Path) -> None:
    """FEED-FILE-04: also a key such as 12e345."""
    found = validated(json.dumps(ROW | {"payment_id": "12e345", "amount": "1.50"}) + "\n", tmp_path, "payments.ndjson")
    assert accepted(found) == [(1, "12e345")]


@pytest.mark.parametrize("text", ["1e999", "-1e308", "1e-999"])
def test_a_cell_with_such_a_number_is_a_fault(text: str) -> None:
    """FEED-FILE-09"""
    assert isinstance(number(text, PLAIN), ValueFault)
