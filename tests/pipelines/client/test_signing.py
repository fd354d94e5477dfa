"""An importer that signs with its own key: at the bundled service, and at a server of another make."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa, utils
from cryptography.hazmat.primitives.hashes import SHA384
from joserfc.jwk import ECKey, RSAKey
from joserfc.util import urlsafe_b64decode

from pipelines.cli import run as chartferry
from pipelines.client.client import FhirClient
from pipelines.client.replies import NotSent
from pipelines.client.signing import SigningKey
from pipelines.client.tokens import Credentials
from tests.conftest import running
from tests.support.commands import forget_settings
from tests.support.serving import Answers, served

KEYS: dict[str, RSAKey | ECKey] = {"RSA": RSAKey.generate_key(2048), "EC": ECKey.generate_key("P-384")}


def pem(folder: Path, kind: str) -> Path:
    path = folder / "key.pem"
    path.write_bytes(KEYS[kind].as_pem(private=True))
    return path


def public(kind: str) -> str:
    key = KEYS[kind]
    return json.dumps({"keys": [{**key.as_dict(private=False), "kid": key.thumbprint()}]})


@pytest.mark.parametrize("kind", KEYS)
def test_the_service_takes_what_the_importer_signs(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """AUTH-27, CLI-GLOBAL-02"""
    with running(tmp_path) as service:
        client = service.service.auth.add_client("importer", keys=public(kind))["client_id"]
        forget_settings(monkeypatch)
        monkeypatch.setenv("FHIR_BASE_URL", service.url)
        monkeypatch.setenv("FHIR_CLIENT_ID", client)
        monkeypatch.setenv("FHIR_CLIENT_KEY_FILE", str(pem(tmp_path, kind)))
        home = ["--home", str(tmp_path / "home")]
        assert chartferry([*home, "target"]) == 0
        service.service.auth.change_keys(client, public("EC" if kind == "RSA" else "RSA"))
        assert chartferry([*home, "target"]) == 6
    assert "is its id or key wrong, or was it revoked?" in capsys.readouterr().err


@contextmanager
def other_server(said: list[dict[str, Any]]) -> Iterator[str]:
    """A token address of another make, which checks signatures with the cryptography package alone."""

    class Handler(Answers):
        def do_GET(self) -> None:
            host = f"http://{self.headers['host']}"
            self._say({"token_endpoint": f"{host}/oauth/token"} if "smart" in self.path else {})

        def do_POST(self) -> None:
            form = {name: values[0] for name, values in parse_qs(self.sent().decode()).items()}
            signed, _, signature = form["client_assertion"].rpartition(".")
            header, claims = (json.loads(urlsafe_b64decode(part.encode())) for part in signed.split("."))
            check(signed.encode(), urlsafe_b64decode(signature.encode()), header["alg"])
            said.append({"path": self.path, "header": header, "claims": claims, "form": form})
            self._say({"access_token": "t", "token_type": "bearer", "expires_in": 300})

        def _say(self, body: dict[str, Any]) -> None:
            self.answer(200, json.dumps(body).encode())

    with served(Handler) as url:
        yield url


def check(signed: bytes, signature: bytes, algorithm: str) -> None:
    """Verify a signature as RFC 7518 says it. Raises InvalidSignature."""
    if algorithm == "RS384":
        key = KEYS["RSA"].public_key
        assert isinstance(key, rsa.RSAPublicKey)
        key.verify(signature, signed, padding.PKCS1v15(), SHA384())
        return
    of_curve = KEYS["EC"].public_key
    assert isinstance(of_curve, ec.EllipticCurvePublicKey)
    assert (algorithm, len(signature)) == ("ES384", 96)
    pair = (int.from_bytes(signature[:48]), int.from_bytes(signature[48:]))
    of_curve.verify(utils.encode_dss_signature(*pair), signed, ec.ECDSA(SHA384()))


@pytest.mark.parametrize("kind", KEYS)
def test_another_server_takes_it_at_the_address_that_it_names(kind: str, tmp_path: Path) -> None:
    """AUTH-27: each assertion is for that address, is used once, and holds five minutes at most."""
    said: list[dict[str, Any]] = []
    with other_server(said) as url:
        for _ in range(2):
            client = FhirClient(url, Credentials(client_id="abc", key=SigningKey.read(pem(tmp_path, kind))))
            assert client._tokens.bearer() == "t"
            client.close()
    assert [each["path"] for each in said] == ["/oauth/token"] * 2
    for each in said:
        claims = each["claims"]
        assert (claims["iss"], claims["sub"], claims["aud"]) == ("abc", "abc", f"{url}/oauth/token")
        assert 0 < claims["exp"] - claims["iat"] <= 300
        assert each["header"]["kid"] == KEYS[kind].thumbprint()
        assert "client_secret" not in each["form"]
    assert said[0]["claims"]["jti"] != said[1]["claims"]["jti"]


def test_an_assertion_is_not_sent_to_a_plain_address_elsewhere(tmp_path: Path) -> None:
    """AUTH-27: whoever names such an address does not get one."""

    asked: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(str(request.url))
        elsewhere = {"token_endpoint": "http://evil.example.org/token"}
        return httpx.Response(200, json=elsewhere) if request.method == "GET" else httpx.Response(503)

    key = SigningKey.read(pem(tmp_path, "EC"))
    client = FhirClient(
        "https://chart.example.org", Credentials(client_id="a", key=key), transport=httpx.MockTransport(answer)
    )
    with pytest.raises(NotSent):
        client._tokens.bearer()
    assert asked[-1] == "https://chart.example.org/auth/token"


BAD = {
    "public": KEYS["RSA"].as_pem(private=False),
    "curve": ECKey.generate_key("P-256").as_pem(private=True),
    "text": b"secret words",
    "symmetric": b'{"kty": "oct", "k": "c2VjcmV0"}',
    "cut": KEYS["EC"].as_pem(private=True)[:60],
}


@pytest.mark.parametrize("name", BAD)
def test_a_file_without_a_key_that_can_sign_is_reported_in_one_sentence(name: str, tmp_path: Path) -> None:
    """AUTH-27: nothing of the file is said."""
    path = tmp_path / "key"
    path.write_bytes(BAD[name])
    with pytest.raises(ValueError, match="a private key is expected"):
        SigningKey.read(path)


def test_a_key_shows_in_no_text(tmp_path: Path) -> None:
    """AUTH-27"""
    key = SigningKey.read(pem(tmp_path, "EC"))
    d = str(KEYS["EC"].as_dict(private=True)["d"])
    assert d not in repr(key) + repr(Credentials(client_id="a", key=key))
