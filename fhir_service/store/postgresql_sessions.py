"""The connections of a process to a PostgreSQL database: how each begins, and what the log says where none does."""

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
"""The most statements that a session keeps prepared. A few rows of some tables come in some 250 shapes, with the sizes
of their numbers and what is missing; psycopg's 100 would forget them, and have them planned again."""
LOST_LINE = {
    "connect_timeout": 10,
    "keepalives_idle": 15,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
"""Settings of libpq, in seconds, and the last in milliseconds: a database that is cut off, or another's by now, is
noticed within half a minute. The system alone would give up its connection after a quarter of an hour or more."""

# A process that is stopped in the middle loses its lock, as does one that is cut off in the middle of a statement: the
# server would wait for the rest of that for two hours. A store whose log is not flushed loses what it acknowledged.
SESSION = """\
SET TIME ZONE 'UTC';
SET lock_timeout = '10s';
SET idle_in_transaction_session_timeout = '60s';
SET tcp_keepalives_idle = 15; SET tcp_keepalives_interval = 5; SET tcp_keepalives_count = 3;
SET tcp_user_timeout = '30s';
SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') IN ('off', 'local')
"""

_USED_JUST_NOW = 1.0
"""Seconds since it was used in which a connection is there unless the server says that it has ended it. One that has
lain for longer is asked, in an exchange of its own."""

log = logging.getLogger(__name__)


class Sessions:
    """Makes connections to the database of a URL, or to the schema of it that the URL's `search_path` names."""

    def __init__(self, url: str) -> None:
        self._url = _parsed(url)
        self._cluster = self.epoch = ""
        self._said = ""

    def engine(self, most: int, session: str, tries: bool = True, **options: Any) -> Engine:
        """Return an engine of so many connections at most, which all begin with these statements.

        Args:
            tries: True if each is looked at before it is used, whether it is there still; a lost one is replaced.
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
            # A database that was restored elsewhere has taken the place of the one that this process knew.
            raw.execute(RECOGNISE.encode())
        self._cluster = cluster
        raw.autocommit = autocommit

    def _say_why(self, failed: ExceptionContext) -> None:
        """Log why no connection is made any more: once, until one is, or another reason keeps them from it."""
        if self._cluster and failed.connection is None:
            reason = self.reason(failed.original_exception)
            if reason != self._said:
                self._said = reason
                log.warning("%s cannot be reached: %s", self.place, reason)

    @property
    def place(self) -> str:
        """The database as messages name it: without user and password."""
        named = self._url.normalized_query.get("host", ())  # several, of which one takes writes
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
    """Raise what lets the pool make its connections anew, if this one is lost."""
    used = record.info.get("used")
    if used is None:
        return
    looked_at = select.poll()
    try:
        looked_at.register(raw.fileno(), select.POLLIN)
        if looked_at.poll(0):
            raise InvalidatePoolError  # nothing was asked: what there is to read is that the server has ended it
        if time.monotonic() - used > _USED_JUST_NOW:
            engine.dialect.do_ping(raw)
    except psycopg.Error:
        raise InvalidatePoolError from None


def _parsed(text: str) -> URL:
    try:
        return make_url(text).set(drivername="postgresql+psycopg")
    except (ArgumentError, ValueError):
        # The causes hold parts of the text, and so perhaps of the password.
        raise ValueError("the database URL cannot be read: is everything in the password percent-encoded?") from None
