"""The wide tables, `response_<name>`: one for each questionnaire, one row per response, one column per question.

Versions and copies of a questionnaire share a table: they have one name, and either one canonical url, or one code and
the same questions. If other questionnaires give the same table name, the one seen first gets it.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import duckdb

from pipelines.home.counted import counted
from pipelines.reports.forms import AskedQuestion, id_at_target, with_options
from pipelines.reports.settings import FILE, ReportSettings
from pipelines.reports.tables import TERM, BrokenTable, ColumnOf, ReportTable
from pipelines.reports.views.values import quoted

PREFIX = "response_"
LETTERS = 50
OPTIONS_NAMED = 20
NUMBERS = ("decimal", "integer", "quantity")
TEXTS = ("text", "string", "date", "dateTime", "time", "url")
FEW = 200
"""The most columns that are made by aggregates. DuckDB plans more of them slowly; larger tables use maps."""
OWN = (
    ColumnOf("response_id", "VARCHAR", "Id of the QuestionnaireResponse at the target.", "key"),
    ColumnOf("patient_id", "VARCHAR", "Id of the patient.", "patient"),
    ColumnOf("authored_at", "TIMESTAMPTZ", "When it was given in its source, UTC; else when it was sent.", "time"),
)

OF_VERSION = ColumnOf(
    "questionnaire_id", "VARCHAR", "Id of the questionnaire: this table has several of one form.", "code"
)


ANSWERED = """
    WITH lost AS (
        SELECT told_form.named_id AS questionnaire_id, count(*) AS responses
        FROM questionnaire_response AS response
        LEFT JOIN told_form ON response.resource_id = told_form.response_id
        WHERE response.questionnaire_id IS NULL
        GROUP BY ALL
    ),
    named AS (SELECT questionnaire_id FROM questionnaire_response UNION SELECT questionnaire_id FROM lost)
    SELECT questionnaire_id, known.name, known.url, known.code_system, known.code, coalesce(lost.responses, 0)
    FROM named
    LEFT JOIN known_questionnaire AS known USING (questionnaire_id)
    LEFT JOIN lost USING (questionnaire_id)
    WHERE questionnaire_id IS NOT NULL
    ORDER BY min(known.first_seen_at) OVER (PARTITION BY split_part(questionnaire_id, '~', 1)) NULLS LAST,
        split_part(questionnaire_id, '~', 1), contains(questionnaire_id, '~') DESC, length(questionnaire_id),
        questionnaire_id"""
"""Questionnaires with responses. Former forms of a questionnaire come before its present form."""
# Questions with answers. Questions that the questionnaire no longer has come after those of the form, as do questions
# in a group that repeats.
ASKED = """
    WITH RECURSIVE repeating AS (
        SELECT questionnaire_id, link_id FROM question WHERE repeats
        UNION
        SELECT question.questionnaire_id, question.link_id
        FROM question
        INNER JOIN repeating AS outer_item
            ON question.questionnaire_id = outer_item.questionnaire_id
            AND question.parent_link_id = outer_item.link_id
    )
    SELECT questionnaire_id, link_id, text, type, type IS NULL OR repeating.link_id IS NOT NULL, code_system, code
    FROM (SELECT DISTINCT questionnaire_id, link_id FROM answer)
        FULL JOIN question USING (questionnaire_id, link_id)
        LEFT JOIN repeating USING (questionnaire_id, link_id)
    WHERE type IS NULL OR type NOT IN ('group', 'display')
    ORDER BY questionnaire_id, position NULLS LAST, link_id"""
CHOICES = """
    SELECT questionnaire_id, link_id, system, code, display FROM answer_option
    WHERE code IS NOT NULL ORDER BY questionnaire_id, link_id, code, display"""


class Form(NamedTuple):
    """A questionnaire with responses, or a former form of one, and its questions.

    lost: the number of responses that name the questionnaire, but whose version of it is unknown.
    """

    id: str
    name: str | None
    url: str | None
    code: tuple[str | None, str | None]
    lost: int
    asked: Sequence[AskedQuestion]

    @property
    def questionnaire_id(self) -> str:
        """Return the id that the questionnaire has, or had, at the target."""
        return id_at_target(self.id)

    def is_version_of(self, other: "Form") -> bool:
        """True if the two are versions or copies of each other: the same id, canonical url, or code and questions."""
        same_url = self.url is not None and self.url == other.url
        is_one = same_url or self.questionnaire_id == other.questionnaire_id
        return is_one or (self.code == other.code and self._questions() == other._questions())

    def _questions(self) -> list[tuple[str, str, str | None]]:
        """Return linkId, type and code of the questions that are in the form now."""
        return [(each.link_id, each.type, each.code) for each in self.asked if each.type is not None]


def forms_with_responses(db: duckdb.DuckDBPyConnection) -> Iterator[Form]:
    """Yield the questionnaires with responses, in the order in which they were first seen."""
    asked = with_options(db.execute(ASKED).fetchall(), db.execute(CHOICES).fetchall())
    for name, title, url, system, code, lost in db.execute(ANSWERED).fetchall():
        yield Form(name, title, url, (system, code), lost, asked.get(name, []))


@dataclass
class Question:
    """A question of a wide table. of: the ids of questionnaires that ask it. options: those of all, in words."""

    asked: AskedQuestion
    of: list[str] = field(default_factory=list)
    options: list[str] = field(default_factory=list)

    def add(self, form: Form, asked: AskedQuestion) -> None:
        """Add a questionnaire that asks the question."""
        said = [f"{each.code} {each.display or ''}".strip() for each in asked.options]
        self.of.append(form.id)
        self.options += [each for each in said if each not in self.options]


class AnsweredColumn(NamedTuple):
    """The column of a question. of: the questionnaires that ask it, if not all of the table do.

    is_apart: True if other versions ask something else under the same linkId.
    """

    column: ColumnOf
    link_id: str
    of: Sequence[str]
    is_apart: bool

    @property
    def value(self) -> str:
        """Return the column of `SAID` that holds the values."""
        return "number" if self.column.type.startswith("DOUBLE") else "said"

    @property
    def is_list(self) -> bool:
        return self.column.type.endswith("[]")


@dataclass
class WideTable:
    """The questionnaires of one wide table. stem: the name before a suffix was added to make it unique."""

    table: str
    stem: str
    forms: list[Form] = field(default_factory=list)


def response_tables(
    db: duckdb.DuckDBPyConnection, settings: ReportSettings, taken: Iterable[str]
) -> Iterator[ReportTable]:
    """Yield the declarations of the wide tables. taken: names of other tables. Raises `BrokenTable`."""
    for sharing in _shared(forms_with_responses(db), settings.response_tables, set(taken)):
        yield _table(sharing, settings.publish_free_text)


def _shared(forms: Iterable[Form], named: Mapping[str, str], taken: set[str]) -> list[WideTable]:
    """Return the wide tables. named: the home's table names by questionnaire id, which have priority.

    Raises `BrokenTable` if another table already has a name that the home gives.
    """
    found: list[WideTable] = []
    for form in sorted(forms, key=lambda form: form.questionnaire_id not in named):
        stem = PREFIX + (named.get(form.questionnaire_id) or _snake(form.name or "") or _snake(form.questionnaire_id))
        alike = [each for each in found if each.stem == stem and any(map(form.is_version_of, each.forms))]
        if not alike:
            if form.questionnaire_id in named and stem in taken:
                raise BrokenTable(
                    f"the questionnaire {form.id} would have the table {stem}, as another has: "
                    f"give it another name in {FILE} of the home, under [response_tables]"
                )
            alike = [WideTable(stem if stem not in taken else _free(f"{stem}_{_snake(form.id)}", taken), stem)]
            found += alike
            taken.add(alike[0].table)
        alike[0].forms.append(form)
    return found


def _table(sharing: WideTable, with_texts: bool) -> ReportTable:
    own = [*OWN, OF_VERSION] if len(sharing.forms) > 1 else list(OWN)
    ids = sorted(form.id for form in sharing.forms)
    answered = list(_answered(sharing.forms, with_texts, {column.name for column in own}))
    columns = own + [each.column for each in answered]
    if all(question.type is None for form in sharing.forms for question in form.asked):
        # No questionnaire of the target has these ids. They may be free text, and they name the table.
        columns = [column._replace(kind="text") for column in columns]
    about = (
        f"One row per response to {_named(sharing)}, a column per question, counted as in questionnaire_response. "
        "A column is empty where the question has no answer, or one in free text that is not published. Of several "
        "answers to a question that takes one, the first is shown; answer has all."
    )
    return ReportTable(
        name=sharing.table,
        comment=about,
        inputs=("questionnaire_response", "answer"),
        key=("response_id",),
        references=(),
        columns=tuple(columns),
        select=_select(ids, answered),
        file=f"the table {sharing.table}",
        remarks=tuple(_remarks(sharing, answered)),
    )


SAID = """SELECT response_id, questionnaire_id, link_id, position, number,
        coalesce(option_code, regexp_replace(number::VARCHAR, '[.]0$', ''), text) AS said
    FROM answer"""


def _select(ids: Sequence[str], answered: Sequence[AnsweredColumn]) -> str:
    """Return the SELECT of a wide table. ids: its questionnaires."""
    own = ["resource_id AS response_id", "patient_id", "authored_at", *(["questionnaire_id"] if len(ids) > 1 else [])]
    made = _of_maps(answered) if len(answered) > FEW else _of_aggregates(answered)
    values = [f"made.{each.column.name}" for each in answered] if len(answered) <= FEW else _taken(answered)
    columns = [*(f"response.{each}" for each in own), *values]
    return f"""WITH answers AS ({SAID}
    WHERE questionnaire_id IN ({", ".join(map(quoted, ids))})
),
{made}
SELECT {", ".join(columns)}
FROM questionnaire_response AS response
LEFT JOIN made ON response.resource_id = made.response_id
WHERE response.questionnaire_id IN ({", ".join(map(quoted, ids))})
ORDER BY response.resource_id"""


def _of_aggregates(answered: Sequence[AnsweredColumn]) -> str:
    """Return the SQL of the values, with one aggregate for each column."""
    values = ["response_id"]
    for each in answered:
        chosen = f"link_id = {quoted(each.link_id)}{_asked_in(each, ' AND ')}"
        if each.is_list:
            value = f"list({each.value} ORDER BY position) FILTER (WHERE {chosen})"
        else:
            value = f"arg_min(CASE WHEN {chosen} THEN {each.value} END, position)"
        values.append(f"{value} AS {each.column.name}")
    return f"made AS (SELECT {', '.join(values)} FROM answers GROUP BY response_id)"


def _of_maps(answered: Sequence[AnsweredColumn]) -> str:
    """Return the SQL of the values, with one map by linkId for each kind of value."""
    kinds = sorted({_map_of(each): each for each in answered}.items())
    of_question = ", ".join(
        f"list({of.value} ORDER BY position) AS {name}" if of.is_list else f"arg_min({of.value}, position) AS {name}"
        for name, of in kinds
    )
    maps = ", ".join(f"map_from_entries(list((link_id, {name}))) AS {name}" for name, _ in kinds)
    return f"""given AS (SELECT response_id, link_id, {of_question} FROM answers GROUP BY response_id, link_id),
made AS (SELECT response_id, {maps} FROM given GROUP BY response_id)"""


def _taken(answered: Sequence[AnsweredColumn]) -> list[str]:
    """Return the SQL of the columns, taken from the maps."""
    found = []
    for each in answered:
        value = f"made.{_map_of(each)}[{quoted(each.link_id)}]"
        only = _asked_in(each, "")
        found.append(f"{f'CASE WHEN {only} THEN {value} END' if only else value} AS {each.column.name}")
    return found


def _map_of(answered: AnsweredColumn) -> str:
    return f"{answered.value}s" if answered.is_list else answered.value


def _asked_in(answered: AnsweredColumn, before: str) -> str:
    """Return the condition, after `before`, that a response's questionnaire asks the question; empty if all ask it."""
    return f"{before}questionnaire_id IN ({', '.join(map(quoted, answered.of))})" if answered.of else ""


def _answered(forms: Sequence[Form], with_texts: bool, used: set[str]) -> Iterator[AnsweredColumn]:
    """Yield the columns of the questions, in the order of the forms. used: names of other columns."""
    questions = [each for each in _questions(forms) if with_texts or each.asked.type not in TEXTS]
    known = Counter(each.asked.link_id for each in questions if each.asked.type)
    for place, question in enumerate(questions, 1):
        asked = question.asked
        is_apart = asked.type is not None and known[asked.link_id] > 1
        kind = _type(asked)
        name = _free(_snake(asked.link_id) or _snake(asked.code or "") or f"question_{place}", used)
        comment = _comment(question, [_shown(form) for form in forms if form.id in question.of] if is_apart else [])
        column = ColumnOf(name, kind, comment, _kind(asked, kind))
        yield AnsweredColumn(column, asked.link_id, question.of if len(question.of) < len(forms) else (), is_apart)


def _remarks(sharing: WideTable, answered: Iterable[AnsweredColumn]) -> Iterator[str]:
    """Yield sentences that a reader of the table must know."""
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
            number = counted(form.lost, "response names", "responses name")
            yield (
                f"{number} {_shown(form)}, and which of its versions was answered is not known: "
                "the answers are in `answer`, and not here."
            )


def _kind(question: AskedQuestion, kind: str) -> str:
    """Return the kind of a question's column. A linkId that no form has may be free text."""
    if question.type in TEXTS or question.type is None:
        return "text"
    return "value" if kind.startswith("DOUBLE") else TERM


def _shown(form: Form) -> str:
    return f"{form.name} ({form.id})" if form.name else form.id


def _named(sharing: WideTable) -> str:
    """Return the questionnaires of a table in words."""
    shown = [_shown(form) for form in sharing.forms]
    several = "questionnaires" if len(shown) > 1 else "questionnaire"
    return f"the {several} {' and '.join(shown)}"


def _questions(forms: Sequence[Form]) -> list[Question]:
    """Return the questions of all versions.

    A question is listed again if a later version gives it another type of column, or asks something else under its
    linkId.
    """
    found: dict[tuple[str, str], list[Question]] = {}
    for form in forms:
        for asked in form.asked:
            of_link = found.setdefault((asked.link_id, _type(asked)), [])
            known = next((each for each in of_link if asked.is_asked_as(each.asked)), None)
            if known is None:
                of_link.append(known := Question(asked))
            known.add(form, asked)
    return [each for of_link in found.values() for each in of_link]


def _type(question: AskedQuestion) -> str:
    """Return the type of a question's column."""
    kind = "DOUBLE" if question.type in NUMBERS else "VARCHAR"
    return f"{kind}[]" if question.repeats else kind


def _comment(question: Question, of: Sequence[str]) -> str:
    """Return the comment of a question's column. of: the versions that ask it, if others ask something else."""
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
    """Return the name, with a number appended if another column already has it."""
    free = next(
        each for number in range(1, len(used) + 2) if (each := name if number == 1 else f"{name}_{number}") not in used
    )
    used.add(free)
    return free


def _snake(text: str) -> str:
    """Return `visit_feedback` for `VisitFeedback`, `q_44250_9` for `/44250-9`; empty if no letter or digit is left."""
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    apart = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", plain).lower()
    name = re.sub(r"[^a-z0-9]+", "_", apart).strip("_")[:LETTERS].rstrip("_")
    return f"q_{name}" if name[:1].isdigit() else name
