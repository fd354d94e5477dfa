"""A service with several processes."""

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil

from tests.support.commands import command, environment
from tests.support.starting import start

WORKERS = 2


@contextlib.contextmanager
def supervised(store: str, folder: Path, workers: int = WORKERS, code: int = 0) -> Iterator[tuple[psutil.Process, str]]:
    """Run several processes over a store. Yield the supervising process, and the address.

    code: the expected exit code of the supervising process.
    """
    arguments = command("fhir-service", "serve", "--store", store, "--port", 0, "--workers", workers)
    with start(
        arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(), cwd=folder
    ) as process:
        try:
            assert process.stdout
            yield psutil.Process(process.pid), process.stdout.readline().removeprefix("listening on ").strip()
        finally:
            process.terminate()
            process.communicate(timeout=60)
    assert process.returncode == code
