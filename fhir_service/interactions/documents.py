"""The documents of reports: their signed addresses, and their bytes."""

import base64
import hashlib
import hmac
import re
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import NamedTuple

from sqlalchemy import select

from fhir_service.interface.datatypes import is_content_type, is_id
from fhir_service.interface.outcomes import FORBIDDEN, NOT_FOUND, FhirError
from fhir_service.interface.site import Site
from fhir_service.store.store import Store
from fhir_service.store.tables import BODIES, DOCUMENT

LIFETIME = timedelta(minutes=10)
_MARKER = b"\xc2\x94"
_MARKED = re.compile(rb"\xc2\x94([A-Za-z0-9\-.]{1,64})/(\d+)\xc2\x94")


class Document(NamedTuple):
    """A document as it was loaded, and the id of its patient."""

    content_type: str
    data: bytes
    patients: tuple[str, ...]


class Documents:
    """The documents of a store. Addresses are signed with the store's key, which all processes of the store have."""

    def __init__(self, store: Store, site: Site, clock: Callable[[], datetime]) -> None:
        self._store, self._site, self._clock = store, site, clock
        self._key = store.signing_key

    def sign_all(self, body: bytes) -> bytes:
        """Return a body with a signed address in place of each marker."""
        if _MARKER not in body:
            return body
        return _MARKED.sub(lambda match: self._signed(match[1].decode(), match[2].decode()).encode(), body)

    def read(self, report: str, position: str) -> Document:
        """Return a document. Raises the 404 of an unknown one."""
        if not is_id(report):
            raise FhirError(NOT_FOUND)
        reports = BODIES["DiagnosticReport"]
        query = select(DOCUMENT.c.content_type, DOCUMENT.c.data, reports.c.patient)
        query = query.join(reports, reports.c.id == DOCUMENT.c.report).where(
            DOCUMENT.c.report == report, DOCUMENT.c.position == int(position[:9])
        )
        with self._store.read(several=False, asked=True) as connection:
            row = connection.execute(query).first()
        if row is None:
            raise FhirError(NOT_FOUND)
        # An older store may hold a content type that no header can carry.
        kind = row.content_type if is_content_type(row.content_type) else "application/octet-stream"
        return Document(kind, base64.b64decode(row.data), (row.patient,) if row.patient else ())

    def verify(self, report: str, position: str, expires: str, signature: str) -> None:
        """Raise the 403 of an address that was altered or has expired."""
        right = self._signature(report, position, expires)
        if not hmac.compare_digest(right.encode(), signature.encode("utf-8", "replace")):
            raise FhirError(FORBIDDEN)
        if int(expires) < self._clock().timestamp():
            raise FhirError(FORBIDDEN)

    def _signed(self, report: str, position: str) -> str:
        expires = str(int((self._clock() + LIFETIME).timestamp()))
        path = f"/DiagnosticReport/{report}/files/presentedForm/{position}"
        return f"{self._site.base_url}{path}?expires={expires}&signature={self._signature(report, position, expires)}"

    def _signature(self, report: str, position: str, expires: str) -> str:
        return hmac.new(self._key, f"{report}/{position}/{expires}".encode(), hashlib.sha256).hexdigest()
