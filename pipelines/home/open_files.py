"""The files that a process may have open: too few of them fail in many places, each of which says something else."""

import resource
from contextlib import suppress

from pipelines.home.exits import BadSetting

ENOUGH = 256
"""Sockets and libraries count, too. Programs that this one starts have the same limit."""


def check_open_files() -> None:
    """Raise the limit to what is enough, where the system allows. Raises BadSetting."""
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
