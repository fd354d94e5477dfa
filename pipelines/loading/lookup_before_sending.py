"""Ask a target for rows before they are sent by the step look-up, since another home may have sent them.

Rows are looked up by their identifiers, like rows in doubt. Search and create are two requests: a row that another
home sends between them, or that a search does not show yet, is not found.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from threading import Lock

from pipelines.client.identifiers import VALUES_A_SEARCH, identifier_value
from pipelines.client.replies import NoResult, RequestRefused
from pipelines.ledger.doubts import made_before
from pipelines.loading.load import Load
from pipelines.loading.lookup import ABSENT, NOT_PROVEN, NOT_SEARCHED, NOT_TOLD, Finding, by_identifier, not_asked
from pipelines.loading.row import AcceptedRow, Identity, PostResult, RowResult
from pipelines.loading.sending import Send, SentResults, of_finding

SEARCHES_AHEAD = 4
"""Searches ahead of the rows given out: enough that no row waits for one. More would let answers grow old."""
UNFOUND = "{}: rows that another home has sent would not be found, and are sent again"

Ask = Callable[[Sequence[AcceptedRow]], list[AcceptedRow]]
"""Ask for a few rows; return them with what was found of each."""


class Asker:
    """Look-ups before sending for the rows of one load. Safe to use from several threads.

    The first request asks for an identifier that no record has: a target that finds something then would answer every
    search with all that it has. A target that does not search by identifier is not asked again, and gets its rows
    without a look-up. So does a target whose search does not show records known to be there. The user is told of both.
    """

    def __init__(self, load: Load) -> None:
        self._load = load
        made = made_before(load.ledger, *load.of, load.batch.batch_id)
        self._witnesses = [identifier_value(*each) for each in made] or None
        self._lock = Lock()
        self._searches: bool | None = None
        self._said: set[str | None] = set()

    def ask(self, rows: Sequence[AcceptedRow]) -> list[AcceptedRow]:
        """Return the rows. A row that is not to be sent has its outcome in `found`."""
        try:
            if not self._is_asked():
                return list(rows)
        except NoResult as error:
            findings = {row.key: not_asked(error) for row in rows}
        else:
            findings = by_identifier(self._load.client, self._load.identity, rows, self._witnesses)
        for why in {finding.why for finding in findings.values()} & {NOT_SEARCHED.why, NOT_TOLD.why}:
            self._say(why)
        return [row._replace(found=_outcome(self._load.identity, row, findings[row.key])) for row in rows]

    def _is_asked(self) -> bool:
        """True if the target searches by identifier, as far as known. Raises as a search does."""
        with self._lock:
            if self._searches is None:
                try:
                    self._searches = self._load.client.finds_nobody(self._load.resource)
                except RequestRefused:
                    self._searches = False
            is_asked = self._searches
        if not is_asked:
            self._say(NOT_SEARCHED.why)
        return is_asked

    def _say(self, why: str | None) -> None:
        """Tell the user once why look-ups do not work. Stop them if the target does not search by identifier."""
        with self._lock:
            self._searches = self._searches and why != NOT_SEARCHED.why
            said, self._said = self._said, self._said | {why}
        if why not in said:
            self._load.progress.say(UNFOUND.format(why))


def _outcome(identity: Identity, row: AcceptedRow, finding: Finding) -> PostResult | None:
    """Return the outcome of a row from its finding; None if the row is to be sent.

    Absence that cannot be proven does not keep a row back: if no record is known to be there, no look-up could prove
    more.
    """
    if result := of_finding(identity, row, finding):
        return PostResult(result)
    if finding.state == ABSENT or finding in (NOT_TOLD, NOT_PROVEN, NOT_SEARCHED):
        return None
    return PostResult(RowResult(row.left), f"the target could not be used: {finding.why}")


class AskedRows:
    """Rows that are asked for together. is_asked: True once the answer is there."""

    def __init__(self, rows: list[AcceptedRow]) -> None:
        self.rows, self.is_asked = rows, False

    def take(self, rows: list[AcceptedRow]) -> None:
        """Take the rows with the finding of each."""
        self.rows, self.is_asked = rows, True


class RowsAhead:
    """Rows in file order, each given out once it was asked for. searches: searches ahead; 0 to give rows unasked.

    are_given: True once all rows have been given out.
    """

    def __init__(self, rows: Iterator[AcceptedRow], searches: int = 0) -> None:
        self._rows, self._searches = rows, searches
        self._pieces = deque[AskedRows]()
        self._are_read = False
        self._given = 0

    @property
    def are_given(self) -> bool:
        return self._are_read and not self._pieces

    def next(self) -> AcceptedRow | None:
        """Return the next row; None if there is none, or if the answer for it is still missing."""
        if not self._searches:
            row = next(self._rows, None)
            self._are_read = row is None
            return row
        if not self._pieces or not self._pieces[0].is_asked:
            return None
        rows = self._pieces[0].rows
        row, self._given = rows[self._given], self._given + 1
        if self._given == len(rows):
            self._pieces.popleft()
            self._given = 0
        return row

    def taken_to_ask(self) -> list[AskedRows]:
        """Read rows ahead; return the pieces that are to be asked for now."""
        pieces = list[AskedRows]()
        while len(self._pieces) < self._searches and not self._are_read:
            if rows := list(islice(self._rows, VALUES_A_SEARCH)):
                self._pieces.append(AskedRows(rows))
                pieces.append(self._pieces[-1])
            else:
                self._are_read = True
        return pieces


def unless_found(send: Send) -> Send:
    """Return a sender of single rows that skips rows whose outcome was found by asking."""

    def sent(unit: Sequence[AcceptedRow]) -> SentResults:
        found = unit[0].found
        return SentResults({0: found.result}, found.unusable) if found else send(unit)

    return sent
