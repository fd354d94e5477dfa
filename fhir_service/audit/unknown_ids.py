"""Ids that a store does not know. The audit holds them as keyed hashes."""

import hashlib
import hmac


class Stranger(str):
    """An id that the store does not know. It may be a name, or a number from another system."""

    __slots__ = ()


def shown(patient: str, key: bytes) -> str:
    """Return an id as it is, or that of a `Stranger` as `unknown-` and a keyed hash of it."""
    if not isinstance(patient, Stranger):
        return patient
    return f"unknown-{hmac.new(key, f'patient|{patient}'.encode(), hashlib.sha256).hexdigest()[:16]}"
