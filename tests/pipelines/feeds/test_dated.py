"""The time that a body gets if its source has none: only an element of the body itself counts as its time."""

import json
from typing import Any

import pytest

from pipelines.client.comparison import DATED
from pipelines.feeds.kinds.payments import UNTIL_SENT
from pipelines.loading.row import AcceptedRow, dated_body
from tests.support.exports import put

AT = "2026-03-01T12:00:00.000000Z"


def sent_of(resource_type: str, body: dict[str, Any]) -> str:
    text = json.dumps(body, separators=(",", ":"))
    return dated_body(resource_type, AcceptedRow(2, 1, "k1", "p1", "h", "p1", None, None, text, AT))


@pytest.mark.parametrize("resource_type", DATED)
def test_a_time_within_a_nested_element_does_not_count_as_that_of_the_body(resource_type: str) -> None:
    """PAY-15, TASK-15, QR-24."""
    name = DATED[resource_type]
    body: dict[str, Any] = {"resourceType": resource_type, "note": [{"text": f'"{name}":', name: "2020-01-01"}]}
    assert json.loads(sent_of(resource_type, body)) == body | {name: AT}


@pytest.mark.parametrize("resource_type", DATED)
@pytest.mark.parametrize("more", [{}, {"amount": 1e300}])
def test_a_body_with_a_time_of_its_own_is_sent_as_it_is(resource_type: str, more: dict[str, Any]) -> None:
    """As bodies of older versions have it, which lie in a home yet; also with a number that no double is."""
    for body in ({DATED[resource_type]: "2020-01-01", **more}, {**more, DATED[resource_type]: None}):
        text = json.dumps(body, separators=(",", ":")).replace("1e+300", "1e+400")
        assert dated_body(resource_type, AcceptedRow(2, 1, "k1", "p1", "h", "p1", None, None, text, AT)) == text


@pytest.mark.crossed
@pytest.mark.parametrize("place", ["recipient", "paymentStatus"])
@pytest.mark.parametrize("said", ["2020-01-01", UNTIL_SENT])
@pytest.mark.parametrize("first", [True, False])
def test_a_whole_payment_with_a_time_within_it_is_sent_with_its_own(
    place: str, said: str, first: bool, home, target, asked
) -> None:
    """FEED-PAY-04: `created` is the moment of its first attempt, and the member stays."""
    inner = {"identifier": {"created": said, "value": "a"}} if place == "recipient" else {"created": said, "text": "a"}
    body = {"resourceType": "PaymentNotice", "id": "n1", "status": "active", "request": {"reference": "Patient/p1"}}
    body |= {"payment": {}, "recipient": {}, "amount": {"value": 12.5, "currency": "USD"}}
    order = [*body, "created", place] if first else [place, *body, "created"]
    whole = {name: body.get(name) for name in order} | {"created": "2024-05-01", place: inner}
    (home / "feeds").mkdir()
    (home / "feeds" / "notices.toml").write_text('kind = "payments"\nfiles = ["n*.ndjson"]\nresources = true\n')
    put(home, "notices.ndjson", json.dumps(whole) + "\n")
    target.refuse = lambda body: "created" not in body
    assert asked("import")["batches"][0]["counts"]["created"] == 1
    [sent] = target.of("PaymentNotice")
    assert sent[place] == inner
