"""Authentication: clients and tokens (OAuth 2.0 client credentials).

Secrets and tokens are random, stored only as hashes, compared in constant time.
"""

import base64
import binascii
import hashlib
import re
import secrets
import uuid
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime, timedelta
from hmac import compare_digest
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_plus

from sqlalchemy import Connection, delete, insert, select, update

from fhir_service.auth.assertions import BadAssertion, VerifiedAssertion
from fhir_service.auth.client_keys import BadKeys, FetchedKeys
from fhir_service.auth.known_tokens import KnownCaller, KnownTokens
from fhir_service.auth.signing_clients import ASSERTION_FIELDS, SigningClients, keys_row, take_once
from fhir_service.interface.datatypes import CONTROLS
from fhir_service.interface.registry import RESOURCES
from fhir_service.interface.scopes import CHART_TYPES, EVERYTHING, Caller, ScopeError, grants, unauthenticated, within
from fhir_service.store.dialect import RowQuery
from fhir_service.store.shared_lookups import SharedLookups
from fhir_service.store.tables import CLIENT, CLIENT_KEYS, NOT_REVOKED, TOKEN

if TYPE_CHECKING:
    from fhir_service.store.store import Store
    from fhir_service.writing.writer import Writer

LIFETIME = timedelta(seconds=36_000)
TOKENS = 10_000
"""The most callers in the cache of tokens."""


class UnknownClient(LookupError):
    """There is no client with this id."""


class TokenError(Exception):
    """A refused token request: an error code of RFC 6749."""

    def __init__(self, code: str, description: str, status: int = 400) -> None:
        super().__init__(code)
        self.status = status
        self.body = {"error": code, "error_description": description}


def hashed(secret: str) -> str:
    """Return the stored form of a secret or token. They hold 256 random bits, so a plain SHA-256 cannot be searched."""
    return hashlib.sha256(secret.encode()).hexdigest()


def hash_of(authorization: str | None) -> str:
    """Return the stored form of the token in an Authorization header. Raises FhirError(AUTHENTICATION)."""
    scheme, _, token = (authorization or "").partition(" ")
    token = token.strip(" ")
    if scheme.lower() != "bearer" or not _TOKEN.fullmatch(token):
        raise unauthenticated()
    return hashed(token)


_TOKEN = re.compile(r"[A-Za-z0-9_-]{43}", re.ASCII)
_NOBODY = hashed(secrets.token_urlsafe(32))
_KNOWN = ("hash", "client", "scope", "expires_at")


class Auth:
    """The clients of a store and their tokens. Every method may be called from any thread.

    together: look-ups of the tokens of simultaneous requests, in one event loop.
    """

    def __init__(
        self,
        store: "Store",
        writer: "Writer",
        clock: Callable[[], datetime],
        new_id: Callable[[], str] = lambda: str(uuid.uuid4()),
        cached_tokens: int = TOKENS,
        audience: str = "",
    ) -> None:
        """audience: the token address, which assertions are for."""
        self._store, self._writer, self._clock, self._new_id = store, writer, clock, new_id
        self._signing = SigningClients(store, audience, FetchedKeys())
        self._cache = KnownTokens(cached_tokens)
        self.together = SharedLookups(self.look_up)

    def caller(self, authorization: str | None) -> Caller:
        """Return the caller of a request with this Authorization header. Raises FhirError(AUTHENTICATION)."""
        digest = hash_of(authorization)
        # Only a process that writes alone hears of every token that ends before its time.
        met = None if self._store.dialect.shared else self._cache.get(digest)
        found = met or self.look_up([digest]).get(digest)
        if found is not None and self._clock() > found.expires_at:
            found = self.look_up([digest]).get(digest)  # a session of the chart may have been prolonged since
        return self.known(found)

    def known(self, found: "KnownCaller | None") -> Caller:
        """Return the caller of a token that was looked up. Raises FhirError(AUTHENTICATION) if it is not valid."""
        if found is None or self._clock() > found.expires_at:
            raise unauthenticated()
        return found.caller

    def met(self, digest: str) -> Caller | None:
        """Return the cached caller of a token that has not expired. Another process may have revoked it since."""
        found = self._cache.get(digest)
        return None if found is None or self._clock() > found.expires_at else found.caller

    def look_up(self, digests: Collection[str]) -> dict[str, "KnownCaller"]:
        """Return the callers of valid tokens, by the hashes of the tokens."""
        epoch = self._cache.epoch
        dialect = self._store.dialect
        looked_up = self._store.look_up(
            lambda connection: dialect.among(connection, RowQuery(TOKEN, "hash", digests, _KNOWN, NOT_REVOKED)),
            creates=False,
        )
        rows = {row[0]: row for row in looked_up}
        found: dict[str, KnownCaller] = {}
        for digest in digests:
            if (row := rows.get(digest)) is not None and compare_digest(row[0], digest):
                _, client, scope, expires_at = row
                found[digest] = KnownCaller(Caller(client, scope), expires_at.astimezone(UTC))
                self._cache.put(digest, found[digest], epoch)
            else:
                self._cache.drop(digest)
        return found

    def add_client(self, name: str, scope: str = EVERYTHING, keys: str | None = None) -> dict[str, str]:
        """Add a client: return its `client_id`, `client_secret` (only here) and `scope`. Raises ScopeError and BadKeys.

        keys: a JWKS or its address, of a client that signs and has no secret.
        """
        of_keys = None if keys is None else keys_row(keys)
        if not scope:
            raise ScopeError("an empty scope gives no rights: leave the scope out to give all")
        unknown = sorted(set(grants(scope)) - {*RESOURCES, *CHART_TYPES, "*"})
        if unknown:
            raise ScopeError(
                f"the interface has no type {unknown[0]}; a scope may name {', '.join((*RESOURCES, *CHART_TYPES))}"
            )
        client_id, secret = self._new_id(), secrets.token_urlsafe(32)
        row = {
            "id": client_id,
            "name": name,
            "secret_hash": hashed(secret),
            "scope": scope,
            "created_at": self._clock(),
            "revoked_at": None,
        }

        def add(connection: Connection) -> None:
            connection.execute(insert(CLIENT), [row])
            if of_keys is not None:
                connection.execute(insert(CLIENT_KEYS), [{"client": client_id, **of_keys}])

        self._writer.transact(add, resources=False)
        found = {"client_id": client_id, "client_secret": secret, "scope": scope}
        return found if of_keys is None else {name: found[name] for name in ("client_id", "scope")}

    def change_keys(self, client_id: str, keys: str) -> None:
        """Replace the keys of a client that signs by a JWKS or its address. Raises UnknownClient and BadKeys."""
        row = keys_row(keys)

        def change(connection: Connection) -> bool:
            changed = update(CLIENT_KEYS).where(CLIENT_KEYS.c.client == client_id).values(**row)
            return connection.execute(changed).rowcount == 1

        with self._store.read() as connection:
            known = connection.execute(select(CLIENT_KEYS.c.client).where(CLIENT_KEYS.c.client == client_id)).first()
        if known is None:
            raise UnknownClient(client_id)
        self._writer.transact(change, resources=False)

    def list_clients(self) -> list[dict[str, Any]]:
        """Return all clients, oldest first: `client_id`, `name`, `scope`, `created_at`, `revoked_at` (aware times)."""
        query = select(
            CLIENT.c.id.label("client_id"), CLIENT.c.name, CLIENT.c.scope, CLIENT.c.created_at, CLIENT.c.revoked_at
        )
        with self._store.read(creates=False) as connection:
            return [
                dict(row) for row in connection.execute(query.order_by(CLIENT.c.created_at, CLIENT.c.id)).mappings()
            ]

    def revoke(self, client_id: str) -> None:
        """End the access of a client and its tokens at once. Raises UnknownClient."""
        self._writer.transact(lambda connection: _revoke(connection, client_id, self._clock()), resources=False)
        self._cache.forget(client_id)

    def end(self, token: str) -> None:
        """Revoke one token. Raises FhirError(AUTHENTICATION) if it is not valid."""
        caller, digest = self.caller(f"Bearer {token}"), hashed(token)
        ending = delete(TOKEN).where(TOKEN.c.hash == digest)
        self._writer.transact(lambda connection: connection.execute(ending), resources=False)
        self._cache.forget(caller.client)

    def token(self, form: Mapping[str, str], authorization: str | None = None) -> tuple[int, dict[str, Any]]:
        """Return the token address's answer to a form: HTTP status and body (RFC 6749, sections 5.1 and 5.2)."""
        try:
            return 200, self._issue(form, authorization)
        except TokenError as error:
            return error.status, error.body

    def _issue(self, form: Mapping[str, str], authorization: str | None) -> dict[str, Any]:
        grant = form.get("grant_type")
        if not grant:
            raise TokenError("invalid_request", "grant_type is missing")
        if grant != "client_credentials":
            raise TokenError("unsupported_grant_type", "grant_type must be client_credentials")
        proved = None
        if ASSERTION_FIELDS.isdisjoint(form):
            client_id, held = self._authenticate(*credentials(form, authorization))
        else:
            if authorization is not None or "client_secret" in form:
                raise TokenError("invalid_request", "the request authenticates the client in two ways: use one of them")
            try:
                proved, held = self._signing.proved(form, self._clock())
            except (BadAssertion, BadKeys) as error:
                raise TokenError("invalid_client", f"the assertion is refused: {error}", 401) from None
            client_id = proved.client
        scope = _asked_scope(form.get("scope"), held)
        token, now = secrets.token_urlsafe(32), self._clock()
        row = {"hash": hashed(token), "client": client_id, "scope": scope, "expires_at": now + LIFETIME}
        self._writer.transact(lambda connection: _store_token(connection, row, now, proved), resources=False)
        return {
            "access_token": token,
            "token_type": "Bearer",
            "expires_in": int(LIFETIME.total_seconds()),
            "scope": scope,
        }

    def _authenticate(self, client_id: str, secret: str) -> tuple[str, str]:
        """Return id and scope of the client with this secret. For an unknown client, compare a hash all the same."""
        client_id = CONTROLS.sub("?", client_id)
        query = select(CLIENT.c.secret_hash, CLIENT.c.scope).where(
            CLIENT.c.id == client_id, CLIENT.c.revoked_at.is_(None)
        )
        with self._store.read(several=False, creates=False) as connection:
            row = connection.execute(query).first()
        if not compare_digest(row.secret_hash if row else _NOBODY, hashed(secret)) or row is None:
            raise TokenError("invalid_client", "the client is unknown or its secret is wrong", 401)
        return client_id, row.scope


def _asked_scope(asked: str | None, held: str) -> str:
    """Return the scopes of a new token: the client's scopes that were asked for, or all if none were asked for."""
    asked = " ".join((asked or "").split())
    if not asked:
        return held
    try:
        allowed = within(asked, held)
    except ScopeError as error:
        raise TokenError("invalid_scope", str(error)) from None
    if not allowed:
        raise TokenError("invalid_scope", "the scope asks for more than the client has")
    return asked


def _store_token(connection: Connection, row: dict[str, Any], now: datetime, proved: VerifiedAssertion | None) -> None:
    """Store a token, and drop those that have run out. Nothing is issued to a client revoked meanwhile.

    proved: the assertion that it is for, which is taken once.
    """
    active = select(CLIENT.c.id).where(CLIENT.c.id == row["client"], CLIENT.c.revoked_at.is_(None))
    if connection.execute(active).first() is None:
        raise TokenError("invalid_client", "the client is unknown or its secret is wrong", 401)
    if proved is not None and not take_once(connection, proved, now):
        raise TokenError("invalid_client", "the assertion is refused: its `jti` was used before", 401)
    connection.execute(delete(TOKEN).where(TOKEN.c.expires_at < now))
    connection.execute(insert(TOKEN), [row])


def _revoke(connection: Connection, client_id: str, now: datetime) -> None:
    row = connection.execute(select(CLIENT.c.revoked_at).where(CLIENT.c.id == client_id)).first()
    if row is None:
        raise UnknownClient(client_id)
    if row.revoked_at is None:
        connection.execute(update(CLIENT).where(CLIENT.c.id == client_id).values(revoked_at=now))
    connection.execute(delete(TOKEN).where(TOKEN.c.client == client_id))


def credentials(form: Mapping[str, str], authorization: str | None) -> tuple[str, str]:
    """Return client id and secret from HTTP Basic or from the form, not from both. Raises TokenError."""
    if authorization is None:
        client_id, secret = form.get("client_id"), form.get("client_secret")
        if not client_id or not secret:
            raise TokenError("invalid_client", "client_id or client_secret is missing", 401)
        return client_id, secret
    if "client_secret" in form:
        raise TokenError("invalid_request", "the request authenticates the client in two ways: use one of them")
    return _basic(authorization)


def _basic(authorization: str) -> tuple[str, str]:
    scheme, _, encoded = authorization.partition(" ")
    try:
        pair = base64.b64decode(encoded.strip(), validate=True).decode() if scheme.lower() == "basic" else ""
    except (binascii.Error, UnicodeDecodeError):
        pair = ""
    client_id, colon, secret = pair.partition(":")
    if not colon:
        raise TokenError("invalid_client", "the Authorization header holds no client id and secret", 401)
    return unquote_plus(client_id), unquote_plus(secret)
