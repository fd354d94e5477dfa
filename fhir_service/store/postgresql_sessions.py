"""The connections of a process to a PostgreSQL database: how each begins, and what is logged if none can be made."""

import logging
import select
import time
from typing import Any

import psycopg
from sqlalchemy import URL, Engine, create_engine, event, make_url
from sqlalchemy.engine import ExceptionContext
from sqlalchemy.exc import ArgumentError, InvalidatePoolError
from sqlalchemy.pool import ConnectionPoolEntry

from fhir_service.store.arrays import register
from fhir_service.store.postgresql_ddl import RECOGNISE, WHERE

_PREPARED = 500
"""The most statements that a session keeps prepared.

The types of parameters and the missing values make some 250 different statements for a few rows. psycopg's own limit of
100 would drop some of them, which the server would then plan again and again.
"""
LOST_LINE = {
    "connect_timeout": 10,
    "keepalives_idle": 15,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
"""Settings of libpq in seconds; the last one is in milliseconds. With them, a process notices within half a minute that
its database is cut off. The operating system alone would take a quarter of an hour or more.
"""

# The server ends the session of a stopped or unreachable process, and so releases its lock; otherwise it would wait for
# two hours. A commit that is not flushed could be lost after its answer.
SESSION = """\
SET TIME ZONE 'UTC';
SET lock_timeout = '10s';
SET idle_in_transaction_session_timeout = '60s';
SET tcp_keepalives_idle = 15; SET tcp_keepalives_interval = 5; SET tcp_keepalives_count = 3;
SET tcp_user_timeout = '30s';
SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') IN ('off', 'local')
"""

_USED_JUST_NOW = 1.0
"""A connection that was used within so many seconds is only checked for a message that the server has ended it. One
that was idle for longer gets a ping, which is an exchange of its own.
"""

log = logging.getLogger(__name__)


class Sessions:
    """Make connections to the database of a URL, or to its schema that `search_path` of the URL names."""

    def __init__(self, url: str) -> None:
        self._url = _parsed(url)
        self._cluster = self.epoch = ""
        self._said = ""

    def engine(self, most: int, session: str, tries: bool = True, **options: Any) -> Engine:
        """Return an engine.

        Args:
            most: the most connections.
            session: statements with which each connection begins.
            tries: check each connection before it is used, and replace a lost one.
        """
        waits = {name: value for name, value in LOST_LINE.items() if name not in self._url.query}
        engine = create_engine(
            self._url, connect_args=waits, pool_size=most, max_overflow=0, hide_parameters=True, **options
        )
        event.listen(engine, "connect", lambda raw, _record: self._begin(raw, session))
        event.listen(engine, "handle_error", self._say_why)
        if tries:
            event.listen(engine, "checkin", _note_use)
            event.listen(engine, "checkout", lambda raw, record, _: _try(engine, raw, record))
        return engine

    def _begin(self, raw: psycopg.Connection[Any], session: str) -> None:
        self._said = ""
        register(raw.adapters)
        raw.prepared_max = _PREPARED
        autocommit, raw.autocommit = raw.autocommit, True
        raw.execute(session.encode())
        cluster, self.epoch = raw.execute(WHERE.encode()).fetchall()[0]
        if self._cluster not in ("", cluster):
            # The database was restored from elsewhere while this process was running.
            raw.execute(RECOGNISE.encode())
        self._cluster = cluster
        raw.autocommit = autocommit

    def _say_why(self, failed: ExceptionContext) -> None:
        """Log why no connection can be made. A reason is logged again only after a connection, or another reason."""
        if self._cluster and failed.connection is None:
            reason = self.reason(failed.original_exception)
            if reason != self._said:
                self._said = reason
                log.warning("%s cannot be reached: %s", self.place, reason)

    @property
    def place(self) -> str:
        """The database in messages, without user and password."""
        named = self._url.normalized_query.get("host", ())  # several hosts; one of them takes writes
        host = self._url.host or ", ".join(each for each in named if not each.startswith("/")) or "this machine"
        return f"the database {self._url.database or ''} on {host}".replace("  ", " ")

    def reason(self, error: BaseException) -> str:
        """Return the first line of what the driver says, without the password."""
        said = getattr(error, "orig", None) or error
        lines = str(said).strip().splitlines() or [type(said).__name__]
        password = str(self._url.password or "")
        return lines[0].replace(password, "***") if password else lines[0]


def _note_use(_raw: Any, record: ConnectionPoolEntry) -> None:
    record.info["used"] = time.monotonic()


def _try(engine: Engine, raw: Any, record: ConnectionPoolEntry) -> None:
    """Raise `InvalidatePoolError` if a connection is lost: the pool then replaces all of its connections."""
    used = record.info.get("used")
    if used is None:
        return
    looked_at = select.poll()
    try:
        looked_at.register(raw.fileno(), select.POLLIN)
        if looked_at.poll(0):
            raise InvalidatePoolError  # nothing was asked, so that a message means the end
        if time.monotonic() - used > _USED_JUST_NOW:
            engine.dialect.do_ping(raw)
    except psycopg.Error:
        raise InvalidatePoolError from None


def _parsed(text: str) -> URL:
    try:
        return make_url(text).set(drivername="postgresql+psycopg")
    except (ArgumentError, ValueError):
        # The errors before this one may hold parts of the password.
        raise ValueError("the database URL cannot be read: is everything in the password percent-encoded?") from None
