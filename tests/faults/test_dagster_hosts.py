"""Dagster on several hosts without a shared disk: pages and daemon on one, the code server and its runs on another.

The host with the runs is killed with its disk in the middle of a load; a third one takes its place.
"""

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.dagster_deployment import Dagster, deployment
from tests.support.commands import resources
from tests.support.hosts import CAN, LACKING
from tests.support.payers import paid, payments
from tests.support.standing import until

pytest.importorskip("obstore", reason="the extra `cluster` is not installed")
pytest.importorskip("dagster_postgres", reason="the extra `cluster` is not installed")
pytestmark = [pytest.mark.long, pytest.mark.skipif(not CAN, reason=LACKING)]
PATIENTS, ROWS = 100, 12_000


@pytest.fixture
def dagster(postgres, tmp_path: Path) -> Iterator[Dagster]:
    with deployment(postgres, tmp_path, PATIENTS, {"CHARTFERRY_REQUESTS_PER_SECOND": "2"}, {}) as made:
        yield made


def test_a_host_that_is_killed_in_a_load_is_replaced_by_one_with_an_empty_disk(dagster: Dagster) -> None:
    """SCALE-03: the run is made again there, from ledger and store alone, and every payment is made once."""
    text, source = payments("a", ROWS, PATIENTS, random.Random(7))
    pages, first, second = dagster.host(), dagster.host(), dagster.host()
    first.takes(dagster.address)
    server = dagster.code_server(first)
    until(dagster.listens, "the code server")  # it makes Dagster's tables
    dagster.pages_and_daemon(pages)
    dagster.bucket.put("exports/payments-a.csv", text.encode(), None, None)
    until(lambda: dagster.created() > 2_000, "the first host's load")
    server.kill()
    server.wait()
    first.loses_disk()
    assert 2_000 < dagster.created() < ROWS
    second.takes(dagster.address, first)
    pages.forgets_neighbours()
    dagster.code_server(second)
    until(lambda: dagster.created() == ROWS, "the second host's load")
    until(lambda: "SUCCESS" in dagster.runs(pages), "the run's end")
    assert dagster.asked("SELECT state FROM batch") == "finished"
    assert Counter(paid(resources(dagster.client, "PaymentNotice"))) == source
    assert dagster.runs(pages).count("FAILURE") == 1  # the export may be run once more, and makes nothing then
