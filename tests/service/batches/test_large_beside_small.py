"""A large bundle takes turns with other clients: what they create and read is answered between its parts."""

import threading
from concurrent.futures import ThreadPoolExecutor

from fhir_service.interactions import batch
from tests.conftest import BOTH, Running
from tests.support import loopback
from tests.support.bodies import entry, task, total

STORES = BOTH


def test_others_are_answered_while_the_largest_bundle_is_worked_on(fresh_service: Running) -> None:
    """LIMIT-15: after creates of another client were answered, some of the bundle is there, and some is not yet."""
    labelled = [{"type": {"text": "label"}, "valueString": "of the bundle"}]
    body = {
        "resourceType": "Bundle",
        "type": "batch",
        "entry": [entry(task(number, input=labelled)) for number in range(batch.MOST_ENTRIES)],
    }
    ended, between = threading.Event(), list[int]()

    def create_and_count() -> None:
        with loopback.Client(base_url=fresh_service.url, headers=fresh_service.headers, timeout=60) as client:
            while not ended.is_set():
                assert client.post("/Task", json=task(0)).status_code == 201
                between.append(total(client, "/Task?label=of%20the%20bundle&_count=0"))

    with ThreadPoolExecutor(1) as other:
        others = other.submit(create_and_count)
        try:
            answer = fresh_service.client.post("/", json=body, timeout=120)
        finally:
            ended.set()
        others.result()
    assert {each["response"]["status"] for each in answer.json()["entry"]} == {"201"}
    assert len({seen for seen in between if 0 < seen < batch.MOST_ENTRIES}) >= 2
