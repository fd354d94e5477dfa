"""The last tick of each sensor: the time of a file with its name, which can be read without Dagster."""

from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from fhir_service.paths import matching

FOLDER = Path("dagster") / "ticks"


def note_tick(home: Path, name: str) -> None:
    """Note that a sensor looks now. If that fails, as on a full disk, the sensor's look still counts."""
    with suppress(OSError):
        (home / FOLDER).mkdir(mode=0o700, exist_ok=True)  # a home that vanished is not made anew
        (home / FOLDER / name).touch(mode=0o600)


def forget_tick(home: Path, name: str) -> None:
    """Forget the last tick of a sensor that no longer runs, because it would seem to hang."""
    with suppress(OSError):
        (home / FOLDER / name).unlink()


def last_ticks(home: Path) -> dict[str, datetime]:
    """Return the time of each sensor's last tick; empty if no daemon ever ran."""
    found = {}
    for path in matching(home / FOLDER, "*"):
        with suppress(OSError):
            found[path.name] = datetime.fromtimestamp(path.stat().st_mtime, UTC)
    return found
