"""Make the state folder ready for a command that writes."""

import os
from pathlib import Path

from pipelines.home.dagster_folder import prepare_dagster_home
from pipelines.home.folder import make_private
from pipelines.home.scratch import remove_leftovers

INBOX = "inbox"
"""The folder that every home has; a clinic's home without it is taken for one whose disk is not mounted."""
FOLDERS = (INBOX, "feeds", "batches")


def prepare_home(home: Path) -> None:
    """Make the state folder and its parts, for the owner only; remove what killed commands left. Raises `BadHome`."""
    os.umask(0o077)
    make_private(home)
    remove_leftovers(home)
    for name in FOLDERS:
        (home / name).mkdir(exist_ok=True)
    prepare_dagster_home(home)
