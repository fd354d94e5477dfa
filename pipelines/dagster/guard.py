"""Protect Dagster's web server, which has no sign-in, from pages of other sites in an operator's browser.

Such a page can send requests to loopback, also through its own host name that resolves to loopback. It cannot hide its
origin. Without a CORS preflight it can send neither JSON nor methods other than GET, HEAD and POST.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders, QueryParams
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

ADDRESSES = "CHARTFERRY_WEB_ADDRESS"
"""Further addresses of the pages, such as a proxy's: with scheme, separated by spaces."""
LOOPBACK = re.compile(r"(127\.0\.0\.1|localhost|\[::1\])(:[0-9]{1,5})?")
GRAPHQL = "/graphql"
ASKED_FIRST = ("application/json", "application/graphql")
"""Content types that a browser sends to another site only after a CORS preflight."""
READS = ("GET", "HEAD")
POLICY_VIOLATION = 1008


@dataclass(frozen=True)
class Guard:
    """An ASGI application that passes on requests of its own pages and of programs, and refuses all others.

    addresses: origins of the pages besides loopback.
    """

    app: ASGIApp
    addresses: frozenset[str] = frozenset()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
        elif why := next(refusals(scope, self.addresses), None):
            await _refuse(why, scope, receive, send)
        else:
            await self.app(scope, receive, _not_framed(send))


def addresses_in(text: str) -> frozenset[str]:
    """Return the origins that the setting names, in lower case."""
    return frozenset(each.rstrip("/").lower() for each in text.split())


def refusals(scope: Scope, addresses: frozenset[str]) -> Iterator[str]:
    """Yield every reason to refuse a request."""
    headers, changes = Headers(scope=scope), scope["type"] == "websocket" or scope["method"] not in READS
    hosts = [each.lower() for each in headers.getlist("host")]
    names = {urlsplit(each).netloc for each in addresses}
    if len(hosts) != 1 or not (LOOPBACK.fullmatch(hosts[0]) or hosts[0] in names):
        yield f"The Host is not an address of these pages; {ADDRESSES} names further ones."
    own = addresses | {f"http://{host}" for host in hosts}
    if any(origin.lower() not in own for origin in headers.getlist("origin")):
        yield f"The Origin is another site; {ADDRESSES} names the addresses of these pages."
    if changes and headers.get("sec-fetch-site") in ("cross-site", "same-site"):
        yield "The request comes from a page of another site."
    if scope["type"] == "http" and scope["path"].rstrip("/") == GRAPHQL:
        yield from _of_graphql(scope, headers)


def _of_graphql(scope: Scope, headers: Headers) -> Iterator[str]:
    """Yield a reason to refuse a GraphQL query in an address or a form: a picture or button of any page can send it."""
    if scope["method"] in READS and "query" in QueryParams(scope["query_string"]):
        yield "A query is sent by POST, as JSON."
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if scope["method"] == "POST" and kind not in ASKED_FIRST:
        yield "A query is sent as JSON, with the content type application/json."


async def _refuse(why: str, scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": POLICY_VIOLATION, "reason": why})
    else:
        await PlainTextResponse(why + "\n", 403)(scope, receive, send)


def _not_framed(send: Send) -> Send:
    """Forbid other sites to show the pages in a frame, where a user could be led to click a button unknowingly."""

    async def sends(message: Message) -> None:
        if message["type"] == "http.response.start":
            MutableHeaders(scope=message)["x-frame-options"] = "SAMEORIGIN"
        await send(message)

    return sends
