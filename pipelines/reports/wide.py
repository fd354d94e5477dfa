"""The wide tables, `response_<name>`: one for each questionnaire with responses, a row each, a column per question.

Versions and copies of a questionnaire share a table: those of one name with one canonical url, or with one code and the
same questions. Of others whose names give one table, the one that was seen first has it.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import duckdb

from pipelines.reports.building import quoted
from pipelines.reports.settings import FILE, ReportSettings
from pipelines.reports.tables import TERM, BrokenTable, ColumnOf, ReportTable

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

ANSWERED = """
    SELECT response.questionnaire_id, any_value(known.name), any_value(known.url),
        any_value(known.code_system), any_value(known.code)
    FROM questionnaire_response AS response
    LEFT JOIN known_questionnaire AS known ON response.questionnaire_id = known.questionnaire_id
    WHERE response.questionnaire_id IS NOT NULL
    GROUP BY response.questionnaire_id
    ORDER BY any_value(known.first_seen_at) NULLS LAST, response.questionnaire_id"""
# Questions that the questionnaire no longer has follow those of the form.
ASKED = """
    SELECT questionnaire_id, link_id, text, type, coalesce(repeats, true), code
    FROM (SELECT DISTINCT questionnaire_id, link_id FROM answer)
        FULL JOIN question USING (questionnaire_id, link_id)
    WHERE type IS NULL OR type NOT IN ('group', 'display')
    ORDER BY questionnaire_id, position NULLS LAST, link_id"""
CHOICES = "SELECT questionnaire_id, link_id, code, display FROM answer_option WHERE code IS NOT NULL ORDER BY ALL"


class Asked(NamedTuple):
    """A question with answers, or of the form as it is now. type: empty where the form no longer has it."""

    link_id: str
    text: str | None
    type: str | None
    repeats: bool
    code: str | None


class Form(NamedTuple):
    """A questionnaire with responses, its questions, and what each can be answered with, by linkId."""

    id: str
    name: str | None
    url: str | None
    code: tuple[str | None, str | None]
    asked: Sequence[Asked]
    options: Mapping[str, list[str]]

    def is_version_of(self, other: "Form") -> bool:
        """True for another version or a copy: the same canonical url, or the same code and questions."""
        same_url = self.url is not None and self.url == other.url
        return same_url or (self.code == other.code and self._questions() == other._questions())

    def _questions(self) -> list[tuple[str, str, str | None]]:
        """The questions that the form has now."""
        return [(each.link_id, each.type, each.code) for each in self.asked if each.type is not None]


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
    for sharing in _shared(_forms(db), settings.response_tables, set(taken)):
        yield _table(sharing, settings.publish_free_text)


def _forms(db: duckdb.DuckDBPyConnection) -> Iterator[Form]:
    """Yield the questionnaires with responses, in the order in which they were first seen."""
    asked: dict[str, list[Asked]] = {}
    for questionnaire_id, *question in db.execute(ASKED).fetchall():
        asked.setdefault(questionnaire_id, []).append(Asked(*question))
    options: dict[str, dict[str, list[str]]] = {}
    for questionnaire_id, link_id, code, display in db.execute(CHOICES).fetchall():
        of_question = options.setdefault(questionnaire_id, {}).setdefault(link_id, [])
        of_question.append(f"{code} {display or ''}".strip())
    for name, title, url, system, code in db.execute(ANSWERED).fetchall():
        yield Form(name, title, url, (system, code), asked.get(name, []), options.get(name, {}))


def _shared(forms: Iterable[Form], named: Mapping[str, str], taken: set[str]) -> list[Sharing]:
    """Return the wide tables. named: the names that the home gives, by id, which come first.

    Raises `BrokenTable` where a name that the home gives is another table's.
    """
    found: list[Sharing] = []
    for form in sorted(forms, key=lambda form: form.id not in named):
        stem = PREFIX + (named.get(form.id) or _snake(form.name or "") or _snake(form.id))
        alike = [each for each in found if each.stem == stem and any(map(form.is_version_of, each.forms))]
        if not alike:
            if form.id in named and stem in taken:
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
    columns, selected, used = own, [], {column.name for column in own}
    for place, (question, of, said) in enumerate(_questions(sharing.forms), 1):
        if question.type in TEXTS and not with_texts:
            continue
        kind, value = _value(question)
        column = _free(_snake(question.link_id) or _snake(question.code or "") or f"question_{place}", used)
        columns.append(ColumnOf(column, kind, _comment(question, said), _kind(question, kind)))
        chosen = f"answer.link_id = {quoted(question.link_id)}"
        if len(of) < len(ids):
            chosen += f" AND answer.questionnaire_id IN ({', '.join(map(quoted, of))})"
        selected.append(f"{value} FILTER (WHERE {chosen}) AS {column}")
    if all(question.type is None for form in sharing.forms for question in form.asked):
        # No questionnaire of the target has these ids: they may be texts of people, and give the table its name.
        columns = [column._replace(kind="text") for column in columns]
    values = "".join(f",\n    {each}" for each in selected)
    version = ",\n    any_value(response.questionnaire_id) AS questionnaire_id" if len(ids) > 1 else ""
    return ReportTable(
        name=sharing.table,
        comment=f"One row per response to {_named(sharing)}, a column per question, counted as in "
        "questionnaire_response. A column is empty where the question has no answer.",
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
    )


def _kind(question: Asked, kind: str) -> str:
    """Return the kind of a question's column. The linkId of one that no form has may be a text of people."""
    if question.type in TEXTS or question.type is None:
        return "text"
    return "value" if kind == "DOUBLE" else TERM


def _named(sharing: Sharing) -> str:
    """The questionnaires of a table in words, and why it has another name than theirs."""
    shown = [f"{form.name} ({form.id})" if form.name else form.id for form in sharing.forms]
    several = "questionnaires" if len(shown) > 1 else "questionnaire"
    why = f", whose name gives {sharing.stem}, which another has," if sharing.table != sharing.stem else ""
    return f"the {several} {' and '.join(shown)}{why}"


def _questions(forms: Sequence[Form]) -> list[tuple[Asked, list[str], list[str]]]:
    """Return the questions of all versions, each with the ids of those that have it so, and its options in words.

    One that a later version answers in another kind of column is another question.
    """
    found: dict[tuple[str, str], tuple[Asked, list[str], list[str]]] = {}
    for form in forms:
        for question in form.asked:
            key = (question.link_id, _value(question)[1])
            _, of, said = found.setdefault(key, (question, [], []))
            of.append(form.id)
            said += [each for each in form.options.get(question.link_id, []) if each not in said]
    return list(found.values())


def _value(question: Asked) -> tuple[str, str]:
    """Return the type of a question's column, and the aggregate that gives its value."""
    if question.type in NUMBERS:
        return "DOUBLE", "max(answer.number)"
    if question.type in TEXTS:
        return "VARCHAR", "max(answer.text)"
    if question.repeats:
        return "VARCHAR[]", "list(coalesce(answer.option_code, answer.number::VARCHAR) ORDER BY answer.position)"
    return "VARCHAR", "max(answer.option_code)"


def _comment(question: Asked, options: list[str]) -> str:
    said = [f"{(question.text or 'A question without words').rstrip('. ')} (linkId {question.link_id})."]
    if question.type is None:
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
