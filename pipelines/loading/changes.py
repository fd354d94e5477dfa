"""Change resources at a target: update a task to a row's content, take a task or response back.

Each change is a read, a merge and a write with If-Unmodified-Since. A write whose outcome is unknown is settled by
reading and comparing. No other module changes resources at a target. A resource that is not the record's is never
written.
"""

import json
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

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

CONFLICT = 412
NOT_THERE = 404


class Changes:
    """Changes of resources, made side by side, but only one at a time for each note or encounter. After one has found
    the target unusable, no more are made. Safe to use from several threads.

    confirm: called before each write; raises `LeaseLost` if another loader has the target and may have changed it.
    owner: decides if a resource is the record's.
    """

    def __init__(self, client: FhirClient, confirm: Callable[[], None], owner: Owner) -> None:
        self._client, self._confirm, self._owner = client, confirm, owner
        self._type = owner.identity.resource_type
        self._unusable: str | None = None
        self._guard = threading.Lock()
        self._turns: dict[str, threading.Lock] = {}

    def update(self, made: KnownResource, row_body: str) -> PostResult:
        """Update a task to a row. The row's elements win, elements not in the row stay, comments are added once."""
        ours = json.loads(row_body)
        return self._write(made, lambda now: None if has(now, ours) else self._merged(now, ours), "updated")

    def take_back(self, made: KnownResource) -> PostResult:
        """Set a response to `entered-in-error`, a task to `cancelled`. A repeat changes nothing."""
        status = TAKEN_BACK[self._type]

        def wanted(now: Body) -> Body | None:
            return None if now.get("status") == status else self._withdrawn(now)

        return self._write(made, wanted, "undone")

    def take_back_together(self, some: Sequence[KnownResource], kind: str) -> dict[str, PostResult]:
        """Take resources back with two bundles of a kind: the first reads them, the second writes those that are
        unchanged.

        Returns:
            The certain results by id. All other resources (changed meanwhile, gone, another's, without a clear answer)
                are missing: use `take_back` for each. If one write of the bundle was refused, all are missing: an
                answer is recognized only by the resource in it, so it is unknown which one was refused.
        """
        status, urls = TAKEN_BACK[self._type], [f"{self._type}/{made.resource_id}" for made in some]
        try:
            read = self._client.exchange([{"request": {"method": "GET", "url": url}} for url in urls], kind)
            found = {str(as_object(each.get("resource")).get("id")): each for each in read if _etag(each)}
            known = {
                made.resource_id: found[made.resource_id]
                for made in some
                if made.resource_id in found and not self._owner.why_not(made, found[made.resource_id]["resource"])
            }
            done = [name for name, each in known.items() if each["resource"].get("status") == status]
            going = [name for name in known if name not in set(done)]
            self._confirm()
            entries = [self._taking_back(name, known[name]) for name in going]
            written = self._client.exchange(entries, kind) if entries else []
        except (NoResult, LeaseLost):
            return {}  # the single changes find out what is wrong
        done += going if all(_status(each) == "200" for each in written) else []
        return {name: PostResult(RowResult("undone", name, 200)) for name in done}

    def _write(self, made: KnownResource, wanted: Wanted, state: str) -> PostResult:
        client, resource_id = self._client, made.resource_id
        attempts, unclear = Attempts(client.patience), False
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

    def _withdrawn(self, now: Body) -> Body:
        """Return the body that takes a resource back.

        For a response it is the whole body as read. The interface ignores the rest, but another server may keep only
        what a body contains.
        """
        status = {"status": TAKEN_BACK[self._type]}
        return self._merged(now, status) if self._type == "Task" else now | status

    def _taking_back(self, resource_id: str, read: Body) -> Body:
        """Return the bundle entry that takes back a resource as it was read."""
        request = {"method": "PUT", "url": f"{self._type}/{resource_id}", "ifMatch": _etag(read)}
        return {"resource": self._withdrawn(read["resource"]), "request": request}


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
