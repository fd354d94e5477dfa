"""What the command line did shows in Dagster, though a person said that the clock is right, and times went back."""

from collections.abc import Iterator
from datetime import timedelta

import dagster as dg
import pytest

from pipelines.definitions import build_definitions
from pipelines.home.dagster_folder import BATCH_TAG
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


def test_what_came_after_it_is_shown_once(home, asked, monkeypatch, told):
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
