"""A server that speaks Google Cloud Storage's protocol.

It is Google's `storage-testbench`: `pip install git+https://github.com/googleapis/storage-testbench` into an
environment of its own. `GCS_TESTBENCH` names the Python of that environment.
"""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.ports import free_port, until_it_listens

GCS_TESTBENCH = os.environ.get("GCS_TESTBENCH")
NO_GCS = "no storage-testbench of Google's: GCS_TESTBENCH names a Python that has it"


@contextmanager
def google_bucket(folder: Path, name: str) -> Iterator[dict[str, str]]:
    """Serve a bucket; yield the variables by which obstore finds it."""
    port = free_port()
    program = Path(__file__).with_name("google_served.py")
    folder.mkdir()
    with (
        (folder / "log").open("wb") as log,
        subprocess.Popen([str(GCS_TESTBENCH), "-P", program, str(port), name], stdout=log, stderr=log) as server,
    ):
        try:
            until_it_listens(port, server)
            url = f"http://127.0.0.1:{port}"
            yield {"GOOGLE_BASE_URL": url, "GOOGLE_BEARER_TOKEN": "planted-token", "GOOGLE_ALLOW_HTTP": "true"}
        finally:
            server.terminate()
