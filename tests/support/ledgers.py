"""A home's ledger, lost or put back as it was: the database and its journal."""

import shutil
from collections.abc import Callable
from pathlib import Path

FILES = ("ledger.db", "ledger.db-wal", "ledger.db-shm", "journal.ndjson")


def lose_ledger(home: Path) -> None:
    """Its journal is lost with it."""
    shutil.rmtree(home / "journal", ignore_errors=True)
    for name in FILES:
        (home / name).unlink(missing_ok=True)


def lose_tables(home: Path) -> None:
    """The journal stays."""
    for name in FILES[:3]:
        (home / name).unlink(missing_ok=True)


def keep_ledger(home: Path) -> Callable[[], None]:
    """Copy both as they are now; return what puts them back."""
    aside = home.parent / "ledger of before"
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir()
    for name in FILES:
        if (home / name).exists():
            shutil.copy(home / name, aside / name)
    if (home / "journal").is_dir():
        shutil.copytree(home / "journal", aside / "journal")

    def put_back() -> None:
        lose_ledger(home)
        shutil.copytree(aside, home, dirs_exist_ok=True)

    return put_back
