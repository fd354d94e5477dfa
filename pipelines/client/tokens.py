"""Access tokens of a target: a fixed one, or client credentials, renewed before they end. Safe in several threads."""

import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

import httpx

from pipelines.client.addresses import is_at
from pipelines.client.connections import ask, why_of
from pipelines.client.pace import Attempts, RetryPauses
from pipelines.client.replies import NotSent, UnknownOutcome, object_of, retry_after
from pipelines.client.signing import SigningKey

RENEW_BEFORE_SECONDS = 60.0
USUAL_SECONDS = 300.0
"""Seconds that a token without a lifetime is used."""
REFUSALS = (400, 401, 403)
BUSY = (429, 503)
CODE = re.compile(r"[a-z_]{1,40}")
JSON = "application/json"
SENDABLE = re.compile(r"[!-~]+")


@dataclass(frozen=True)
class Credentials:
    """The source of tokens: a fixed token, or a client with a secret or a key at `token_url`.

    token_url: None for the default. That is the token address that the target names if the client has a key, else
    `{base}/auth/token`.
    """

    token: str | None = field(default=None, repr=False)
    client_id: str | None = None
    client_secret: str | None = field(default=None, repr=False)
    token_url: str | None = None
    key: SigningKey | None = field(default=None, repr=False)


class Tokens:
    """The token of one client."""

    def __init__(self, http: httpx.Client, base_url: str, credentials: Credentials, clock: Callable[[], float]) -> None:
        self._http, self._base_url, self._credentials, self._clock = http, base_url, credentials, clock
        self._lock = threading.Lock()
        self._asked, self._failure = 0, NotSent("no access token")
        self._token, self._token_ends = credentials.token, float("inf")

    @property
    def renewable(self) -> bool:
        return self._credentials.client_id is not None

    def forget(self, token: str) -> None:
        with self._lock:
            if self._token == token:
                self._token = None

    def bearer(self) -> str:
        """Return the token, renewed before it ends.

        Threads that wait here share one request, and its failure. Raises `NotSent`, since no other request was sent.
        """
        asked = self._asked
        with self._lock:
            if self._token is None or self._clock() > self._token_ends:
                if asked != self._asked:
                    raise NotSent(str(self._failure), self._failure.retry_after, self._failure.final)
                self._token, seconds = self._renewed()
                self._token_ends = self._clock() + max(seconds - RENEW_BEFORE_SECONDS, seconds / 2)
            return self._token

    def get_first(self, patience: RetryPauses) -> None:
        """Get a token; ask again after a pause while the target is busy. Raises `NotSent`."""
        attempts = Attempts(patience)
        while True:
            try:
                self.bearer()
            except NotSent as error:
                if error.retry_after is None or not attempts.next(error.retry_after):
                    raise
            else:
                return

    def _renewed(self) -> tuple[str, float]:
        try:
            return self._new_token()
        except NotSent as error:
            self._asked, self._failure = self._asked + 1, error
            raise

    def _new_token(self) -> tuple[str, float]:
        known, form = self._credentials, {"grant_type": "client_credentials"}
        try:
            url = known.token_url or self._named_address() or f"{self._base_url}/auth/token"
            if known.key and known.client_id:
                form |= known.key.form(known.client_id, url)
            else:
                form |= {"client_id": known.client_id or "", "client_secret": known.client_secret or ""}
            answer = ask(self._http, "POST", url, data=form, headers={"accept": JSON})
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise NotSent(f"no access token: {why_of(error)}") from None
        except UnknownOutcome as error:
            raise NotSent(f"no access token: {error}", final=error.final) from None
        body = object_of(answer) or {}
        token, seconds = body.get("access_token"), body.get("expires_in")
        if answer.status_code in REFUSALS and isinstance(body.get("error"), str):
            said = body["error"] if CODE.fullmatch(body["error"]) else "no code"
            raise NotSent(
                f"no access token: the target refuses one to this client (HTTP {answer.status_code}, {said}): "
                f"is its id or {'key' if known.key else 'secret'} wrong, or was it revoked?",
                final=True,
            )
        if answer.status_code != 200 or not isinstance(token, str) or not SENDABLE.fullmatch(token):
            asked = (retry_after(answer) or 0.0) if answer.status_code in BUSY else None
            raise NotSent(f"no access token: HTTP {answer.status_code}", asked)
        return token, float(seconds) if isinstance(seconds, int | float) else USUAL_SECONDS

    def _named_address(self) -> str | None:
        """Return the token address that the target names, which an assertion must have as its audience.

        None without a key, or if the address is not safe: it must be https, or on the target's own host.
        """
        if not self._credentials.key:
            return None
        address = f"{self._base_url}/.well-known/smart-configuration"
        answer = ask(self._http, "GET", address, headers={"accept": JSON})
        named = (object_of(answer) or {}).get("token_endpoint") if answer.status_code == 200 else None
        if not isinstance(named, str):
            return None
        return named if is_at(named, self._base_url) or named.lower().startswith("https://") else None
