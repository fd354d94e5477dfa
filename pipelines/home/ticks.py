"""The last tick of each sensor, as the time of a file of its name, which is read without Dagster."""

from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from pipelines.home.paths import matching

FOLDER = Path("dagster") / "ticks"


def note_tick(home: Path, name: str) -> None:
    """Note that a sensor looks just now. A tick that cannot be noted, as on a full disk, is no failure of its look."""
    with suppress(OSError):
        (home / FOLDER).mkdir(mode=0o700, exist_ok=True)  # a home that vanished is not made anew
        (home / FOLDER / name).touch(mode=0o600)


def forget_tick(home: Path, name: str) -> None:
    """Forget the last tick of a sensor that looks no more, which would seem to hang."""
    with suppress(OSError):
        (home / FOLDER / name).unlink()


def last_ticks(home: Path) -> dict[str, datetime]:
    """Return the time of each sensor's last tick; empty where no daemon ever ran."""
    found = {}
    for path in matching(home / FOLDER, "*"):
        with suppress(OSError):
            found[path.name] = datetime.fromtimestamp(path.stat().st_mtime, UTC)
    return found
