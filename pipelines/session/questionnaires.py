"""The questionnaires of a target as they were when a file was validated: what rules and the answers feed look up."""

import hashlib
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any


class Ambiguous(LookupError):
    """Several active questionnaires answer to one name or code."""


class Snapshot:
    """Questionnaires by id. Serves as the `Lookup` of the interface's rules."""

    def __init__(self, questionnaires: Mapping[str, Any] | None = None) -> None:
        self.questionnaires = dict(questionnaires or {})

    @classmethod
    def of(cls, questionnaires: Iterable[Any]) -> "Snapshot":
        """From models of the interface."""
        return cls({questionnaire.id: questionnaire for questionnaire in questionnaires})

    def questionnaire(self, questionnaire_id: str) -> Any | None:
        """The questionnaire with this id, whatever its status."""
        return self.questionnaires.get(questionnaire_id)

    def versions(self) -> dict[str, str]:
        """A short name for the content of each, by id."""
        bodies = ((name, each.model_dump_json().encode()) for name, each in sorted(self.questionnaires.items()))
        return {name: hashlib.sha256(body).hexdigest()[:12] for name, body in bodies}

    def find(self, text: str) -> Any | None:
        """By id, else the active one by name, else by `system|code`. Raises Ambiguous."""
        if found := self.questionnaires.get(text):
            return found
        named = self._active.get(text, [])
        if len(named) > 1:
            raise Ambiguous
        return named[0] if named else None

    @cached_property
    def _active(self) -> dict[str, list[Any]]:
        """Active questionnaires by name and by `system|code`."""
        found: dict[str, list[Any]] = {}
        for questionnaire in self.questionnaires.values():
            if questionnaire.status == "active":
                codes = {f"{coding.system}|{coding.code}" for coding in questionnaire.code or ()}
                for text in {questionnaire.name, *codes} - {None}:
                    found.setdefault(text, []).append(questionnaire)
        return found
