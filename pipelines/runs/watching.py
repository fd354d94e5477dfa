"""Watch the parts of a load while workers load them."""

import time
from collections.abc import Sequence

from pipelines.ledger.lease import Silence
from pipelines.ledger.parts import PartState, free, states
from pipelines.ledger.rows import SoFar
from pipelines.loading.book import Book
from pipelines.loading.part_outcome import PartLoaded, ends_all, in_all
from pipelines.runs.workers import Workers

LOOK_SECONDS = 0.2
COUNT_SECONDS = 2.0


class Watch:
    """Observer of a load's parts, which updates progress and the run's counts."""

    def __init__(self, book: Book) -> None:
        self._load, self._before = book.load, book.loaded
        self._shown, self._counted_at = 0, 0.0
        self._counted: dict[str, int] = {}
        self._silence = Silence()

    def until_done(self, workers: Workers) -> None:
        """Return once no part is held, and none is left that a worker could begin. Raises `LedgerError`."""
        ledger, target = self._load.ledger, self._load.batch.target
        while True:
            ledger.confirm(self._load.lease)
            found = states(ledger, target)
            self._tell(found)
            if silent := self._silence.look(each.holder for each in found if each.held and each.holder):
                free(ledger, target, silent)
            held, left = sum(each.outcome is None and each.held for each in found), _can_begin(found)
            workers.keep(held + left if left else 0)
            if not (held or left):
                return
            if not workers.at_work and not self._is_left(workers):
                return
            time.sleep(LOOK_SECONDS)

    def _is_left(self, workers: Workers) -> bool:
        """True if another host holds a part, or a worker can be started to begin one.

        The parts are read anew: a worker that has just ended may still have held its part at the last look.
        """
        found = states(self._load.ledger, self._load.batch.target)
        held = any(each.outcome is None and each.held for each in found)
        return held or bool(workers.can_start and _can_begin(found))

    def _tell(self, found: Sequence[PartState]) -> None:
        so_far = in_all(PartLoaded.of(each).loaded for each in found)
        rows = sum(so_far.counts.values())
        self._load.progress.advance(max(0, rows - self._shown))
        self._shown = max(rows, self._shown)
        batch = self._load.batch
        if batch.run is None or time.monotonic() < self._counted_at + COUNT_SECONDS:
            return
        counts = in_all([self._before, so_far]).counts_with(batch.validated)
        if counts != self._counted:
            self._load.ledger.count_run(batch.target, SoFar(batch.batch_id, batch.run, counts))
        self._counted, self._counted_at = counts, time.monotonic()


def _can_begin(found: Sequence[PartState]) -> int:
    """Return the number of parts that a worker can begin; 0 once one has found that the target cannot be used."""
    stopped = any(ends_all(each.outcome) for each in found if each.outcome)
    return 0 if stopped else sum(each.is_left for each in found)
