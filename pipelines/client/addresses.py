"""Addresses of targets, and of the links in their answers."""

import re
from ipaddress import ip_address
from typing import Any
from urllib.parse import SplitResult, urljoin, urlsplit

PORTS = {"http": 80, "https": 443}
"""Of addresses that name none."""
BELOW_THE_BASE = re.compile(r"(/[A-Z][A-Za-z]*)(?:\?.*)?", re.DOTALL)


def is_loopback(url: str) -> bool:
    """True if an address is on this machine."""
    host = urlsplit(url).hostname or ""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def is_at(url: str, own: str) -> bool:
    """True if an address is at the host of another, by the same scheme and port, and has no user in it."""
    try:
        parts = urlsplit(url)
        return parts.username is None and _host(parts) == _host(urlsplit(own))
    except ValueError:
        return False


def _host(parts: SplitResult) -> tuple[str, str | None, int | None]:
    return parts.scheme, parts.hostname, parts.port or PORTS.get(parts.scheme)


def with_whole_links(body: dict[str, Any], url: str, base_url: str) -> dict[str, Any]:
    """Return an answer with a full address in each `next` link. Other links, and values that are no links, stay as
    they are.

    A link is relative to the address of the request (RFC 3986). Only the interface has links relative to its base:
    `/<Type>?...`. If the base has exactly this path, the link is relative to the request.
    """
    links = body.get("link")
    for link in links if isinstance(links, list) else ():
        if isinstance(link, dict) and link.get("relation") == "next" and link.get("url"):
            link["url"] = _whole(link["url"], url, base_url)
    return body


def _whole(link: Any, url: str, base_url: str) -> Any:
    try:
        below = BELOW_THE_BASE.fullmatch(link)
        own = below is not None and below[1] != urlsplit(base_url).path
        return f"{base_url}{link}" if own else urljoin(url, link)
    except (TypeError, ValueError):  # not a text, or not an address
        return link
