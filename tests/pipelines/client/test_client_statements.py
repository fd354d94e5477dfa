"""The capability statement of a target: odd, missing, slow, or of a target that is busy or away."""

import httpx
import pytest

from pipelines.client.capabilities import Capabilities
from pipelines.client.client import FhirClient
from pipelines.client.pace import RetryPauses
from pipelines.client.replies import TargetUnusable
from pipelines.client.steps import FREE_OF_RACES, step_for
from pipelines.client.tokens import Credentials

STATEMENT = {
    "resourceType": "CapabilityStatement",
    "implementation": {"description": "urn:uuid:x"},
    "rest": [{"interaction": [{"code": "batch"}], "resource": [{"type": "Task", "conditionalCreate": True}]}],
}


def told(*answers):
    """The client of a target that answers so, one after another."""
    left = list(answers)
    transport = httpx.MockTransport(lambda _: left.pop(0) if len(left) > 1 else left[0])
    patience = RetryPauses(3, sleep=lambda _: None)
    return FhirClient("http://127.0.0.1:1", Credentials(token="t"), patience=patience, transport=transport)


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
def test_a_target_that_is_busy_is_not_taken_for_another_one(status):
    """LEDGER-01: without its id and what it offers, all would be sent to it again."""
    client = told(httpx.Response(status), httpx.Response(status), httpx.Response(200, json=STATEMENT))
    found = client.capabilities()
    assert (found.store_id, step_for(found, "Task")) == ("urn:uuid:x", FREE_OF_RACES)
    client.close()
    client = told(httpx.Response(status))
    with pytest.raises(TargetUnusable, match=f"does not say what it is: /metadata answers HTTP {status}"):
        client.capabilities()
    client.close()


@pytest.mark.parametrize(
    "answer",
    [httpx.Response(200, text="<html/>"), httpx.Response(200, json={}), httpx.Response(400), httpx.Response(204)],
)
def test_a_capability_statement_that_cannot_be_read_makes_the_target_unusable(answer):
    """LEDGER-01"""
    client = told(answer)
    with pytest.raises(TargetUnusable, match="does not say what it is"):
        client.capabilities()
    client.close()


@pytest.mark.parametrize("status", [401, 403, 404, 405, 501])
def test_a_target_without_a_statement_is_the_bare_interface(status):
    client = told(httpx.Response(status))
    assert client.capabilities() == Capabilities()
    client.close()


@pytest.mark.parametrize("odd", [{"rest": 5}, {"rest": [None]}, {"implementation": []}, {"rest": [{"resource": [1]}]}])
def test_a_statement_of_odd_shapes_offers_nothing(odd):
    client = told(httpx.Response(200, json={"resourceType": "CapabilityStatement", **odd}))
    assert client.capabilities() == Capabilities()
    client.close()


def test_a_target_that_is_not_there_is_unusable():
    client = FhirClient("http://127.0.0.1:9", Credentials(token="t"))
    with pytest.raises(TargetUnusable, match=r"http://127\.0\.0\.1:9 does not answer"):
        client.capabilities()
    client.close()


@pytest.mark.parametrize(("late", "is_had"), [(2, True), (3, False)])
def test_a_statement_that_takes_long_is_asked_for_again(late, is_had):
    """TARGET-01: HAPI makes its first one for a minute on a busy machine."""
    asked = []

    def answer(request):
        asked.append(request.url.path)
        if len(asked) <= late:
            raise httpx.ReadTimeout("")
        return httpx.Response(200, json={"resourceType": "CapabilityStatement"})

    patience = RetryPauses(sleep=lambda _: None)
    transport = httpx.MockTransport(answer)
    client = FhirClient("http://127.0.0.1:1", Credentials(token="t"), patience=patience, transport=transport)
    if is_had:
        assert client.capabilities() == Capabilities()
    else:
        with pytest.raises(TargetUnusable, match=r"does not answer \(no answer in time\)"):
            client.capabilities()
    assert len(asked) == 3
    client.close()
