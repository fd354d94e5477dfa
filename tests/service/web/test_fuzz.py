"""The service under made-up requests: each is answered with what it asks for or an outcome; the store stays whole."""

from collections import Counter

import httpcore
import pytest

from fhir_service.admin.checks import check_store
from tests.conftest import BOTH, running
from tests.support.fuzz import Fuzzer
from tests.support.fuzz_answers import fault
from tests.support.senders import Sender

STORES = BOTH
SEED = 20260301
ENOUGH = 0.30
"""The share of requests that must be accepted: else the fuzzing would only ever knock at the first door."""


@pytest.mark.parametrize("requests", [100, pytest.param(10_000, marks=pytest.mark.long)])
def test_every_request_is_answered_by_what_it_asked_for_or_by_an_outcome(tmp_path, database, requests):
    """ERR-01, ERR-02: no 500, no stack trace, nothing but resources, bundles, null and outcomes."""
    with database(tmp_path) as store, running(tmp_path, store=store) as service, httpcore.ConnectionPool() as pool:
        fuzzer, sender, faults = Fuzzer(SEED, service.url), Sender(service, pool), []
        statuses: Counter[int] = Counter()
        for number in range(requests):
            sent = fuzzer.request()
            response = sender.send(sent)
            statuses[response.status_code] += 1
            fuzzer.learn(response)
            if found := fault(sent, response):
                faults.append(f"{number}: {sent.method} {sent.target[:200]} {(sent.content or b'')[:300]!r}: {found}")
        assert not faults, "\n".join(faults[:10])
        accepted = statuses[200] + statuses[201]
        print(f"{accepted} of {requests} accepted: {dict(sorted(statuses.items()))}")
        assert accepted >= ENOUGH * requests, statuses
        assert set(statuses) >= {200, 201, 400, 404, 405, 422}
        assert statuses[401] or requests < 1_000  # one request in some hundred has no valid token
        assert check_store(service.service.store, service.service.site) == []
        for kind, ids in fuzzer.made.items():
            for resource_id in set(ids[:: max(1, len(ids) // 50)]):
                assert service.client.get(f"/{kind}/{resource_id}").json()["id"] == resource_id


@pytest.mark.long
def test_the_same_seed_makes_the_same_requests():
    """A failure can be had again."""
    one, other = Fuzzer(7, "http://127.0.0.1:1"), Fuzzer(7, "http://127.0.0.1:1")
    assert [one.request() for _ in range(200)] == [other.request() for _ in range(200)]
