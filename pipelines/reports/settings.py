"""The settings of the published tables: `<home>/reports.toml`, which need not be there."""

import os
from pathlib import Path
from typing import Annotated

from pydantic import Field, StringConstraints

from pipelines.reports.tables import BrokenTable
from pipelines.reports.toml_files import TomlFile, read_toml

FILE = "reports.toml"
NAME = r"^[a-z][a-z0-9_]{0,50}$"


class ReportSettings(TomlFile):
    """A practice's settings for its tables.

    publish_free_text: True if answers in free text are published. publish_patients: True if sex and years of birth of
    patients are. response_tables: the names of wide tables, without `response_`, by the id of the questionnaire.
    """

    publish_free_text: bool = Field(False, description="true or false")
    publish_patients: bool = Field(False, description="true or false")
    response_tables: dict[str, Annotated[str, StringConstraints(pattern=NAME)]] = Field(
        {}, description="a table, id = name: a name has lower-case letters, digits and `_`, 51 at most"
    )


def settings_of(home: Path) -> ReportSettings:
    """Return the settings of a home. Raises `BrokenTable` with the file, the setting, and what is allowed."""
    there = os.path.lexists(home / FILE)  # a link that leads nowhere is there, too, and cannot be read
    return read_toml(home / FILE, FILE, ReportSettings) if there else ReportSettings()


def wants_patients(home: Path) -> bool:
    """True if the home publishes patients; False too if its settings cannot be read, which the publication says."""
    try:
        return settings_of(home).publish_patients
    except BrokenTable:
        return False
