"""A load: the objects that it works with."""

from dataclasses import dataclass
from functools import cached_property

from pipelines.client.capabilities import Capabilities
from pipelines.client.client import FhirClient
from pipelines.client.steps import Step
from pipelines.home.progress import Progress
from pipelines.ledger.lease import HeldRight
from pipelines.ledger.ledger import Ledger
from pipelines.loading.load_counts import BatchRun
from pipelines.loading.ownership import Owner
from pipelines.loading.references import References
from pipelines.loading.row import Identity


@dataclass(frozen=True)
class Load:
    """A batch on its way to a target, under a lease of that target or of a part.

    step: how rows reach the target, by what the target says of itself.
    """

    batch: BatchRun
    client: FhirClient
    capabilities: Capabilities
    step: Step
    ledger: Ledger
    lease: HeldRight
    progress: Progress

    @property
    def source(self) -> str:
        return self.batch.feed.source

    @property
    def resource(self) -> str:
        return self.batch.feed.resource

    @property
    def of(self) -> tuple[str, str, str]:
        """Target, source and type of the load's records in the ledger."""
        return self.batch.target, self.source, self.resource

    @property
    def identity(self) -> Identity:
        return Identity(self.source, self.resource)

    @property
    def owner(self) -> Owner:
        """The owner of the resources that the batch's source has at the target."""
        return Owner.at(self.capabilities, self.batch.target, self.identity)

    @cached_property
    def references(self) -> References:
        """The resources that the rows refer to."""
        return References.at(self.client, self.capabilities, self.resource, self.progress)
