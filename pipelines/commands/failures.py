"""The exit code and the message of each kind of failure, without texts that may hold a record's data."""

import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sqlalchemy.exc import SQLAlchemyError

from pipelines.client.pace import BadPace
from pipelines.client.profiles import BadProfile
from pipelines.client.replies import TargetUnusable
from pipelines.feeds.files.catalog import FeedError
from pipelines.home import disk
from pipelines.home.exits import INTERNAL, UNREADABLE, UNUSABLE
from pipelines.home.folder import BadHome
from pipelines.ledger.database import why
from pipelines.ledger.tables import LedgerError, NotPossible
from pipelines.reports.views.definition import BadView
from pipelines.session.named import BadTarget

FAILURES: dict[type[BaseException], tuple[int, Callable[[Any], str]]] = {
    FeedError: (UNREADABLE, str),
    BadView: (UNREADABLE, str),
    BadTarget: (UNUSABLE, str),
    BadPace: (UNUSABLE, str),
    BadProfile: (UNUSABLE, str),
    BadHome: (UNUSABLE, str),
    TargetUnusable: (UNUSABLE, str),
    NotPossible: (UNREADABLE, str),
    LedgerError: (UNUSABLE, str),
    SQLAlchemyError: (UNUSABLE, lambda error: f"the ledger could not be read or written: {why(error)}"),
    OSError: (UNUSABLE, lambda error: f"{error.strerror or type(error).__name__}: {error.filename or 'a file'}"),
    Exception: (INTERNAL, lambda error: f"a fault of this program: {type(error).__name__} at {_place(error)}"),
}


def exit_and_message(error: BaseException) -> tuple[int, str]:
    """Return the exit code of a command that failed, and its one line."""
    if disk.is_full(error):
        return UNUSABLE, disk.FULL
    code, message = next(failure for kind, failure in FAILURES.items() if isinstance(error, kind))
    return code, message(error)


def _place(error: BaseException) -> str:
    """Return file and line of the last frame of an exception in this program."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if Path(frame.filename).is_relative_to(Path(__file__).parents[1])] or frames
    return f"{Path(ours[-1].filename).name}:{ours[-1].lineno}"
