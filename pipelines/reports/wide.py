"""The wide tables, `response_<name>`: one for each questionnaire with responses, a row each, a column per question."""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import duckdb

from pipelines.reports.building import quoted
from pipelines.reports.settings import FILE, ReportSettings
from pipelines.reports.tables import BrokenTable, ColumnOf, ReportTable

PREFIX = "response_"
LETTERS = 50
OPTIONS_NAMED = 20
NUMBERS = ("decimal", "integer", "quantity")
TEXTS = ("text", "string")
OWN = (
    ColumnOf("response_id", "VARCHAR", "Id of the QuestionnaireResponse at the target."),
    ColumnOf("patient_id", "VARCHAR", "Id of the patient."),
    ColumnOf("authored_at", "TIMESTAMPTZ", "When it was given in its source, UTC; else when it was sent."),
)

ANSWERED = """
    SELECT response.questionnaire_id, any_value(questionnaire.name)
    FROM questionnaire_response AS response LEFT JOIN questionnaire USING (questionnaire_id)
    WHERE response.questionnaire_id IS NOT NULL GROUP BY ALL ORDER BY ALL"""
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


def response_tables(
    db: duckdb.DuckDBPyConnection, settings: ReportSettings, taken: Iterable[str]
) -> Iterator[ReportTable]:
    """Yield the declarations of the wide tables. taken: names of other tables. Raises `BrokenTable`."""
    asked: dict[str, list[Asked]] = {}
    for questionnaire_id, *question in db.execute(ASKED).fetchall():
        asked.setdefault(questionnaire_id, []).append(Asked(*question))
    options: dict[tuple[str, str], list[str]] = {}
    for questionnaire_id, link_id, code, display in db.execute(CHOICES).fetchall():
        options.setdefault((questionnaire_id, link_id), []).append(f"{code} {display or ''}".strip())
    names = {name: f"the table {name}" for name in taken}
    for questionnaire_id, name in db.execute(ANSWERED).fetchall():
        table = PREFIX + (
            settings.response_tables.get(questionnaire_id) or _snake(name or "") or _snake(questionnaire_id)
        )
        if table in names:
            raise BrokenTable(
                f"the questionnaire {questionnaire_id} would have the table {table}, as {names[table]} has: "
                f"give it another name in {FILE} of the home, under [response_tables]"
            )
        names[table] = f"the questionnaire {questionnaire_id}"
        here = {link_id: said for (of, link_id), said in options.items() if of == questionnaire_id}
        yield _table(table, questionnaire_id, name, asked.get(questionnaire_id, []), here, settings.publish_free_text)


def _table(
    table: str,
    questionnaire_id: str,
    name: str | None,
    asked: list[Asked],
    options: Mapping[str, list[str]],
    with_texts: bool,
) -> ReportTable:
    columns, selected, used = list(OWN), [], {column.name for column in OWN}
    for place, question in enumerate(asked, 1):
        if question.type in TEXTS and not with_texts:
            continue
        kind, value = _value(question)
        column = _free(_snake(question.link_id) or _snake(question.code or "") or f"question_{place}", used)
        columns.append(ColumnOf(column, kind, _comment(question, options.get(question.link_id, []))))
        selected.append(f"{value} FILTER (WHERE answer.link_id = {quoted(question.link_id)}) AS {column}")
    values = "".join(f",\n    {each}" for each in selected)
    named = f"{name} ({questionnaire_id})" if name else questionnaire_id
    return ReportTable(
        name=table,
        comment=f"One row per response to the questionnaire {named}, a column per question, counted as in "
        "questionnaire_response. A column is empty where the question has no answer.",
        inputs=("questionnaire_response", "answer"),
        key=("response_id",),
        references=(),
        columns=tuple(columns),
        select=f"""SELECT response.resource_id AS response_id,
    any_value(response.patient_id) AS patient_id,
    any_value(response.authored_at) AS authored_at{values}
FROM questionnaire_response AS response
LEFT JOIN answer ON response.resource_id = answer.response_id
WHERE response.questionnaire_id = {quoted(questionnaire_id)}
GROUP BY response.resource_id
ORDER BY response.resource_id""",
        file=f"the table {table}",
    )


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
