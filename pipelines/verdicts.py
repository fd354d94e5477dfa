"""What a row of a file is to the ledger: to be sent, known, changed, in doubt; and how a known record is sent again."""

from pipelines.ledger import Ledger
from pipelines.ledger_former import standing
from pipelines.ledger_rows import KnownRecord
from pipelines.ledger_tables import LANDED, UNDECIDED
from pipelines.loaded import Batch
from pipelines.sending import Row

SURELY_NOT_THERE = ("planned", "refused")


class Verdicts:
    """Verdicts on the rows of a batch.

    safe: whether a row in doubt can be sent again without a second one. resend: keys that a look at the target freed.
    """

    def __init__(self, batch: Batch, ledger: Ledger, safe: bool) -> None:
        self.batch, self.safe = batch, safe
        self.resend: set[str] = set()
        self._ledger, self._of = ledger, (batch.target, batch.feed.source, batch.feed.resource)

    def of(self, row: Row, record: KnownRecord | None) -> str:
        """`send`, `supersede`, `update`, `changed`, or the state that the row has without being sent."""
        if record is None:
            return "send"
        if record.state in UNDECIDED and record.resource_id is not None:
            return "update"
        if record.state in SURELY_NOT_THERE:
            return "send"
        same = record.content_hash == row.content_hash
        if record.state in LANDED:
            return "unchanged" if same or self._only_the_feed_changed(row, record) else self._policy(record)
        if not same:
            return "in_doubt" if self.own(row, record) else "changed"
        return "send" if self.safe or row.key in self.resend else "in_doubt"

    def _only_the_feed_changed(self, row: Row, record: KnownRecord) -> bool:
        return not self.batch.remap and self.own(row, record) and record.feed_hash != self.batch.feed.hash

    def _policy(self, record: KnownRecord) -> str:
        """What the feed says of other content under a known key."""
        there = record.state != "undone" and record.resource_id is not None
        match self.batch.feed.changed, self.batch.feed.resource:
            case "skip", _:
                return "skipped"
            case "update", "Task" if there:
                return "update"
            case "supersede", "QuestionnaireResponse" if there:
                return "supersede"
        return "changed"

    def own(self, row: Row, record: KnownRecord) -> bool:
        return record.batch_id == self.batch.batch_id and record.line == row.line

    def again(self, row: Row, record: KnownRecord) -> Row:
        """A known record as a row to send: with its generation and its first moment."""
        doubtful = record.state not in SURELY_NOT_THERE
        stays = doubtful or record.state == "planned"
        return row._replace(
            generation=record.generation,
            first_attempt_at=record.first_attempt_at or row.first_attempt_at,
            known=True,
            intended=doubtful,
            elsewhere=stays and not self.own(row, record),
            change="again" if record.generation > 1 and self._supersedes(record.key) else "",
        )

    def in_its_place(self, row: Row, record: KnownRecord) -> Row:
        """A response that takes the place of the one that is known: of the next generation."""
        return row._replace(generation=record.generation + 1, known=True, change="first")

    def _supersedes(self, key: str) -> bool:
        """Whether an earlier version still stands, to be taken back once this one is there."""
        return bool(standing(self._ledger, *self._of, [key]))
