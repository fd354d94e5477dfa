"""Score files in TOML: the project's in `sql/reports/scores`, a home's in its folder `scores`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints
from typing_extensions import TypedDict

from fhir_service.paths import matching
from pipelines.reports.settings import TomlFile, read_toml
from pipelines.reports.tables import BrokenTable, sql_folder

FOLDER = "scores"
Row = Mapping[str, Any]
Text = Annotated[str, StringConstraints(pattern=r"\S")]
Texts = Annotated[list[Text], Field(min_length=1)]
Numbers = dict[str, float]
Band = TypedDict("Band", {"from": float, "label": Text}, closed=True)


class ScoreRule(TomlFile):
    """A score as its file declares it.

    * values: the value of each option, by code or `system|code`.
    * question_values: like `values`, for single questions whose options have other values.
    * missing_allowed: the number of questions that may be left out.
    * rest_is_zero_after: by question, the options after which nothing more is asked.
    """

    name: Text = Field(description="a text")
    questionnaires: Texts = Field(description="a list of ids, names or system|code")
    questions: Texts = Field(description="a list of linkIds, codes or system|code")
    method: Literal["sum", "mean"] = Field("sum", description="sum or mean")
    reversed: list[Text] = Field([], description="a list of questions")
    missing_allowed: int = Field(0, ge=0, description="a number of questions, from 0")
    values: Numbers = Field({}, description="a table: option = number")
    question_values: dict[str, Numbers] = Field({}, description="a table for each question: option = number")
    rest_is_zero_after: dict[str, Texts] = Field({}, description="a table: question = list of options")
    bands: list[Band] = Field([], description="a list of tables with from and label")


class ScoreFile(ScoreRule):
    """The rule of one score, and its file. is_ours: True if the file comes with the project."""

    file: str
    is_ours: bool = False


def score_files(home: Path) -> list[ScoreFile]:
    """Return the rules of all scores; a home's rule replaces ours of the same name. Raises `BrokenTable`."""
    found = {each.name: each for each in (_read(path, True) for path in matching(sql_folder() / FOLDER, "*.toml"))}
    for path in matching(home / FOLDER, "*.toml"):
        own = _read(path, False)
        if own.name in found and not found[own.name].is_ours:
            raise BrokenTable(f"{own.file}: the score {own.name} is in {found[own.name].file} already")
        found[own.name] = own
    return list(found.values())


def _read(path: Path, is_ours: bool) -> ScoreFile:
    file = f"{FOLDER}/{path.name}"
    return ScoreFile.model_construct(**dict(read_toml(path, file, ScoreRule)), file=file, is_ours=is_ours)
