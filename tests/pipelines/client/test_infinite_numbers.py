"""Numbers beyond what a double holds, and halves of a character: a page of a target that has one is read."""

import httpx
import pytest

from pipelines.client.comparison import fingerprints
from pipelines.client.replies import object_of
from pipelines.reports.pages import PageReader


@pytest.mark.parametrize("text", ["1e999", "-1E+999", "1e9999999"])
def test_a_number_beyond_a_double_makes_no_page_unreadable(text: str) -> None:
    """CLI-CMD-17: the page comes from elsewhere, and nobody here can mend it."""
    body = object_of(httpx.Response(200, content=f'{{"a": {text}, "b": [1.5, 2, 1e2]}}'))
    assert body == {"a": text, "b": [1.5, 2, 100.0]}
    assert [type(each) for each in body["b"]] == [float, int, float]
    assert "" not in fingerprints(
        "PaymentNotice", {"amount": {"value": body["a"]}, "request": {"reference": "Patient/p"}}
    )


@pytest.mark.parametrize("text", ["{", "[1e999]", '{"a": NaN}', '{"a": 1e999, "a"}', "\xff"])
def test_a_body_that_is_not_a_json_object_is_read_as_none(text: str) -> None:
    """CLI-CMD-17"""
    assert object_of(httpx.Response(200, content=text.encode("latin-1"))) is None


@pytest.mark.parametrize("odd", [r'"cut \ud83d"', r'"\ude00 cut"', "9" * 400, "1e999", "1" + "0" * 40])
def test_a_report_with_half_a_character_or_a_large_number_is_kept(odd: str) -> None:
    """CLI-CMD-17: some servers cut texts in the middle of an emoji; no report was published any more."""
    report = f'{{"resourceType": "DiagnosticReport", "id": "r1", "code": {{"text": {odd}}}, "b": "\\ud83d\\ude00"}}'
    page = f'{{"resourceType": "Bundle", "type": "searchset", "total": 1, "entry": [{{"resource": {report}}}]}}'
    found = object_of(httpx.Response(200, content=page))
    assert found
    [(name, _, body)] = PageReader("DiagnosticReport").new_rows(found)
    assert (name, "\ud83d" in body, "\U0001f600" in body) == ("r1", False, True)
    assert ("\ufffd" in body) == ("cut" in odd)
