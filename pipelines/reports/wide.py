"""The wide tables, `response_<name>`: one for each questionnaire with responses, a row each, a column per question.

Versions and copies of a questionnaire share a table: those of one name with one canonical url, or with one code and the
same questions. Of others whose names give one table, the one that was seen first has it.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import duckdb

from pipelines.reports.answered_forms import Form, forms_with_responses
from pipelines.reports.forms import Asked
from pipelines.reports.settings import FILE, ReportSettings
from pipelines.reports.tables import TERM, BrokenTable, ColumnOf, ReportTable
from pipelines.reports.views.values import quoted

PREFIX = "response_"
LETTERS = 50
OPTIONS_NAMED = 20
NUMBERS = ("decimal", "integer", "quantity")
TEXTS = ("text", "string", "date", "dateTime", "time", "url")
OWN = (
    ColumnOf("response_id", "VARCHAR", "Id of the QuestionnaireResponse at the target.", "key"),
    ColumnOf("patient_id", "VARCHAR", "Id of the patient.", "patient"),
    ColumnOf("authored_at", "TIMESTAMPTZ", "When it was given in its source, UTC; else when it was sent.", "time"),
)

OF_VERSION = ColumnOf(
    "questionnaire_id", "VARCHAR", "Id of the questionnaire: this table has several of one form.", "code"
)


@dataclass
class Question:
    """A question of a wide table. of: the ids of the questionnaires that ask it; options: in words, those of all."""

    asked: Asked
    of: list[str] = field(default_factory=list)
    options: list[str] = field(default_factory=list)

    def add(self, form: Form, asked: Asked) -> None:
        """Add a questionnaire that asks it."""
        said = [f"{each.code} {each.display or ''}".strip() for each in asked.options]
        self.of.append(form.id)
        self.options += [each for each in said if each not in self.options]


class Answered(NamedTuple):
    """The column of a question, and the SQL of its value. is_apart: other versions ask something else by its linkId."""

    column: ColumnOf
    select: str
    link_id: str
    is_apart: bool


@dataclass
class Sharing:
    """The questionnaires of one wide table. stem: what their names give, where another table may be named so."""

    table: str
    stem: str
    forms: list[Form] = field(default_factory=list)


def response_tables(
    db: duckdb.DuckDBPyConnection, settings: ReportSettings, taken: Iterable[str]
) -> Iterator[ReportTable]:
    """Yield the declarations of the wide tables. taken: names of other tables. Raises `BrokenTable`."""
    for sharing in _shared(forms_with_responses(db), settings.response_tables, set(taken)):
        yield _table(sharing, settings.publish_free_text)


def _shared(forms: Iterable[Form], named: Mapping[str, str], taken: set[str]) -> list[Sharing]:
    """Return the wide tables. named: the names that the home gives, by id, which come first.

    Raises `BrokenTable` where a name that the home gives is another table's.
    """
    found: list[Sharing] = []
    for form in sorted(forms, key=lambda form: form.questionnaire_id not in named):
        stem = PREFIX + (named.get(form.questionnaire_id) or _snake(form.name or "") or _snake(form.questionnaire_id))
        alike = [each for each in found if each.stem == stem and any(map(form.is_version_of, each.forms))]
        if not alike:
            if form.questionnaire_id in named and stem in taken:
                raise BrokenTable(
                    f"the questionnaire {form.id} would have the table {stem}, as another has: "
                    f"give it another name in {FILE} of the home, under [response_tables]"
                )
            alike = [Sharing(stem if stem not in taken else _free(f"{stem}_{_snake(form.id)}", taken), stem)]
            found += alike
            taken.add(alike[0].table)
        alike[0].forms.append(form)
    return found


def _table(sharing: Sharing, with_texts: bool) -> ReportTable:
    own = [*OWN, OF_VERSION] if len(sharing.forms) > 1 else list(OWN)
    ids = sorted(form.id for form in sharing.forms)
    answered = list(_answered(sharing.forms, with_texts, {column.name for column in own}))
    columns = own + [each.column for each in answered]
    if all(question.type is None for form in sharing.forms for question in form.asked):
        # No questionnaire of the target has these ids: they may be texts of people, and give the table its name.
        columns = [column._replace(kind="text") for column in columns]
    values = "".join(f",\n    {each.select}" for each in answered)
    version = ",\n    any_value(response.questionnaire_id) AS questionnaire_id" if len(ids) > 1 else ""
    about = (
        f"One row per response to {_named(sharing)}, a column per question, counted as in questionnaire_response. "
        "A column is empty where the question has no answer."
    )
    return ReportTable(
        name=sharing.table,
        comment=about,
        inputs=("questionnaire_response", "answer"),
        key=("response_id",),
        references=(),
        columns=tuple(columns),
        select=f"""SELECT response.resource_id AS response_id,
    any_value(response.patient_id) AS patient_id,
    any_value(response.authored_at) AS authored_at{version}{values}
FROM questionnaire_response AS response
LEFT JOIN answer ON response.resource_id = answer.response_id
WHERE response.questionnaire_id IN ({", ".join(map(quoted, ids))})
GROUP BY response.resource_id
ORDER BY response.resource_id""",
        file=f"the table {sharing.table}",
        remarks=tuple(_remarks(sharing, answered)),
    )


def _answered(forms: Sequence[Form], with_texts: bool, used: set[str]) -> Iterator[Answered]:
    """Yield the columns of the questions, in the order of the forms. used: names of other columns."""
    questions = [each for each in _questions(forms) if with_texts or each.asked.type not in TEXTS]
    known = Counter(each.asked.link_id for each in questions if each.asked.type)
    for place, question in enumerate(questions, 1):
        asked = question.asked
        is_apart = asked.type is not None and known[asked.link_id] > 1
        kind, value = _value(asked)
        name = _free(_snake(asked.link_id) or _snake(asked.code or "") or f"question_{place}", used)
        comment = _comment(question, [_shown(form) for form in forms if form.id in question.of] if is_apart else [])
        chosen = f"answer.link_id = {quoted(asked.link_id)}"
        if len(question.of) < len(forms):
            chosen += f" AND answer.questionnaire_id IN ({', '.join(map(quoted, question.of))})"
        column = ColumnOf(name, kind, comment, _kind(asked, kind))
        yield Answered(column, f"{value} FILTER (WHERE {chosen}) AS {name}", asked.link_id, is_apart)


def _remarks(sharing: Sharing, answered: Iterable[Answered]) -> Iterator[str]:
    """Yield what a reader of the table must know, a sentence each."""
    apart: dict[str, list[str]] = {}
    for each in answered:
        if each.is_apart:
            apart.setdefault(each.link_id, []).append(each.column.name)
    if apart:
        columns = "; ".join(f"{link_id}: {', '.join(names)}" for link_id, names in apart.items())
        named = sharing.forms[-1].name or sharing.forms[-1].id
        yield f"Versions of {named} ask different things by one linkId, and each has a column of its own ({columns})."
    if sharing.table != sharing.stem:
        yield (
            f"The name of {_shown(sharing.forms[0])} gives {sharing.stem}, which another questionnaire has; "
            f"a name for it may be set in {FILE}, under [response_tables]."
        )
    for form in sharing.forms:
        if form.lost:
            number = "1 response names" if form.lost == 1 else f"{form.lost:,} responses name"
            yield (
                f"{number} {_shown(form)}, and which of its versions was answered is not known: "
                "the answers are in `answer`, and not here."
            )


def _kind(question: Asked, kind: str) -> str:
    """Return the kind of a question's column. The linkId of one that no form has may be a text of people."""
    if question.type in TEXTS or question.type is None:
        return "text"
    return "value" if kind == "DOUBLE" else TERM


def _shown(form: Form) -> str:
    return f"{form.name} ({form.id})" if form.name else form.id


def _named(sharing: Sharing) -> str:
    """The questionnaires of a table in words."""
    shown = [_shown(form) for form in sharing.forms]
    several = "questionnaires" if len(shown) > 1 else "questionnaire"
    return f"the {several} {' and '.join(shown)}"


def _questions(forms: Sequence[Form]) -> list[Question]:
    """Return the questions of all versions.

    One that a later version answers in another kind of column, or that asks something else, is another question.
    """
    found: dict[tuple[str, str], list[Question]] = {}
    for form in forms:
        for asked in form.asked:
            of_link = found.setdefault((asked.link_id, _value(asked)[1]), [])
            known = next((each for each in of_link if asked.is_asked_as(each.asked)), None)
            if known is None:
                of_link.append(known := Question(asked))
            known.add(form, asked)
    return [each for of_link in found.values() for each in of_link]


def _value(question: Asked) -> tuple[str, str]:
    """Return the type of a question's column, and the aggregate that gives its value."""
    if question.type in NUMBERS:
        return "DOUBLE", "max(answer.number)"
    if question.type in TEXTS:
        return "VARCHAR", "max(answer.text)"
    if question.repeats:
        return "VARCHAR[]", "list(coalesce(answer.option_code, answer.number::VARCHAR) ORDER BY answer.position)"
    return "VARCHAR", "max(answer.option_code)"


def _comment(question: Question, of: Sequence[str]) -> str:
    """Return the words of a question's column. of: the versions that ask it, if others ask something else."""
    asked, options = question.asked, question.options
    said = [f"{(asked.text or 'A question without words').rstrip('. ')} (linkId {asked.link_id})."]
    if of:
        said.append(f"So asked by {' and '.join(of)} alone.")
    if asked.type is None:
        said.append("The questionnaire no longer has this question.")
    if options:
        more = "; ..." if len(options) > OPTIONS_NAMED else ""
        said.append(f"Codes: {'; '.join(options[:OPTIONS_NAMED])}{more}.")
    return " ".join(said)


def _free(name: str, used: set[str]) -> str:
    """Return the name, with a number where another column has it already."""
    free = next(
        each for number in range(1, len(used) + 2) if (each := name if number == 1 else f"{name}_{number}") not in used
    )
    used.add(free)
    return free


def _snake(text: str) -> str:
    """Return `visit_feedback` of `VisitFeedback`, `q_44250_9` of `/44250-9`; empty where no letter or digit is left."""
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    apart = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", plain).lower()
    name = re.sub(r"[^a-z0-9]+", "_", apart).strip("_")[:LETTERS].rstrip("_")
    return f"q_{name}" if name[:1].isdigit() else name
