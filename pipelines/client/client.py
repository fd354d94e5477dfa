"""The HTTP client of a FHIR target: its reads and its writes. `replies.py` interprets the answers."""

import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import repeat
from typing import Any, NamedTuple
from urllib.parse import urlencode
from uuid import NAMESPACE_URL, uuid5

import httpx

from pipelines.client.addresses import is_at, with_whole_links
from pipelines.client.capabilities import Capabilities, capabilities_of
from pipelines.client.connections import ask, client_for, why_of
from pipelines.client.identifiers import NOBODY, search_token
from pipelines.client.pace import PATIENT, Attempts, RetryPauses
from pipelines.client.profiles import PLAIN, Profile
from pipelines.client.replies import (
    AGAIN,
    NoResult,
    NotDone,
    NotSent,
    Reply,
    RequestRefused,
    TargetUnusable,
    TimedOut,
    UnknownOutcome,
    all_issues,
    body_of,
    first_issue,
    http_date,
    is_of_fhir,
    object_of,
    replies_of,
    reply_of,
    resources_of,
    retry_after,
    settled_reply,
    unusable,
)
from pipelines.client.threads import nobody_waits
from pipelines.client.tokens import Credentials, Tokens
from pipelines.client.whole import AT_ONCE, NONE, Body, pages_of
from pipelines.home import traces

CONFLICT = 412
NOT_FOUND = 404
PAGE = 100

TRY_AGAIN = (408, 429, 500, 502, 503, 504)
SLOW_TRIES = 3
"""Times that a statement is asked for if no answer comes in time."""
NO_STATEMENT = (401, 403, 404, 405, 406, 410, 501)
"""Statuses of targets that show no CapabilityStatement, and so count as the bare interface."""
JSON = {"accept": "application/json", "cache-control": "no-cache"}
"""No cached answers: for a minute HAPI repeats a search's earlier result, so that a new row would seem absent."""
AS_IT_IS = {**JSON, "accept-encoding": "identity"}
"""For reads before a change: a gateway may give a compressed answer another entity tag (`"1-gzip"`)."""
JSON_BODY = {"accept": "application/json", "content-type": "application/json"}


class AsOf(NamedTuple):
    """The marks of the version that was read: an HTTP-date, and an entity tag, each None if the target shows none.

    changed: the HTTP-date of its last change only.
    """

    date: str | None = None
    etag: str | None = None
    changed: str | None = None


NO_TIME = AsOf()
ELSEWHERE = "a link leads to another host; behind a proxy the server has to name the address that FHIR_BASE_URL has"
Entry = tuple[str, str]
"""A conditional create: the body as JSON, and `ifNoneExist` as a JSON string."""


class FhirClient:
    """The client of one target. Safe to use from several threads. It tries reads again, but never a write.
    pages_at_once: the most pages of a search to ask for at once.
    """

    def __init__(
        self,
        base_url: str,
        credentials: Credentials,
        timeout: float = 60.0,
        patience: RetryPauses = PATIENT,
        clock: Callable[[], float] = time.monotonic,
        transport: httpx.BaseTransport | None = None,
        before_each: Callable[[], None] = lambda: None,
        profile: Profile = PLAIN,
        pages_at_once: int = AT_ONCE,
    ) -> None:
        self.base_url = base_url.rstrip("/")
        self.profile = profile
        self.patience = replace(patience)  # ends with this client
        self.timeout = timeout
        self.clock = clock
        self._before_each = before_each
        self._heard: tuple[datetime, float] | None = None
        self._refuses_total, self._pages_at_once = False, pages_at_once
        self._of_thread = threading.local()
        times = httpx.Timeout(timeout, connect=10.0, pool=timeout)
        self._http = client_for(base_url, transport, timeout=times, follow_redirects=False)
        self._tokens = Tokens(self._http, self.base_url, credentials, clock)

    @property
    def seconds(self) -> float:
        """Seconds since this thread's last request was sent, after any wait for the pace."""
        return self.clock() - float(getattr(self._of_thread, "began", self.clock()))

    def close(self) -> None:
        self.patience.is_over = True
        self._http.close()

    # -- reads

    def capabilities(self) -> Capabilities:
        """Return the capabilities from `/metadata`; a target without it counts as the bare interface.

        Raises `TargetUnusable`, also for an unclear answer: a wrongly recognized target would be sent everything
        again.
        """
        answer = self._metadata()
        if answer.is_redirect:
            raise TargetUnusable(f"{self.base_url} answers with a redirect: name the address it leads to")
        if answer.status_code in NO_STATEMENT:
            return Capabilities()
        statement = object_of(answer) or {}
        if answer.status_code != 200 or statement.get("resourceType") != "CapabilityStatement":
            raise TargetUnusable(
                f"{self.base_url} does not say what it is: /metadata answers HTTP {answer.status_code}"
            )
        return capabilities_of(statement)

    def _metadata(self) -> httpx.Response:
        """Return the answer of `/metadata`. Ask again after a pause while the target is busy or away.

        Some servers take long for the first answer, because they make their statement then.
        """
        attempts = Attempts(self.patience)
        while True:
            try:
                answer = ask(self._http, "GET", f"{self.base_url}/metadata", headers=JSON)
            except (httpx.HTTPError, httpx.InvalidURL) as error:
                if isinstance(error, httpx.ReadTimeout) and attempts.number < SLOW_TRIES and attempts.next():
                    continue
                raise TargetUnusable(f"{self.base_url} does not answer ({why_of(error)})") from None
            except UnknownOutcome as error:
                raise TargetUnusable(f"{self.base_url} does not answer ({error})") from None
            if answer.status_code not in TRY_AGAIN or not attempts.next(retry_after(answer)):
                return answer

    def check_access(self) -> None:
        """Raise `TargetUnusable` if no token can be had, if it is not accepted, or if the answer is not FHIR.

        It makes one small read, before any data of a patient is sent.
        """
        try:
            self._tokens.get_first(self.patience)
        except NotSent as error:
            raise TargetUnusable(f"{self.base_url}: {error}") from None
        try:
            answer = self._send("GET", f"{self.base_url}/Questionnaire?_count=1", JSON)
        except (NotSent, NotDone, UnknownOutcome):
            return
        if answer.status_code == 401:
            raise TargetUnusable(f"{self.base_url} does not take the access token (HTTP 401)")
        spoken = (object_of(answer) or {}).get("resourceType")
        # A server's answer about a wrong address below its own: without this look each row would be refused.
        is_elsewhere = answer.status_code == NOT_FOUND and self._metadata().status_code == NOT_FOUND
        if is_elsewhere or (answer.status_code not in TRY_AGAIN and spoken not in ("Bundle", "OperationOutcome")):
            raise TargetUnusable(f"{self.base_url} does not answer as a FHIR server: is FHIR_BASE_URL right?")

    def server_time(self) -> datetime | None:
        """Return the earliest present time of the target's clock, by its last answer's `date`; None if it has none."""
        if self._heard is None:
            return None
        said, at = self._heard
        return said + timedelta(seconds=self.clock() - at)

    def wait_until_it_answers(self, resource_type: str, given_up: bool = False) -> str | None:
        """Wait until the target answers a search. Return the sentence that ends a load if it does not."""
        if given_up:
            return unusable(AGAIN)
        self.patience.wait(self.patience.first)
        try:
            resources_of(self.get(f"/{resource_type}?_count=1"), resource_type)
        except NoResult as error:
            return unusable(f"it answers no search ({error})")
        return None

    def read(self, resource_type: str, resource_id: str) -> dict[str, Any] | None:
        """Read a resource; return None if there is none. Raises as `get` does."""
        found = self.read_as_of(resource_type, resource_id)
        return found[0] if found else None

    def read_as_of(self, resource_type: str, resource_id: str) -> tuple[dict[str, Any], AsOf] | None:
        """Read a resource with its marks: the HTTP-date is `last-modified`, else the answer's `date`."""
        answer = self._patiently(f"{self.base_url}/{resource_type}/{resource_id}", "GET", AS_IT_IS)
        if answer.status_code in (404, 410):
            if first_issue(object_of(answer)) is None:
                raise UnknownOutcome(f"HTTP {answer.status_code}")
            return None
        body, changed = body_of(answer), answer.headers.get("last-modified")
        if (body.get("resourceType"), body.get("id")) != (resource_type, resource_id):
            raise UnknownOutcome("a read answers with another resource")
        return body, AsOf(changed or answer.headers.get("date"), answer.headers.get("etag"), changed)

    def get(self, path: str) -> dict[str, Any]:
        """Return the object at a path below the base (`/Task?...`), or at a full address such as a `next` link's.

        Raises `NotSent`, `NotDone`, `RequestRefused` or `UnknownOutcome`.
        """
        url = self._absolute(path)
        return with_whole_links(body_of(self._patiently(url)), url, self.base_url)

    def read_many(self, resource_type: str, resource_ids: Sequence[str]) -> dict[str, dict[str, Any]]:
        """Return by id those of at most `PAGE` resources that a search on `_id` finds; none if that is refused.

        Raises `NotSent`, `NotDone` or `UnknownOutcome`.
        """
        found: dict[str, dict[str, Any]] = {}
        try:
            for page in self.pages(resource_type, {"_id": ",".join(resource_ids)}):
                for body in resources_of(page, resource_type):
                    if body["id"] not in resource_ids:  # a target that does not know the parameter returns everything
                        return found
                    found[body["id"]] = body
        except RequestRefused:
            return {}
        return found

    def validate(self, resource_type: str, body: str | bytes) -> list[dict[str, Any]]:
        """Return the target's issues with a create, by `$validate`; nothing is stored. Raises as `get` does."""
        address = f"{self.base_url}/{resource_type}/$validate"
        return all_issues(body_of(self._patiently(address, "POST", JSON_BODY, body)))

    def pages(
        self,
        resource_type: str,
        params: Mapping[str, str] | None = None,
        wishes: Mapping[str, str] = NONE,
        at_once: int = 1,
    ) -> Iterator[Body]:
        """Yield the bundles of a search, by following `next` links only.

        wishes: further parameters, left out if the target refuses them, as `_total` is. at_once: as in `pages_of`.
        Raises as `get` does, `UnknownOutcome` if the pages have no end, and `Incomplete` if a page moved up meanwhile.
        """
        usual = {"_count": str(PAGE), **(params or {})}
        total = {"_total": self.profile.total} if self.profile.total and not self._refuses_total else {}
        for wished in ({**total, **wishes}, *([total] if total and wishes else ()), NONE):
            try:
                first = self.get(f"/{resource_type}?{urlencode({**usual, **wished})}")
                break
            except RequestRefused:
                if not wished:
                    raise
        self._refuses_total |= "_total" in total and "_total" not in wished
        yield from pages_of(self.get, first, resource_type, self.profile.offset, min(at_once, self._pages_at_once))

    def named(self, resource_type: str, system: str, values: Sequence[str]) -> Iterator[Body]:
        """Yield the pages of one search for these identifiers of a system. They may contain resources not asked for.

        Raises as `pages` does. values: few enough for an address.
        """
        asked = ",".join(search_token(system, value) for value in values)
        first = self.get(f"/{resource_type}?_count={PAGE}&identifier={asked}")
        yield from pages_of(self.get, first, resource_type, self.profile.offset)

    def finds_nobody(self, resource_type: str) -> bool:
        """True if a search by an identifier that no record has finds nothing, as it should. Raises as `get` does."""
        return not resources_of(self.get(f"/{resource_type}?_count=1&identifier={NOBODY}"), resource_type)

    # -- writes

    def create(self, resource_type: str, body: str | bytes, condition: str | None = None) -> Reply:
        """Send one POST, with a condition as `If-None-Exist`. Return the reply if a resource was created or was there.

        Raises `RequestRefused`, `NotDone`, `NotSent`, `UnknownOutcome`.
        """
        headers = {**JSON_BODY, **({"if-none-exist": condition} if condition else {})}
        answer = self._send("POST", f"{self.base_url}/{resource_type}", headers, body)
        return settled_reply(self._reply(answer).of_type(resource_type))

    def update(self, resource_type: str, resource_id: str, body: str | bytes, as_of: AsOf = NO_TIME) -> Reply:
        """Send one PUT of a resource as read at a moment, or of a new one; return the reply of a success.

        Raises as `create` does. Status 412 means that it was changed meanwhile, whatever the target's status for that.
        """
        given = {"if-unmodified-since": as_of.date, "if-match": as_of.etag}
        headers = {**JSON_BODY, **{name: value for name, value in given.items() if value}}
        answer = self._send("PUT", f"{self.base_url}/{resource_type}/{resource_id}", headers, body)
        reply = self._reply(answer)
        if answer.status_code == self.profile.conflict and reply.outcome is not None:
            raise RequestRefused(replace(reply, status=CONFLICT))
        if answer.status_code not in (200, 201, 204) or not is_of_fhir(answer):
            settled_reply(reply)
        return reply

    def create_all(self, resource_type: str, entries: Sequence[Entry], kind: str = "batch") -> list[Reply]:
        """Send one batch or transaction; return its replies in order. An answer without all entries is
        `UnknownOutcome`.
        """
        bundle = conditional_bundle(resource_type, entries, kind)
        replies = replies_of(self._bundle(bundle), len(entries), kind, self.profile.not_done)
        return [reply.of_type(resource_type) for reply in replies]

    def exchange(self, entries: Sequence[Mapping[str, Any]], kind: str) -> list[dict[str, Any]]:
        """Send one Bundle of a kind; return the entries of its answer, in order. Raises as `create_all` does."""
        bundle = {"resourceType": "Bundle", "type": kind, "entry": list(entries)}
        found = (self._bundle(json.dumps(bundle).encode()) or {}).get("entry")
        if not isinstance(found, list) or len(found) != len(entries):
            raise UnknownOutcome("the answer does not have all entries")
        return [each if isinstance(each, dict) else {} for each in found]

    # -- within

    def _bundle(self, bundle: bytes) -> Body | None:
        """Send a batch or transaction; return the object in its answer."""
        answer = self._send("POST", f"{self.base_url}/", JSON_BODY, bundle)
        if answer.status_code != 200:
            raise UnknownOutcome(f"HTTP {settled_reply(self._reply(answer)).status}")
        return object_of(answer)

    def _reply(self, answer: httpx.Response) -> Reply:
        return reply_of(answer, self.profile.not_done)

    def _absolute(self, path: str) -> str:
        """Return the full address of a path, or of an address at the target. No other host may get the token."""
        if path.startswith("/"):
            return f"{self.base_url}/{path.lstrip('/')}"
        if not is_at(path, self.base_url):
            raise UnknownOutcome(ELSEWHERE)
        return path

    def _patiently(
        self, url: str, method: str = "GET", headers: dict[str, str] = JSON, body: str | bytes | None = None
    ) -> httpx.Response:
        """Send a read, again after a pause while the target is away, busy or unclear."""
        attempts = Attempts(self.patience)
        while True:
            try:
                answer = self._send(method, url, headers, body)
                if answer.status_code not in TRY_AGAIN or not attempts.next(retry_after(answer)):
                    return answer
            except (NotSent, UnknownOutcome) as error:
                if not attempts.next(error.retry_after, error.final):
                    raise

    def _send(self, method: str, url: str, headers: dict[str, str], body: str | bytes | None = None) -> httpx.Response:
        """Send one request with a token; after a 401, which surely did nothing, once more with a new token."""
        token = self._tokens.bearer()
        answer = self._once(method, url, {**headers, "authorization": f"Bearer {token}"}, body)
        if answer.status_code == 401 and self._tokens.renewable:
            self._tokens.forget(token)
            answer = self._once(method, url, {**headers, "authorization": f"Bearer {self._tokens.bearer()}"}, body)
        return answer

    def _once(self, method: str, url: str, headers: dict[str, str], body: str | bytes | None) -> httpx.Response:
        self._before_each()
        if nobody_waits():
            raise NotSent("nobody waits for its answer", final=True)
        self._of_thread.began = self.clock()
        try:
            with traces.request(method) as trace:
                answer = ask(self._http, method, url, headers={**headers, **trace}, content=body)
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as error:
            raise NotSent(f"no connection: {why_of(error)}") from None
        except httpx.InvalidURL:
            raise NotSent("an address that cannot be sent", final=True) from None
        except httpx.TimeoutException as error:
            raise TimedOut(why_of(error)) from None
        except httpx.HTTPError as error:
            raise UnknownOutcome(why_of(error)) from None
        if said := http_date(answer.headers.get("date", "")):
            self._heard = said, self.clock()
        return answer


def conditional_bundle(resource_type: str, entries: Sequence[Entry], kind: str) -> bytes:
    """Return a Bundle of conditional creates, joined from bodies that are JSON already.

    In a transaction each entry has a `fullUrl`, made from its condition, since servers need it to tell entries apart.
    """
    request = f',"request":{{"method":"POST","url":"{resource_type}","ifNoneExist":'
    if kind == "transaction":
        names: Iterable[str] = (f'"fullUrl":"{uuid5(NAMESPACE_URL, condition).urn}",' for _, condition in entries)
    else:
        names = repeat("", len(entries))
    named = zip(names, entries, strict=True)
    joined = ",".join([f'{{{name}"resource":{body}{request}{condition}}}}}' for name, (body, condition) in named])
    return f'{{"resourceType":"Bundle","type":"{kind}","entry":[{joined}]}}'.encode()
