"""Sensors work with any text that a person writes into their cursor on Dagster's pages."""

import json
import math
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import dagster as dg
import pytest

from pipelines.dagster.alerts import AlertMemory
from pipelines.dagster.command_line import SensorMemory
from pipelines.dagster.inbox import look
from pipelines.dagster.inbox.look import SeenFiles
from pipelines.dagster.requests import understood
from pipelines.dagster.unfinished import BatchTries
from pipelines.definitions import build_definitions
from pipelines.ledger.ledger import Ledger
from tests.support.publishing import few_tables

NOW = datetime(2026, 3, 29, 1, 30, tzinfo=UTC)
OF_NO_SENSOR = ["x", "[]", "7", "null", '"text"', '{"a": 1}', '{"asked": 5}', '{"asked": [[1, 1e999, "m"]]}', "[" * 10]
OF_NO_SENSOR += ['{"since": "x", "keys": 1, "tries": 2}', '{"until": 1, "told": 2}', '{"b": ["p", 1, "yesterday"]}']


@pytest.mark.parametrize("cursor", OF_NO_SENSOR)
def test_a_cursor_that_no_sensor_wrote_counts_as_empty(cursor: str) -> None:
    assert look.from_cursor(cursor) == SeenFiles()
    assert understood(cursor, dict[str, BatchTries], {}) == {}
    assert understood(cursor, SensorMemory, SensorMemory()) == SensorMemory()
    assert AlertMemory.of(cursor, NOW) == AlertMemory(NOW.timestamp(), set(), {})


@pytest.mark.parametrize("since", [NOW.timestamp() + 86_400, 1e300, math.inf, -math.inf, math.nan])
def test_a_cursor_with_a_future_time_is_set_to_the_present(since: float) -> None:
    """Otherwise failed runs gave no alert until the clock reached that time."""
    cursor = json.dumps({"since": since, "keys": [], "tries": {}})
    assert 0 <= AlertMemory.of(cursor, NOW).since <= NOW.timestamp()
    assert AlertMemory.of(json.dumps({"since": 5.0, "keys": [], "tries": {}}), NOW).since == 5.0


@pytest.mark.crossed
@pytest.mark.parametrize("name", ["inbox", "unfinished", "command_line", "standing_check_after_imports", "alerts"])
@pytest.mark.parametrize("cursor", ["x", "[]"])
def test_every_sensor_looks_again_after_somebody_wrote_its_cursor(tmp_path: Path, name: str, cursor: str) -> None:
    (tmp_path / "inbox").mkdir()
    with closing(Ledger.open(tmp_path / "ledger.db")):
        pass
    environ = {"CHARTFERRY_HOME": str(tmp_path), "CHARTFERRY_ALERT_COMMAND": "true"}
    with few_tables():
        repository = build_definitions(environ).get_repository_def()
    with dg.DagsterInstance.ephemeral() as instance:
        context = dg.build_sensor_context(instance, cursor=cursor, repository_def=repository)
        result = repository.get_sensor_def(name)(context)
    assert isinstance(result, dg.SensorResult)
    assert result.cursor not in (None, cursor)
