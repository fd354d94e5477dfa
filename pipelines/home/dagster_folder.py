"""Dagster's own folder, `<home>/dagster`: its settings, written once, which the operator may change afterwards."""

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import yaml

from fhir_service.paths import exists
from pipelines.home.files import written_whole
from pipelines.home.folder import BadHome

FEED_TAG = "chartferry/feed"
CLINIC, CLINIC_TAG = "CHARTFERRY_CLINIC", "chartferry/clinic"
"""The setting that names a home's clinic if several share a Dagster, and the tag of the clinic's runs."""
WEB_HOST = "CHARTFERRY_WEB_HOST"
"""The setting for the address of the web pages, if it is not loopback, as in a container."""
EVENTS_TOGETHER = 1000
"""Events that Dagster stores at once. Without this setting it stores each one alone."""
BATCH_TAG = "chartferry/batch"
FILE_TAG = "file"  # short: the list of runs shows few letters of a tag
INTERVALS = {"DAGSTER_EVENT_LOG_CONSUMER_DAEMON_INTERVAL_SECONDS": "3", "FRESHNESS_DAEMON_INTERVAL_SECONDS": "120"}
"""Seconds between the daemon's looks for killed runs, and for late tables. Dagster's defaults are 5 and 30."""
TOLD_TAG = "chartferry/command_line"
"""The tag of runs that only show what the command line did. Its value is the target."""
LOAD_POOL = "load"
CODE_SERVER = "CHARTFERRY_CODE_SERVER"
"""The setting that gives the commands of a clinic the address of its code server."""
INSECURE, STRICT = "CHARTFERRY_INSECURE", "CHARTFERRY_STRICT"
"""Settings for options of the command line, which runs of Dagster do not have. `yes` turns them on."""

WRITTEN_ONCE = "# Written once by chartferry, when this file was missing; change what you like and restart."
WRITTEN_ANEW = (
    "# Written by chartferry up --clinics at each start, from the file of clinics. To keep changes, remove this line."
)
WRITTEN_FOR_OTHERS = "# Written by chartferry serve at each start. To keep changes, remove this line."
LOOKS_THAT_MAY_WAIT = 3
"""The number of sensors of a clinic that ask its target, and so may wait for it."""

MEND_IT = "mend it, or remove it to have it written anew"
DAGSTER_YAML = f"""\
{WRITTEN_ONCE}
# Nothing is sent to anyone.
telemetry:
  enabled: false
nux:
  enabled: false

# SQLite, in this folder; events that come together are stored together.
storage:
  custom:
    module: pipelines.dagster.dagster_storage
    class: SqliteStorage
    config:
      base_dir:
        env: DAGSTER_HOME

concurrency:
  runs:
    max_concurrent_runs: 2
    # Files of one feed are imported in the order of their names: one run of a feed at a time.
    tag_concurrency_limits:
      - key: {FEED_TAG}
        value:
          applyLimitPerUniqueValue: true
        limit: 1
  pools:
    # The pool "{LOAD_POOL}": one loader at a time.
    default_limit: 1
    granularity: op

# How soon a run that may begin does.
run_queue:
  dequeue_interval_seconds: 3
  # While the definitions cannot be had, as those of a broken feed, runs wait: they are not dropped.
  max_user_code_failure_retries: 100000
  user_code_failure_retry_delay: 10

# A run whose process was killed is seen as failed, and made again: what it had done is in the ledger.
run_monitoring:
  enabled: true
  poll_interval_seconds: 8
  # What a killed run held of a pool is free again, or no other would ever load.
  free_slots_after_run_end_seconds: 2
run_retries:
  enabled: true
  max_retries: 2
  retry_on_asset_or_op_failure: false

# Nothing here is made by conditions of assets: no daemon looks for any.
auto_materialize:
  enabled: false
  use_sensors: false

# Whether the published tables are as new as their schedule promises.
freshness:
  enabled: true

# Days that the looks of the sensors and the schedule are kept.
retention:
  schedule:
    purge_after_days: 90
  sensor:
    purge_after_days:
      skipped: 2
      success: 90
      failure: 90
      started: 90

sensors:
  use_threads: true
  num_workers: 2
"""

NEEDED = (
    ("run_monitoring", "enabled"),
    ("run_monitoring", "free_slots_after_run_end_seconds"),
    ("run_retries", "enabled"),
    ("freshness", "enabled"),
)
"""Without these settings, a killed run is not repeated or blocks all others, or late tables are not noticed."""


def prepare_dagster_home(home: Path) -> Path:
    """Return `<home>/dagster` with its settings, for the owner only; make it if it is missing."""
    folder = home / "dagster"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not exists(folder / "dagster.yaml"):
        _write(folder, DAGSTER_YAML)
    return folder


def prepare_shared_dagster(home: Path, shares: Mapping[str, int], is_at_server: bool = False) -> tuple[Path, list[str]]:
    """Write the settings of a Dagster that clinics share, unless the operator took them over.

    shares: how many runs each clinic may have under way. is_at_server: True if its storage is in PostgreSQL. Return
    the folder, and the clinics without a share in the operator's own settings. Raises BadHome.
    """
    folder = home / "dagster"
    _write_anew(folder, WRITTEN_ANEW, shared_settings(shares, is_at_server))
    settings = folder / "dagster.yaml"
    limits: Any = _settings(folder)
    for name in ("concurrency", "runs", "tag_concurrency_limits"):
        limits = (limits.get(name) or {}) if isinstance(limits, dict) else limits
    limits = limits or []
    if not isinstance(limits, list) or not all(isinstance(each, dict) for each in limits):
        raise BadHome(f"{settings}: concurrency.runs.tag_concurrency_limits is no list of limits: {MEND_IT}")
    given = [each.get("value") for each in limits if each.get("key") == CLINIC_TAG]
    if any(isinstance(value, dict) and value.get("applyLimitPerUniqueValue") for value in given):
        return folder, []
    return folder, sorted(name for name in shares if name not in given)


def prepare_served_dagster(home: Path) -> Path:
    """Write the settings of a code server whose Dagster is on another host, unless the operator took them over.

    They are separate from the settings by which `up` runs a Dagster of this home. Raises BadHome if they keep
    Dagster's storage on this disk.
    """
    folder = home / "dagster" / "served"
    _write_anew(folder, WRITTEN_FOR_OTHERS, at_server(yaml.safe_load(DAGSTER_YAML)))
    check_at_server(folder)
    return folder


def check_at_server(folder: Path) -> None:
    """Raise BadHome if these settings keep Dagster's storage on this disk, which other hosts cannot reach."""
    if is_on_disk(_settings(folder)):
        raise BadHome(
            f"{folder / 'dagster.yaml'}: Dagster's storage is on this disk, which other hosts do not have: "
            f"set {POSTGRES} on each host"
        )


def shared_settings(shares: Mapping[str, int], is_at_server: bool) -> dict[str, Any]:
    """Return Dagster's settings for several clinics: runs, sensors and loads of one clinic do not hold up another's.

    Each clinic has its own pool for its loads, of the default size. There is no common limit: runs started by hand
    from the page of an asset have no clinic's tag, and would hold up all others. Runs are started side by side,
    because the daemon waits for a host that is gone.
    """
    said: Any = yaml.safe_load(DAGSTER_YAML)
    runs = said["concurrency"]["runs"]
    runs["max_concurrent_runs"] = -1
    runs["tag_concurrency_limits"] += [
        {"key": CLINIC_TAG, "value": clinic, "limit": limit} for clinic, limit in shares.items()
    ]
    said["sensors"]["num_workers"] = LOOKS_THAT_MAY_WAIT * len(shares) + said["sensors"]["num_workers"]
    if not is_at_server:
        return dict(said)
    said["run_queue"] |= {"dequeue_use_threads": True, "dequeue_num_workers": sum(shares.values())}
    return at_server(said)


def _write_anew(folder: Path, first_line: str, said: Mapping[str, Any]) -> None:
    """Write settings, unless the existing file no longer begins with this line."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    settings = folder / "dagster.yaml"
    if not exists(settings) or settings.read_bytes().startswith(first_line.encode()):
        _write(folder, f"{first_line}\n{yaml.safe_dump(said, sort_keys=False)}")


def _write(folder: Path, text: str) -> None:
    with written_whole(folder / "dagster.yaml") as part:
        part.write_text(text, encoding="utf-8")


def _settings(folder: Path) -> dict[str, Any]:
    """Return the settings of Dagster, which the operator may have changed. Raises BadHome."""
    settings = folder / "dagster.yaml"
    try:
        said: Any = yaml.safe_load(settings.read_text(encoding="utf-8")) or {}
    except (yaml.YAMLError, UnicodeDecodeError):
        said = None
    if not isinstance(said, dict):
        raise BadHome(f"{settings}: is not YAML with settings: {MEND_IT}")
    return said


def lacking(folder: Path) -> list[str]:
    """Return the settings of `NEEDED` that a file lacks, such as one of an earlier version. Raises BadHome."""
    said = _settings(folder)
    return [f"{block}.{name}" for block, name in NEEDED if name not in (said.get(block) or {})]


def dagster_environment(home: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for Dagster's processes: this home, its folder there, and no telemetry."""
    home = home.resolve()
    own = {"CHARTFERRY_HOME": home, "DAGSTER_HOME": home / "dagster", "DAGSTER_DISABLE_TELEMETRY": "yes"}
    usual = {"DAGSTER_EVENT_BATCH_SIZE": str(EVENTS_TOGETHER), **INTERVALS}
    return {**usual, **environ} | {name: str(own[name]) for name in own}


def is_set(environ: Mapping[str, str], name: str) -> bool:
    return environ.get(name, "").lower() in ("1", "yes", "true", "on")


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
