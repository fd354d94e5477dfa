"""Change resources at a target: update a task to a row's content, take a task or response back.

Each change is a read, a merge and a write with If-Unmodified-Since. A write whose outcome is unknown is settled by
reading and comparing. No other module changes resources at a target. A resource that is not the record's is never
written.
"""

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

from pipelines.client.client import FhirClient
from pipelines.client.comparison import TAKEN_BACK, is_note_id, referred
from pipelines.client.pace import Attempts
from pipelines.client.replies import NoResult, NotDone, NotSent, RequestRefused, TooLarge, UnknownOutcome, unusable
from pipelines.client.shapes import as_object
from pipelines.ledger.lease import LeaseLost
from pipelines.loading.ownership import KnownResource, Owner
from pipelines.loading.row import PostResult, RowResult, refused_result
from pipelines.loading.task_content import has, merged_task

Body = dict[str, Any]
Wanted = Callable[[Body], Body | None]
"""Returns the body to write for a resource as read; None if the resource needs no change."""
Change = tuple[KnownResource, Wanted]
Each = TypeVar("Each")

ROWS_AT_ONCE = 64
"""Resources whose changes are noted together where each is changed by itself."""
CONFLICT = 412
NOT_THERE = 404


class Changes:
    """Changes of resources, made side by side, but only one at a time for each note or encounter. After one has found
    the target unusable, no more are made. Safe to use from several threads.

    confirm: called before each write and bundle; raises `LeaseLost` if another loader has the target and may have
    changed it. owner: decides if a resource is the record's.
    """

    def __init__(self, client: FhirClient, confirm: Callable[[], None], owner: Owner) -> None:
        self._client, self._confirm, self._owner = client, confirm, owner
        self._type = owner.identity.resource_type
        self._unusable: str | None = None
        self._guard = threading.Lock()
        self._turns: dict[str, threading.Lock] = {}

    def parts(self, some: Sequence[Each], bundle: str | None) -> Iterator[Sequence[Each]]:
        """Yield as many of these at once as are changed before their outcomes are noted. bundle: see `update`."""
        size = self._client.profile.most_rows if bundle else ROWS_AT_ONCE
        return (some[start : start + size] for start in range(0, len(some), size))

    def update(
        self, some: Sequence[tuple[KnownResource, str]], bundle: str | None, pool: ThreadPoolExecutor
    ) -> list[PostResult]:
        """Update tasks to the bodies of rows; return the results in order.

        A row's elements win, elements not in the row stay, comments are added once.

        bundle: the kind of bundles that the target takes; None if it takes none. pool: sends what goes one by one.
        """
        return self._make([(made, self._updated(json.loads(body))) for made, body in some], "updated", bundle, pool)

    def take_back(
        self, some: Iterable[KnownResource], bundle: str | None, pool: ThreadPoolExecutor
    ) -> list[PostResult]:
        """Set responses to `entered-in-error`, tasks to `cancelled`; return the results in order. A repeat changes
        nothing. bundle, pool: see `update`.
        """
        return self._make([(made, self._taken_back) for made in some], "undone", bundle, pool)

    def _make(
        self, changes: Sequence[Change], state: str, bundle: str | None, pool: ThreadPoolExecutor
    ) -> list[PostResult]:
        """Make changes of different resources: together if the target takes bundles, then the others one by one."""
        done = self._together(changes, bundle) if bundle and not self._unusable else {}

        def result_of(made: KnownResource, wanted: Wanted) -> PostResult:
            if done.get(made):
                return PostResult(RowResult(state, made.resource_id, 200))
            return self._write(made, wanted, state, unclear=made in done)

        return list(pool.map(result_of, *zip(*changes, strict=True)))

    def _together(self, changes: Sequence[Change], kind: str) -> dict[KnownResource, bool]:
        """Change resources with two bundles of a kind: the first reads them, the second writes those that are
        unchanged since.

        Returns:
            True for each resource that surely is as wanted, False for each that may be. All others (changed meanwhile,
                gone, another's) surely are as they were. Change all but the first by themselves. If one write of the
                bundle was refused, none is sure: an answer is recognized only by the resource in it, so it is unknown
                which one was refused.
        """
        urls = [f"{self._type}/{made.resource_id}" for made, _ in changes]
        try:
            read = self._exchange([{"request": {"method": "GET", "url": url}} for url in urls], kind)
            found = {str(as_object(each.get("resource")).get("id")): each for each in read if _etag(each)}
            bodies = {
                made: wanted(found[made.resource_id]["resource"])
                for made, wanted in changes
                if made.resource_id in found and not self._owner.why_not(made, found[made.resource_id]["resource"])
            }
        except (NoResult, LeaseLost):
            return {}  # the single changes find out what is wrong
        entries = [self._put(made, body, found[made.resource_id]) for made, body in bodies.items() if body is not None]
        try:
            written = self._exchange(entries, kind) if entries else []
        except UnknownOutcome:
            written = [{}]
        except (NoResult, LeaseLost):
            return {made: True for made, body in bodies.items() if body is None}
        all_are = all(_status(each) == "200" for each in written)
        return {made: body is None or all_are for made, body in bodies.items()}

    def _exchange(self, entries: Sequence[Body], kind: str) -> list[Body]:
        """Send a bundle, again after each pause that the target asks for."""
        attempts = Attempts(self._client.patience)
        while True:
            self._confirm()
            try:
                return self._client.exchange(entries, kind)
            except NotDone as error:
                if error.retry_after is None or not attempts.next(error.retry_after):
                    raise

    def _write(self, made: KnownResource, wanted: Wanted, state: str, unclear: bool) -> PostResult:
        """Make one change. unclear: True if it may have been made already."""
        client, resource_id = self._client, made.resource_id
        attempts = Attempts(client.patience)
        while not self._unusable:
            try:
                found = client.read_as_of(self._type, resource_id)
            except NoResult as error:
                self._unusable = f"the target could not be used: it cannot be read ({error})"
                break
            why = self._owner.why_not(made, found[0] if found else None)
            if found is None or why:
                return PostResult(RowResult("refused", None, NOT_THERE, why))
            body = wanted(found[0])
            if body is None:
                return PostResult(RowResult(state, resource_id, 200))
            try:
                with self._turn(found[0]):
                    self._confirm()
                    status = client.update(self._type, resource_id, json.dumps(body).encode(), found[1]).status
                return PostResult(RowResult(state, resource_id, status))
            except LeaseLost as error:
                self._unusable = str(error)
                break
            except RequestRefused as error:
                if error.reply.status != CONFLICT or attempts.number > client.patience.attempts // 2:
                    return PostResult(RowResult("refused", None, error.reply.status, error.reply.outcome))
                problem, asked, final = "it changed again at each try", None, False
            except UnknownOutcome as error:
                problem, asked, final, unclear = f"no clear answer ({error})", None, False, True
            except TooLarge as error:
                return PostResult(refused_result(error.reply))
            except (NotSent, NotDone) as error:
                problem, asked, final = str(error), error.retry_after, error.final
            if not attempts.next(asked, final):
                self._unusable = unusable(problem, attempts.number)
        return PostResult(RowResult("in_doubt" if unclear else "planned", resource_id), self._unusable)

    def _turn(self, body: Body) -> AbstractContextManager[object]:
        """A block for one change at a time among those with the same encounter or note."""
        place = _place(body)
        if place is None:
            return nullcontext()
        with self._guard:
            return self._turns.setdefault(place, threading.Lock())

    def _merged(self, now: Body, ours: Body) -> Body:
        return merged_task(now, ours, self._owner.replaces)

    def _updated(self, ours: Body) -> Wanted:
        return lambda now: None if has(now, ours) else self._merged(now, ours)

    def _taken_back(self, now: Body) -> Body | None:
        """Return the body that takes a resource back; None if it was taken back.

        For a response it is the whole body as read. The interface ignores the rest, but another server may keep only
        what a body contains.
        """
        status = {"status": TAKEN_BACK[self._type]}
        if now.get("status") == status["status"]:
            return None
        return self._merged(now, status) if self._type == "Task" else now | status

    def _put(self, made: KnownResource, body: Body, read: Body) -> Body:
        """Return the bundle entry that writes a resource if it still is as it was read."""
        request = {"method": "PUT", "url": f"{self._type}/{made.resource_id}", "ifMatch": _etag(read)}
        return {"resource": body, "request": request}


def _response(entry: Body) -> Body:
    return as_object(entry.get("response"))


def _etag(entry: Body) -> str | None:
    """Return the version (ETag) in a bundle entry's answer to a read; None if the read failed."""
    etag = _response(entry).get("etag")
    return etag if _status(entry) == "200" and isinstance(etag, str) else None


def _status(entry: Body) -> str:
    return str(_response(entry).get("status", ""))[:3]


def _place(body: Body) -> str | None:
    """Return the note of a response, else its encounter, else its patient; None for a task."""
    if body.get("resourceType") != "QuestionnaireResponse":
        return None
    notes = (each.get("valueId") for each in body.get("extension", ()) if is_note_id(each))
    references = (referred(body[name]) for name in ("encounter", "subject") if body.get(name))
    return next((str(each) for each in (*notes, *references) if each), None)
