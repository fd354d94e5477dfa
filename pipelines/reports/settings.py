"""The settings of the published tables: `<home>/reports.toml`, which need not be there."""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pipelines.reports.tables import BrokenTable

FILE = "reports.toml"
NAME = re.compile(r"[a-z][a-z0-9_]{0,50}")


@dataclass(frozen=True)
class ReportSettings:
    """What a practice decides of its tables.

    publish_free_text: True if answers in free text are published. publish_patients: True if sex and years of birth of
    patients are. response_tables: the names of wide tables, without `response_`, by the id of the questionnaire.
    """

    publish_free_text: bool = False
    publish_patients: bool = False
    response_tables: Mapping[str, str] = field(default_factory=dict)


def settings_of(home: Path) -> ReportSettings:
    """Return the settings of a home. Raises `BrokenTable` with the file, the setting, and what is allowed."""
    try:
        said = tomllib.loads((home / FILE).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return ReportSettings()
    except (OSError, UnicodeDecodeError) as error:
        raise BrokenTable(f"{FILE} cannot be read ({type(error).__name__})") from None
    except tomllib.TOMLDecodeError as error:
        raise BrokenTable(f"{FILE} is no TOML: {error}") from None
    known = ReportSettings.__dataclass_fields__
    if other := next((name for name in said if name not in known), None):
        raise BrokenTable(f"{FILE}: there is no setting `{other}`: there are {', '.join(known)}")
    settings = ReportSettings(**said)
    for name in ("publish_free_text", "publish_patients"):
        if not isinstance(getattr(settings, name), bool):
            raise BrokenTable(f"{FILE}: {name} is true or false")
    if not isinstance(settings.response_tables, dict):
        raise BrokenTable(f"{FILE}: [response_tables] has a line for each questionnaire: id = name")
    for name in settings.response_tables.values():
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise BrokenTable(f"{FILE}: [response_tables]: a name has lower-case letters, digits and `_`, 51 at most")
    return settings


def wants_patients(home: Path) -> bool:
    """True if the home publishes patients; False too if its settings cannot be read, which the publication says."""
    try:
        return settings_of(home).publish_patients
    except BrokenTable:
        return False
