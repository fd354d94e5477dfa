"""Bytes that a target sends after an answer: they are never taken for the answer to the next request.

httpx looks whether more has come to a connection since its last answer, and then closes it. What came with that answer,
in one piece, it has read already, and would take for the next one: of a create, the id of another resource.
"""

from functools import partial
from typing import Any

import httpx


def use_once_if_more_came(http: httpx.Client) -> None:
    """Let a client use no connection again that has bytes left over after an answer: it closes it."""
    for transport in (http._transport, *http._mounts.values()):
        if isinstance(transport, httpx.HTTPTransport):
            pool: Any = transport._pool
            pool.create_connection = partial(_watched, pool.create_connection)


def _watched(create: Any, origin: Any) -> Any:
    """Return a connection that is neither free for a request nor kept while bytes are left over."""
    made = create(origin)
    is_available, has_expired = made.is_available, made.has_expired
    made.is_available = lambda: is_available() and not _has_more(made)
    made.has_expired = lambda: has_expired() or _has_more(made)
    return made


def _has_more(connection: Any) -> bool:
    """True if a connection is idle, and bytes were read that belong to no answer."""
    # Of TLS and of proxies, the one that speaks HTTP lies within.
    while connection is not None and not hasattr(connection, "_h11_state"):
        connection = getattr(connection, "_connection", None)
    return connection is not None and connection.is_idle() and bool(connection._h11_state.trailing_data[0])
