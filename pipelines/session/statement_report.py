"""Report a target's statement, how an import will therefore send, at what risk, and if its searches work.

Nothing is written at the target: it gets a search by an identifier that no record has, for each type.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pipelines.client.client import FhirClient
from pipelines.client.replies import NoResult
from pipelines.client.steps import DOES, Step, risk_of, step_for
from pipelines.home.exits import ALL_LOADED, UNUSABLE, CommandResult
from pipelines.session.connections import TargetConnection

TYPES = ("PaymentNotice", "Task", "QuestionnaireResponse")
ANSWERED = "found nothing, as it should"
NOT_ASKED = "not needed"
COMPUTED = "computed from the target's Claims and PaymentNotices before a payment is sent"
KEPT = "left to the target"


@dataclass(frozen=True)
class OfType:
    """The way rows of a type will be sent. look_up: the result of a search by identifier."""

    resource_type: str
    step: str
    does: str
    risk: str
    look_up: str
    works: bool


@dataclass(frozen=True)
class OfferedCapabilities(CommandResult):
    """A target's capabilities: its name and version, the content of its statement, and how each type will be sent."""

    software: str | None
    profile: str
    balances: bool
    says: dict[str, Any]
    types: tuple[OfType, ...]

    @property
    def exit_code(self) -> int:
        return ALL_LOADED if all(each.works for each in self.types) else UNUSABLE

    def lines(self) -> Iterator[str]:
        yield f"software: {self.software or 'not said'}"
        yield f"profile: {self.profile}"
        yield f"balances: {COMPUTED if self.balances else KEPT}"
        for name, said in self.says.items():
            yield f"{name}: {(', '.join(said) if isinstance(said, list) else said) or 'none'}"
        for each in self.types:
            yield f"{each.resource_type}: {each.step}: {each.does}"
            yield f"  risk: {each.risk}"
            yield f"  look-up: {each.look_up}"


def ask_target(connection: TargetConnection) -> OfferedCapabilities:
    """Ask a target what it offers, and try the look-up of each type. Writes nothing there."""
    found = connection.capabilities
    says = {
        "bundles": [name for name, there in (("batch", found.batch), ("transaction", found.transaction)) if there],
        "conditional create": _ours(found.conditional),
        "search by identifier": _ours(found.identified),
        "$validate": _ours(found.validates),
    }
    software = " ".join(filter(None, (found.name, found.software))) or None
    types = (_of_type(connection.client, kind, step_for(found, kind)) for kind in TYPES)
    profile = connection.client.profile
    return OfferedCapabilities(software, profile.name, profile.balances, says, tuple(types))


def _ours(types: frozenset[str]) -> list[str]:
    return [kind for kind in TYPES if kind in types]


def _of_type(client: FhirClient, kind: str, step: Step) -> OfType:
    look_up = _look_up(client, kind) if step.named else NOT_ASKED
    works = look_up in (ANSWERED, NOT_ASKED)
    does = DOES[step.name].format(rows=client.profile.most_rows)
    return OfType(kind, step.name, does, risk_of(step), look_up, works)


def _look_up(client: FhirClient, kind: str) -> str:
    """Return the result of a search by an identifier that no record has."""
    try:
        works = client.finds_nobody(kind)
    except NoResult as error:
        return f"is not answered ({error}): rows of unclear outcome would stay in doubt"
    return ANSWERED if works else "finds what it was not asked for: rows of unclear outcome would stay in doubt"
