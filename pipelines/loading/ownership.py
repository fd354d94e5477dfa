"""Tell whether what a target has under an id is still a record's: one that moved or was restored gives ids again.

A resource is changed or taken back by `changes.py` alone, and only after this.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from pipelines.client.capabilities import Capabilities
from pipelines.client.client import FhirClient
from pipelines.client.comparison import patient_of
from pipelines.client.identifiers import VALUES_A_SEARCH, identifier_value, values_of
from pipelines.client.whole import whole
from pipelines.loading.answered import outcome_of
from pipelines.loading.identity import Identity

GONE = outcome_of("not-found", "the target has no such resource any more")
NOT_NAMED = outcome_of("NOT-OURS", "what is there does not have its identifier")
GIVEN_AGAIN = outcome_of("NOT-OURS", "what is there does not have its identifier, but another of its source")
OF_ANOTHER = outcome_of("NOT-OURS", "what is there is another patient's")
"""Outcomes of changes that were not sent, since the resource is not there, or is another's."""
NOT_OURS = (NOT_NAMED, GIVEN_AGAIN, OF_ANOTHER)


class Named(Protocol):
    """A record, or what it was before, whose resource has an identifier by these."""

    @property
    def key(self) -> str: ...
    @property
    def generation(self) -> int: ...


class Version(Named, Protocol):
    """A record, or what it was before, with its resource."""

    @property
    def resource_id(self) -> str | None: ...
    @property
    def patient_id(self) -> str | None: ...


def value_of(record: Named) -> str:
    """The value of the identifier of a record's resource."""
    return identifier_value(record.key, record.generation)


class Made(NamedTuple):
    """A resource as the ledger knows it: its id, the value of its identifier, and the patients that it may be of."""

    resource_id: str
    value: str
    patients: tuple[str, ...]

    @classmethod
    def of(cls, version: Version, *others: str | None) -> "Made":
        """The resource of a record. others: patients that it may be of too."""
        patients = tuple(each for each in (version.patient_id, *others) if each)
        return cls(str(version.resource_id), value_of(version), patients)


class Owner(NamedTuple):
    """The source whose records have resources at a target.

    shown: whether what it made there shows its identifiers. Where it does not, a patient tells what is another's.
    replaces: whether a PUT replaces the whole resource there, as FHIR says. The interface keeps what it leaves out.
    """

    identity: Identity
    shown: bool
    replaces: bool = False

    @classmethod
    def at(cls, capabilities: Capabilities, target: str, identity: Identity) -> "Owner":
        """The owner of what a source has at the target of this name."""
        shown = capabilities.shows_names(target, identity.resource_type)
        return cls(identity, shown, replaces=shown and capabilities.store_id is None)

    def why_not(self, made: Made, body: Mapping[str, Any] | None) -> dict[str, Any] | None:
        """Return why what was read is not the record's resource; None if it is."""
        if body is None:
            return GONE
        if self.shown:
            values = values_of(self.identity.system, body)
            return None if made.value in values else GIVEN_AGAIN if values else NOT_NAMED
        patient = patient_of(body)
        return OF_ANOTHER if patient and made.patients and patient not in made.patients else None


def places(client: FhirClient, identity: Identity, values: Sequence[str]) -> dict[str, list[str]]:
    """Ids at the target by identifiers, each once, however often it is shown. Raises as `FhirClient.get` does."""
    found: dict[str, dict[str, None]] = {value: {} for value in values}
    for some in (values[at : at + VALUES_A_SEARCH] for at in range(0, len(values), VALUES_A_SEARCH)):
        for body in whole(client.named(identity.resource_type, identity.system, some), identity.resource_type):
            for value in values_of(identity.system, body):
                found.get(str(value), {})[str(body["id"])] = None
    return {value: [*ids] for value, ids in found.items()}
