"""Files of a home in TOML that say something of the tables, as models of their settings."""

import tomllib
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from pipelines.reports.tables import BrokenTable


class TomlFile(BaseModel):
    """The settings of a file. The description of each says what its value has to be."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


Settings = TypeVar("Settings", bound=TomlFile)


def read_toml(path: Path, file: str, settings: type[Settings]) -> Settings:
    """Return the settings in a file. Raises `BrokenTable`. file: its name in messages."""
    try:
        return settings.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError) as error:
        raise BrokenTable(f"{file} cannot be read ({type(error).__name__})") from None
    except tomllib.TOMLDecodeError as error:
        raise BrokenTable(f"{file} is no TOML: {error}") from None
    except ValidationError as error:
        raise BrokenTable(f"{file}: {_problem(error, settings)}") from None


def _problem(error: ValidationError, settings: type[TomlFile]) -> str:
    """Return what is wrong first. A name that is none comes before all: the setting that is missing may be meant."""
    faults, known = error.errors(), settings.model_fields
    fault = next((each for each in faults if str(each["loc"][0]) not in known), faults[0])
    kind, place = fault["type"], fault["loc"]
    name = str(place[0])
    if name not in known:
        return f"there is no setting `{name}`: there are {', '.join(known)}"
    return f"`{name}` is {'missing' if place == (name,) and kind == 'missing' else known[name].description}"
