"""One server for all tests of this folder: it takes minutes to start and to fill. `test_hapi.py` meets it first."""

import os
from collections.abc import Iterator

import pytest

from tests.hapi.server import Hapi, missing, scratch, serving

WHY = "a real HAPI server is started by make test-hapi alone" if not os.environ.get("WITH_HAPI") else missing()


@pytest.fixture(scope="session")
def hapi() -> Iterator[Hapi]:
    """A server with the samples' reference data."""
    if WHY:
        pytest.skip(WHY)
    with scratch() as folder, serving(folder) as started:
        yield started
