"""The moments at which tests kill: what the target has stored and what its client has received at each."""

import random

import httpx
import pytest

from tests.hapi.watching import ARRIVES, AT_WORK, DONE, HEARD, LOOKED_UP, Moments, watched
from tests.support.fake_target import FakeTarget, serving

HEADERS = {"authorization": "Bearer t", "content-type": "application/json"}
TASK = {"resourceType": "Task", "status": "requested"}


def asked(url: str, method: str, path: str) -> bool:
    """Send a request; True if it was answered."""
    try:
        httpx.request(method, f"{url}{path}", headers=HEADERS, json=TASK, trust_env=False).raise_for_status()
    except httpx.RemoteProtocolError:
        return False
    return True


@pytest.mark.parametrize(
    ("moment", "stored", "answered"),
    [(ARRIVES, 1, False), (AT_WORK, 2, False), (DONE, 2, False), (HEARD, 2, True), (LOOKED_UP, 2, True)],
)
def test_each_moment_of_the_second_write_is_reached_before_or_after_the_target_has_it(
    moment: str, stored: int, answered: bool
) -> None:
    """TARGET-03"""
    moments = Moments(random.Random(1))
    with serving(FakeTarget()) as target:
        target.valid_tokens.add("t")
        with watched(target.url, moments) as url:
            moments.expect(moment, 2, lambda: None)
            assert asked(url, "POST", "/Task")
            assert asked(url, "POST", "/Task") is answered
            assert moments.reached.wait(0 if moment == LOOKED_UP else 5) is (moment != LOOKED_UP)
        assert len(target.stored) == stored, "what was on its way when the proxy ended has arrived"


def test_a_look_up_is_a_moment_too() -> None:
    """TARGET-03"""
    moments = Moments(random.Random(1))
    with serving(FakeTarget()) as target, watched(target.url, moments) as url:
        target.valid_tokens.add("t")
        moments.expect(LOOKED_UP, 1, lambda: None)
        assert asked(url, "GET", "/Task?_count=1&patient=Patient/a")
        assert not asked(url, "GET", "/Task?_count=1&identifier=a")
        assert moments.reached.is_set()
