"""Decide if a resource at a target is still a record's: a target that moved or was restored may give ids again.

Only `changes.py` changes or takes back a resource, and only after this check.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pipelines.client.capabilities import Capabilities
from pipelines.client.client import FhirClient
from pipelines.client.comparison import patient_of
from pipelines.client.identifiers import VALUES_A_SEARCH, identifier_value, values_of
from pipelines.client.whole import whole_search
from pipelines.ledger.former_versions import FormerVersion
from pipelines.ledger.rows import KnownRecord, RecordRow
from pipelines.loading.row import Identity, outcome_of

GONE = outcome_of("not-found", "the target no longer has the resource")
NOT_NAMED = outcome_of("NOT-OURS", "the resource under its id does not have its identifier")
GIVEN_AGAIN = outcome_of("NOT-OURS", "the resource under its id has the identifier of another record of its source")
OF_ANOTHER = outcome_of("NOT-OURS", "the resource under its id is of another patient")
"""Outcomes of changes that were not sent, since the resource is missing or is not the record's."""
NOT_OURS = (NOT_NAMED, GIVEN_AGAIN, OF_ANOTHER)
RecordVersion = KnownRecord | RecordRow | FormerVersion
"""A record or an earlier version of one, with its resource."""


def value_of(record: RecordVersion) -> str:
    """Return the value of the identifier of a record's resource."""
    return identifier_value(record.key, record.generation)


class KnownResource(NamedTuple):
    """A resource as the ledger knows it: its id, its identifier's value, and the patients that it may belong to."""

    resource_id: str
    value: str
    patients: tuple[str, ...]

    @classmethod
    def of(cls, version: RecordVersion, *others: str | None) -> "KnownResource":
        """Return the resource of a record. others: further patients that it may belong to."""
        patients = tuple(each for each in (version.patient_id, *others) if each)
        return cls(str(version.resource_id), value_of(version), patients)


class Owner(NamedTuple):
    """The source whose records have resources at a target.

    shown: True if resources show their identifiers there. If they do not, the patient tells if a resource is
    another's. replaces: True if a PUT replaces the whole resource there, as FHIR says. The interface keeps elements
    that a PUT leaves out.
    """

    identity: Identity
    shown: bool
    replaces: bool = False

    @classmethod
    def at(cls, capabilities: Capabilities, target: str, identity: Identity) -> "Owner":
        """Return the owner of a source's resources at the target of this name."""
        shown = capabilities.shows_names(target, identity.resource_type)
        return cls(identity, shown, replaces=shown and capabilities.store_id is None)

    def why_not(self, made: KnownResource, body: Mapping[str, Any] | None) -> dict[str, Any] | None:
        """Return the reason why a resource as read is not the record's; None if it is."""
        if body is None:
            return GONE
        if self.shown:
            values = values_of(self.identity.system, body)
            return None if made.value in values else GIVEN_AGAIN if values else NOT_NAMED
        patient = patient_of(body)
        return OF_ANOTHER if patient and made.patients and patient not in made.patients else None


def places(client: FhirClient, identity: Identity, values: Sequence[str]) -> dict[str, list[str]]:
    """Return the ids at the target by identifier, each once, however often shown. Raises as `FhirClient.get` does."""
    found: dict[str, dict[str, None]] = {value: {} for value in values}
    for some in (values[at : at + VALUES_A_SEARCH] for at in range(0, len(values), VALUES_A_SEARCH)):
        for body in whole_search(client.named(identity.resource_type, identity.system, some), identity.resource_type):
            for value in values_of(identity.system, body):
                found.get(str(value), {})[str(body["id"])] = None
    return {value: [*ids] for value, ids in found.items()}
