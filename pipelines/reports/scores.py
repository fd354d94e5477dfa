"""The rules of scores: files in TOML, and what questionnaires declare by the values of their options.

`sql/reports/scores` has those that come with the project, `<home>/scores` a practice's own. Here the rules meet the
questionnaires; `sql/reports/score.sql` adds up.
"""

import math
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from pipelines.home import arrow
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


class Scores(NamedTuple):
    """The rules met with questionnaires: what `score.sql` reads, as `known_score`, `known_score_item`, and so on."""

    score: pa.Table
    item: pa.Table
    value: pa.Table
    band: pa.Table


_TEXT, _NUMBER, _COUNT, _TRUTH = pa.string(), pa.float64(), pa.int64(), pa.bool_()
_OF = [("score_name", _TEXT), ("questionnaire_id", _TEXT)]
SCHEMAS = Scores(
    pa.schema([*_OF, ("method", _TEXT), ("items", _COUNT), ("missing_allowed", _COUNT)]),
    pa.schema(
        [
            *_OF,
            ("link_id", _TEXT),
            ("is_conditional", _TRUTH),
            ("turns", _TRUTH),
            ("lowest", _NUMBER),
            ("highest", _NUMBER),
        ]
    ),
    pa.schema([*_OF, ("link_id", _TEXT), ("system", _TEXT), ("code", _TEXT), ("value", _NUMBER), ("ends", _TRUTH)]),
    pa.schema([("score_name", _TEXT), ("from_value", _NUMBER), ("label", _TEXT)]),
)


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


def scores_of(files: Iterable[ScoreFile], questionnaires: pa.Table, questions: pa.Table, options: pa.Table) -> Scores:
    """Return the rules as they apply to these questionnaires. Raises `BrokenTable` for one of the home that cannot."""
    asked: dict[str, list[Row]] = {}
    for question in questions.to_pylist():
        asked.setdefault(question["questionnaire_id"], []).append(question)
    chosen: dict[tuple[str, str], list[Row]] = {}
    for option in options.to_pylist():
        chosen.setdefault((option["questionnaire_id"], option["link_id"]), []).append(option)
    rows: Scores = Scores([], [], [], [])
    known = list(files)
    for each in known:
        rows.band.extend((each.name, float(band["from"]), band["label"]) for band in each.bands)
    for questionnaire in questionnaires.to_pylist():
        here = _Here(questionnaire, asked.get(questionnaire["questionnaire_id"], []), chosen)
        of_files = [each for each in known if not here.names.isdisjoint(each.questionnaires)]
        for each in of_files or here.declared():
            here.apply(each, rows)
    return Scores(*(arrow.table_of_rows(part, schema) for part, schema in zip(rows, SCHEMAS, strict=True)))


class _Here:
    """One questionnaire, with its questions and their options."""

    def __init__(
        self, questionnaire: Row, questions: Sequence[Row], options: Mapping[tuple[str, str], Sequence[Row]]
    ) -> None:
        self.id, self.name = questionnaire["questionnaire_id"], questionnaire["name"]
        self.names = {self.id, self.name, *_codes(questionnaire["code_system"], questionnaire["code"])} - {None}
        self.questions = questions
        self.options = {each["link_id"]: options.get((self.id, each["link_id"]), []) for each in questions}

    def declared(self) -> Iterator[ScoreFile]:
        """Yield the sum over the questions whose options declare values; nothing if there are none."""
        valued = [link_id for link_id, options in self.options.items() if any(map(_is_declared, options))]
        if valued:
            yield ScoreFile("", self.name or self.id, [self.id], valued, is_ours=True)

    def apply(self, rule: ScoreFile, rows: Scores) -> None:
        """Add the rows of a rule."""
        of = (rule.name, self.id)
        rows.score.append((*of, rule.method, len(rule.questions), rule.missing_allowed))
        for named in rule.questions:
            question = self._question(named)
            if question is None:  # it counts as left out
                continue
            link_id = question["link_id"]
            values = [(option, self._value(rule, question, option)) for option in self.options[link_id]]
            self._refuse_without_values(rule, question, values)
            numbers = [value for _, value in values if value is not None]
            scale = (min(numbers), max(numbers)) if numbers else (None, None)
            turns = any(self._question(each) is question for each in rule.reversed)
            rows.item.append((*of, link_id, question["is_conditional"], turns, *scale))
            last = {
                each
                for named, each_of in rule.rest_is_zero_after.items()
                if self._question(named) is question
                for each in each_of
            }
            for option, value in values:
                ends = not last.isdisjoint(_codes(option["system"], option["code"]))
                rows.value.append((*of, link_id, option["system"], option["code"], value, ends))

    def _question(self, named: str) -> Row | None:
        return next((q for q in self.questions if named in (q["link_id"], *_codes(q["code_system"], q["code"]))), None)

    def _value(self, rule: ScoreFile, question: Row, option: Row) -> float | None:
        """Return what an option counts for: as the questionnaire declares it, else as the file says."""
        if _is_declared(option):
            return float(option["declared_value"])
        own = next((v for name, v in rule.question_values.items() if self._question(name) is question), {})
        codes = _codes(option["system"], option["code"])
        found = [values[code] for values in (own, rule.values) for code in codes if code in values]
        return float(found[0]) if found else None

    def _refuse_without_values(
        self, rule: ScoreFile, question: Row, values: Sequence[tuple[Row, float | None]]
    ) -> None:
        if rule.is_ours:
            return
        where = f"{rule.file}: the question {question['link_id']} of the questionnaire {self.id}"
        if question["type"] in ("text", "string"):
            raise BrokenTable(f"{where} is answered in words: leave it out")
        for option, value in values:
            if value is None:
                raise BrokenTable(f"{where} has the option {option['code']}, and [values] has no value for it")


def _is_declared(option: Row) -> bool:
    return option["declared_value"] is not None


def _codes(system: str | None, code: str | None) -> list[str]:
    """Return the names of a code: `system|code`, and the code alone."""
    return [f"{system}|{code}", code] if code else []
