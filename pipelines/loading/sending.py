"""Sending rows in bundles of conditional creates: batches and transactions, answers, attempts, what is known after.

Nothing here touches the ledger: rows come with their intents committed, and leave with results to be written down.
"""

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from threading import Lock
from typing import Any, NamedTuple
from urllib.parse import quote

from pipelines.client.client import FhirClient, conditional_bundle
from pipelines.client.identifiers import identifier_value
from pipelines.client.pace import Attempts
from pipelines.client.replies import (
    NOT_OFFERED,
    Failed,
    NotDone,
    NotOffered,
    NotSent,
    Refused,
    Reply,
    TargetUnusable,
    Unknown,
    unusable,
)
from pipelines.client.steps import FREE_OF_RACES, Step
from pipelines.ledger.rows import KnownRecord
from pipelines.loading.answered import TOO_LARGE, Bodies, Result, existing, of_its_row, read_back, settled

PLAIN_KEY = re.compile(r"[A-Za-z0-9._~-]+")
NO_ANSWER = "no clear answer ({})"
UNKNOWN_TRIES = 4
"""Attempts at a bundle of unknown outcome, in all: conditional create makes each further one safe."""

OF_THE_CONTENT = (400, 413, 422)
"""Refusals of a batch that one of its rows may have caused; the others are about the endpoint."""
OF_AN_ENTRY = (400, 404, 412, 413, 422)
"""Refusals of a transaction that one of its rows may have caused: it has the status of the entry that failed."""
MOST_UNCLEAR = 3
"""Bundles in a row without a clear answer, after which the target counts as unusable."""
DATED = {"Task": '"authoredOn":', "QuestionnaireResponse": '"authored":', "PaymentNotice": '"created":'}
"""The element that a body gets from the moment of its first attempt when the source has none."""


class Row(NamedTuple):
    """An accepted record on its way.

    known: the ledger has a record of it. intended: an earlier intent of ours may have reached the target. elsewhere:
    that record stays with the batch and line that it came with first. change: it takes the place of an earlier
    version: `first` while that stands in the ledger yet, then `again`; `anew` where that was taken back.
    """

    line: int
    lines: int
    key: str
    lane: str
    content_hash: str
    patient_id: str | None
    source_at: str | None
    amount_cents: int | None
    body: str
    first_attempt_at: str
    generation: int = 1
    known: bool = False
    intended: bool = False
    elsewhere: bool = False
    change: str = ""
    text_hash: str | None = None

    def is_held_by(self, record: KnownRecord) -> bool:
        """True if a record says what the row says; one of an older version may be known by the row's text."""
        return record.holds(self.content_hash) or (self.text_hash is not None and record.holds(self.text_hash))

    @property
    def replaces(self) -> bool:
        """True if it takes the place of what the target has."""
        return self.change in ("first", "again")


class Posted(NamedTuple):
    """The result of one row, and why nothing more can be sent, if so."""

    result: Result
    unusable: str | None = None


@dataclass(slots=True)
class Sent:
    """Results by the rows' places. `unusable` is the sentence that ends the load.

    not_offered: a bundle was answered as by a server that takes none.
    """

    results: dict[int, Result] = field(default_factory=dict)
    unusable: str | None = None
    not_offered: bool = False


class Identity(NamedTuple):
    """The names of a source's records at the target: the identifier's system, and the resource type."""

    source: str
    resource_type: str

    @property
    def system(self) -> str:
        return f"urn:chartferry:{self.source}:{self.resource_type}"

    def entry(self, row: Row) -> tuple[str, str]:
        """The body as it is sent, and `ifNoneExist` as a JSON string.

        The body is the prepared JSON with identifier and, where the source has none, its date.
        """
        before, after, condition = _around(self)
        value = asked = identifier_value(row.key, row.generation)
        if PLAIN_KEY.fullmatch(value):
            shown = f'"{value}"'
        else:
            shown, asked = json.dumps(value), quote(re.sub(r"([\\,|$])", r"\\\1", value), safe="")
        return f"{dated(self.resource_type, row)[:-1]}{before}{shown}{after}", f'{condition}{asked}"'


@cache
def _around(identity: Identity) -> tuple[str, str, str]:
    """Return the texts around a key: in the body before and after it, and in the condition before it."""
    opening, closing = ("", "") if identity.resource_type == "QuestionnaireResponse" else ("[", "]")
    body = f',"identifier":{opening}{{"system":{json.dumps(identity.system)},"value":'
    return body, f"}}{closing}}}", json.dumps(f"identifier={quote(identity.system, safe=':')}|")[:-1]


def dated(resource_type: str, row: Row) -> str:
    """The prepared body, with the moment of the first attempt where the source gives none."""
    name = DATED[resource_type]
    return row.body if name in row.body else f'{row.body[:-1]},{name}"{row.first_attempt_at}"}}'


class Sizes:
    """The bundle size (characters) that the target takes, learned from its answers. Safe for several threads."""

    def __init__(self) -> None:
        self._taken, self._too_large = 0, 0

    def took(self, size: int) -> None:
        self._taken = max(self._taken, size)

    def found_too_large(self, size: int) -> None:
        self._too_large = min(self._too_large or size, size)
        self._taken = self._taken if self._taken < self._too_large else 0

    def parts(self, places: Sequence[int], sizes: Sequence[int]) -> list[list[int]]:
        """The places in bundles of a size that should be taken; all in one while none was too large."""
        most = max(self._taken, self._too_large // 2) if self._too_large else sum(sizes)
        parts: list[list[int]] = []
        room = 0
        for at in places:
            if not parts or sizes[at] > room:
                parts.append([])
                room = most
            parts[-1].append(at)
            room -= sizes[at]
        return parts


class Trouble:
    """Bundles without a clear answer, one after another: each waits until the target answers a search."""

    def __init__(self, client: FhirClient, resource_type: str) -> None:
        self._client, self._resource_type, self._in_a_row = client, resource_type, 0
        self._lock = Lock()

    def is_over(self) -> None:
        self._in_a_row = 0

    def met(self) -> str | None:
        """Wait for the target; return the sentence that ends the load where it does not come back."""
        with self._lock:
            self._in_a_row += 1
            many = self._in_a_row
        if many >= MOST_UNCLEAR:
            return "the target could not be used: no clear answer, again and again"
        try:
            self._client.wait_until_it_answers(self._resource_type)
        except TargetUnusable as error:
            return str(error)
        return None


class BundleSender:
    """Sends bundles of rows. `read_all` runs reads side by side (a thread pool's map).

    whole: the result of a refused row with all its reasons, given the body as it was sent.
    What was too large for the target (413) is remembered: later bundles go in parts that it takes.
    """

    def __init__(
        self,
        client: FhirClient,
        identity: Identity,
        read_all: Callable[..., Any] = map,
        whole: Callable[[Result, str], Result] = lambda result, _: result,
        step: Step = FREE_OF_RACES,
    ) -> None:
        self._client, self._identity, self._read_all, self._whole = client, identity, read_all, whole
        self._step, self._sizes, self._trouble = step, Sizes(), Trouble(client, identity.resource_type)

    def send(self, rows: Sequence[Row]) -> Sent:
        """Send the rows, again and again within bounds until each is known. Raises nothing of the target's doing."""
        about = (self._client, self._identity, self._read_all, self._sizes)
        sending = _Sending(*about, rows, self._step, self._trouble)
        sent = sending.run()
        refused = [at for at, result in sent.results.items() if result.state == "refused" and not sent.unusable]
        whole = self._read_all(lambda at: self._whole(sent.results[at], sending.entries[at][0]), refused)
        sent.results.update(zip(refused, list(whole), strict=True))
        return sent


class Left(NamedTuple):
    """The rows that one attempt left to be sent again.

    places: of the rows. problem: why. asked: the pause that the target asked for. unclear: the outcome is unknown.
    final: another attempt now is of no use.
    """

    places: list[int]
    problem: str
    asked: float | None = None
    unclear: bool = False
    final: bool = False


class _Sending:
    """One bundle's way to its results. stopped: lanes with a row in doubt, of which nothing more is sent."""

    def __init__(
        self,
        client: FhirClient,
        identity: Identity,
        read_all: Callable[..., Any],
        limits: Sizes,
        rows: Sequence[Row],
        step: Step,
        trouble: Trouble,
    ) -> None:
        self.client, self.identity, self.read_all, self.rows = client, identity, read_all, rows
        self.limits, self.step, self.trouble = limits, step, trouble
        self.kind = step.bundle or "batch"
        self.stopped: set[str] = set()
        self.sent = Sent()
        self.unsure = {at for at, row in enumerate(rows) if row.intended}
        self.again: set[int] = set()
        self.entries = [identity.entry(row) for row in rows]
        self.sizes = [len(body) for body, _ in self.entries]

    def run(self) -> Sent:
        self._parts(self.limits.parts(range(len(self.rows)), self.sizes))
        if len(self.sent.results) < len(self.rows):
            asked = self.unsure | self.again
            for at in range(len(self.rows)):
                self.sent.results.setdefault(at, Result("in_doubt" if at in asked else "planned"))
        return self.sent

    def _parts(self, parts: Iterable[list[int]]) -> None:
        for places in parts:
            if not self.sent.unusable:
                self._part(places)

    def _part(self, places: list[int]) -> None:
        """Send these rows until each has a result, or the target proves unusable."""
        attempts = Attempts(self.client.patience)
        if self.stopped:
            places = [at for at in places if self.rows[at].lane not in self.stopped]
        while places:
            left = self._try(places, attempts.number)
            places = left.places
            if not places or self.sent.unusable:
                return
            final = left.final or (left.unclear and attempts.number >= UNKNOWN_TRIES)
            if not attempts.next(left.asked, final):
                self.sent.unusable = unusable(left.problem, attempts.number)
                return

    def _try(self, places: list[int], tries: int) -> Left:
        bundle = conditional_bundle(self.identity.resource_type, [self.entries[at] for at in places], self.kind)
        try:
            replies = self.client.send_bundle(bundle, len(places), self.kind)
            self.limits.took(self._size(places))
            self.trouble.is_over()
            return self._take(places, replies, tries)
        except NotSent as error:
            return Left(places, str(error), error.retry_after, final=error.final)
        except (NotDone, Refused) as error:
            return self._whole(places, error)
        except Unknown as error:
            self.again.update(places)
            self.sent.not_offered = isinstance(error, NotOffered)
            if isinstance(error, Failed) and self.kind == "transaction":
                return self._failed(places, error, tries)
            if not (self.step.repeats or isinstance(error, Failed)):
                return self._doubt(places)
            return Left(places, NO_ANSWER.format(error), unclear=True)

    def _failed(self, places: list[int], error: Failed, tries: int) -> Left:
        """A transaction that failed at the target goes in halves. One row alone is tried again, then it is in doubt."""
        if len(places) > 1:
            return self._halve(places)
        return Left(places, NO_ANSWER.format(error)) if tries < UNKNOWN_TRIES else self._doubt(places)

    def _doubt(self, places: list[int]) -> Left:
        """Leave rows in doubt, since their request may be under way yet, and no repeat may meet it."""
        for at in places:
            self.sent.results[at] = Result("in_doubt")
            self.stopped.add(self.rows[at].lane)
        self.sent.unusable = self.trouble.met()
        return Left([], "")

    def _halve(self, places: list[int]) -> Left:
        middle = len(places) // 2
        self._parts([places[:middle], places[middle:]])
        return Left([], "")

    def _size(self, places: Iterable[int]) -> int:
        return sum(self.sizes[at] for at in places)

    def _whole(self, places: list[int], error: NotDone | Refused) -> Left:
        """A bundle that was refused as a whole goes in parts, so that one row answers for itself alone."""
        reply = error.reply
        if reply.kind == "not done" and reply.status != TOO_LARGE:
            return Left(places, str(error), reply.retry_after)
        if reply.status == TOO_LARGE:
            self.limits.found_too_large(self._size(places))
        self.sent.not_offered = reply.status in NOT_OFFERED
        if reply.status not in (OF_AN_ENTRY if self.kind == "transaction" else OF_THE_CONTENT):
            self.sent.unusable = f"the target does not take {self.kind} bundles (HTTP {reply.status})"
        elif len(places) > 1:
            return self._halve(places)
        else:
            self.trouble.is_over()
            outcome = of_its_row(reply.outcome, self.identity.resource_type)
            self.sent.results[places[0]] = Result("refused", None, reply.status, outcome)
        return Left([], "")

    def _take(self, places: list[int], replies: list[Reply], tries: int) -> Left:
        """Note what the replies say; what is left is to be sent again."""
        existed = [reply.resource_id or "" for reply in replies if reply.kind == "existed"]
        bodies = read_back(self.client, self.identity.resource_type, existed, self.read_all)
        left: list[int] = []
        for at, reply in zip(places, replies, strict=True):
            result = self._existing(at, reply, bodies) if reply.kind == "existed" else settled(reply)
            if result is None and reply.kind != "not done":
                self.again.add(at)
                result = Result("in_doubt", None, reply.status or None) if tries >= UNKNOWN_TRIES else None
            if result is None:
                left.append(at)
            else:
                self.sent.results[at] = result
        return Left(left, f"{len(left)} entries without an outcome")

    def _existing(self, at: int, reply: Reply, bodies: Bodies) -> Result | None:
        """A 200 answer, compared with what was read back; None when it could not be read, which is unknown."""
        unsure = at in self.unsure or at in self.again
        return existing(self.identity.resource_type, self.entries[at][0], reply, bodies, unsure)
