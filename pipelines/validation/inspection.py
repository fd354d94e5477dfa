"""Inspect questionnaires before answers are checked against them, and warn of ambiguities."""

from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

from pipelines.session.questionnaires import Snapshot

AMBIGUOUS_OPTION = "QR-CREATE-01"
REPEATED_QUESTION = "QNR-RULE-03"
SEVERAL_ACTIVE = "FEED-ANS-03"


class Ambiguity(NamedTuple):
    """An ambiguity of a questionnaire: the rule that it breaks, and its place in ids and codes."""

    rule: str
    message: str


def ambiguities(questionnaire: Any) -> Iterator[Ambiguity]:
    """Yield each code that several options of a question share, and each code that several questions share."""
    name = f"Questionnaire/{questionnaire.id}"
    codes: Counter[tuple[str | None, str | None]] = Counter()
    for item in questionnaire.questions.values():
        for (system, code), number in item.option_counts.items():
            if number > 1:
                said = f"{name}: {number} options of question {item.linkId} have the code {system}|{code}"
                yield Ambiguity(AMBIGUOUS_OPTION, said)
        codes.update({(coding.system, coding.code) for coding in item.code if item.kind})
    for (system, code), number in codes.items():
        if number > 1:
            yield Ambiguity(REPEATED_QUESTION, f"{name}: {number} questions have the code {system}|{code}")


class InspectedSnapshot:
    """A snapshot that inspects a questionnaire when it is first asked for.

    warnings: its findings, by the id of the questionnaire, or by the text that matches several.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self.warnings: dict[str, tuple[Ambiguity, ...]] = {}

    def questionnaire(self, questionnaire_id: str) -> Any | None:
        """Return a questionnaire like `Snapshot.questionnaire`."""
        return self._inspected(self._snapshot.questionnaire(questionnaire_id))

    def find(self, text: str) -> Any | None:
        """Return a questionnaire like `Snapshot.find`. Raises LookupError if several active ones match."""
        try:
            return self._inspected(self._snapshot.find(text))
        except LookupError:
            said = f"several active questionnaires have the name or code {text}"
            self.warnings.setdefault(text, (Ambiguity(SEVERAL_ACTIVE, said),))
            raise

    def _inspected(self, found: Any | None) -> Any | None:
        if found is not None and found.id not in self.warnings:
            self.warnings[found.id] = tuple(ambiguities(found))
        return found
