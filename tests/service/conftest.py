"""Databases on a PostgreSQL server, for tests of services that share a store."""

from collections.abc import Iterator

import pytest

from tests.conftest import WORLD
from tests.support.called import command_output
from tests.support.postgres import Postgres


@pytest.fixture
def url(postgres: Postgres) -> Iterator[str]:
    with postgres.database() as found:
        yield found


@pytest.fixture
def store(url: str) -> str:
    """A store that holds the small world."""
    command_output("load", "--store", url, str(WORLD))
    return url
