"""Questionnaires that a score is computed for: their answers count only when no question is left out.

The interface does not show which these are: a feed file names them, else the instruments that are known by their codes.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from pipelines.validation.inspection import Inspected

INCOMPLETE = "QR-RULE-02"
KNOWN: Mapping[str, str] = {
    "http://loinc.org|44249-1": "PHQ-9",
    "http://loinc.org|55757-9": "PHQ-2",
    "http://loinc.org|69737-5": "GAD-7",
    "http://loinc.org|72109-2": "AUDIT-C",
}
"""Panels whose score adds up what was chosen, by `system|code`."""
_PHQ_2 = ("44250-9", "44255-8")
_PHQ_9 = (*_PHQ_2, "44259-0", "44254-1", "44251-7", "44258-2", "44252-5", "44253-3", "44260-8")
_GAD_7 = ("69725-0", "68509-9", "69733-4", "69734-2", "69735-9", "69689-8", "69736-7")
_AUDIT_C = ("68518-0", "68519-8", "68520-6")
COUNTED: Mapping[str, frozenset[str]] = {
    panel: frozenset(f"http://loinc.org|{code}" for code in codes)
    for panel, codes in zip(KNOWN, (_PHQ_9, _PHQ_2, _GAD_7, _AUDIT_C), strict=True)
}
"""The questions whose answers a panel's score adds up. Others stand beside them and are often left empty: how difficult
the problems have made work and life is asked with PHQ-9 and GAD-7, and counts in neither."""


class Scoring:
    """Checks for responses that lack answers which their score needs. named: ids, names or `system|code`; None for
    those known. questions: linkIds or codes of those that count, where the questionnaire does not tell; empty for all.
    """

    def __init__(self, questionnaires: Inspected, named: Sequence[str] | None, questions: Sequence[str] = ()) -> None:
        self._questionnaires = questionnaires
        self._questions = frozenset(questions)
        self._named = frozenset(KNOWN if named is None else named)
        self._needed = lru_cache(maxsize=None)(self._needed_answers)

    def unanswered(self, response: Mapping[str, Any]) -> list[str]:
        """The linkIds of the questions that count towards a score and have no answer. response: the body to be sent."""
        address = response.get("questionnaire")
        needed = self._needed(address.rpartition("/")[2]) if isinstance(address, str) else frozenset()
        # Most have all answers, and those not nested: the items at the top tell then.
        if not needed or needed.issubset([item["linkId"] for item in response.get("item", ()) if item.get("answer")]):
            return []
        return sorted(needed.difference(_answered(response)))

    def _needed_answers(self, questionnaire_id: str) -> frozenset[str]:
        found = self._questionnaires.questionnaire(questionnaire_id)
        if found is None or self._named.isdisjoint(_names(found)):
            return frozenset()
        asked = _choices(found.item)
        if self._questions:
            return frozenset(each.linkId for each in asked if not self._questions.isdisjoint(_spelled(each)))
        counted = next((COUNTED[code] for code in _codes(found) if code in COUNTED), None)
        return frozenset(each.linkId for each in asked if counted is None or not counted.isdisjoint(_codes(each)))


def _names(questionnaire: Any) -> Iterator[str | None]:
    yield from (questionnaire.id, questionnaire.name)
    yield from _codes(questionnaire)


def _codes(element: Any) -> Iterator[str]:
    """The codes of a questionnaire or a question, as `system|code`."""
    yield from (f"{coding.system}|{coding.code}" for coding in element.code or ())


def _spelled(item: Any) -> Iterator[str]:
    """The texts by which a feed may name a question."""
    yield item.linkId
    for code in _codes(item):
        yield from (code, code.partition("|")[2])


def _choices(items: Sequence[Any]) -> Iterator[Any]:
    """The choices that everybody is asked: under no condition and no other question. A score is made of choices."""
    for item in items:
        if item.enableWhen:
            continue
        if item.kind in ("SING", "MULT"):
            yield item
        elif item.kind is None:
            yield from _choices(item.item)


def _answered(response: Mapping[str, Any]) -> set[str]:
    """The linkIds that have an answer, at any depth."""
    found, holders = set(), [response]
    for holder in holders:
        for item in holder.get("item", ()):
            if answers := item.get("answer"):
                found.add(item["linkId"])
                holders.extend(answer for answer in answers if "item" in answer)
            if "item" in item:
                holders.append(item)
    return found
