"""A store's PostgreSQL that dies under load and is taken over by its standby, for two processes behind one address."""

import json
from collections import Counter
from pathlib import Path

import pytest

from fhir_service.admin.checks import check_store
from tests.conftest import WORLD, running
from tests.service.serving.test_workers_kills import Load
from tests.support import loopback
from tests.support.bodies import task
from tests.support.called import command_output
from tests.support.contention import authorized, made, next_of, task_in
from tests.support.standby import WAYS, Pair, running_pair
from tests.support.supervised import supervised

SYNCHRONOUS = pytest.mark.parametrize(
    "synchronous", [True, pytest.param(False, marks=pytest.mark.long)], ids=["synchronous", "asynchronous"]
)


def stored(pair: Pair) -> Counter[int]:
    """The numbers of the tasks in the store."""
    bodies = pair.read("store", "SELECT body FROM task")
    return Counter(int(json.loads(str(body))["identifier"][0]["value"]) for (body,) in bodies)


@pytest.mark.alike
@SYNCHRONOUS
@pytest.mark.parametrize("way", [WAYS[0], *(pytest.param(way, marks=pytest.mark.long) for way in WAYS[1:])])
def test_a_standby_takes_over_under_load(tmp_path: Path, way: str, synchronous: bool) -> None:
    """SCALE-01: nothing is there twice, and what a synchronous standby was given is there once."""
    with running_pair(way, synchronous) as pair:
        url = pair.create("store")
        command_output("load", "--store", url, str(WORLD))
        with supervised(url, made(tmp_path / "served")) as (_, address):
            load = Load(address, authorized(url))
            if not synchronous:
                pair.catch_up()
            with load.at_work():
                load.goes_on()
                pair.fail_over()
                load.goes_on()
        there = stored(pair)
        assert not {number: count for number, count in there.items() if count > 1}
        if synchronous:
            assert not set(load.acknowledged) - there.keys()
        with running(made(tmp_path / "after"), world=None, store=url) as found:
            assert not [one for one in check_store(found.service.store, found.service.site) if not one.notice]


def test_links_to_pages_of_before_a_failover_are_refused(tmp_path: Path) -> None:
    """S10, S12, SCALE-01: transactions are counted anew there. Pages from then on are stable. It has both hosts."""
    with running_pair(WAYS[1]) as pair:
        url = pair.create("store")
        with running(tmp_path, store=url) as found:
            for n in range(3):
                assert found.client.post("/Task", json=task(n)).status_code == 201
            before = next_of(found.client.get("/Task?_count=2").json()) or ""
            assert task_in(found, before) == ["task 2"]
            pair.fail_over()
            refused = found.client.get(before)
            while refused.status_code == 503:
                refused = found.client.get(before)
            assert (refused.status_code, "search again" in refused.text) == (400, True)
            first = found.client.get("/Task?_count=2").json()
            assert found.client.post("/Task", json=task(3)).status_code == 201
            assert task_in(found, next_of(first) or "") == ["task 2"]
            assert task_in(found, "/Task") == [f"task {n}" for n in range(4)]


@pytest.mark.long
def test_a_standby_that_was_not_promoted_is_503(tmp_path: Path) -> None:
    """SCALE-01: and refused to a command in one sentence."""
    with running_pair() as pair:
        url = pair.create("store")
        with running(tmp_path, store=url) as found:
            with found.service.store.engine.connect() as connection:
                asked = connection.exec_driver_sql("SHOW tcp_keepalives_idle").scalar()
            assert asked == "15"  # the server asks after clients that are cut off, too
            pair.kill()
            pair.move()
            assert found.client.post("/Task", json=task(1)).status_code == 503
            assert found.client.get("/Task").status_code == 503
            assert loopback.get(f"{found.url}/health").status_code == 503
            pair.promote()
            assert found.client.post("/Task", json=task(2)).status_code == 201
            assert task_in(found, "/Task") == ["task 2"]
