"""The public keys of SMART Backend Services clients, read from a file, or fetched from an address and cached."""

import json
import threading
import time
from base64 import urlsafe_b64decode
from collections.abc import Callable, Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from joserfc.jwk import ECKey, KeySet, RSAKey

MOST_KEYS, LARGEST = 20, 64 << 10
LEAST_RSA_BITS, CURVE = 2048, "P-384"
KEPT_SECONDS, PAUSE_SECONDS = 300.0, 10.0
"""Seconds for which fetched keys are used, and the least seconds between two fetches because of an unknown key."""
FETCH_SECONDS = 10.0
PEM = "-----BEGIN PUBLIC KEY-----"
_KIND = f"RSA of {LEAST_RSA_BITS} bits or more (RS384) or EC {CURVE} (ES384)"
_EXPECTED = f"a JWKS with 1 to {MOST_KEYS} public keys is expected, each {_KIND}"


class BadKeys(ValueError):
    """A text without usable public keys. The message is one sentence."""


def is_address(named: str) -> bool:
    return named.lower().startswith(("http://", "https://"))


def checked_address(named: str) -> str:
    """Return an address to fetch keys from, if it is https or on this machine. Raises BadKeys."""
    parts = urlsplit(named)
    if not parts.hostname or parts.username or parts.fragment:
        raise BadKeys("the address of the keys must be https://host/path, without a user name and without #")
    if parts.scheme.lower() == "http" and not _is_loopback(parts.hostname):
        raise BadKeys(
            "the address of the keys must begin with https://: over http:// anybody on the way could replace the keys"
        )
    return named


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def keys_in(path: Path) -> str:
    """Read a file of public keys, a JWKS or one key as PEM. Return a JWKS as text. Raises BadKeys and OSError."""
    with path.open("rb") as file:
        text = file.read(LARGEST + 1).decode(errors="replace")
    if text.lstrip().startswith(PEM):
        key = _of_pem(text)
        text = json.dumps({"keys": [{**key.as_dict(private=False), "kid": key.thumbprint()}]})
    key_set(text)
    return text


def _of_pem(text: str) -> "RSAKey | ECKey":
    from joserfc.errors import InvalidKeyTypeError, JoseError
    from joserfc.jwk import import_key

    try:
        try:
            return import_key(text, "RSA")
        except InvalidKeyTypeError:
            return import_key(text, "EC")
    except (JoseError, ValueError):
        raise BadKeys(f"the PEM holds no public key that can be used: it must be {_KIND}") from None


def key_set(text: str) -> "KeySet":
    """Return the keys of a JWKS. Raises BadKeys, also for a private key: only its owner may have that."""
    from joserfc.errors import JoseError
    from joserfc.jwk import KeySet

    if len(text) > LARGEST:
        raise BadKeys(f"the keys are longer than {LARGEST:,} characters")
    try:
        said = json.loads(text)
        keys = said["keys"] if isinstance(said, dict) else None
        if not isinstance(keys, list) or not 0 < len(keys) <= MOST_KEYS:
            raise BadKeys(_EXPECTED)
        if any(not isinstance(key, dict) or not key.get("kid") for key in keys):
            raise BadKeys("each key must have a `kid`: an assertion names its key by it")
        if not all(map(_is_strong, keys)):
            raise BadKeys(f"a key cannot be used: each must be {_KIND}")
        found = KeySet.import_key_set(said)
    except (JoseError, ValueError, RecursionError, TypeError, KeyError) as error:
        raise error if isinstance(error, BadKeys) else BadKeys(_EXPECTED) from None
    if any(key.is_private for key in found.keys):
        raise BadKeys("a private key is among the keys: make a new pair of keys, and give its public key only")
    return found


def _is_strong(key: Mapping[str, Any]) -> bool:
    """True for an accepted kind and size of key. The JWK is examined before it is imported."""
    if key.get("kty") == "EC":
        return key.get("crv") == CURVE
    modulus = key.get("n")
    if key.get("kty") != "RSA" or not isinstance(modulus, str):
        return False
    return int.from_bytes(urlsafe_b64decode(modulus + "=" * (-len(modulus) % 4))).bit_length() >= LEAST_RSA_BITS


Fetch = Callable[[str], str]


def fetch(address: str) -> str:
    """Return the answer of an address, without following redirects. Raises BadKeys."""
    import httpx  # which a service without such clients does not need

    try:
        with (
            httpx.Client(timeout=FETCH_SECONDS, follow_redirects=False) as client,
            client.stream("GET", address, headers={"accept": "application/json"}) as answer,
        ):
            if answer.status_code != 200:
                raise BadKeys(f"the address of the keys answers HTTP {answer.status_code}")
            body = b""
            for part in answer.iter_bytes():
                body += part
                if len(body) > LARGEST:
                    raise BadKeys(f"the address of the keys answers with more than {LARGEST:,} bytes")
            return body.decode(errors="replace")
    except (httpx.HTTPError, httpx.InvalidURL):
        raise BadKeys("the address of the keys does not answer") from None


class FetchedKeys:
    """Keys by address, kept for some minutes. An unknown key makes them be fetched again: it may be new."""

    def __init__(self, get: Fetch = fetch, clock: Callable[[], float] = time.monotonic) -> None:
        self._get, self._clock = get, clock
        self._kept: dict[str, tuple[float, KeySet]] = {}
        self._tried: dict[str, float] = {}
        self._lock = threading.Lock()

    def of(self, address: str, kid: str) -> "KeySet":
        """Return the keys of an address. Fetch them if `kid` is not among the kept ones. Raises BadKeys."""
        with self._lock:
            now, kept = self._clock(), self._kept.get(address)
            fresh = kept is not None and now - kept[0] < KEPT_SECONDS
            if kept and fresh and any(key.kid == kid for key in kept[1].keys):
                return kept[1]
            if now - self._tried.get(address, -PAUSE_SECONDS) < PAUSE_SECONDS:
                if kept and fresh:
                    return kept[1]
                raise BadKeys(
                    f"the keys could not be fetched less than {PAUSE_SECONDS:.0f} seconds ago: try again later"
                )
            self._tried[address] = now
            found = key_set(self._get(address))
            self._kept[address] = (now, found)
            return found
