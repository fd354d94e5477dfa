"""The questionnaires that have responses: the input of the wide tables."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import duckdb

from pipelines.reports.forms import AskedQuestion, id_at_target, with_options

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
