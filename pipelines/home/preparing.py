"""Make the state folder ready for a command that writes."""

import os
import resource
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from fhir_service.paths import is_folder
from pipelines.home.dagster_folder import CLINIC, prepare_dagster_home
from pipelines.home.exits import BadSetting
from pipelines.home.folder import BadHome, make_private
from pipelines.home.scratch import remove_leftovers

INBOX = "inbox"
"""The folder that every home has. If a clinic's home lacks it, its disk counts as not mounted."""
FOLDERS = (INBOX, "feeds", "batches")
ENOUGH = 256
"""The number of files that a process must be able to have open; sockets and libraries count too. Programs that it
starts inherit the limit. A lower limit causes different failures in many places.
"""


def check_mounted(home: Path, environ: Mapping[str, str]) -> None:
    """Raise `BadHome` if a clinic's home is missing: it may be unmounted, and is not made anew."""
    if environ.get(CLINIC) and not is_folder(home / INBOX):
        raise BadHome(f"{home} has no folder {INBOX}: its disk may not be mounted, and it is not made anew")


def prepare_home(home: Path) -> None:
    """Make the state folder and its parts, for the owner only; remove what killed commands left.

    Raises:
        BadHome: it cannot be made.
        BadSetting: too few files may be open.
    """
    check_open_files()
    os.umask(0o077)
    make_private(home)
    remove_leftovers(home)
    for name in FOLDERS:
        (home / name).mkdir(exist_ok=True)
    prepare_dagster_home(home)


def check_open_files() -> None:
    """Raise the limit of open files to `ENOUGH`, if the system allows it. Raises BadSetting."""
    most, allowed = resource.getrlimit(resource.RLIMIT_NOFILE)
    if _is_enough(most):
        return
    if not _is_enough(allowed):
        raise BadSetting(
            f"a process may have only {allowed} files open here, which is too few: allow {ENOUGH}"
            f" (`ulimit -n {ENOUGH}`, or LimitNOFILE of a systemd unit)"
        )
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (ENOUGH, allowed))


def _is_enough(limit: int) -> bool:
    return limit == resource.RLIM_INFINITY or limit >= ENOUGH
