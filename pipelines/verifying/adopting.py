"""`verify --adopt`: put rows in doubt that runs of the home may have sent, after ledger and journal were lost, and
settle them.

Batches with runs that the ledger lacks are validated again. A row whose identifier and content a resource has is
adopted. Where the content is another and the feed does not supersede, the next import judges the row. Any other row
that the ledger does not know is in doubt since the batch's first lost run began, and is looked up like every row in
doubt. Nothing is sent.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from pipelines.home.batch import UnreadableFile, received_before
from pipelines.home.counted import counted, word_for
from pipelines.home.exits import ALL_LOADED, IN_DOUBT, SET_ASIDE, CommandResult
from pipelines.runs.doubt_lookups import resolve
from pipelines.runs.lost_runs import LOOK, lost_batches
from pipelines.session.session import Session
from pipelines.session.waiting_files import waiting_in, without_feed
from pipelines.verifying.lost_batch import adopt_batch
from pipelines.verifying.lost_runs import ValidatedBatch, end_runs, note_runs, validate_lost
from pipelines.verifying.staging import workbench
from pipelines.verifying.target import stage_target


@dataclass
class AdoptedBatches(CommandResult):
    """The adopted batches, each with the numbers of its rows that the target has, of those taken back, and of those in
    doubt.

    left: batches that could not be adopted, each with the reason.
    """

    batches: dict[str, dict[str, int]] = field(default_factory=dict)
    left: dict[str, str] = field(default_factory=dict)

    @property
    def exit_code(self) -> int:
        if any(each["in_doubt"] for each in self.batches.values()):
            return IN_DOUBT
        return SET_ASIDE if self.left else ALL_LOADED

    def lines(self) -> Iterator[str]:
        for name, counts in self.batches.items():
            yield f"{name}: {counted(counts['adopted'], 'row')} adopted, {counts['in_doubt']:,} in doubt"
            if back := counts["taken_back"]:
                taken = f"{counted(back, 'of them has', 'of them have')} been taken back there"
                yield f"{name}: {taken}; chartferry import --again loads {word_for(back, 'it', 'them')} again"
        for name, why in self.left.items():
            yield f"{name}: not adopted: {why}"
        if not self.batches and not self.left:
            yield "the ledger knows every batch of this home"


def adopt_lost(session: Session) -> AdoptedBatches:
    """Add to the ledger the records that it lost, and settle them as far as possible. Raises `TargetUnusable`."""
    adopted = AdoptedBatches(left=without_feed(session))
    with session.lease() as lease, workbench(session.home) as db:
        lost = [(each, waiting_in(session, session.batches.folder(each.name))) for each in lost_batches(session)]
        for each in (each for each, _ in lost if received_before(session.batches.folder(each.name)) is None):
            note_runs(session, each)
            end_runs(session, each)
            adopted.left[each.name] = f"its source rows are no longer in this home: {LOOK}"
        batches = list[ValidatedBatch]()
        found = ((each, waiting) for each, waiting in lost if waiting)
        for each, waiting in sorted(found, key=lambda pair: pair[1].in_batch.received_at):  # an answer after its reject
            try:
                batches.append(validate_lost(session, each, waiting))
            except UnreadableFile as error:
                adopted.left[each.name] = str(error)
        for kind in sorted({batch.run.feed.resource for batch in batches}):
            stage_target(db, session, kind)
            # The target has the newest version of a record that came several times, so the newest batch comes first.
            for batch in (batch for batch in reversed(batches) if batch.run.feed.resource == kind):
                adopted.batches[batch.lost.name] = adopt_batch(db, session, lease, batch)
    bare = [batch.lost.name for batch in batches if not session.is_safe(batch.run.feed.resource)]
    for name in bare:
        counts, settled = adopted.batches[name], resolve(session, name)
        counts["adopted"] += len(settled.adopted)
        counts["in_doubt"] = len(settled.left)
    return adopted
