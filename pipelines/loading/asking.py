"""Ask a target which rows it has already, before they are sent at the step look-up: another home may have sent them.

They are asked for by their identifiers, as rows in doubt are. The search and the create are two requests: what another
home sends between them, or what a search does not show yet, is not found.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future
from itertools import islice
from threading import Lock

from pipelines.client.identifiers import identifier_value
from pipelines.client.replies import NoResult, Refused
from pipelines.ledger.doubts import made_before
from pipelines.loading.answered import SEVERAL_THERE, Posted, Result, compared
from pipelines.loading.load import Load
from pipelines.loading.lookup import ABSENT, NOT_SEARCHED, NOT_TOLD, ROWS_A_SEARCH, Finding, by_identifier, not_asked
from pipelines.loading.row import Row

SEARCHES_AHEAD = 4
"""Searches beyond the rows that are taken: enough that none waits for one, and no more, since an answer grows old."""
UNFOUND = "{}: rows that another home has sent are sent once more"

Ask = Callable[[Sequence[Row]], list[Row]]
"""Asks for a few rows, and gives them back with what was found of them."""


class Asker:
    """Asks for the rows of one load. For several threads.

    The first request asks for what no record has: a target that finds something then would show all that it has. One
    that does not search by identifier is not asked again, and gets its rows unasked. So does one that was asked and
    does not show what is known to be there. Both are said.
    """

    def __init__(self, load: Load) -> None:
        self._load = load
        made = made_before(load.ledger, *load.of, load.batch.batch_id)
        self._witnesses = [identifier_value(*each) for each in made] or None
        self._lock = Lock()
        self._searches: bool | None = None
        self._said: set[str | None] = set()

    def ask(self, rows: Sequence[Row]) -> list[Row]:
        """Return the rows; those that are not to be sent with their outcomes."""
        try:
            if not self._is_asked():
                return list(rows)
        except NoResult as error:
            findings = {row.key: not_asked(error) for row in rows}
        else:
            findings = by_identifier(self._load.client, self._load.identity, rows, self._witnesses)
        for why in {finding.why for finding in findings.values()} & {NOT_SEARCHED.why, NOT_TOLD.why}:
            self._say(why)
        return [row._replace(found=_outcome(self._load.resource, row, findings[row.key])) for row in rows]

    def _is_asked(self) -> bool:
        """True if the target searches by identifier, as far as is known. Raises as a search does."""
        with self._lock:
            if self._searches is None:
                try:
                    self._searches = self._load.client.finds_nobody(self._load.resource)
                except Refused:
                    self._searches = False
            is_asked = self._searches
        if not is_asked:
            self._say(NOT_SEARCHED.why)
        return is_asked

    def _say(self, why: str | None) -> None:
        """Say once why the target does not tell what it has; ask no more where it does not search."""
        with self._lock:
            self._searches = self._searches and why != NOT_SEARCHED.why
            said, self._said = self._said, self._said | {why}
        if why not in said:
            self._load.progress.say(UNFOUND.format(why))


def _outcome(resource_type: str, row: Row, finding: Finding) -> Posted | None:
    """Return the outcome of a row by what was found; None for one that is to be sent.

    Absence that cannot be believed keeps no row back: where nothing is known to be there, nothing could show more.
    """
    if len(finding.there) > 1:
        return Posted(Result("refused", outcome=SEVERAL_THERE))
    if finding.there:
        [body] = finding.there
        return Posted(compared(resource_type, row.body, body, str(body["id"]), None, row.intended))
    if finding.state == ABSENT or finding in (NOT_TOLD, NOT_SEARCHED):
        return None
    return Posted(Result("in_doubt" if row.intended else "planned"), f"the target could not be used: {finding.why}")


def asked(rows: Iterator[Row], ask: Ask, threads: Executor) -> Iterator[Row]:
    """The rows in their order, with what was found of each. Raises what the asking raised."""
    under_way = deque[Future[list[Row]]]()
    while True:
        while len(under_way) < SEARCHES_AHEAD and (some := list(islice(rows, ROWS_A_SEARCH))):
            under_way.append(threads.submit(ask, some))
        if not under_way:
            return
        yield from under_way.popleft().result()
