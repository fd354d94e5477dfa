"""Send rows in bundles of conditional creates: batches and transactions, their answers and repeated attempts.

This module does not use the ledger: rows come with their intents written, and leave with results to be written.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import orjson

from pipelines.client.client import Entry, FhirClient
from pipelines.client.identifiers import has_names_of_another
from pipelines.client.pace import Attempts
from pipelines.client.replies import (
    NOT_OFFERED,
    TOO_LARGE,
    NotDone,
    NotOffered,
    NotSent,
    Reply,
    RequestRefused,
    TargetFailed,
    TimedOut,
    UnknownOutcome,
    WriteConflict,
    unusable,
)
from pipelines.client.steps import Step
from pipelines.home.counted import counted
from pipelines.loading.limits import BundleSizes, TroubleCounter
from pipelines.loading.lookup import Finding, by_identifier
from pipelines.loading.row import (
    SEVERAL_THERE,
    AcceptedRow,
    Bodies,
    Identity,
    RowResult,
    compared_result,
    existing,
    of_its_row,
    read_back,
    settled_result,
)

NO_ANSWER = "no clear answer ({})"
UNKNOWN_TRIES = 4
"""Attempts, in all, at a bundle of unknown outcome. Conditional create makes each further attempt safe."""

IN_TIME = 2.0
"""An answer without an outcome within these seconds is not late: the target is down, and no smaller bundle helps."""

OF_THE_CONTENT = (400, 413, 422)
"""Statuses of a refused batch that one of its rows may have caused; others are about the endpoint."""
SEVERAL = 412
"""The status of a create whose condition more than one resource meets."""
OF_AN_ENTRY = (400, 404, 412, 413, 422)
"""Statuses of a refused transaction that one of its rows may have caused: the status is that of the failed entry."""


@dataclass(slots=True)
class SentResults:
    """Results by the rows' places. `unusable` is the sentence that ends the load.

    not_offered: the answer was that of a server that takes no bundles. misplaced: answers were in another order than
    their rows.
    """

    results: dict[int, RowResult] = field(default_factory=dict)
    unusable: str | None = None
    not_offered: bool = False
    misplaced: bool = False


Send = Callable[[Sequence[AcceptedRow]], SentResults]
"""Sends the rows of a bundle."""


class BundleSender:
    """Sender of bundles of rows. `read_all` runs reads side by side (a thread pool's map).

    whole: adds all reasons to the result of a refused row, given the body as it was sent. sizes, trouble: limits of
    the target that all bundles of the sender find together. A size that was too large (413) is remembered, and later
    bundles go in smaller parts.
    """

    def __init__(
        self,
        client: FhirClient,
        identity: Identity,
        step: Step,
        whole: Callable[[RowResult, str], RowResult],
        read_all: Callable[..., Any] = map,
    ) -> None:
        self.client, self.resource_type, self.step, self.read_all = client, identity.resource_type, step, read_all
        self.sizes, self.trouble = BundleSizes(client.timeout), TroubleCounter(client, identity.resource_type)
        self.identity, self._whole = identity, whole

    @property
    def kind(self) -> str:
        """The type of the bundles."""
        return self.step.bundle or "batch"

    def send(self, rows: Sequence[AcceptedRow]) -> SentResults:
        """Send the rows, in a limited number of attempts, until each has a result. No error of the target is raised."""
        entries = [self.identity.entry(row) for row in rows]
        sent = _Sending(self, rows, entries).run()
        refused = [at for at, result in sent.results.items() if result.state == "refused" and not sent.unusable]
        whole = self.read_all(lambda at: self._whole(sent.results[at], entries[at][0]), refused)
        sent.results.update(zip(refused, list(whole), strict=True))
        return sent


class LeftRows(NamedTuple):
    """The rows that an attempt left to be sent again.

    places: of the rows. problem: the reason. asked: the pause that the target asked for. unclear: the outcome is
    unknown. final: another attempt now is of no use. late: there was no answer in time, so that the rows go in smaller
    parts.
    """

    places: list[int]
    problem: str
    asked: float | None = None
    unclear: bool = False
    final: bool = False
    late: bool = False


class _Sending:
    """One bundle on its way to its results. stopped: lanes with a row in doubt, of which no more rows are sent.

    unsure: places of rows that a request may have created, an earlier request or one of this bundle.
    """

    def __init__(self, way: BundleSender, rows: Sequence[AcceptedRow], entries: Sequence[tuple[str, str]]) -> None:
        self._way, self._rows, self._entries = way, rows, entries
        self._sizes = [len(body) for body, _ in entries]
        self._unsure = {at for at, row in enumerate(rows) if row.intended}
        self._stopped: set[str] = set()
        self._sent = SentResults()

    def run(self) -> SentResults:
        if self._unsure and not self._way.step.repeats:
            self._way.sizes.begin_small(self._size(range(len(self._rows))))
        self._parts(self._way.sizes.parts(range(len(self._rows)), self._sizes))
        if len(self._sent.results) < len(self._rows):
            for at in range(len(self._rows)):
                self._sent.results.setdefault(at, RowResult("in_doubt" if at in self._unsure else "planned"))
        return self._sent

    def _parts(self, parts: Iterable[list[int]]) -> None:
        for places in parts:
            if not self._sent.unusable:
                self._part(places)

    def _part(self, places: list[int]) -> None:
        """Send these rows until each has a result, or the target proves unusable."""
        attempts = Attempts(self._way.client.patience)
        if self._stopped:
            places = [at for at in places if self._rows[at].lane not in self._stopped]
        while places:
            left = self._try(places, attempts.number)
            places = left.places
            if not places or self._sent.unusable:
                return
            final = left.final or (left.unclear and attempts.number >= UNKNOWN_TRIES)
            if not attempts.next(left.asked, final):
                self._sent.unusable = unusable(left.problem, attempts.number)
                return
            if left.late:
                self._parts(self._way.sizes.parts(places, self._sizes))
                return

    def _try(self, places: list[int], tries: int) -> LeftRows:
        try:
            entries = [self._entries[at] for at in places]
            replies = self._way.client.create_all(self._way.resource_type, entries, self._way.kind)
            self._way.sizes.took(self._size(places), self._way.client.seconds)
            self._way.trouble.is_over()
            return self._take(places, replies, tries)
        except NotSent as error:
            return LeftRows(places, str(error), error.retry_after, final=error.final)
        except (NotDone, RequestRefused) as error:
            return self._whole(places, error)
        except UnknownOutcome as error:
            self._unsure.update(places)
            self._sent.not_offered = isinstance(error, NotOffered)
            if isinstance(error, TargetFailed) and self._way.kind == "transaction":
                return self._failed(places, error, tries)
            seconds = self._way.client.seconds
            late = isinstance(error, TimedOut) and len(places) > 1 and seconds >= IN_TIME
            if late:
                self._way.sizes.found_slow(self._size(places), seconds)
            if not (self._way.step.repeats or isinstance(error, WriteConflict)):
                return self._doubt(places, late)
            return LeftRows(places, NO_ANSWER.format(error), unclear=True, late=late)

    def _failed(self, places: list[int], error: TargetFailed, tries: int) -> LeftRows:
        """Send a transaction that failed at the target in halves. One row alone is tried again, then it is in doubt."""
        if len(places) > 1:
            return self._halve(places)
        return LeftRows(places, NO_ANSWER.format(error)) if tries < UNKNOWN_TRIES else self._doubt(places)

    def _doubt(self, places: list[int], late: bool = False) -> LeftRows:
        """Leave rows in doubt: their request may still be under way, and a repeat could make second resources."""
        for at in places:
            self._sent.results[at] = RowResult("in_doubt")
            self._stopped.add(self._rows[at].lane)
        self._sent.unusable = self._way.trouble.met(counts=not late)
        return LeftRows([], "")

    def _halve(self, places: list[int]) -> LeftRows:
        middle = len(places) // 2
        self._parts([places[:middle], places[middle:]])
        return LeftRows([], "")

    def _size(self, places: Iterable[int]) -> int:
        return sum(self._sizes[at] for at in places)

    def _whole(self, places: list[int], error: NotDone | RequestRefused) -> LeftRows:
        """Send a bundle that was refused as a whole in parts, so that a row's refusal is its own."""
        reply = error.reply
        if reply.kind == "not done" and reply.status != TOO_LARGE:
            return LeftRows(places, str(error), reply.retry_after)
        if reply.status == TOO_LARGE:
            self._way.sizes.found_too_large(self._size(places))
        self._sent.not_offered = reply.status in NOT_OFFERED
        if reply.status not in (OF_AN_ENTRY if self._way.kind == "transaction" else OF_THE_CONTENT):
            self._sent.unusable = f"the target does not take {self._way.kind} bundles (HTTP {reply.status})"
        elif len(places) > 1:
            return self._halve(places)
        else:
            self._way.trouble.is_over()
            outcome = of_its_row(reply.outcome, self._way.resource_type)
            self._sent.results[places[0]] = RowResult("refused", None, reply.status, outcome)
        return LeftRows([], "")

    def _take(self, places: list[int], replies: list[Reply], tries: int) -> LeftRows:
        """Take the results of the replies; return the rows that are to be sent again."""
        existed = [reply.resource_id or "" for reply in replies if reply.kind == "existed"]
        bodies = read_back(self._way.client, self._way.resource_type, existed, self._way.read_all)
        left: list[int] = []
        for at, reply in zip(places, replies, strict=True):
            result = self._existing(at, reply, bodies) if reply.kind == "existed" else settled_result(reply)
            if result is None and reply.kind != "not done":
                self._unsure.add(at)
                # A row that the condition found may be sent again. A row that may exist without being visible yet may
                # not.
                again = self._way.step.repeats or reply.kind == "existed"
                if not again:
                    self._stopped.add(self._rows[at].lane)
                result = None if again and tries < UNKNOWN_TRIES else RowResult("in_doubt", None, reply.status or None)
            if result is None:
                left.append(at)
            else:
                self._sent.results[at] = result
        if self._are_misplaced(places, replies):
            self._sent.misplaced = True
            return self._doubt(places)
        left = [at for at in left if self._rows[at].lane not in self._stopped]
        return LeftRows(left, f"{counted(len(left), 'entry', 'entries')} without an outcome")

    def _are_misplaced(self, places: list[int], replies: list[Reply]) -> bool:
        """True if the answers are in another order than the rows.

        Refusals because several resources match a row's identifier (412) do not count: the target has that row anyway.
        """
        way, results = self._way, self._sent.results
        if tell_of_others([self._entries[at] for at in places], replies):
            return True
        if len(places) == 1 or way.kind == "transaction" or way.step.repeats:
            return False
        refused = [at for at in places if at in results and results[at].state == "refused"]
        doubtful = [self._rows[at] for at in refused if results[at].status != SEVERAL]
        return are_there(way.client, way.identity, doubtful)

    def _existing(self, at: int, reply: Reply, bodies: Bodies) -> RowResult | None:
        """Return the result of a 200 answer, compared with the resource as read back; None if that is unreadable."""
        return existing(self._way.resource_type, self._entries[at][0], reply, bodies, at in self._unsure)


def tell_of_others(entries: Sequence[Entry], replies: Sequence[Reply]) -> bool:
    """True if the answers themselves show another order: by a resource in one, or by one resource made by two."""
    made = [reply.resource_id for reply in replies if reply.kind == "created"]
    brought = ((body, reply.body) for (body, _), reply in zip(entries, replies, strict=True) if reply.body)
    return len(set(made)) < len(made) or any(has_names_of_another(orjson.loads(sent), body) for sent, body in brought)


def are_of_others(client: FhirClient, kind: str, made: Sequence[tuple[Entry, str]]) -> bool:
    """True if a resource that an entry made, by its answer, has another record's identifier. It is read by its id."""
    bodies = read_back(client, kind, [resource_id for _, resource_id in made])
    found = ((sent, bodies.get(resource_id)) for (sent, _), resource_id in made)
    return any(body is not None and has_names_of_another(orjson.loads(sent), body) for sent, body in found)


def are_there(client: FhirClient, identity: Identity, refused: Sequence[AcceptedRow]) -> bool:
    """True if the target has a row that was refused, by its answer. The row is searched for by its identifier."""
    found = by_identifier(client, identity, refused, None)
    return any(
        compared_result(identity.resource_type, identity.entry(row)[0], body, str(body["id"]), None, False).state
        != "refused"
        for row in refused
        for body in found[row.key].there
    )


def of_finding(identity: Identity, row: AcceptedRow, finding: Finding) -> RowResult | None:
    """The result of a row by what a search for its identifier shows; None where that shows nothing of it."""
    if len(finding.there) > 1:
        return RowResult("refused", outcome=SEVERAL_THERE)
    for body in finding.there:
        sent, _ = identity.entry(row)
        return compared_result(identity.resource_type, sent, body, str(body["id"]), None, row.intended)
    return None


def told_apart(client: FhirClient, identity: Identity, send: Send) -> Send:
    """Send rows, and look up those whose condition several resources meet: some targets compare identifiers without
    case or accents. One of these may be the row's own.
    """

    def sent(unit: Sequence[AcceptedRow]) -> SentResults:
        done = send(unit)
        places = [at for at, each in done.results.items() if (each.state, each.status) == ("refused", SEVERAL)]
        found = by_identifier(client, identity, [unit[at] for at in places], None)
        for at in places:
            done.results[at] = of_finding(identity, unit[at], found[unit[at].key]) or done.results[at]
        return done

    return sent
