"""A server that speaks Azure's protocol: `npm install azurite`, and `AZURITE` names its folder of programs."""

import base64
import hmac
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import httpx

from tests.support.ports import free_port, until_it_listens

AZURITE = shutil.which("azurite-blob", path=os.pathsep.join([os.environ.get("AZURITE", ""), os.environ["PATH"]]))
NO_AZURITE = "no azurite-blob: npm install azurite; AZURITE names its folder of programs"


@contextmanager
def azurite(folder: Path, container: str) -> Iterator[dict[str, str]]:
    """Serve a container; yield the variables by which obstore finds it."""
    port = free_port()
    command = [str(AZURITE), "--silent", "--skipApiVersionCheck", "--blobPort", str(port), "--location", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as server:
        try:
            until_it_listens(port, server)
            _make_container(port, container)
            url = f"http://127.0.0.1:{port}"
            yield {"AZURE_STORAGE_USE_EMULATOR": "true", "AZURITE_BLOB_STORAGE_URL": url}
        finally:
            server.terminate()


def _make_container(port: int, name: str) -> None:
    """Make the container by a request that the emulator's well-known key signs."""
    account = "devstoreaccount1"
    key = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
    now = datetime.now(UTC).strftime("%a, %d %b %Y %H:%M:%S GMT")
    headers = {"x-ms-date": now, "x-ms-version": "2021-08-06"}
    of_headers = "".join(f"{name}:{value}\n" for name, value in sorted(headers.items()))
    signed = f"PUT\n\n\n\n\n\n\n\n\n\n\n\n{of_headers}/{account}/{account}/{name}\nrestype:container"
    signature = base64.b64encode(hmac.digest(base64.b64decode(key), signed.encode(), "sha256")).decode()
    answer = httpx.put(
        f"http://127.0.0.1:{port}/{account}/{name}?restype=container",
        headers={**headers, "authorization": f"SharedKey {account}:{signature}"},
    )
    assert answer.status_code == 201, answer.text
