"""The session of somebody who looks at the chart: sign-in with a client's credentials, the session cookie, sign-out.

A session is a token of the client, limited to reading what the chart shows, in a cookie that scripts and other sites
cannot use. It ends with the client, the sign-out, after ten hours, or half an hour without a page: the token in the
store has half an hour to live, which each page prolongs. A copied cookie ends with it, whatever it says of its own age.
"""

import asyncio
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from urllib.parse import urlsplit

from sqlalchemy import Connection, delete, insert, select, update
from starlette.requests import Request
from starlette.responses import Response

from fhir_service.auth.clients import LIFETIME, TokenError, hashed
from fhir_service.auth.token_address import read_form
from fhir_service.interface.datatypes import ID_PATTERN
from fhir_service.interface.outcomes import AUTHENTICATION, FORBIDDEN, INVALID, FhirError
from fhir_service.interface.scopes import CHART_TYPES, Caller, reach
from fhir_service.service import Service
from fhir_service.store.tables import CLIENT, TOKEN

TYPES = ("Task", "QuestionnaireResponse", "PaymentNotice")
"""The types that a patient's page has sections of."""
IDLE_SECONDS = 1800
IDLE = timedelta(seconds=IDLE_SECONDS)
WRITTEN_AGAIN = timedelta(minutes=1)
FORM_SECONDS = 30.0
_GOAL = re.compile(rf"(?:/tasks|/(?:patients|tasks|responses)/{ID_PATTERN})?\Z", re.ASCII)


@dataclass(frozen=True, slots=True)
class Viewer:
    """The client that views a page, and the client's name."""

    caller: Caller
    name: str

    def may(self, resource_type: str, letter: str) -> bool:
        return self.caller.may(resource_type, letter)

    @property
    def finds_people(self) -> bool:
        """True if patients may be listed, looked for by name, and named."""
        return self.may("Patient", "s")

    def nameable(self, references: Iterable[str]) -> list[str]:
        """Return the references whose names the client may read."""
        return [one for one in references if self.may(one.partition("/")[0], "r")]


class SignInRefused(Exception):
    """A failed sign-in. The message is for the person who tried."""


class Sessions:
    """The sessions of a service's chart. Any thread may call every method."""

    def __init__(self, service: Service, path: str) -> None:
        self._service = service
        self._path = path
        # All ports of a host share cookies: the name keeps the services of one machine apart.
        self._name = f"chart_{service.store.id[:8]}"
        self._secure = urlsplit(service.site.base_url).scheme == "https"

    def viewer(self, request: Request) -> Viewer:
        """Return the viewer of a page. Raises FhirError(AUTHENTICATION)."""
        caller = self._service.auth.caller(f"Bearer {self._token(request)}")
        query = select(CLIENT.c.name).where(CLIENT.c.id == caller.client, CLIENT.c.revoked_at.is_(None))
        with self._service.store.read(creates=False) as connection:
            name = connection.execute(query).scalar()
        if name is None:
            raise FhirError(AUTHENTICATION)
        return Viewer(caller, name)

    def has_cookie(self, request: Request) -> bool:
        return bool(self._token(request))

    def _token(self, request: Request) -> str:
        return request.cookies.get(self._name, "")

    def sign_in(self, form: Mapping[str, str]) -> str:
        """Return the token of a new session. Raises Refused."""
        client_id, secret = (form.get(name, "").strip() for name in ("client_id", "client_secret"))
        scope = self._reading(client_id)
        asked = {"grant_type": "client_credentials", "client_id": client_id, "client_secret": secret}
        status, answer = self._service.auth.token(asked | ({"scope": scope} if scope else {"scope": "-"}))
        if answer.get("error") == "invalid_scope":
            raise SignInRefused("This client may not read anything that the chart shows.")
        if status != 200:
            raise SignInRefused("The client is unknown or its secret is wrong.")
        token: str = answer["access_token"]
        now = self._service.clock()
        whole = {
            "hash": _whole(token),
            "client": client_id,
            "scope": "",
            "expires_at": self._service.clock() + LIFETIME,
        }
        idle = _until(token, now + IDLE)

        def begin(connection: Connection) -> None:
            connection.execute(insert(TOKEN), [whole])
            idle(connection)

        self._service.writer.transact(begin, resources=False)
        return token

    def _reading(self, client_id: str) -> str:
        """Return the client's scopes for reading the chart; empty if it has none."""
        with self._service.store.read(creates=False) as connection:
            held = connection.execute(select(CLIENT.c.scope).where(CLIENT.c.id == client_id)).scalar() or ""
        letters = (
            {kind: "".join(sorted(reach(held, kind) & {"r", "s"})) for kind in (*TYPES, *CHART_TYPES)} if held else {}
        )
        return " ".join(f"system/{kind}.{granted}" for kind, granted in letters.items() if granted)

    def sign_out(self, request: Request) -> None:
        """End the session of a request, and with it all copies of its cookie."""
        token = self._token(request)
        self._service.auth.end(token)
        ending = delete(TOKEN).where(TOKEN.c.hash == _whole(token))
        self._service.writer.transact(lambda connection: connection.execute(ending), resources=False)

    def keep(self, response: Response, token: str) -> None:
        """Set the cookie for another half hour."""
        response.set_cookie(
            self._name, token, IDLE_SECONDS, path=self._path, secure=self._secure, httponly=True, samesite="lax"
        )

    def prolong(self, request: Request, response: Response) -> None:
        """Keep the session for another half hour, ten hours in all. The store is written to once a minute at most."""
        token, until = self._token(request), self._service.clock() + IDLE
        query = select(TOKEN.c.hash, TOKEN.c.expires_at).where(TOKEN.c.hash.in_([hashed(token), _whole(token)]))
        with self._service.store.read(several=False, creates=False) as connection:
            ends = {row.hash: row.expires_at.astimezone(UTC) for row in connection.execute(query)}
        if len(ends) == 2 and min(until, ends[_whole(token)]) - ends[hashed(token)] >= WRITTEN_AGAIN:
            self._service.writer.transact(_until(token, min(until, ends[_whole(token)])), resources=False)
        self.keep(response, self._token(request))

    def drop(self, response: Response) -> None:
        response.delete_cookie(self._name, self._path, secure=self._secure, httponly=True, samesite="lax")

    def require_same_origin(self, request: Request) -> None:
        """Refuse a form that another site sent. A browser says so in one of two headers; others hold no cookies."""
        site = request.headers.get("sec-fetch-site")
        origin = request.headers.get("origin")
        own = {request.headers.get("host"), urlsplit(self._service.site.base_url).netloc}
        if site not in (None, "same-origin", "none") or (origin and urlsplit(origin).netloc not in own):
            raise FhirError(FORBIDDEN)


def _whole(token: str) -> str:
    """Return the hash under which the store holds the final end of a session. No possible token has this hash."""
    return hashed(f"session:{token}")


def _until(token: str, moment: datetime) -> Callable[[Connection], object]:
    """Set the end of a session's token, within a transaction."""
    change = update(TOKEN).where(TOKEN.c.hash == hashed(token)).values(expires_at=moment)
    return lambda connection: connection.execute(change)


def goal(text: str | None) -> str:
    """Return the page of the chart to show after a sign-in; the first page if the text names none."""
    return text if text and _GOAL.match(text) else ""


async def posted_fields(request: Request) -> dict[str, str]:
    """Return the fields of a posted form. Raises the 400 of a bad one."""
    try:
        async with asyncio.timeout(FORM_SECONDS):
            return await read_form(request)
    except (TokenError, TimeoutError):
        raise FhirError(INVALID, headers={"connection": "close"}) from None
