"""Servers that emulate the object stores of the clouds, if they are installed."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from tests.support.azurite import AZURITE, NO_AZURITE, azurite
from tests.support.google_bucket import GCS_TESTBENCH, NO_GCS, google_bucket
from tests.support.minio import MINIO, NO_MINIO, minio

Served = Callable[[Path, str], AbstractContextManager[dict[str, str]]]

SERVERS = [
    pytest.param("s3", minio, marks=pytest.mark.skipif(MINIO is None, reason=NO_MINIO), id="s3"),
    pytest.param("az", azurite, marks=pytest.mark.skipif(AZURITE is None, reason=NO_AZURITE), id="azure"),
    pytest.param("gs", google_bucket, marks=pytest.mark.skipif(GCS_TESTBENCH is None, reason=NO_GCS), id="google"),
]


@contextmanager
def emulated(serve: Served, folder: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Serve a container or bucket with this name, and set the environment variables that lead to it."""
    with serve(folder, name) as environ:
        for variable, value in environ.items():
            monkeypatch.setenv(variable, value)
        yield
