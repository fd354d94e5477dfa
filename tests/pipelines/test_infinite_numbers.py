"""Numbers beyond what a double holds: a page of a target that has one is read all the same."""

import httpx
import pytest

from pipelines.client.comparison import fingerprints
from pipelines.client.replies import object_of


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
def test_what_is_no_object_still_is_none(text: str) -> None:
    """CLI-CMD-17"""
    assert object_of(httpx.Response(200, content=text.encode("latin-1"))) is None
