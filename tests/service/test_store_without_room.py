"""A store's PostgreSQL that takes no more connections, or has no more locks: 503, and what is acknowledged is there."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.conftest import Running, running
from tests.support.bodies import task, total
from tests.support.postgres import Postgres, running_server

REQUESTS = 40


def asked(found: Running, first: int) -> Counter[int]:
    """Statuses of creates and reads, many at once."""

    def ask(number: int) -> int:
        answer = found.client.post("/Task", json=task(number)) if number % 2 else found.client.get("/Task?_count=1")
        if answer.status_code == 503:
            assert answer.json()["issue"][0]["code"] == "transient"
        return answer.status_code

    with ThreadPoolExecutor(16) as threads:
        return Counter(threads.map(ask, range(first, first + REQUESTS)))


def test_a_server_that_takes_no_more_connections_is_503_until_it_does(postgres: Postgres, tmp_path: Path) -> None:
    """SCALE-01"""
    with (
        postgres.database() as whole,
        postgres.limited(whole, "few") as (url, limit),
        running(tmp_path, store=url) as found,
    ):
        limit(1)
        came = asked(found, 1)
        assert came.keys() <= {200, 201, 503}
        assert came[503]
        limit(-1)
        assert asked(found, 100) == {200: REQUESTS // 2, 201: REQUESTS // 2}
        assert total(found.client, "/Task?_count=0") == came[201] + REQUESTS // 2


def test_a_server_without_locks_is_503_until_it_has_some(tmp_path: Path) -> None:
    """SCALE-01"""
    with running_server() as server, server.database() as url, running(tmp_path, store=url) as found:
        with server.without_locks():
            came = asked(found, 1)
            assert came.keys() <= {200, 201, 503}
        assert asked(found, 100) == {200: REQUESTS // 2, 201: REQUESTS // 2}
        assert total(found.client, "/Task?_count=0") == came[201] + REQUESTS // 2
