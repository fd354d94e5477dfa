"""Imports by the command line are shown once in Dagster, even if the ledger's times went back after a correction."""

from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta

import dagster as dg
import pytest

from pipelines.dagster.checks import AFTER_LOAD
from pipelines.dagster.command_line_runs import tell
from pipelines.definitions import build_definitions
from pipelines.feeds.files.catalog import load_feeds
from pipelines.home.dagster_folder import BATCH_TAG
from pipelines.ledger.ledger import Ledger
from tests.support.setting_clocks import set_clock

HEAD = "payment_id,patient_id,amount,paid_on,claim_id"


@pytest.fixture
def told(home) -> Iterator[object]:
    """Return how many batches the sensor has shown since it was asked last."""
    repository = build_definitions({"CHARTFERRY_HOME": str(home)}).get_repository_def()
    sensor, cursors = repository.get_sensor_def("command_line"), list[str | None]([None])

    with dg.DagsterInstance.ephemeral() as instance:

        def told() -> int:
            found = sensor(dg.build_sensor_context(instance, cursor=cursors[-1], repository_def=repository))
            assert isinstance(found, dg.SensorResult)
            cursors.append(found.cursor)
            return sum(len(request.tags[BATCH_TAG].split()) for request in found.run_requests or ())

        yield told


def test_facts_after_the_clock_was_set_right_are_shown_once(home, asked, monkeypatch, told):
    """LEDGER-01: what was shown before has later times for days."""

    def comes(number: int, *options: str) -> None:
        (home / "inbox" / f"payments-{number}.csv").write_text(f"{HEAD}\nk{number},p1,1.00,2026-03-01,\n")
        asked("import", *options)

    set_clock(monkeypatch, timedelta(days=4))
    comes(1)
    assert [told(), told()] == [1, 0]
    set_clock(monkeypatch, timedelta(0))
    comes(2, "--clock-is-right")
    assert [told(), told()] == [1, 0]
    comes(3)
    assert [told(), told()] == [1, 0]


def test_a_batch_that_a_person_settled_is_shown_once(home, asked, target, told):
    """REPORT-25: no run of it ends after that."""
    target.additions, target.faults = False, ["lost_before"]
    target.faulty = lambda body: body["amount"]["value"] == 1.0
    (home / "inbox" / "payments-1.csv").write_text(f"{HEAD}\nk1,p1,1.00,2026-03-01,\nk2,p2,2.00,2026-03-01,\n")
    found = asked("import")
    assert (found["totals"]["created"], found["totals"]["in_doubt"], told()) == (1, 1, 0), "it may go on"
    [batch] = [each["batch_id"] for each in found["batches"]]
    body = {"resourceType": "PaymentNotice", "request": {"reference": "Patient/p1"}, "amount": {"value": 1.0}}
    resource = target.create(body)[1].rpartition("/")[2]
    asked("doubts", "accept", f"{batch}:2", "--resource", f"PaymentNotice/{resource}")
    assert [told(), told()] == [1, 0]
    [feed] = [each for each in load_feeds().feeds if each.name == "payments"]
    with closing(Ledger.open(home / "ledger.db")) as ledger:
        [where] = {row["target"] for row in ledger.batches()}
    outcome = tell(home, {"CHARTFERRY_HOME": str(home)}, feed, where, [batch], "loaded")
    assert (list(outcome.done), outcome.failed) == ([batch], {})
    assert not [each for check in AFTER_LOAD for each in check.violations(outcome.facts[batch])]
