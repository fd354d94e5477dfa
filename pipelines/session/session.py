"""A session: the home, feeds, ledger and target that all batches of a command share."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipelines.client.pace import USUAL, Pace
from pipelines.feeds.files.catalog import Catalog
from pipelines.home.inbox import Inbox
from pipelines.home.progress import Progress
from pipelines.home.user import user_name
from pipelines.ledger.home_batches import HomeBatches
from pipelines.ledger.lease import Holder, Lease
from pipelines.ledger.ledger import Ledger
from pipelines.session.connections import TargetConnection
from pipelines.session.needed_reads import read_snapshot
from pipelines.session.questionnaires import Snapshot

if TYPE_CHECKING:
    from pipelines.session.people import People


@dataclass
class Session:
    """The objects that all batches of a command share: home, feeds, ledger, target, and the target's questionnaires.

    target: its name in the ledger. why: the reason of decisions by hand. lost: batches with runs that the ledger
    lacks, once looked up. copies_to: where publications are copied.
    """

    home: Path
    catalog: Catalog
    ledger: Ledger
    connection: TargetConnection
    target: str
    other_targets: list[str]
    inbox: Inbox
    progress: Progress = field(default_factory=Progress)
    strict: bool = False
    pace: Pace = USUAL
    keep_days: float | None = None
    why: str | None = None
    copies_to: str | None = None
    lost: list[Any] | None = None

    @property
    def batches(self) -> HomeBatches:
        """The batches of the home: their folders, and the store that may hold their files."""
        return self.ledger.batches_in(self.home)

    def lease(self) -> Lease:
        """Return the lease of the target. It tells the user once which process it waits for."""
        told = set[str]()

        def waiting(holder: Holder) -> None:
            if holder.owner not in told:
                told.add(holder.owner)
                self.progress.say(f"waiting for process {holder.pid} on {holder.host}, which loads into this target")

        return self.ledger.lease(self.target, waiting)

    def decide(self, command: str, subjects: Iterable[str], about: str | None = None) -> None:
        """Record a decision by hand: the user, the moment, its subjects, and the reason if one was given."""
        why = ": ".join(said for said in (about, self.why) if said) or None
        self.ledger.note_decisions(self.target, user_name(), command, list(subjects), why)

    def shows_names(self, resource_type: str) -> bool:
        """True if resources of a type have their records' identifiers at the target, and can be found by them."""
        return self.connection.capabilities.shows_names(self.target, resource_type)

    def is_safe(self, resource_type: str) -> bool:
        """True if records of a type can be sent again at once without doubling."""
        return self.connection.step(self.target, resource_type).repeats

    @cached_property
    def snapshot(self) -> Snapshot:
        """The target's questionnaires as they are now. Raises `TargetUnusable`."""
        return read_snapshot(self.connection)

    @cached_property
    def people(self) -> "People":
        """Patients and practitioners of the target by identifier, for feeds that name them so."""
        from pipelines.session.people import People  # imports the readers of files, which few commands need

        return People(self.connection.client, self.connection.capabilities.identified)

    def words_for(self, resource_type: str) -> dict[str, str]:
        """Return members of a body as the interface has them, each with its replacement at the target."""
        named = self.snapshot_for(resource_type).words(self.connection.site)
        return {**self.connection.client.profile.words(resource_type), **named}

    def snapshot_for(self, resource_type: str) -> Snapshot:
        """Return the questionnaires that records of a type name; none if the type names none."""
        return self.snapshot if resource_type == "QuestionnaireResponse" else Snapshot()
