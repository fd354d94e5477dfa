"""One target under several spellings of its address: those that are surely the same by the standard of URLs."""

from collections.abc import Collection
from urllib.parse import urlsplit

from sqlalchemy import select

from pipelines.ledger import tables as t
from pipelines.ledger.access import LedgerAccess

PORTS = {"http": 80, "https": 443}


def spelled_alike(url: str) -> str:
    """An address as all its spellings have in common: case of scheme and host, usual port, slashes at the end.

    Two names of one machine (localhost, 127.0.0.1) are two addresses. What is no address stays as it is.
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

    That is its id as it was first spelled, or the address by which it was known before it showed an id. A new target
    has its id.
    """
    if before := ledger.value(select(t.alias.c.known_as).where(t.alias.c.target_id == target_id)):
        return str(before)
    known = [name for (name,) in ledger.read(select(t.target.c.target_id).order_by(t.target.c.first_seen_at))]
    return as_spelled(target_id, known)


def as_spelled(name: str, known: Collection[str]) -> str:
    """Return a name as it is known, however its address is spelled; the name itself where it is not known."""
    alike = spelled_alike(name)
    return name if name in known else next((each for each in known if spelled_alike(each) == alike), name)
