"""Ask a code server if its definitions can be used, after it read them anew if that is asked for.

A program of its own, so that the supervisor does not load Dagster. Its arguments are an address (the path of a socket,
or `HOST:PORT`), how long a reload may take in seconds (0 for none), and `failed` if the definitions could not be used
before. It prints as JSON why they cannot be used, null if they can, and ends with 1 if the code server does not answer.
While they cannot be used, no sensor runs; so this program sends the alert when that begins and when it ends.
"""

import json
import logging
import os
import re
import sys
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

import dagster as dg
from dagster._grpc.client import DagsterGrpcClient
from dagster_shared.error import SerializableErrorInfo

from pipelines.dagster.alerts import AlertEvent, give
from pipelines.home.dagster_folder import CLINIC

FAILED = "failed"
CLASS_OF_OURS = re.compile(r"^pipelines\.[\w.]+: ")
PAUSES = (0.0, 5.0, 30.0)
"""Seconds before each try to send an alert."""


def reasons(address: str, seconds: int) -> list[str]:
    """Return why the definitions cannot be used, from the outermost error to its cause; empty if they can.

    seconds: how long a reload before that may take; 0 for no reload.
    """
    host, _, port = address.rpartition(":")
    if host and port.isdecimal():
        client = DagsterGrpcClient(port=int(port), host=host)
    else:
        client = DagsterGrpcClient(socket=address)
    if seconds:
        client.reload_code(timeout=seconds)
    found = dg.deserialize_value(client.list_repositories())
    return list(_messages(found)) if isinstance(found, SerializableErrorInfo) else []


def _messages(error: SerializableErrorInfo | None) -> Iterator[str]:
    while error:
        yield error.message
        error = error.cause


def sentence_of(found: list[str]) -> str | None:
    """Return the sentence for a user, None if there is no reason. found: see `reasons`."""
    if not found:
        return None
    reason = CLASS_OF_OURS.sub("", found[-1].strip())
    return f"a feed, a view or a setting cannot be used, and nothing is imported until it is corrected: {reason}"


def send(why: str | None, environ: Mapping[str, str], pauses: tuple[float, ...] = PAUSES) -> bool:
    """Send the alert that the definitions cannot be used, or can be again (None). Return False if no try succeeds."""
    kind, text = ("definitions_failed", f"{why}.") if why else ("well_again", "Resolved: the definitions can be used.")
    event = AlertEvent(FAILED, kind, text, {})
    document = event.as_json(Path(environ["CHARTFERRY_HOME"]), datetime.now(UTC), environ.get(CLINIC, ""))
    for pause in pauses:
        time.sleep(pause)
        if give(document, environ, logging.getLogger(__name__).warning):
            return True
    return False


def main(address: str, seconds: str, *before: str) -> None:
    """Print why the definitions cannot be used, and send an alert if that has changed."""
    try:
        why = sentence_of(reasons(address, int(seconds)))
    except dg.DagsterError:
        sys.exit(1)
    print(json.dumps(why))
    if bool(why) != (FAILED in before):
        send(why, os.environ)


if __name__ == "__main__":
    main(*sys.argv[1:])
