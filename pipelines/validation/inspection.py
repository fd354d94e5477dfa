"""Questionnaires looked over before answers are checked against them: what is ambiguous is counted as a warning."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from pipelines.snapshot import Snapshot

AMBIGUOUS_OPTION = "QR-CREATE-01"
REPEATED_QUESTION = "QNR-RULE-03"
SEVERAL_ACTIVE = "FEED-ANS-03"


def ambiguities(questionnaire: Any) -> Iterator[str]:
    """The rule that each ambiguity breaks: a question's options with one code, a code of several questions."""
    codes: Counter[tuple[str | None, str | None]] = Counter()
    for item in questionnaire.questions.values():
        yield from (AMBIGUOUS_OPTION for number in item.option_counts.values() if number > 1)
        codes.update({(coding.system, coding.code) for coding in item.code if item.kind})
    yield from (REPEATED_QUESTION for number in codes.values() if number > 1)


class Inspected:
    """A snapshot that looks a questionnaire over when it is first asked for.

    warnings: what it found, by the id of the questionnaire, or by the text that several answer to.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self.warnings: dict[str, Counter[str]] = {}

    def questionnaire(self, questionnaire_id: str) -> Any | None:
        """As `Snapshot.questionnaire`."""
        return self._inspected(self._snapshot.questionnaire(questionnaire_id))

    def find(self, text: str) -> Any | None:
        """As `Snapshot.find`. Raises LookupError when several active ones have this name or code."""
        try:
            return self._inspected(self._snapshot.find(text))
        except LookupError:
            self.warnings.setdefault(text, Counter((SEVERAL_ACTIVE,)))
            raise

    def _inspected(self, found: Any | None) -> Any | None:
        if found is not None and found.id not in self.warnings:
            self.warnings[found.id] = Counter(ambiguities(found))
        return found
