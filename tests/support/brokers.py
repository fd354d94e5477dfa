"""A Redis server for tests, without persistence."""

import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.standing import until

REDIS = shutil.which("redis-server")


@contextmanager
def redis_server(folder: Path) -> Iterator[str]:
    """Start a broker on a socket in the folder. Yield its address once it answers."""
    if REDIS is None:
        pytest.skip("the program redis-server is not installed")
    path = folder / "redis"
    command = [REDIS, "--port", "0", "--unixsocket", str(path), "--save", "", "--dir", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as server:
        until(lambda: _listens(path), "Redis", 60, 0.05)
        yield f"redis+socket://{path}"
        server.terminate()


def _listens(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as asked:
        return asked.connect_ex(str(path)) == 0
