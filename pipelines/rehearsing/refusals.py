"""Name the rule behind a refusal, and if the rule is given by the interface or decided by us.

An outcome carries no rule id. The service's rules are known here, so each is run on the refused body. The rule that
gives the target's text is the one behind the refusal.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from fhir_service.interface.json_text import parse_json
from fhir_service.interface.registry import RESOURCES
from fhir_service.interface.shape import shape
from fhir_service.interface.site import Site
from fhir_service.interface.vocabulary import Lookup, Note, Problem, World
from pipelines.client.comparison import DATED
from pipelines.feeds.terms.rulebook import GIVEN, IMPORTER, TARGET, basis_of

UNKNOWN = "unknown"
ANYTHING = "\N{REPLACEMENT CHARACTER}"
"""The placeholder in a rule's text for a value that only the target knows."""
NOTHING_OWED = -(10**15)


def basis(rule_id: str) -> str:
    """Return the origin of a rule: `interface` (given), `decision` (ours), `importer` (file, feed) or `unknown`."""
    found = basis_of(rule_id)
    return UNKNOWN if found in (None, TARGET) else str(found)


def rests_on_decisions(bases: Iterable[str]) -> bool | None:
    """True if an outcome would differ without our decisions; None if that is unknown."""
    found = set(bases)
    if not found or found & {GIVEN, IMPORTER}:
        return False
    return None if UNKNOWN in found else True


def rule_behind(
    resource_type: str, body: str, site: Site, lookup: Lookup, expression: str | None, said: str
) -> Problem | None:
    """Return the problem behind a refusal; None if no rule gives its text.

    body: the body that was validated. said: the outcome's text and diagnostics, as `<text>: <diagnostics>`.
    """
    resource = RESOURCES[resource_type]
    parsed = parse_json(body)
    if isinstance(parsed, dict):
        parsed.setdefault(DATED[resource_type], "2000-01-01T00:00:00Z")
    model, problems = shape(resource.model, parsed, resource.name)
    found: Iterable[Problem] = _problems(resource_type, model, site, lookup) if model else problems
    for problem in found:
        words = f"{problem.message or problem.outcome.text}: {problem.text}"
        pattern = re.escape(words).replace(re.escape(ANYTHING), r"\S+")
        if problem.expression == expression and re.fullmatch(pattern, said):
            return problem
    return None


def _problems(resource_type: str, model: Any, site: Site, lookup: Lookup) -> Iterator[Problem]:
    for state in ("cancelled", "deleted"):
        for exists in (False, True):
            world = World(site, _WorstTarget(lookup, exists, state), {})
            for rule in RESOURCES[resource_type].rules:
                yield from rule.problems(model, site if rule.needs == "payload" else world)


@dataclass
class _SomeNote:
    id: str
    patient: str
    encounter: str | None
    state: str


@dataclass
class _WorstTarget:
    """A target at its worst: records are missing or belong to others, and nobody owes anything."""

    lookup: Lookup
    all_exist: bool
    note_state: str

    def questionnaire(self, questionnaire_id: str) -> Any | None:
        return self.lookup.questionnaire(questionnaire_id)

    def exists(self, reference: str) -> bool:  # noqa: ARG002 - the same of all
        return self.all_exist

    def patient_of(self, reference: str) -> str | None:  # noqa: ARG002
        return ANYTHING

    def display(self, reference: str) -> str | None:  # noqa: ARG002
        return None

    def note_of(self, encounter_id: str) -> Note | None:
        return _SomeNote(ANYTHING, ANYTHING, encounter_id, self.note_state)

    def note(self, note_id: str) -> Note | None:
        return _SomeNote(note_id, ANYTHING, None, self.note_state) if self.all_exist else None

    def balance(self, patient_id: str) -> int:  # noqa: ARG002
        return NOTHING_OWED
