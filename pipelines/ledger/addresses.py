"""Recognize one target under several spellings of its address, as far as the standard of URLs makes them equal."""

from collections.abc import Collection
from urllib.parse import urlsplit

from sqlalchemy import select

from pipelines.ledger import tables as t
from pipelines.ledger.access import LedgerAccess

PORTS = {"http": 80, "https": 443}


def spelled_alike(url: str) -> str:
    """Return an address in one common spelling: lower-case scheme and host, no default port, no slashes at the end.

    Two names of one machine (localhost, 127.0.0.1) remain two addresses. Text that is not an address is returned as it
    is.
    """
    try:
        parts = urlsplit(url)
        scheme, host, port = parts.scheme.lower(), parts.hostname, parts.port
    except ValueError:
        return url
    if not host or scheme not in PORTS:
        return url
    shown = f"[{host}]" if ":" in host else host
    named = "" if port in (None, PORTS[scheme]) else f":{port}"
    return f"{scheme}://{shown}{named}{parts.path.rstrip('/')}"


def known_as(ledger: LedgerAccess, target_id: str) -> str:
    """Return the name under which the ledger knows a target.

    The name is the id as it was first spelled, or the address if the target was known before it showed an id. A new
    target's name is its id.
    """
    if before := ledger.value(select(t.alias.c.known_as).where(t.alias.c.target_id == target_id)):
        return str(before)
    known = [name for (name,) in ledger.read(select(t.target.c.target_id).order_by(t.target.c.first_seen_at))]
    return as_spelled(target_id, known)


def as_spelled(name: str, known: Collection[str]) -> str:
    """Return the known name that spells the same address; the given name if there is none."""
    alike = spelled_alike(name)
    return name if name in known else next((each for each in known if spelled_alike(each) == alike), name)
