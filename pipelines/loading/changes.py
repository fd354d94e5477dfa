"""Changing what is at a target already: a task updated to a row's content, a task or response taken back.

Read, merge, write with If-Unmodified-Since. A write whose outcome is unknown is settled by reading and comparing.
Nothing else changes what is at a target. What was read, and is not the record's, is never written.
"""

import json
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from pipelines.client.client import FhirClient
from pipelines.client.comparison import TAKEN_BACK, is_note_id, referred
from pipelines.client.pace import Attempts
from pipelines.client.replies import NoResult, NotDone, NotSent, Refused, Unknown, unusable
from pipelines.client.shapes import as_object
from pipelines.ledger.lease import LeaseLost
from pipelines.loading.answered import TOO_LARGE, Posted, Result, refused
from pipelines.loading.ownership import Made, Owner
from pipelines.loading.task_content import has, merged

Body = dict[str, Any]
Wanted = Callable[[Body], Body | None]
"""Gives the body to write for a resource as it was read; None when it is as it should be."""

CONFLICT = 412
NOT_THERE = 404


class Changes:
    """Changes resources side by side: no two of one note or encounter at once, and none more once one has found that
    the target cannot be used. For several threads.

    confirm: called before each write; raises `LeaseLost` when another loader has the target, and may have changed it.
    owner: tells of each resource whether it is the record's.
    """

    def __init__(self, client: FhirClient, confirm: Callable[[], None], owner: Owner) -> None:
        self._client, self._confirm, self._owner = client, confirm, owner
        self._type = owner.identity.resource_type
        self._unusable: str | None = None
        self._guard = threading.Lock()
        self._turns: dict[str, threading.Lock] = {}

    def update(self, made: Made, row_body: str) -> Posted:
        """Bring a task to what a row says: its elements win, what it does not say stays, comments are added once."""
        ours = json.loads(row_body)
        return self._write(made, lambda now: None if has(now, ours) else self._merged(now, ours), "updated")

    def take_back(self, made: Made) -> Posted:
        """Move a response to `entered-in-error`, a task to `cancelled`; once more changes nothing."""
        status = TAKEN_BACK[self._type]

        def wanted(now: Body) -> Body | None:
            return None if now.get("status") == status else self._withdrawn(now)

        return self._write(made, wanted, "undone")

    def take_back_together(self, some: Sequence[Made], kind: str) -> dict[str, Posted]:
        """Take back resources with two bundles of a kind: they are read, and written where they have not changed since.

        Returns:
            What surely was done, by id. Anything else (changed meanwhile, gone, another's, without a clear answer) is
            left out: it is for `take_back`, one by one. So is all of a bundle of which one was refused: an answer is
            known by the resource that it brings, and no place among the others tells which.
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
            return {}  # one by one it is told what is wrong
        done += going if all(_status(each) == "200" for each in written) else []
        return {name: Posted(Result("undone", name, 200)) for name in done}

    def _write(self, made: Made, wanted: Wanted, state: str) -> Posted:
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
                return Posted(Result("refused", None, NOT_THERE, why))
            body = wanted(found[0])
            if body is None:
                return Posted(Result(state, resource_id, 200))
            try:
                with self._turn(found[0]):
                    self._confirm()
                    status = client.update(self._type, resource_id, json.dumps(body).encode(), found[1]).status
                return Posted(Result(state, resource_id, status))
            except LeaseLost as error:
                self._unusable = str(error)
                break
            except Refused as error:
                if error.reply.status != CONFLICT or attempts.number > client.patience.attempts // 2:
                    return Posted(Result("refused", None, error.reply.status, error.reply.outcome))
                problem, asked, final = "it changes all the time", None, False
            except Unknown as error:
                problem, asked, final, unclear = f"no clear answer ({error})", None, False, True
            except (NotSent, NotDone) as error:
                if isinstance(error, NotDone) and error.reply.status == TOO_LARGE:
                    return Posted(refused(error.reply))
                problem, asked, final = str(error), error.retry_after, error.final
            if not attempts.next(asked, final):
                self._unusable = unusable(problem, attempts.number)
        return Posted(Result("in_doubt" if unclear else "planned", resource_id), self._unusable)

    def _turn(self, body: Body) -> AbstractContextManager[object]:
        """Entered by one at a time of those that name the same encounter or note."""
        place = _place(body)
        if place is None:
            return nullcontext()
        with self._guard:
            return self._turns.setdefault(place, threading.Lock())

    def _merged(self, now: Body, ours: Body) -> Body:
        return merged(now, ours, self._owner.replaces)

    def _withdrawn(self, now: Body) -> Body:
        """Return the body that takes a resource back: of a response all that was read, which the interface does not
        look at. A server of another make, that says nothing of itself, would keep nothing else.
        """
        status = {"status": TAKEN_BACK[self._type]}
        return self._merged(now, status) if self._type == "Task" else now | status

    def _taking_back(self, resource_id: str, read: Body) -> Body:
        """The entry of a bundle that takes back a resource as it was read."""
        request = {"method": "PUT", "url": f"{self._type}/{resource_id}", "ifMatch": _etag(read)}
        return {"resource": self._withdrawn(read["resource"]), "request": request}


def _response(entry: Body) -> Body:
    return as_object(entry.get("response"))


def _etag(entry: Body) -> str | None:
    """The version of what an entry has read."""
    etag = _response(entry).get("etag")
    return etag if _status(entry) == "200" and isinstance(etag, str) else None


def _status(entry: Body) -> str:
    return str(_response(entry).get("status", ""))[:3]


def _place(body: Body) -> str | None:
    """The note of a response, else its encounter, else its patient; a task has no place."""
    if body.get("resourceType") != "QuestionnaireResponse":
        return None
    notes = (each.get("valueId") for each in body.get("extension", ()) if is_note_id(each))
    references = (referred(body[name]) for name in ("encounter", "subject") if body.get(name))
    return next((str(each) for each in (*notes, *references) if each), None)
