"""Clients that sign instead of having a secret: their keys in the store, and their used assertions."""

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING

from sqlalchemy import Connection, delete, select, text

from fhir_service.auth.assertions import TYPE, BadAssertion, VerifiedAssertion, named_key, prove
from fhir_service.auth.client_keys import FetchedKeys, checked_address, is_address, key_set
from fhir_service.interface.datatypes import CONTROLS
from fhir_service.store.tables import ASSERTION, CLIENT, CLIENT_KEYS

if TYPE_CHECKING:
    from fhir_service.store.store import Store

ASSERTION_FIELDS = frozenset(("client_assertion", "client_assertion_type"))
"""The form fields of a client that signs."""
_TAKE = text(
    'INSERT INTO assertion (client, "use", expires_at) VALUES (:client, :use, :ends)'
    " ON CONFLICT DO NOTHING RETURNING client"
)


class SigningClients:
    """The signing clients of a store. audience: the token address, which assertions have to name."""

    def __init__(self, store: "Store", audience: str, fetched: FetchedKeys) -> None:
        self._store, self._audience, self._fetched = store, audience, fetched

    def proved(self, form: Mapping[str, str], now: datetime) -> tuple[VerifiedAssertion, str]:
        """Return the assertion of a form, checked by its client's keys, and the client's scope.

        Raises BadAssertion and BadKeys.
        """
        if form.get("client_assertion_type") != TYPE:
            raise BadAssertion(f"client_assertion_type must be {TYPE}")
        assertion = form.get("client_assertion", "")
        said = named_key(assertion)
        if form.get("client_id", said.client) != said.client:
            raise BadAssertion("`client_id` differs from `sub`")
        query = (
            select(CLIENT_KEYS.c.jwks, CLIENT_KEYS.c.address, CLIENT.c.scope)
            .join(CLIENT, CLIENT.c.id == CLIENT_KEYS.c.client)
            .where(CLIENT.c.id == CONTROLS.sub("?", said.client), CLIENT.c.revoked_at.is_(None))
        )
        with self._store.read(several=False) as connection:
            row = connection.execute(query).first()
        if row is None:
            raise BadAssertion("the client is unknown, was revoked, or has a secret instead of keys")
        keys = key_set(row.jwks) if row.jwks else self._fetched.of(row.address, said.kid)
        return prove(assertion, keys, self._audience, now), row.scope


def keys_row(keys: str) -> dict[str, str | None]:
    """Return the columns of a client's keys: a JWKS, or its address. Raises BadKeys."""
    if is_address(keys):
        return {"jwks": None, "address": checked_address(keys)}
    key_set(keys)
    return {"jwks": keys, "address": None}


def take_once(connection: Connection, proved: VerifiedAssertion, now: datetime) -> bool:
    """Note that an assertion was used. Return False if it was used before.

    Of two processes that take the same one at once, the database lets one insert it.
    """
    connection.execute(delete(ASSERTION).where(ASSERTION.c.expires_at < now))
    return connection.execute(_TAKE, proved._asdict()).first() is not None
