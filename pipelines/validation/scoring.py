"""Questionnaires for which a score is computed: their answers count only if no question is left out.

The interface does not show which questionnaires these are. A feed file names them, else instruments with known codes
count.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from pipelines.validation.inspection import InspectedSnapshot

INCOMPLETE = "QR-RULE-02"
KNOWN: Mapping[str, str] = {
    "http://loinc.org|44249-1": "PHQ-9",
    "http://loinc.org|55757-9": "PHQ-2",
    "http://loinc.org|69737-5": "GAD-7",
    "http://loinc.org|72109-2": "AUDIT-C",
}
"""Panels whose score is the sum of the chosen options, by `system|code`."""
_PHQ_2 = ("44250-9", "44255-8")
_PHQ_9 = (*_PHQ_2, "44259-0", "44254-1", "44251-7", "44258-2", "44252-5", "44253-3", "44260-8")
_GAD_7 = ("69725-0", "68509-9", "69733-4", "69734-2", "69735-9", "69689-8", "69736-7")
_AUDIT_C = ("68518-0", "68519-8", "68520-6")
COUNTED: Mapping[str, frozenset[str]] = {
    panel: frozenset(f"http://loinc.org|{code}" for code in codes)
    for panel, codes in zip(KNOWN, (_PHQ_9, _PHQ_2, _GAD_7, _AUDIT_C), strict=True)
}
"""The questions whose answers a panel's score adds up. Others beside them are often left empty: PHQ-9 and GAD-7 also
ask how difficult the problems have made work and life, which counts in neither score.
"""


class Scoring:
    """Test of responses for missing answers that their score needs.

    named: questionnaires as ids, names or `system|code`; None for those with known codes. questions: linkIds or codes
    of the questions that count, if the questionnaire does not tell; empty for all.
    """

    def __init__(
        self, questionnaires: InspectedSnapshot, named: Sequence[str] | None, questions: Sequence[str] = ()
    ) -> None:
        self._questionnaires = questionnaires
        self._questions = frozenset(questions)
        self._named = frozenset(KNOWN if named is None else named)
        self._needed = lru_cache(maxsize=None)(self._needed_answers)

    def unanswered(self, response: Mapping[str, Any]) -> list[str]:
        """Return the linkIds of unanswered questions that count towards a score. response: the body to be sent."""
        address = response.get("questionnaire")
        needed = self._needed(address.rpartition("/")[2]) if isinstance(address, str) else frozenset()
        # Most responses have all answers, not nested, so the items at the top are enough.
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
    """Return the codes of a questionnaire or a question, as `system|code`."""
    yield from (f"{coding.system}|{coding.code}" for coding in element.code or ())


def _spelled(item: Any) -> Iterator[str]:
    """Yield the texts by which a feed may name a question."""
    yield item.linkId
    for code in _codes(item):
        yield from (code, code.partition("|")[2])


def _choices(items: Sequence[Any]) -> Iterator[Any]:
    """Yield the choices that every person is asked, without condition or outer question: scores are made of these."""
    for item in items:
        if item.enableWhen:
            continue
        if item.kind in ("SING", "MULT"):
            yield item
        elif item.kind is None:
            yield from _choices(item.item)


def _answered(response: Mapping[str, Any]) -> set[str]:
    """Return the linkIds that have an answer, at any depth."""
    found, holders = set(), [response]
    for holder in holders:
        for item in holder.get("item", ()):
            if answers := item.get("answer"):
                found.add(item["linkId"])
                holders.extend(answer for answer in answers if "item" in answer)
            if "item" in item:
                holders.append(item)
    return found
