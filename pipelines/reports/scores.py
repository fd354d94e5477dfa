"""Apply the rules of scores to questionnaires: the rules of score files, and the values that options declare.

Score files are TOML: the project's in `sql/reports/scores`, a home's in its folder `scores`.
`sql/reports/score.sql` then adds up the values.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import pyarrow as pa
from pydantic import Field, StringConstraints
from typing_extensions import TypedDict

from fhir_service.paths import matching
from pipelines.home import arrow
from pipelines.reports.forms import NO_QUESTION, id_at_target
from pipelines.reports.settings import TomlFile, settings_in
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
    return ScoreFile.model_construct(**dict(settings_in(path, file, ScoreRule)), file=file, is_ours=is_ours)


NAMED = 20
"""The most names that a message lists."""


class Scores(NamedTuple):
    """The rules applied to questionnaires: the inputs of `score.sql`: `known_score`, `known_score_item`, and so on."""

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


def scores_of_home(
    home: Path, questionnaires: pa.Table, questions: pa.Table, options: pa.Table
) -> tuple[Scores, list[str]]:
    """Return a home's rules applied to the questionnaires, and remarks for readers of scores. Raises `BrokenTable`."""
    return scores_of(score_files(home), questionnaires, questions, options)


def scores_of(
    files: Iterable[ScoreFile], questionnaires: pa.Table, questions: pa.Table, options: pa.Table
) -> tuple[Scores, list[str]]:
    """Return the rules applied to these questionnaires, and a sentence for each name that none of them has.

    Raises `BrokenTable` for a rule of the home whose options lack values.
    """
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
    met: dict[str, list[_ScoredForm]] = {}
    there: list[_ScoredForm] = []
    for questionnaire in questionnaires.to_pylist():
        here = _ScoredForm(questionnaire, asked.get(questionnaire["questionnaire_id"], []), chosen)
        there.append(here)
        of_files = [each for each in known if not here.names.isdisjoint(each.questionnaires)]
        for each in of_files or here.declared():
            here.apply(each, rows)
            met.setdefault(each.file, []).append(here)
    of_home = [each for each in known if not each.is_ours]
    unknown = [
        said
        for each in of_home
        for said in (*_unknown_questionnaires(each, there), *_unknown_questions(each, met.get(each.file, ())))
    ]
    tables = (arrow.table_of_rows(part, schema) for part, schema in zip(rows, SCHEMAS, strict=True))
    return Scores(*tables), unknown


def counted_in(files: Iterable[ScoreFile], contents: Sequence[tuple[Row, Sequence[Row]]]) -> list[frozenset[str]]:
    """Return, for each content of one questionnaire, the linkIds that score files count in it.

    contents: each with its questions. A file that names one of the contents applies to all.
    """
    there = [_ScoredForm(questionnaire, questions, {}) for questionnaire, questions in contents]
    rules = [each for each in files if any(not here.names.isdisjoint(each.questionnaires) for here in there)]
    named = {name for rule in rules for name in rule.questions}
    return [frozenset(found["link_id"] for name in named if (found := here.question(name))) for here in there]


def _unknown_questionnaires(rule: ScoreFile, there: Sequence["_ScoredForm"]) -> Iterator[str]:
    """Yield a sentence for each questionnaire that a rule names, and that the target neither has nor had."""
    for name in rule.questionnaires if there else ():
        if not any(name in each.names for each in there):
            yield (
                f"{rule.file}: the score {rule.name} is of the questionnaire {name}, and the target has none with that "
                f"id, name or code: it has {_listed(sorted({str(each.name or each.own_id) for each in there}))}."
            )


def _unknown_questions(rule: ScoreFile, of: Sequence["_ScoredForm"]) -> Iterator[str]:
    """Yield a sentence for each question or option that a rule names, and that none of its questionnaires has.

    The target may have removed the question: the score is then made of the others. Former forms are not searched.
    """
    of = [here for here in of if here.id == here.own_id] or of
    if not of:
        return
    named = {"questions": rule.questions, "reversed": rule.reversed, "question_values": rule.question_values}
    counted = [here.question(name) for here in of for name in rule.questions]
    links = dict.fromkeys(each["link_id"] for here in of for each in here.questions if each["type"] not in NO_QUESTION)
    for setting, names in {**named, "rest_is_zero_after": rule.rest_is_zero_after}.items():
        for name in names:
            where = f"{rule.file}: `{setting}` of the score {rule.name} names the question {name}"
            found = [question for here in of if (question := here.question(name))]
            if not found:
                yield f"{where}, and {of[-1].own_id} has none of that linkId or code: it has {_listed(links)}."
            elif not any(each in counted for each in found):
                yield f"{where}, which is none of its `questions`: {_listed(rule.questions)}."
    for name, last in rule.rest_is_zero_after.items():
        options = [each for here in of for each in here.options_of(name)]
        codes = {code for each in options for code in _codes(each["system"], each["code"])}
        has = _listed(dict.fromkeys(each["code"] for each in options if each["code"]))
        for option in last if any(here.question(name) for here in of) else ():
            if option not in codes:
                yield (
                    f"{rule.file}: `rest_is_zero_after` of the score {rule.name} names the option {option} of {name}, "
                    f"which has {has}."
                )


def _listed(names: Iterable[str]) -> str:
    shown = list(names)
    return ", ".join([*shown[:NAMED], *(["..."] if len(shown) > NAMED else [])]) or "none"


class _ScoredForm:
    """One questionnaire, with its questions and their options."""

    def __init__(
        self, questionnaire: Row, questions: Sequence[Row], options: Mapping[tuple[str, str], Sequence[Row]]
    ) -> None:
        self.id, self.name = questionnaire["questionnaire_id"], questionnaire["name"]
        self.own_id = id_at_target(self.id)
        self.names = {self.own_id, self.name, *_codes(questionnaire["code_system"], questionnaire["code"])} - {None}
        self.questions = questions
        self.options = {each["link_id"]: options.get((self.id, each["link_id"]), []) for each in questions}

    def declared(self) -> Iterator[ScoreFile]:
        """Yield the sum over the questions whose options declare values; nothing if there are none."""
        valued = [link_id for link_id, options in self.options.items() if any(map(_is_declared, options))]
        if valued:
            name = self.name or self.own_id
            yield ScoreFile.model_construct(
                file="", name=name, questionnaires=[self.own_id], questions=valued, is_ours=True
            )

    def apply(self, rule: ScoreFile, rows: Scores) -> None:
        """Add the rows of a rule."""
        of = (rule.name, self.id)
        rows.score.append((*of, rule.method, len(rule.questions), rule.missing_allowed))
        counted = set[str]()
        for named in rule.questions:
            question = self.question(named)
            if question is None:  # the question counts as left out
                continue
            link_id = question["link_id"]
            if link_id in counted and self._may_lack(rule):
                continue
            if link_id in counted:
                raise BrokenTable(f"{rule.file}: `questions` names the question {link_id} of {self.id} twice")
            counted.add(link_id)
            values = [(option, self._value(rule, question, option)) for option in self.options[link_id]]
            self._refuse_without_values(rule, question, values)
            numbers = [value for _, value in values if value is not None]
            scale = (min(numbers), max(numbers)) if numbers else (None, None)
            turns = any(self.question(each) is question for each in rule.reversed)
            if turns and not numbers and not self._may_lack(rule):
                raise BrokenTable(
                    f"{rule.file}: the question {link_id} of the questionnaire {self.id} is in `reversed`, and without "
                    "options nothing says what its highest answer is"
                )
            rows.item.append((*of, link_id, question["is_conditional"], turns, *scale))
            last = {
                each
                for named, each_of in rule.rest_is_zero_after.items()
                if self.question(named) is question
                for each in each_of
            }
            for (system, code), counts_for in _by_code(values).items():
                ends = not last.isdisjoint(_codes(system, code))
                rows.value.append((*of, link_id, system, code, counts_for, ends))

    def question(self, named: str) -> Row | None:
        """Return the question with a linkId or code."""
        return next((q for q in self.questions if named in (q["link_id"], *_codes(q["code_system"], q["code"]))), None)

    def options_of(self, named: str) -> Sequence[Row]:
        """Return the options of the question with a linkId or code."""
        question = self.question(named)
        return self.options[question["link_id"]] if question else ()

    def _value(self, rule: ScoreFile, question: Row, option: Row) -> float | None:
        """Return the value of an option: the questionnaire's declared value, else the value in the file."""
        if _is_declared(option):
            return float(option["declared_value"])
        own = next((v for name, v in rule.question_values.items() if self.question(name) is question), {})
        codes = _codes(option["system"], option["code"])
        found = [values[code] for values in (own, rule.values) for code in codes if code in values]
        return float(found[0]) if found else None

    def _may_lack(self, rule: ScoreFile) -> bool:
        """True if the rule is ours or the form is a former one. Their scores stay incomplete instead of raising."""
        return rule.is_ours or self.id != self.own_id

    def _refuse_without_values(
        self, rule: ScoreFile, question: Row, values: Sequence[tuple[Row, float | None]]
    ) -> None:
        if self._may_lack(rule):
            return
        where = f"{rule.file}: the question {question['link_id']} of the questionnaire {self.id}"
        if question["type"] in ("text", "string"):
            raise BrokenTable(f"{where} is answered in words: leave it out")
        for option, value in values:
            if value is None:
                raise BrokenTable(f"{where} has the option {option['code']}, and [values] has no value for it")


def _by_code(values: Iterable[tuple[Row, float | None]]) -> dict[tuple[str | None, str | None], float | None]:
    """Return the value of each code; None if a code occurs twice with different values."""
    found: dict[tuple[str | None, str | None], float | None] = {}
    for option, value in values:
        name = (option["system"], option["code"])
        found[name] = value if found.get(name, value) == value else None
    return found


def _is_declared(option: Row) -> bool:
    return option["declared_value"] is not None


def _codes(system: str | None, code: str | None) -> list[str]:
    """Return the names of a code: `system|code`, and the code alone."""
    return [f"{system}|{code}", code] if code else []
