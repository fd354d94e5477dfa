"""Find rows whose record is done with, since a person discarded it or a correction was loaded under another key.

Such rows are set aside. So are rows that name a reject that is done with: a reject is answered once, whatever keys its
corrections have.
"""

from collections.abc import Iterable, Sequence

from sqlalchemy import select

from pipelines.ledger import tables as t
from pipelines.ledger.access import LedgerAccess
from pipelines.ledger.row_fates import AnsweringRow, RejectFate, fates
from pipelines.ledger.rows import Reason
from pipelines.loading.row import AcceptedRow
from pipelines.session.answered_rejects import LoadAnswers

OR_BY_HAND = "discard this reject, or import the row with the _reject_id of this reject to load it as well"
SENTENCES = {
    RejectFate("discarded", False): "the record was discarded by hand; to load it after all, import the row with the "
    "_reject_id of this reject",
    RejectFate("closed", False): f"a correction of the record was loaded under another key; {OR_BY_HAND}",
    RejectFate(
        "resubmitted", False
    ): f"a correction of the record is being loaded under another key, and its outcome is not known yet; {OR_BY_HAND}",
    RejectFate(
        "discarded", True
    ): "the reject that the row names was discarded by hand; to load the row after all, import it with "
    "the _reject_id of this reject",
    RejectFate("closed", True): f"another record was loaded for the reject that the row names; {OR_BY_HAND}",
    RejectFate(
        "resubmitted", True
    ): f"another record is being loaded for the reject that the row names; its outcome is not known yet; {OR_BY_HAND}",
}


class EndedRejects:
    """The rejects `of` a target, source and resource type that are done with, for the load of a batch."""

    def __init__(self, ledger: LedgerAccess, of: t.Of, batch_id: str, answers: LoadAnswers) -> None:
        self._ledger, self._of, self._batch_id, self._answers = ledger, of, batch_id, answers
        self._here = answers.going()
        some = select(t.reject.c.reject_id).where(t.of_stream(t.reject.c, of)).limit(1)
        self._none = ledger.value(some) is None and not answers

    def reasons(self, rows: Sequence[AcceptedRow]) -> dict[str, Reason]:
        """Return by key the reasons why rows are set aside that would be sent now."""
        if self._none:
            return {}
        claims = [AnsweringRow(row.key, self._answers.of_line(row.line)) for row in rows]
        found = zip(rows, self._fates(claims), strict=True)
        return {row.key: reason_of(fate) for row, fate in found if fate in SENTENCES}

    def by_hand(self, rows: Iterable[AcceptedRow]) -> set[str]:
        """Return the keys of rows that a person put in for open rejects. A row tried again answers its own reject."""
        claims = [AnsweringRow(row.key, names) for row in rows if (names := self._answers.of_line(row.line))]
        found = self._fates(claims) if claims else ()
        return {str(each.key) for each, fate in zip(claims, found, strict=True) if fate == RejectFate("open", True)}

    def _fates(self, claims: Sequence[AnsweringRow]) -> list[RejectFate]:
        return fates(self._ledger, self._of, self._batch_id, claims, self._here)


def reason_of(fate: RejectFate) -> Reason:
    return Reason("LEDGER-07", None, None, SENTENCES[fate], False)
