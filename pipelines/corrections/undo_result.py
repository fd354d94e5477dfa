"""The result of an undo: what was taken back, what was left and why, and if the batch goes on."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from pipelines.home.exits import ALL_LOADED, SET_ASIDE, UNUSABLE, CommandResult
from pipelines.ledger.former_versions import FormerVersion
from pipelines.ledger.rows import RecordRow
from pipelines.runs.lines import first_of

LISTED = 10_000
"""The number of rows of each kind that an answer names; further rows are only counted."""
SHOWN = 50
ENDS = "the batch is not finished: undo ends it, unless rows of it stay in doubt, and nothing more of it is sent"
ENDED = "the batch was not finished: nothing more of it is sent; chartferry import --again loads it whole"
UNFINISHED = (
    "the batch is not finished, and the next import goes on with it, because rows of it are in doubt: run chartferry"
    " doubts resolve, then the undo again"
)


@dataclass
class UndoResult(CommandResult):
    """The resources that an undo took back or would take back, and the rows left with their reasons, by
    `<batch>:<line>`.

    Of many rows only the first are named; taken, not_taken: their numbers. replaced: see `count_replaced`. ended:
    True if the batch was not finished and is ended, or would be. unfinished: True if an import goes on with it.
    """

    dry_run: bool
    taken_back: dict[str, str] = field(default_factory=dict)
    left: dict[str, str] = field(default_factory=dict)
    taken: int = 0
    not_taken: int = 0
    replaced: int = 0
    ended: bool = False
    unfinished: bool = False
    unusable: str | None = None

    def take(self, record: RecordRow) -> None:
        self.taken += 1
        if self.taken <= LISTED:
            self.taken_back[record.name] = record.resource

    def leave(self, record: RecordRow | FormerVersion, why: str) -> None:
        self.not_taken += 1
        if self.not_taken <= LISTED:
            self.left[record.name] = why

    @property
    def exit_code(self) -> int:
        if self.unusable:
            return UNUSABLE
        return SET_ASIDE if self.not_taken or self.unfinished else ALL_LOADED

    def lines(self) -> Iterator[str]:
        word = "would be taken back" if self.dry_run else "taken back"
        yield from _first(self.taken_back, self.taken, word)
        yield from _first(self.left, self.not_taken, "not taken back")
        yield f"{self.taken:,} {word}, {self.not_taken:,} not"
        if self.replaced:
            yield f"{self.replaced:,} superseded or loaded again by later files: the resources of those files stay"
        if self.ended:
            yield ENDS if self.dry_run else ENDED
        if self.unfinished:
            yield UNFINISHED
        if self.unusable:
            yield f"error: {self.unusable}"


def _first(rows: dict[str, str], total: int, word: str) -> Iterator[str]:
    return first_of((f"{name}: {word}: {what}" for name, what in rows.items()), SHOWN, total, word)
