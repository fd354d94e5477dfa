"""Make a code server read its definitions anew: run as a program with its address and a number of seconds.

The address is the path of a socket, or `HOST:PORT`. The program prints as JSON the reasons why the new definitions
cannot be used, an empty list if they can. It ends with 1 if the code server does not answer.
"""

import json
import sys
from collections.abc import Iterator

import dagster as dg
from dagster._grpc.client import DagsterGrpcClient
from dagster_shared.error import SerializableErrorInfo


def reload(address: str, seconds: int) -> list[str]:
    """Reload the definitions; return why they cannot be used, from the outermost error to its cause."""
    host, _, port = address.rpartition(":")
    if host and port.isdecimal():
        client = DagsterGrpcClient(port=int(port), host=host)
    else:
        client = DagsterGrpcClient(socket=address)
    client.reload_code(timeout=seconds)
    found = dg.deserialize_value(client.list_repositories())
    return list(_reasons(found)) if isinstance(found, SerializableErrorInfo) else []


def _reasons(error: SerializableErrorInfo | None) -> Iterator[str]:
    while error:
        yield error.message
        error = error.cause


if __name__ == "__main__":
    try:
        print(json.dumps(reload(sys.argv[1], int(sys.argv[2]))))
    except dg.DagsterError:
        sys.exit(1)
