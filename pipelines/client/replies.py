"""Interpret answers of a target: the reply to one request or batch entry, and exceptions for all other results.

A write ends in one of five ways: a reply, `RequestRefused`, `NotDone`, `NotSent` or `UnknownOutcome`. No exception
contains a resource.
"""

import json
import re
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from math import isfinite
from typing import Any, NoReturn

import httpx
import orjson

from pipelines.client.shapes import objects_in
from pipelines.home.batch import printable_name
from pipelines.home.counted import counted
from pipelines.home.exits import ExplainedError

TOO_LARGE = 413
NOT_DONE = (401, 403, TOO_LARGE, 429)
NOT_DONE_WORDS = {
    401: "it does not take the access token (HTTP 401)",
    403: "it does not permit this to the client (HTTP 403)",
    429: "it asks for fewer requests (HTTP 429)",
}
Statuses = tuple[int, ...]
REFUSED = (400, 404, 405, 412, 422)
CONFLICT, FAULT = 409, 500
"""Statuses that, with an OperationOutcome, end a request that met another one, or a fault of the target."""
NOT_OFFERED = (404, 405, 501)
LATE = (408, 504)
"""Statuses of a gateway that waited for the target too long, or of a target that waited for the request."""
CODE = re.compile(r"[a-z][a-z0-9-]{0,39}")
"""A code of R4, which may be reported where no other text of a target may."""
LONGEST_SAID = 1_000
"""The number of characters that are kept of a target's sentence."""
MOST_ISSUES = 100
LONGEST_NUMBER = 309
"""The number of digits from which a whole number may be too large for a double."""
LOCATION = re.compile(
    r"(?:(?:[^?#]*/)?(?P<type>[A-Z][A-Za-z]+)/(?P<id>[A-Za-z0-9.-]{1,64})(?:/_history/[^/?#]+)?/?"
    r"|(?P<uuid>[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}))(?:[?#].*)?"
)


class NoResult(Exception):
    """A request without its result: it was not sent, not done or refused, or its outcome is unknown.

    retry_after: the seconds for which the target asks for no requests. final: True if another try now is of no use.
    """

    retry_after: float | None = None
    final = False


class NotSent(NoResult):
    """The target surely received nothing: there was no connection, or no token. The text says which."""

    def __init__(self, why: str, retry_after: float | None = None, final: bool = False) -> None:
        super().__init__(why)
        self.retry_after, self.final = retry_after, final


class UnknownOutcome(NoResult):
    """It is unknown if the target did what was asked: its answer was lost, odd or a redirect."""


class TargetFailed(UnknownOutcome):
    """The target itself said that it failed, so that nothing of the request is under way any more.

    It may have stored a part before it failed, except of a transaction, which is stored as a whole or not at all.
    """


class WriteConflict(TargetFailed):
    """The request met another one and gave way to it: nothing of it was stored."""


class TimedOut(UnknownOutcome):
    """No answer came in time: the request may be more than the target can do in that time."""


class NotOffered(UnknownOutcome):
    """The answer is that of a server without such an endpoint, or of a gateway."""


AGAIN = "no clear answer, again and again"
"""The problem of a target that answers reads but no writes."""


class TargetUnusable(ExplainedError):
    """The target cannot be used now. The text says why."""


@dataclass(frozen=True, slots=True)
class Reply:
    """The target's answer to one request or batch entry. `outcome` is the first issue of its OperationOutcome.

    not_done: statuses with which this target surely did nothing, if it answers with an OperationOutcome. body: the
    resource in a batch entry's answer. resource_id: from the location, which is `<base>/<Type>/<id>` with or without
    `/_history/<n>`, or a UUID alone. resource_type: from the location; None if it has none. kind: the state of the
    write: `created`, `existed`, `refused`, `not done` or `unknown`.
    """

    status: int
    location: str | None = None
    outcome: dict[str, Any] | None = None
    retry_after: float | None = None
    not_done: Statuses = ()
    body: dict[str, Any] | None = None
    resource_id: str | None = field(init=False)
    resource_type: str | None = field(init=False)
    kind: str = field(init=False)

    def __post_init__(self) -> None:
        found = LOCATION.fullmatch(self.location) if self.location else None
        object.__setattr__(self, "resource_id", found and (found["id"] or found["uuid"]))
        object.__setattr__(self, "resource_type", found and found["type"])
        object.__setattr__(self, "kind", self._kind())

    def of_type(self, resource_type: str) -> "Reply":
        """Return the reply to the create of a type, without a location that names a resource of another type."""
        return self if self.resource_type in (None, resource_type) else replace(self, location=None)

    def _kind(self) -> str:
        if self.status in (200, 201) and self.resource_id:
            return "created" if self.status == 201 else "existed"
        if self.status in NOT_DONE or (self.status in self.not_done and self.outcome is not None):
            return "not done"
        return "refused" if self.status in REFUSED and self.outcome is not None else "unknown"


NO_REPLY = Reply(0)


class NotDone(NoResult):
    """The target surely did not do it, and may do it later: 401, 403, 413, 429, or statuses of its profile."""

    def __init__(self, reply: Reply) -> None:
        super().__init__(NOT_DONE_WORDS.get(reply.status, f"HTTP {reply.status}"))
        self.reply, self.retry_after = reply, reply.retry_after


class TooLarge(NotDone):
    """The target does not take a request of this size."""


class RequestRefused(NoResult):
    """The target refused the request because of its content, with an OperationOutcome."""

    def __init__(self, reply: Reply) -> None:
        super().__init__(f"HTTP {reply.status}")
        self.reply = reply


def unusable(problem: str, tries: int = 1) -> str:
    """Return the sentence that ends a load, after so many tries."""
    return f"the target could not be used: {problem}" + (f", {tries} times" if tries > 1 else "")


def first_issue(body: Any) -> dict[str, Any] | None:
    """Return an OperationOutcome's first issue: `code`, `text`, `diagnostics`, `expression`; None for anything else."""
    if not isinstance(body, dict) or body.get("resourceType") != "OperationOutcome":
        return None
    issues = body.get("issue")
    return _issue(issues[0] if isinstance(issues, list) and issues and isinstance(issues[0], dict) else {})


def all_issues(body: Any) -> list[dict[str, Any]]:
    """Return all issues of an OperationOutcome, each also with its `severity`; none for anything else."""
    issues = body.get("issue") if isinstance(body, dict) and body.get("resourceType") == "OperationOutcome" else None
    return [{**_issue(each), "severity": each.get("severity")} for each in objects_in(issues)[:MOST_ISSUES]]


def _issue(said: dict[str, Any]) -> dict[str, Any]:
    code, details, expressions = said.get("code"), said.get("details"), said.get("expression")
    return {
        "code": code if isinstance(code, str) and CODE.fullmatch(code) else None,
        "text": _sentence(details.get("text") if isinstance(details, dict) else None),
        "diagnostics": _sentence(said.get("diagnostics")),
        "expression": _sentence(expressions[0] if isinstance(expressions, list) and expressions else None),
    }


def _sentence(said: Any) -> str | None:
    """Return a target's own words on one line, limited in length and without NUL, which the ledger cannot store."""
    if not isinstance(said, str):
        return None
    return printable_name(said) if len(said) <= LONGEST_SAID else f"{printable_name(said[:LONGEST_SAID])} ..."


def settled_reply(reply: Reply) -> Reply:
    """Return the reply of a write that was done; raise the exception of one that was not, or may not have been."""
    match reply.kind:
        case "refused":
            raise RequestRefused(reply)
        case "not done":
            raise TooLarge(reply) if reply.status == TOO_LARGE else NotDone(reply)
        case "unknown":
            raise _unclear(reply)
    return reply


def _unclear(reply: Reply) -> UnknownOutcome:
    """Return the exception for an answer after which it is unknown if the write was done."""
    if reply.status in (CONFLICT, FAULT) and reply.outcome is not None:
        return (WriteConflict if reply.status == CONFLICT else TargetFailed)(f"HTTP {reply.status}")
    if reply.status in LATE:
        return TimedOut(f"HTTP {reply.status}")
    return (NotOffered if reply.status in NOT_OFFERED else UnknownOutcome)(f"HTTP {reply.status}")


def body_of(answer: httpx.Response) -> dict[str, Any]:
    """Return the object in the answer to a read. Raises `RequestRefused`, `NotDone` or `UnknownOutcome`."""
    body = object_of(answer) if answer.status_code == 200 else None
    if body is None and answer.status_code == 200:
        raise UnknownOutcome("HTTP 200 without a JSON object")
    if body is None:
        raise UnknownOutcome(f"HTTP {settled_reply(reply_of(answer)).status}")
    return body


def object_of(answer: httpx.Response) -> dict[str, Any] | None:
    """Return the JSON object of an answer, whatever its status; None if it has none."""
    try:
        body = orjson.loads(answer.content)
    except orjson.JSONDecodeError:
        body = _read_leniently(answer.content)
    return body if isinstance(body, dict) else None


def is_of_fhir(answer: httpx.Response) -> bool:
    """True if the body of a success is what a FHIR server sends: nothing, null, or a resource without an error."""
    body = {"resourceType": ""} if answer.content.strip() in (b"", b"null") else object_of(answer)
    return "resourceType" in (body or {}) and not _tells_of_an_error(body)


def _tells_of_an_error(body: Any) -> bool:
    return any(issue["severity"] in ("error", "fatal") for issue in all_issues(body))


def _read_leniently(raw: bytes) -> Any:
    """Return the value of a JSON text with numbers too large for a double (`1e999`) or halves of characters; None if
    it is not JSON.

    Such numbers become texts. A half, as of an emoji in a text that was cut, becomes the replacement character.
    """
    try:
        found = json.loads(raw.decode(), parse_float=_number, parse_int=_whole_number, parse_constant=_no_number)
        halves = json.dumps(found, ensure_ascii=False).encode("utf-16-le", "surrogatepass")
        return orjson.loads(halves.decode("utf-16-le", "replace"))
    except (ValueError, RecursionError):
        return None


def _whole_number(text: str) -> float | int | str:
    """Return a whole number; its text if it is too large for a double. Other numbers are read as in all answers."""
    return int(text) if len(text) < LONGEST_NUMBER else _number(text)


def _number(text: str) -> float | str:
    """Return a number as a float, or as its text if a float cannot hold it, so that every JSON writer can write it."""
    found = float(text)
    return found if isfinite(found) else text


def _no_number(name: str) -> NoReturn:
    raise ValueError(name)


def reply_of(answer: httpx.Response, not_done: Statuses = ()) -> Reply:
    """Return an answer as a reply."""
    outcome = None if answer.is_success else first_issue(object_of(answer))
    return Reply(answer.status_code, answer.headers.get("location"), outcome, retry_after(answer), not_done)


def replies_of(
    bundle: dict[str, Any] | None, entries: int, kind: str = "batch", not_done: Statuses = ()
) -> list[Reply]:
    """Return the replies of a batch or transaction, one an entry. Raises `UnknownOutcome` if their number differs."""
    answers = bundle.get("entry") if bundle else None
    if bundle is None or bundle.get("type") != f"{kind}-response" or not isinstance(answers, list):
        raise UnknownOutcome(f"the answer is not a {kind}-response")
    if len(answers) != entries:
        raise UnknownOutcome(f"the answer has {len(answers)} of {counted(entries, 'entry', 'entries')}")
    return [_entry(answer, not_done) for answer in answers]


def _entry(answer: Any, not_done: Statuses) -> Reply:
    """Return the reply in an entry of a batch-response. A refusal needs no outcome here: no gateway writes it."""
    response = answer.get("response") if isinstance(answer, dict) else None
    if not isinstance(response, dict):
        return NO_REPLY
    said, location = str(response.get("status", ""))[:3], response.get("location")
    status = int(said) if said.isascii() and said.isdigit() else 0
    body = answer.get("resource")
    # Some servers put the outcome of an entry that failed in the place of its resource.
    outcome = first_issue(response.get("outcome")) or first_issue(body) or ({} if status in REFUSED else None)
    return Reply(
        status,
        location if isinstance(location, str) else None,
        outcome,
        not_done=not_done,
        body=body if isinstance(body, dict) else None,
    )


def retry_after(answer: httpx.Response) -> float | None:
    """Return the seconds for which the target asks for no requests."""
    value = answer.headers.get("retry-after", "")
    if value.isascii() and value.isdigit():
        return float(value)
    asked = http_date(value)
    return max(0.0, (asked - datetime.now(UTC)).total_seconds()) if asked else None


def http_date(value: str) -> datetime | None:
    """Return the moment of an HTTP-date; None for anything else."""
    try:
        found = parsedate_to_datetime(value) if value else None
        # A date without a zone (`-0000`) is in UTC.
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).astimezone(UTC) if found else None
    except (ValueError, TypeError, OverflowError):
        return None


def resources_of(bundle: dict[str, Any], resource_type: str) -> list[dict[str, Any]]:
    """Return the resources of a search page, without outcomes and included other types. Raises `UnknownOutcome`.

    A gateway's text with status 200 is no page, nor is a page with an error in place of resources.
    """
    if bundle.get("resourceType") != "Bundle":
        raise UnknownOutcome("the answer to a search is not a Bundle")
    entries = bundle.get("entry") or []
    found = [entry.get("resource") if isinstance(entry, dict) else None for entry in entries]
    if not isinstance(entries, list) or not all(isinstance(each, dict) for each in found):
        raise UnknownOutcome("an entry of a page has no resource")
    resources = [each for each in found if each and each.get("resourceType") == resource_type]
    if not all(isinstance(each.get("id"), str) for each in resources):
        raise UnknownOutcome("a resource of a page has no id")
    if not resources and any(map(_tells_of_an_error, found)):
        raise UnknownOutcome("a page tells of an error, and holds nothing else")
    return resources


def total_of(bundle: dict[str, Any]) -> int | None:
    """Return the total of a search; None if it has none. Raises `UnknownOutcome`."""
    total = bundle.get("total")
    if total is not None and type(total) is not int:
        raise UnknownOutcome("the total of a search is not a number")
    return total


def next_link(bundle: dict[str, Any]) -> str | None:
    """Return the address of the next page; None on the last. Raises `UnknownOutcome`."""
    links = objects_in(bundle.get("link"))
    url = next((link.get("url") for link in links if link.get("relation") == "next"), None)
    if url is not None and not (isinstance(url, str) and url):
        raise UnknownOutcome("the next link has no address")
    return url
