"""Fixtures for tests of the published tables: a target with reports, and a home with tables of them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.publishing import World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.ledger.close()
