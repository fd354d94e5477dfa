"""Ask a target which rows it has already, before they are sent at the step look-up: another home may have sent them.

They are asked for by their identifiers, as rows in doubt are. The search and the create are two requests: what another
home sends between them, or what a search does not show yet, is not found.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock

from pipelines.client.identifiers import identifier_value
from pipelines.client.replies import NoResult, Refused
from pipelines.ledger.doubts import made_before
from pipelines.loading.answered import SEVERAL_THERE, Posted, Result, compared
from pipelines.loading.load import Load
from pipelines.loading.lookup import ABSENT, NOT_SEARCHED, NOT_TOLD, ROWS_A_SEARCH, Finding, by_identifier, not_asked
from pipelines.loading.requests import Came
from pipelines.loading.row import Row

ASKED_AHEAD = 4 * ROWS_A_SEARCH
"""Rows that are asked for beyond those that may be under way: enough that none waits for a search, and no more, since
an answer grows old.
"""
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


class Asking:
    """Rows that were read and are asked for, some in a search. They come back in their order.

    ask: None where rows are not asked for. under_way: the searches that have no answer, or wait for one before them.
    """

    def __init__(self, ask: Ask | None, pool: ThreadPoolExecutor, came: Came) -> None:
        self._ask, self._pool, self._came = ask, pool, came
        self._unasked: deque[Row] = deque()
        self.under_way: deque[Future[list[Row]]] = deque()

    @property
    def count(self) -> int:
        return len(self._unasked) + ROWS_A_SEARCH * len(self.under_way)

    def add(self, rows: Iterable[Row]) -> None:
        """Take rows that were read."""
        self._unasked.extend(rows)

    def begin(self, most: int) -> None:
        """Ask for the next rows, until so many are asked for."""
        while self._ask and self._unasked and ROWS_A_SEARCH * len(self.under_way) < most:
            some = [self._unasked.popleft() for _ in range(min(ROWS_A_SEARCH, len(self._unasked)))]
            search = self._pool.submit(self._ask, some)
            self.under_way.append(search)
            search.add_done_callback(self._came.put)

    def take(self) -> list[Row]:
        """Return the next rows that were asked for, or need not be. Raises what the asking raised."""
        rows = list[Row]()
        if self._ask is None:
            rows, self._unasked = list(self._unasked), deque()
        while self.under_way and self.under_way[0].done():
            rows += self.under_way.popleft().result()
        return rows
