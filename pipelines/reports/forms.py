"""Forms: questionnaires with their questions; and the test if two questions of one linkId ask the same thing.

A question's meaning is known only by its code, its words and its options. If these differ, the answers to the two
questions are not put together.
"""

import hashlib
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from pydantic import BaseModel

SHARED_CODES = ("http://loinc.org", "http://snomed.info/sct")
"""The systems whose codes have one meaning, whatever words a questionnaire uses for them."""

Row = Sequence[Any]
NO_QUESTION = ("group", "display")
"""Types of items that take no answer."""

SIGN = "~"
"""The separator between the id of a questionnaire and the number of a former form; FHIR ids do not contain it."""


def id_at_target(form_id: str) -> str:
    """Return the id that a form has, or had, at the target."""
    return form_id.partition(SIGN)[0]


_KEPT = "-.,%"
_NO_SIGN = re.compile(r"(?<![0-9])[.,]|[.,](?![0-9])|-(?![0-9])|(?<=[^\W\d_])-")
"""Points outside numbers; dashes not before a digit, or after a letter."""


class Option(NamedTuple):
    """An option of a question. value: the number that the option declares for scores."""

    system: str | None
    code: str | None
    display: str | None
    value: float | None = None


class AskedQuestion(NamedTuple):
    """A question that has answers, or that is in the form now. type: None if the form no longer has the question."""

    link_id: str
    text: str | None
    type: str | None
    repeats: bool
    system: str | None = None
    code: str | None = None
    options: tuple[Option, ...] = ()

    def is_asked_as(self, other: "AskedQuestion") -> bool:
        """True unless the two questions of one linkId surely ask different things."""
        if self.type is None or other.type is None:
            return True
        if self.code and other.code:
            is_one = self.code == other.code and _agree(self.system, other.system)
        else:
            is_one = _agree(_plain(self.text), _plain(other.text))
        return is_one and self._options_agree(other)

    def _options_agree(self, other: "AskedQuestion") -> bool:
        """True if no option code has different words in the two questions. Codes of shared systems are not compared."""
        known = {each[:2]: _plain(each.display) for each in self.options}
        own = (each for each in other.options if each.system not in SHARED_CODES)
        return all(_agree(_plain(each.display), known.get(each[:2])) for each in own)


def ask_alike(one: Iterable[AskedQuestion], other: Iterable[AskedQuestion]) -> bool:
    """True if each linkId that two forms share asks the same, takes the same kind of answer, and counts the same.

    False for forms that share no linkId.
    """
    was, now = ({each.link_id: each for each in form} for form in (one, other))
    shared = [(was[link_id], now[link_id]) for link_id in was if link_id in now]
    valued = [{link_id for link_id, each in form.items() if _declared(each)} for form in (was, now)]
    return (
        valued[0] == valued[1]
        and (bool(shared) or not was or not now)
        and all(before.type == each.type and each.is_asked_as(before) for before, each in shared)
        and not any(_counts_otherwise(before, each) for before, each in shared)
    )


def _declared(asked: AskedQuestion) -> Mapping[tuple[str | None, str | None], float]:
    """Return the values that options declare."""
    return {each[:2]: each.value for each in asked.options if each.value is not None}


def _counts_otherwise(one: AskedQuestion, other: AskedQuestion) -> bool:
    """True if an option of both questions declares different values, or a value in only one of them."""
    both = {each[:2] for each in one.options} & {each[:2] for each in other.options}
    values = [_declared(each) for each in (one, other)]
    return any(values[0].get(option) != values[1].get(option) for option in both)


def with_options(questions: Iterable[Row], options: Iterable[Row]) -> Mapping[str, list[AskedQuestion]]:
    """Return the questions by questionnaire.

    Args:
        questions: rows of the questionnaire's id and the fields of `AskedQuestion` before `options`.
        options: rows of the questionnaire's id, the linkId and the fields of `Option`.
    """
    chosen: dict[tuple[str, str], list[Option]] = {}
    for questionnaire_id, link_id, *option in options:
        chosen.setdefault((questionnaire_id, link_id), []).append(Option(*option))
    found: dict[str, list[AskedQuestion]] = {}
    for questionnaire_id, *question in questions:
        of = tuple(chosen.get((questionnaire_id, question[0]), ()))
        found.setdefault(questionnaire_id, []).append(AskedQuestion(*question)._replace(options=of))
    return found


def _agree(one: str | None, other: str | None) -> bool:
    """True if two texts are equal, or one of them is missing."""
    return not one or not other or one == other


@lru_cache(maxsize=20_000)
def _plain(text: str | None) -> str:
    """Return the letters, digits and symbols of a text. Blanks, other marks and capitals change no meaning.

    The sign and the point of a number are kept. A text without any letter, digit or symbol is returned as it is.
    """
    said = unicodedata.normalize("NFC", unicodedata.normalize("NFC", text or "").casefold())
    signs = _NO_SIGN.sub("", said)
    return "".join(each for each in signs if unicodedata.category(each)[0] in "LMNS" or each in _KEPT) or said


def content_name(questionnaire: BaseModel) -> str:
    """Return a short hash of a questionnaire's content, as the interface reads it."""
    return hashlib.sha256(questionnaire.model_dump_json().encode()).hexdigest()[:12]
