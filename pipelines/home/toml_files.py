"""Read the TOML files that a user writes. A fault is raised as the caller's exception, with the file's name."""

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pipelines.home.batch import reading_file


def text_of(path: Path, failure: type[Exception], name: str | None = None) -> str:
    """Return the text of a file. name: of the file in messages, if it is not its own."""
    name = name or path.name
    try:
        with reading_file(name, failure):
            return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError:
        raise failure(f"{name}: the file is not UTF-8; save it as UTF-8") from None


def toml_of(
    text: str, name: str, failure: type[Exception], parse_float: Callable[[str], Any] = float
) -> dict[str, Any]:
    """Return the content of a text from the file of this name."""
    try:
        return tomllib.loads(text, parse_float=parse_float)
    except tomllib.TOMLDecodeError as error:
        raise failure(f"{name}: the file is not valid TOML: {error}") from None


def read_toml(path: Path, failure: type[Exception], name: str | None = None) -> dict[str, Any]:
    """Return the content of a file. name: of the file in messages, if it is not its own."""
    return toml_of(text_of(path, failure, name), name or path.name, failure)
