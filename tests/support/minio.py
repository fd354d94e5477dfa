"""A server that speaks S3's protocol: `go install github.com/minio/minio@latest`, and `MINIO` names the program."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.ports import free_port, until_it_listens

MINIO = shutil.which(os.environ.get("MINIO", "minio"))
NO_MINIO = "no minio: go install github.com/minio/minio@latest; MINIO names the program"


@contextmanager
def minio(folder: Path, bucket: str) -> Iterator[dict[str, str]]:
    """Serve a bucket; yield the variables by which obstore finds it."""
    port = free_port()
    address = f"127.0.0.1:{port}"
    who = {"MINIO_ROOT_USER": "planted-id", "MINIO_ROOT_PASSWORD": "planted-secret"}
    command = [str(MINIO), "server", "--quiet", "--address", address, "--console-address", "127.0.0.1:0", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, env=os.environ | who) as server:
        try:
            until_it_listens(port, server)
            # A bucket is a folder of the drive.
            (folder / bucket).mkdir()
            yield {
                "AWS_ENDPOINT": f"http://{address}",
                "AWS_ALLOW_HTTP": "true",
                "AWS_ACCESS_KEY_ID": who["MINIO_ROOT_USER"],
                "AWS_SECRET_ACCESS_KEY": who["MINIO_ROOT_PASSWORD"],
                "AWS_REGION": "us-east-1",
            }
        finally:
            server.terminate()
