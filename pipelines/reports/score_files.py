"""The files of scores in TOML: those of `sql/reports/scores` come with the project, those of a home are its own."""

import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any

from pipelines.reports.tables import BrokenTable, sql_folder

FOLDER = "scores"
METHODS = ("sum", "mean")
Row = Mapping[str, Any]


@dataclass(frozen=True)
class ScoreFile:
    """The rule of one score. questionnaires: ids, names or `system|code`; questions: linkIds, codes or `system|code`.

    values: what each option counts for, by code or `system|code`. question_values: as `values`, by question, where
    options count otherwise. missing_allowed: number of questions that may be left out. rest_is_zero_after: options by
    question after which nothing more is asked.
    """

    file: str
    name: str
    questionnaires: Sequence[str]
    questions: Sequence[str]
    method: str = "sum"
    reversed: Sequence[str] = ()
    missing_allowed: int = 0
    values: Mapping[str, float] = field(default_factory=dict)
    question_values: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    rest_is_zero_after: Mapping[str, Sequence[str]] = field(default_factory=dict)
    bands: Sequence[Row] = ()
    is_ours: bool = False


def score_files(home: Path) -> list[ScoreFile]:
    """Return the rules of all scores; one of the home takes the place of ours of its name. Raises `BrokenTable`."""
    found = {each.name: each for each in (_read(path, True) for path in sorted((sql_folder() / FOLDER).glob("*.toml")))}
    for path in sorted((home / FOLDER).glob("*.toml")):
        own = _read(path, False)
        if own.name in found and not found[own.name].is_ours:
            raise BrokenTable(f"{own.file}: the score {own.name} is in {found[own.name].file} already")
        found[own.name] = own
    return list(found.values())


def _read(path: Path, is_ours: bool) -> ScoreFile:
    file = f"{FOLDER}/{path.name}"
    try:
        said = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise BrokenTable(f"{file} cannot be read ({type(error).__name__})") from None
    except tomllib.TOMLDecodeError as error:
        raise BrokenTable(f"{file} is no TOML: {error}") from None
    settings = {each.name: each for each in fields(ScoreFile) if each.name not in ("file", "is_ours")}
    if other := next((name for name in said if name not in settings), None):
        raise BrokenTable(f"{file}: there is no setting `{other}`: there are {', '.join(settings)}")
    lacking = [n for n, each in settings.items() if each.default is each.default_factory is MISSING and n not in said]
    if lacking:
        raise BrokenTable(f"{file}: `{lacking[0]}` is missing")
    for name, value in said.items():
        if not _SHAPES[name][0](value):
            raise BrokenTable(f"{file}: `{name}` is {_SHAPES[name][1]}")
    return ScoreFile(file=file, is_ours=is_ours, **said)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(map(_is_text, value))


def _are_numbers(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_is_number, value.values()))


def _is_band(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and value.keys() == {"from", "label"}
        and _is_number(value["from"])
        and _is_text(value["label"])
    )


_SHAPES: Mapping[str, tuple[Any, str]] = {
    "name": (_is_text, "a text"),
    "questionnaires": (_are_texts, "a list of ids, names or system|code"),
    "questions": (_are_texts, "a list of linkIds, codes or system|code"),
    "method": (lambda value: value in METHODS, "sum or mean"),
    "reversed": (lambda value: value == [] or _are_texts(value), "a list of questions"),
    "missing_allowed": (lambda value: type(value) is int and value >= 0, "a number of questions, from 0"),
    "values": (_are_numbers, "a table: option = number"),
    "question_values": (
        lambda value: isinstance(value, dict) and all(map(_are_numbers, value.values())),
        "a table for each question: option = number",
    ),
    "rest_is_zero_after": (
        lambda value: isinstance(value, dict) and all(map(_are_texts, value.values())),
        "a table: question = list of options",
    ),
    "bands": (
        lambda value: isinstance(value, list) and all(map(_is_band, value)),
        "a list of tables with from and label",
    ),
}
"""By setting: the test of its value, and what it is in words."""
