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


class Scoring:
    """Which responses lack answers that their score needs. named: ids, names or `system|code`; None for those known."""

    def __init__(self, questionnaires: Inspected, named: Sequence[str] | None) -> None:
        self._questionnaires = questionnaires
        self._named = frozenset(KNOWN if named is None else named)
        self._needed = lru_cache(maxsize=None)(self._needed_answers)

    def unanswered(self, response: Mapping[str, Any]) -> list[str]:
        """The linkIds of a scored questionnaire that have no answer. response: the body to be sent."""
        address = response.get("questionnaire")
        needed = self._needed(address.rpartition("/")[2]) if isinstance(address, str) else frozenset()
        return sorted(needed.difference(_answered(response))) if needed else []

    def _needed_answers(self, questionnaire_id: str) -> frozenset[str]:
        found = self._questionnaires.questionnaire(questionnaire_id)
        if found is None or self._named.isdisjoint(_names(found)):
            return frozenset()
        return frozenset(_choices(found.item))


def _names(questionnaire: Any) -> Iterator[str | None]:
    yield from (questionnaire.id, questionnaire.name)
    yield from (f"{coding.system}|{coding.code}" for coding in questionnaire.code)


def _choices(items: Sequence[Any]) -> Iterator[str]:
    """The choices that everybody is asked: under no condition and no other question. A score is made of choices."""
    for item in items:
        if item.enableWhen:
            continue
        if item.kind in ("SING", "MULT"):
            yield item.linkId
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
