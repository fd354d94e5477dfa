"""A target that the environment names: its address, and the credentials for it."""

from collections.abc import Mapping
from pathlib import Path

from pipelines.client.addresses import is_loopback
from pipelines.client.signing import SigningKey
from pipelines.client.tokens import Credentials
from pipelines.home.exits import BadSetting


def named_target(environ: Mapping[str, str], insecure: bool) -> tuple[str, Credentials]:
    """Return base URL and credentials from the environment. Raises `BadSetting`."""
    base_url = environ.get("FHIR_BASE_URL", "").rstrip("/")
    if not base_url:
        raise BadSetting("credentials are set but no target: set FHIR_BASE_URL")
    if not base_url.lower().startswith(("http://", "https://")):
        raise BadSetting("FHIR_BASE_URL is not an http:// or https:// address")
    token_url = environ.get("FHIR_TOKEN_URL") or None
    if set("@?#") & set(base_url):
        raise BadSetting("FHIR_BASE_URL holds more than an address: leave out user, password and what follows ? or #")
    for name, url in (("FHIR_BASE_URL", base_url), ("FHIR_TOKEN_URL", token_url)):
        if url and url.lower().startswith("http://") and not is_loopback(url) and not insecure:
            raise BadSetting(f"{name} is http:// beyond this machine: use https://, or --insecure")
    if token := environ.get("FHIR_TOKEN"):
        return base_url, Credentials(token=token)
    client_id, secret, key = environ.get("FHIR_CLIENT_ID"), _secret(environ), _key(environ)
    if secret and key:
        raise BadSetting("FHIR_CLIENT_KEY_FILE and a secret are both set: a client has one of them")
    if not client_id or not (secret or key):
        raise BadSetting(
            "set FHIR_CLIENT_ID and FHIR_CLIENT_SECRET (or FHIR_CLIENT_SECRET_FILE, or FHIR_CLIENT_KEY_FILE), or"
            " FHIR_TOKEN"
        )
    if key:
        return base_url, Credentials(client_id=client_id, token_url=token_url, key=key)
    return base_url, Credentials(client_id=client_id, client_secret=secret, token_url=token_url)


def _secret(environ: Mapping[str, str]) -> str | None:
    path = environ.get("FHIR_CLIENT_SECRET_FILE")
    if not path:
        return environ.get("FHIR_CLIENT_SECRET")
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        raise BadSetting("FHIR_CLIENT_SECRET_FILE names a file that cannot be read") from None


def _key(environ: Mapping[str, str]) -> SigningKey | None:
    """Return the key that the environment names; None if it names none. Raises `BadSetting`."""
    path = environ.get("FHIR_CLIENT_KEY_FILE")
    if not path:
        return None
    try:
        return SigningKey.read(Path(path))
    except ValueError as error:
        raise BadSetting(f"FHIR_CLIENT_KEY_FILE: {error}") from None
    except OSError:
        raise BadSetting("FHIR_CLIENT_KEY_FILE names a file that cannot be read") from None
