"""The HTTP client of a FHIR target: its token, its reads, its writes, and what is known when one of them fails.

A write ends in one of five ways: a reply, `Refused`, `NotDone`, `NotSent` or `Unknown`. No exception carries content.
"""

import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from ipaddress import ip_address
from typing import Any, NamedTuple
from urllib.parse import urlencode, urlsplit

import httpx
import orjson

IDLE_SECONDS = 2.0
RENEW_BEFORE_SECONDS = 60.0
LONGEST_WAIT_SECONDS = 300.0
PAGE = 100

NOT_DONE = (401, 403, 413, 429)
REFUSED = (400, 404, 405, 412, 422)
TRY_AGAIN = (408, 429, 500, 502, 503, 504)
JSON = {"accept": "application/json"}
JSON_BODY = {**JSON, "content-type": "application/json"}


class NotSent(Exception):
    """No connection was made: the target surely saw nothing."""


class Unknown(Exception):
    """It is not known whether the target did what was asked: a lost, odd or redirected answer."""


class TargetUnusable(Exception):
    """The target cannot be used now; the sentence says why."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What the target said of one request or batch entry. `outcome` is the first issue of its OperationOutcome."""

    status: int
    location: str | None = None
    outcome: dict[str, Any] | None = None
    retry_after: float | None = None

    @property
    def resource_id(self) -> str | None:
        """The id in the location: `<base>/<Type>/<id>` with or without `/_history/<n>`."""
        if not self.location:
            return None
        before, slash, found = self.location.split("/_history/")[0].rstrip("/").rpartition("/")
        return found if before and slash and found else None

    @property
    def kind(self) -> str:
        """`created`, `existed`, `refused`, `not done` or `unknown`: what is known of the write (design, section 5)."""
        if self.status in (200, 201) and self.resource_id:
            return "created" if self.status == 201 else "existed"
        if self.status in NOT_DONE or (self.status == 503 and self.outcome is not None):
            return "not done"
        return "refused" if self.status in REFUSED and self.outcome is not None else "unknown"


NO_REPLY = Reply(0)


class NotDone(Exception):
    """The target surely did not do it, and may later: 401, 403, 413, 429, or a 503 with an OperationOutcome."""

    def __init__(self, reply: Reply) -> None:
        super().__init__(f"HTTP {reply.status}")
        self.reply = reply


class Refused(Exception):
    """The target refused the request for what it is, with an OperationOutcome."""

    def __init__(self, reply: Reply) -> None:
        super().__init__(f"HTTP {reply.status}")
        self.reply = reply


@dataclass(frozen=True, slots=True)
class Patience:
    """Growing, jittered pauses (seconds) between attempts, bounded in number and length."""

    attempts: int = 7
    first: float = 0.5
    longest: float = 30.0
    sleep: Callable[[float], None] = time.sleep
    random: Callable[[], float] = random.random

    def pauses(self) -> Iterator[float]:
        """One pause for each attempt but the last."""
        for attempt in range(self.attempts - 1):
            yield min(self.longest, self.first * 2**attempt) * (0.5 + self.random() / 2)

    def wait(self, pause: float, at_least: float | None = None) -> None:
        """Sleeps the pause, or what the target asked for (`retry-after`) when that is longer."""
        self.sleep(min(max(pause, at_least or 0.0), LONGEST_WAIT_SECONDS))


class Capabilities(NamedTuple):
    """What a target says of itself in `/metadata`. `store_id`, `url` and `software` are None where it shows none."""

    batch: bool = False
    conditional: frozenset[str] = frozenset()
    store_id: str | None = None
    url: str | None = None
    software: str | None = None

    def safe_batches(self, resource_type: str) -> bool:
        """Whether creates may go in bundles and be sent again: batch and conditional create are both offered."""
        return self.batch and resource_type in self.conditional


@dataclass(frozen=True)
class Credentials:
    """How tokens are had: a fixed one, or client credentials at `token_url` (default `{base}/auth/token`)."""

    token: str | None = field(default=None, repr=False)
    client_id: str | None = None
    client_secret: str | None = field(default=None, repr=False)
    token_url: str | None = None


class FhirClient:
    """Talks to one target. Safe to use from several threads. Reads are tried again; no write is tried a second time."""

    def __init__(
        self,
        base_url: str,
        credentials: Credentials,
        timeout: float = 60.0,
        patience: Patience = Patience(),
        clock: Callable[[], float] = time.monotonic,
        transport: httpx.BaseTransport | None = None,
        before_each: Callable[[], None] = lambda: None,
    ) -> None:
        self.base_url = base_url.rstrip("/")
        self.patience = patience
        self._credentials = credentials
        self._clock = clock
        self._before_each = before_each
        self._heard: tuple[datetime, float] | None = None
        self._http = httpx.Client(
            timeout=httpx.Timeout(timeout, connect=10.0, pool=timeout),
            limits=httpx.Limits(keepalive_expiry=IDLE_SECONDS),
            follow_redirects=False,
            transport=transport,
            trust_env=not is_loopback(base_url),
        )
        self._lock = threading.Lock()
        self._token, self._token_ends = credentials.token, float("inf")

    def close(self) -> None:
        self._http.close()

    # -- reads

    def capabilities(self) -> Capabilities:
        """What `/metadata` says; a target that has none counts as the bare interface. Raises `TargetUnusable`."""
        try:
            answer = self._http.get(f"{self.base_url}/metadata", headers=JSON)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise TargetUnusable(f"{self.base_url} does not answer ({type(error).__name__})") from None
        if answer.is_redirect:
            raise TargetUnusable(f"{self.base_url} answers with a redirect: name the address it leads to")
        return _capabilities(_object(answer) or {}) if answer.status_code == 200 else Capabilities()

    def check_access(self) -> None:
        """Raises `TargetUnusable` when no token can be had, it is not taken, or what answers speaks no FHIR.

        One small read, before anything of a patient goes there.
        """
        try:
            self._bearer()
        except (NotSent, NotDone) as error:
            raise TargetUnusable(f"{self.base_url} gave no access token ({error})") from None
        try:
            answer = self._send("GET", f"{self.base_url}/Questionnaire?_count=1", JSON)
        except (NotSent, NotDone, Unknown):
            return
        if answer.status_code == 401:
            raise TargetUnusable(f"{self.base_url} does not take the access token (HTTP 401)")
        spoken = (_object(answer) or {}).get("resourceType")
        if answer.status_code not in TRY_AGAIN and spoken not in ("Bundle", "OperationOutcome"):
            raise TargetUnusable(f"{self.base_url} does not answer as a FHIR server: is FHIR_BASE_URL right?")

    def server_time(self) -> datetime | None:
        """What the target's clock shows now, at least, by the `date` of its last answer; None when it sends none."""
        if self._heard is None:
            return None
        said, at = self._heard
        return said + timedelta(seconds=self._clock() - at)

    def wait_until_it_answers(self, resource_type: str) -> None:
        """Returns once the target answers a search of one resource; raises `TargetUnusable` when patience ends."""
        self.patience.wait(self.patience.first)
        try:
            self.get(f"/{resource_type}?_count=1")
        except (NotSent, NotDone, Refused, Unknown) as error:
            raise TargetUnusable(f"the target could not be used: it answers no search ({error})") from None

    def read(self, resource_type: str, resource_id: str) -> dict[str, Any] | None:
        """One resource, None when there is none; raises as `get` does."""
        found = self.read_as_of(resource_type, resource_id)
        return found[0] if found else None

    def read_as_of(self, resource_type: str, resource_id: str) -> tuple[dict[str, Any], str | None] | None:
        """The same with the HTTP-date it is as of: `last-modified`, else the answer's `date`."""
        answer = self._patiently(f"{self.base_url}/{resource_type}/{resource_id}")
        if answer.status_code in (404, 410):
            if first_issue(_object(answer)) is None:
                raise Unknown(f"HTTP {answer.status_code}")
            return None
        return _body(answer), answer.headers.get("last-modified") or answer.headers.get("date")

    def get(self, path: str) -> dict[str, Any]:
        """The object at a path or link (`/Task?...`); raises `NotSent`, `NotDone`, `Refused` or `Unknown`."""
        return _body(self._patiently(self._absolute(path)))

    def pages(self, resource_type: str, params: dict[str, str] | None = None) -> Iterator[dict[str, Any]]:
        """The bundles of a search, by following `next` links only."""
        path: str | None = f"/{resource_type}?{urlencode({'_count': str(PAGE), **(params or {})})}"
        while path:
            bundle = self.get(path)
            yield bundle
            path = next((link["url"] for link in bundle.get("link", ()) if link.get("relation") == "next"), None)

    def search_all(self, resource_type: str, params: dict[str, str] | None = None) -> Iterator[dict[str, Any]]:
        """The resources that match, in the target's order."""
        for bundle in self.pages(resource_type, params):
            for entry in bundle.get("entry", ()):
                yield entry["resource"]

    # -- writes

    def create(self, resource_type: str, body: str | bytes) -> Reply:
        """One POST. Gives the reply of a resource made; raises `Refused`, `NotDone`, `NotSent`, `Unknown`."""
        return _settled(_reply(self._send("POST", f"{self.base_url}/{resource_type}", JSON_BODY, body)))

    def update(self, resource_type: str, resource_id: str, body: str | bytes, unmodified_since: str | None) -> int:
        """One PUT; gives the status of one that was done. Raises as `create` does (412: it was changed meanwhile)."""
        headers = {**JSON_BODY, **({"if-unmodified-since": unmodified_since} if unmodified_since else {})}
        answer = self._send("PUT", f"{self.base_url}/{resource_type}/{resource_id}", headers, body)
        if answer.status_code not in (200, 201, 204):
            _settled(_reply(answer))
        return answer.status_code

    def batch(self, bundle: bytes, entries: int) -> list[Reply]:
        """One batch Bundle of that many entries, in order. An answer that misses entries is `Unknown` as a whole."""
        answer = self._send("POST", f"{self.base_url}/", JSON_BODY, bundle)
        if answer.status_code != 200:
            raise Unknown(f"HTTP {_settled(_reply(answer)).status}")
        return _replies(_object(answer), entries)

    # -- within

    def _absolute(self, path: str) -> str:
        """A link of the target as an address at the target: never elsewhere, since the token goes with it."""
        if not path.startswith(("http://", "https://")):
            return f"{self.base_url}/{path.lstrip('/')}"
        if urlsplit(path)[:2] != urlsplit(self.base_url)[:2]:
            raise Unknown("a link leads to another host")
        return path

    def _patiently(self, url: str) -> httpx.Response:
        """A read, again after a pause while the target is away, busy or unclear."""
        for pause in self.patience.pauses():
            asked = None
            try:
                answer = self._send("GET", url, JSON)
                if answer.status_code not in TRY_AGAIN:
                    return answer
                asked = _retry_after(answer)
            except (NotSent, NotDone, Unknown):
                pass
            self.patience.wait(pause, asked)
        return self._send("GET", url, JSON)

    def _send(self, method: str, url: str, headers: dict[str, str], body: str | bytes | None = None) -> httpx.Response:
        """One request with a token; after a 401 once more with a new one (a 401 surely did nothing)."""
        token = self._bearer()
        answer = self._once(method, url, {**headers, "authorization": f"Bearer {token}"}, body)
        if answer.status_code == 401 and self._credentials.client_id is not None:
            self._forget(token)
            answer = self._once(method, url, {**headers, "authorization": f"Bearer {self._bearer()}"}, body)
        return answer

    def _once(self, method: str, url: str, headers: dict[str, str], body: str | bytes | None) -> httpx.Response:
        self._before_each()
        try:
            answer = self._http.request(method, url, headers=headers, content=body)
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as error:
            raise NotSent(type(error).__name__) from None
        except httpx.HTTPError as error:
            raise Unknown(type(error).__name__) from None
        if said := _http_date(answer.headers.get("date", "")):
            self._heard = said, self._clock()
        return answer

    # -- the token

    def _forget(self, token: str) -> None:
        with self._lock:
            if self._token == token:
                self._token = None

    def _bearer(self) -> str:
        """The token, renewed before it ends. What goes wrong here is never unknown: no request has been sent."""
        with self._lock:
            if self._token is None or self._clock() > self._token_ends:
                self._token, seconds = self._new_token()
                self._token_ends = self._clock() + max(seconds - RENEW_BEFORE_SECONDS, seconds / 2)
            return self._token

    def _new_token(self) -> tuple[str, float]:
        form = {
            "grant_type": "client_credentials",
            "client_id": self._credentials.client_id,
            "client_secret": self._credentials.client_secret,
        }
        url = self._credentials.token_url or f"{self.base_url}/auth/token"
        try:
            answer = self._http.post(url, data=form, headers=JSON)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise NotSent(type(error).__name__) from None
        body = _object(answer)
        if answer.status_code != 200 or body is None or not isinstance(body.get("access_token"), str):
            raise NotDone(Reply(answer.status_code, retry_after=_retry_after(answer)))
        seconds = body.get("expires_in")
        return body["access_token"], float(seconds) if isinstance(seconds, int | float) else 300.0


def is_loopback(url: str) -> bool:
    """Whether an address stays on this machine."""
    host = urlsplit(url).hostname or ""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def conditional_bundle(resource_type: str, entries: Sequence[tuple[str, str]]) -> bytes:
    """A batch Bundle of conditional creates from `(body JSON, ifNoneExist as JSON string)`: joined, not parsed."""
    request = f',"request":{{"method":"POST","url":"{resource_type}","ifNoneExist":'
    joined = ",".join([f'{{"resource":{body}{request}{condition}}}}}' for body, condition in entries])
    return f'{{"resourceType":"Bundle","type":"batch","entry":[{joined}]}}'.encode()


def first_issue(body: Any) -> dict[str, Any] | None:
    """The first issue of an OperationOutcome: `code`, `text`, `diagnostics`, `expression`; None for anything else."""
    if not isinstance(body, dict) or body.get("resourceType") != "OperationOutcome":
        return None
    issues = body.get("issue")
    first = issues[0] if isinstance(issues, list) and issues and isinstance(issues[0], dict) else {}
    details = first.get("details")
    expressions = first.get("expression")
    return {
        "code": first.get("code"),
        "text": details.get("text") if isinstance(details, dict) else None,
        "diagnostics": first.get("diagnostics"),
        "expression": expressions[0] if isinstance(expressions, list) and expressions else None,
    }


def _settled(reply: Reply) -> Reply:
    """The reply of a write that was done, or the exception of one that was not, or may not have been."""
    match reply.kind:
        case "refused":
            raise Refused(reply)
        case "not done":
            raise NotDone(reply)
        case "unknown":
            raise Unknown(f"HTTP {reply.status}")
    return reply


def _body(answer: httpx.Response) -> dict[str, Any]:
    body = _object(answer) if answer.status_code == 200 else None
    if body is None:
        raise Unknown(f"HTTP {_settled(_reply(answer)).status}")
    return body


def _object(answer: httpx.Response) -> dict[str, Any] | None:
    try:
        body = orjson.loads(answer.content)
    except orjson.JSONDecodeError:
        return None
    return body if isinstance(body, dict) else None


def _reply(answer: httpx.Response) -> Reply:
    outcome = None if answer.is_success else first_issue(_object(answer))
    return Reply(answer.status_code, answer.headers.get("location"), outcome, _retry_after(answer))


def _replies(bundle: dict[str, Any] | None, entries: int) -> list[Reply]:
    answers = bundle.get("entry") if bundle else None
    if bundle is None or bundle.get("type") != "batch-response" or not isinstance(answers, list):
        raise Unknown("the answer is not a batch-response")
    if len(answers) != entries:
        raise Unknown(f"the answer has {len(answers)} of {entries} entries")
    return [_entry(answer) for answer in answers]


def _entry(answer: Any) -> Reply:
    response = answer.get("response") if isinstance(answer, dict) else None
    if not isinstance(response, dict):
        return NO_REPLY
    status, location = str(response.get("status", ""))[:3], response.get("location")
    outcome = first_issue(response["outcome"]) if "outcome" in response else None
    return Reply(int(status) if status.isdigit() else 0, location if isinstance(location, str) else None, outcome)


def _retry_after(answer: httpx.Response) -> float | None:
    value = answer.headers.get("retry-after", "")
    if value.isdigit():
        return float(value)
    asked = _http_date(value)
    return max(0.0, (asked - datetime.now(UTC)).total_seconds()) if asked else None


def _http_date(value: str) -> datetime | None:
    try:
        found = parsedate_to_datetime(value) if value else None
        return found.astimezone(UTC) if found else None
    except (ValueError, TypeError, OverflowError):
        return None


def _capabilities(statement: dict[str, Any]) -> Capabilities:
    rest: dict[str, Any] = next(iter(statement.get("rest") or ()), {})
    about = statement.get("implementation") or {}
    named = str(about.get("description") or "")
    return Capabilities(
        batch=any(interaction.get("code") == "batch" for interaction in rest.get("interaction", ())),
        conditional=frozenset(r["type"] for r in rest.get("resource", ()) if r.get("conditionalCreate") is True),
        store_id=named if named.startswith("urn:uuid:") else None,
        url=about.get("url"),
        software=(statement.get("software") or {}).get("version"),
    )
