"""An order to a worker: the parts of a batch to load, and how to reach target and ledger."""

from dataclasses import dataclass, field
from pathlib import Path

from pipelines.client.capabilities import Capabilities
from pipelines.client.client import FhirClient
from pipelines.client.pace import limiter_of
from pipelines.client.profiles import Profile
from pipelines.client.steps import step_for
from pipelines.client.tokens import Credentials
from pipelines.home.progress import Progress
from pipelines.ledger.ledger import Ledger
from pipelines.ledger.parts import PartLease
from pipelines.loading.load import Load
from pipelines.loading.load_counts import BatchRun


@dataclass(frozen=True)
class PartsPlan:
    """The division of a batch into parts to load.

    workers: the number of processes that share the target's pace. first: True if no row of the batch had an outcome
    before. since: when the load began. freed: keys of rows in doubt that may be sent again.
    """

    parts: int
    workers: int
    first: bool
    since: str = ""
    freed: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class WorkerOrder:
    """The order to a worker: what to load, and how to reach target and ledger.

    batch: with the pace of one worker. loader: the owner of the target's lease.
    """

    batch: BatchRun
    plan: PartsPlan
    loader: str
    ledger: str | Path
    base_url: str
    credentials: Credentials
    capabilities: Capabilities
    profile: Profile

    def client(self) -> FhirClient:
        """Return a client of the target, at the pace of one worker."""
        return FhirClient(
            self.base_url, self.credentials, before_each=limiter_of(self.batch.pace), profile=self.profile
        )

    def load(self, batch: BatchRun, client: FhirClient, ledger: Ledger, lease: PartLease, progress: Progress) -> Load:
        """Return the load of one part, which `batch` names."""
        step = step_for(self.capabilities, batch.feed.resource)
        return Load(batch, client, self.capabilities, step, ledger, lease, progress)
