"""Dagster's settings for hosts that share no disk: its storage is a PostgreSQL that all of them reach."""

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

POSTGRES = "DAGSTER_POSTGRES_URL"
"""The setting that names the database of Dagster's storage, for all hosts of one deployment."""
DRIVER = "postgresql+psycopg2://"
AT_SERVERS = ("postgres", "mysql")
OWN_FOLDER = {"env": "DAGSTER_HOME"}


def at_server(said: Mapping[str, Any]) -> dict[str, Any]:
    """Return Dagster's settings with its storage in PostgreSQL, and with paths for each host.

    A run gets the daemon's settings, whose folder is on another host. The output of its steps goes to the log of its
    code server, since the web pages could not show it.
    """
    storage = {"postgres": {"postgres_url": {"env": POSTGRES}}}
    files = {
        "module": "dagster._core.storage.root",
        "class": "LocalArtifactStorage",
        "config": {"base_dir": OWN_FOLDER},
    }
    prints = {"module": "dagster._core.storage.noop_compute_log_manager", "class": "NoOpComputeLogManager"}
    return {**said, "storage": storage, "local_artifact_storage": files, "compute_logs": prints}


def is_on_disk(said: Mapping[str, Any]) -> bool:
    """True if Dagster's settings keep its storage in files."""
    storage = said.get("storage")
    if not isinstance(storage, dict) or not storage:
        return True
    custom = storage.get("custom")
    return not any(name in storage for name in AT_SERVERS) and (
        not isinstance(custom, dict) or str(custom.get("class", "")).endswith("SqliteStorage")
    )


def problem_of(environ: Mapping[str, str]) -> str | None:
    """Return a sentence if the address of the database cannot be used; None if it can, or if there is none."""
    if not environ.get(POSTGRES):
        return None
    if not environ[POSTGRES].startswith(DRIVER):
        return f"{POSTGRES} begins with no {DRIVER}, which is what Dagster's storage takes"
    if find_spec("dagster_postgres") is None:
        return f"{POSTGRES} needs dagster-postgres, which is not installed: pip install 'chartferry[cluster]'"
    return None
