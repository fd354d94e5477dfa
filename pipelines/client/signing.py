"""The key of a client that signs instead of using a secret (SMART Backend Services), and its assertions."""

import json
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from joserfc.jwk import ECKey, RSAKey

ASSERTION_TYPE = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
ALGORITHMS = {"RSA": "RS384", "EC": "ES384"}
LASTS_SECONDS = 240
LARGEST = 64 << 10
EXPECTED = "a private key is expected: RSA of 2048 bits or more, or EC P-384, as PEM or JWK"


@dataclass(frozen=True)
class SigningKey:
    """A private key, and the name by which the target knows its public part."""

    key: "RSAKey | ECKey" = field(repr=False)
    kid: str

    @classmethod
    def read(cls, path: Path) -> "SigningKey":
        """Read a key from a file. A PEM key is named by its thumbprint (RFC 7638).

        Raises OSError, and ValueError with a sentence that reveals nothing of the file.
        """
        from joserfc.errors import JoseError
        from joserfc.jwk import ECKey, RSAKey

        with path.open("rb") as file:
            text = file.read(LARGEST).decode(errors="replace")
        try:
            key = _imported(text)
        except (JoseError, ValueError, KeyError, TypeError, RecursionError):
            raise ValueError(EXPECTED) from None
        strong = (isinstance(key, RSAKey) and key.raw_value.key_size >= 2048) or (
            isinstance(key, ECKey) and key.curve_name == "P-384"
        )
        if not strong or not key.is_private:
            raise ValueError(EXPECTED)
        return cls(key, str(key.kid or key.thumbprint()))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the key as JWK, for a worker process of this program."""
        return _restored, (self.key.as_dict(private=True), self.kid)

    def form(self, client_id: str, audience: str) -> dict[str, str]:
        """Return the fields of a token request: an assertion for this token address, which can be used once."""
        from joserfc import jwt

        algorithm, now = ALGORITHMS[self.key.key_type], int(time.time())
        header = {"alg": algorithm, "kid": self.kid, "typ": "JWT"}
        claims = {"iss": client_id, "sub": client_id, "aud": audience, "jti": str(uuid.uuid4())}
        signed = jwt.encode(header, claims | {"iat": now, "exp": now + LASTS_SECONDS}, self.key, [algorithm])
        return {"client_assertion_type": ASSERTION_TYPE, "client_assertion": signed}


def _restored(said: dict[str, Any], kid: str) -> SigningKey:
    from joserfc.jwk import import_key

    return SigningKey(import_key(said), kid)  # type: ignore[arg-type]


def _imported(text: str) -> Any:
    from joserfc.errors import InvalidKeyTypeError
    from joserfc.jwk import import_key

    if "-----BEGIN" not in text:
        said = json.loads(text)
        one = said["keys"][0] if "keys" in said else said
        if one["kty"] not in ALGORITHMS:
            raise ValueError(EXPECTED)
        return import_key(one)
    try:
        return import_key(text, "RSA")
    except InvalidKeyTypeError:
        return import_key(text, "EC")
