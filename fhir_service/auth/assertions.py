"""The signed assertion by which a SMART Backend Services client proves who it is (RFC 7523, `private_key_jwt`)."""

import base64
import binascii
import hashlib
import json
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from joserfc.jwk import KeySet

TYPE = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
ALGORITHMS = ("RS384", "ES384")
AHEAD = timedelta(minutes=5)
SLACK = timedelta(seconds=30)
"""The most that a client's clock may be ahead of the service's."""
LONGEST_ID = 500


class BadAssertion(ValueError):
    """An assertion that is not valid. The message says why, and shows none of its values."""


class NamedKey(NamedTuple):
    """The client and the key that an unverified assertion names."""

    client: str
    kid: str


class VerifiedAssertion(NamedTuple):
    """A verified assertion. use: the hash of its `jti`, which may be used once until `ends`."""

    client: str
    use: str
    ends: datetime


def named_key(assertion: str) -> NamedKey:
    """Return the client and the key that an assertion names. Raises BadAssertion."""
    header, claims = _unchecked(assertion)
    if header.get("alg") not in ALGORITHMS:
        raise BadAssertion(f"`alg` must be {' or '.join(ALGORITHMS)}")
    client, kid = claims.get("sub"), header.get("kid")
    if not isinstance(client, str) or not isinstance(kid, str) or not client or not kid:
        raise BadAssertion("`sub` must be the client's id, and `kid` must name its key")
    return NamedKey(client, kid)


def prove(assertion: str, keys: "KeySet", audience: str, now: datetime) -> VerifiedAssertion:
    """Verify signature and claims of an assertion. now: an aware time. Raises BadAssertion."""
    from joserfc import jwt
    from joserfc.errors import JoseError

    kid = named_key(assertion).kid
    if not any(key.kid == kid for key in keys.keys):
        raise BadAssertion("`kid` names none of the client's keys")
    try:
        claims = jwt.decode(assertion, keys, algorithms=list(ALGORITHMS)).claims
    except (JoseError, ValueError):
        raise BadAssertion("the signature cannot be verified with the key that `kid` names") from None
    return _checked(claims, audience, now)


def _checked(claims: dict[str, Any], audience: str, now: datetime) -> VerifiedAssertion:
    client, use = claims.get("sub"), claims.get("jti")
    if claims.get("iss") != client or not isinstance(client, str):
        raise BadAssertion("`iss` and `sub` must both be the client's id")
    aud = claims.get("aud")
    if audience not in (aud if isinstance(aud, list) else [aud]):
        raise BadAssertion("`aud` must be the token address that /.well-known/smart-configuration names")
    if not isinstance(use, str) or not 0 < len(use) <= LONGEST_ID:
        raise BadAssertion(f"`jti` must be a text of 1 to {LONGEST_ID} characters")
    ends = _moment(claims.get("exp"), "exp")
    if ends <= now:
        raise BadAssertion("it has expired (`exp`)")
    if ends > now + AHEAD + SLACK:
        raise BadAssertion("`exp` must be at most five minutes ahead")
    for name in ("nbf", "iat"):
        if name in claims and _moment(claims[name], name) > now + SLACK:
            raise BadAssertion(f"`{name}` is in the future")
    return VerifiedAssertion(client, hashlib.sha256(use.encode(errors="surrogatepass")).hexdigest(), ends)


def _moment(said: Any, name: str) -> datetime:
    """Return the aware time of a claim in seconds since 1970. Raises BadAssertion."""
    if isinstance(said, int | float) and not isinstance(said, bool):
        with suppress(ValueError, OverflowError, OSError):
            return datetime.fromtimestamp(said, UTC)
    raise BadAssertion(f"`{name}` must be a number of seconds since 1970")


def _unchecked(assertion: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return header and claims without verifying them. Raises BadAssertion."""
    with suppress(ValueError, binascii.Error, RecursionError):
        header, claims, _ = assertion.split(".")
        read = [json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))) for part in (header, claims)]
        if all(isinstance(part, dict) for part in read):
            return read[0], read[1]
    raise BadAssertion("it is not a signed JWT")
