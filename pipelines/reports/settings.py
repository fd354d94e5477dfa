"""The settings of the published tables: the optional file `<home>/reports.toml`."""

import os
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from pipelines.home.toml_files import read_toml
from pipelines.reports.tables import BrokenTable


class TomlFile(BaseModel):
    """The settings of a file. Each field's description says what its value has to be."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


Settings = TypeVar("Settings", bound=TomlFile)


def settings_in(path: Path, file: str, settings: type[Settings]) -> Settings:
    """Return the settings in a file. Raises `BrokenTable`. file: its name in messages."""
    try:
        return settings.model_validate(read_toml(path, BrokenTable, file))
    except ValidationError as error:
        raise BrokenTable(f"{file}: {_problem(error, settings)}") from None


def _problem(error: ValidationError, settings: type[TomlFile]) -> str:
    """Return the first fault. An unknown setting comes first, since it may be a misspelling of the missing one."""
    faults, known = error.errors(), settings.model_fields
    fault = next((each for each in faults if str(each["loc"][0]) not in known), faults[0])
    kind, place = fault["type"], fault["loc"]
    name = str(place[0])
    if name not in known:
        return f"there is no setting `{name}`; possible: {', '.join(known)}"
    return f"`{name}` is {'missing' if place == (name,) and kind == 'missing' else known[name].description}"


FILE = "reports.toml"
NAME = r"^[a-z][a-z0-9_]{0,50}$"


class ReportSettings(TomlFile):
    """A practice's settings for its tables.

    publish_free_text: True to publish answers in free text. publish_patients: True to publish sex and years of birth of
    patients. response_tables: the names of wide tables, without `response_`, by the id of the questionnaire.
    """

    publish_free_text: bool = Field(False, description="true or false")
    publish_patients: bool = Field(False, description="true or false")
    response_tables: dict[str, Annotated[str, StringConstraints(pattern=NAME)]] = Field(
        {}, description="a table, id = name: a name has lower-case letters, digits and `_`, 51 at most"
    )


def settings_of(home: Path) -> ReportSettings:
    """Return the settings of a home. Raises `BrokenTable` with the file, the setting, and the allowed values."""
    there = os.path.lexists(home / FILE)  # a broken link counts as a file that cannot be read
    return settings_in(home / FILE, FILE, ReportSettings) if there else ReportSettings()


def wants_patients(home: Path) -> bool:
    """True if the home publishes patients. False if its settings cannot be read; the publication reports that."""
    try:
        return settings_of(home).publish_patients
    except BrokenTable:
        return False
