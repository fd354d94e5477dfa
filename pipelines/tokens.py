"""Access tokens of a target: a fixed one, or client credentials, renewed before they end. For several threads."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

import httpx

from pipelines.replies import NotDone, NotSent, Reply, object_of, retry_after

RENEW_BEFORE_SECONDS = 60.0


@dataclass(frozen=True)
class Credentials:
    """How tokens are had: a fixed one, or client credentials at `token_url` (default `{base}/auth/token`)."""

    token: str | None = field(default=None, repr=False)
    client_id: str | None = None
    client_secret: str | None = field(default=None, repr=False)
    token_url: str | None = None


class Tokens:
    """The token of one client."""

    def __init__(self, http: httpx.Client, base_url: str, credentials: Credentials, clock: Callable[[], float]) -> None:
        self._http, self._base_url, self._credentials, self._clock = http, base_url, credentials, clock
        self._lock = threading.Lock()
        self._token, self._token_ends = credentials.token, float("inf")

    @property
    def renewable(self) -> bool:
        return self._credentials.client_id is not None

    def forget(self, token: str) -> None:
        with self._lock:
            if self._token == token:
                self._token = None

    def bearer(self) -> str:
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
        url = self._credentials.token_url or f"{self._base_url}/auth/token"
        try:
            answer = self._http.post(url, data=form, headers={"accept": "application/json"})
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise NotSent(type(error).__name__) from None
        body = object_of(answer)
        if answer.status_code != 200 or body is None or not isinstance(body.get("access_token"), str):
            raise NotDone(Reply(answer.status_code, retry_after=retry_after(answer)))
        seconds = body.get("expires_in")
        return body["access_token"], float(seconds) if isinstance(seconds, int | float) else 300.0
