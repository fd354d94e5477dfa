"""Ids that a store does not know: in records of what was done they stand as keyed hashes."""

import hashlib
import hmac


class Stranger(str):
    """An id that the store does not know: it may be somebody's name, or their number in another system."""

    __slots__ = ()


def shown(patient: str, key: bytes) -> str:
    """Return an id as it is; that of a `Stranger` as `unknown-` and a keyed hash, the same for the same id and key."""
    if not isinstance(patient, Stranger):
        return patient
    return f"unknown-{hmac.new(key, f'patient|{patient}'.encode(), hashlib.sha256).hexdigest()[:16]}"
