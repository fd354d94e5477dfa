"""A world for tests that only add to it, and one of the test's own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import Database
from tests.service.chart.world import World, world_in


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, ready: Database) -> Iterator[World]:
    """A service for tests that only add to it, each about patients or records of its own."""
    with world_in(tmp_path_factory.mktemp("chart"), ready) as made:
        yield made


@pytest.fixture
def fresh(tmp_path: Path, ready: Database) -> Iterator[World]:
    with world_in(tmp_path, ready) as made:
        yield made
