"""Token requests of clients that share no code with ours: OpenSSL and the RFCs, and a client of SMART from PyPI."""

import asyncio
import hashlib
import importlib.util
import json
import shutil
import subprocess
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fhir_service.auth.client_keys import keys_in
from tests.conftest import running
from tests.support import loopback

KINDS = {
    "RS384": ("-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"),
    "ES384": ("-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-384"),
}
TYPE = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
OTHER_CLIENT = "cumulus_fhir_support"

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl on the path")


def openssl(*words: object, given: bytes = b"") -> bytes:
    return subprocess.run(["openssl", *map(str, words)], input=given, capture_output=True, check=True).stdout


def text(value: bytes) -> str:
    return urlsafe_b64encode(value).rstrip(b"=").decode()


def of_json(value: Any) -> str:
    return text(json.dumps(value, separators=(",", ":")).encode())


class Signer:
    """A client whose key OpenSSL made, and which says where it is by RFC 7515, 7518, 7523 and 7638 alone."""

    def __init__(self, folder: Path, algorithm: str, url: str) -> None:
        self.algorithm, self.key, self.public = algorithm, folder / "key.pem", folder / "key.pub.pem"
        openssl("genpkey", *KINDS[algorithm], "-out", self.key)
        openssl("pkey", "-in", self.key, "-pubout", "-out", self.public)
        settings = loopback.get(f"{url}/.well-known/smart-configuration").json()
        self.address, self.client_id = settings["token_endpoint"], ""

    @property
    def kid(self) -> str:
        """The key's thumbprint: SHA-256 of its public members in the order of the alphabet."""
        if self.algorithm == "RS384":
            modulus = openssl("rsa", "-pubin", "-in", self.public, "-modulus", "-noout").decode().partition("=")[2]
            members = {"e": "AQAB", "kty": "RSA", "n": text(bytes.fromhex(modulus.strip()))}
        else:
            point = openssl("pkey", "-pubin", "-in", self.public, "-outform", "DER")[-96:]
            members = {"crv": "P-384", "kty": "EC", "x": text(point[:48]), "y": text(point[48:])}
        return text(hashlib.sha256(json.dumps(members, separators=(",", ":")).encode()).digest())

    def signed(self, header: dict[str, Any], claims: dict[str, Any]) -> str:
        said = f"{of_json(header)}.{of_json(claims)}"
        digest = "-sha256" if header["alg"].endswith("256") else "-sha384"
        signature = openssl("dgst", digest, "-sign", self.key, given=said.encode())
        return f"{said}.{text(raw(signature) if self.algorithm == 'ES384' else signature)}"

    def ask(self, header: dict[str, Any] | None = None, **claims: Any) -> tuple[int, str]:
        """Ask for a token; give the status, and the error in words."""
        now = int(time.time())
        usual = {"iss": self.client_id, "sub": self.client_id, "aud": self.address, "exp": now + 240}
        marks = {"alg": self.algorithm, "kid": self.kid, "typ": "JWT", **(header or {})}
        signed = self.signed(marks, {**usual, "jti": str(uuid.uuid4()), **claims})
        form = {"grant_type": "client_credentials", "client_assertion_type": TYPE, "client_assertion": signed}
        answer = loopback.post(self.address, data=form)
        body = answer.json()
        if answer.status_code == 200:
            assert (body["token_type"], body["scope"]) == ("Bearer", "system/Questionnaire.rs")
            return 200, ""
        assert body["error"] == "invalid_client"
        return answer.status_code, body["error_description"]


def raw(signature: bytes) -> bytes:
    """The two numbers of a DER signature, 48 bytes each, as RFC 7518 has them."""
    place, numbers = 2, []
    for _ in range(2):
        assert signature[place] == 2
        end = place + 2 + signature[place + 1]
        numbers.append(int.from_bytes(signature[place + 2 : end]).to_bytes(48))
        place = end
    return b"".join(numbers)


@pytest.fixture(params=KINDS)
def signer(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Signer]:
    with running(tmp_path) as service:
        made = Signer(tmp_path, request.param, service.url)
        added = service.service.auth.add_client("lab", "system/Questionnaire.rs", keys_in(made.public))
        made.client_id = added["client_id"]
        yield made


def test_an_assertion_signed_by_openssl_is_accepted_once(signer: Signer) -> None:
    """AUTH-27, AUTH-28"""
    assert signer.ask(jti="one") == (200, "")
    status, said = signer.ask(jti="one")
    assert (status, said.endswith("its `jti` was used before")) == (401, True)
    assert signer.ask(jti="two") == (200, "")


WRONG: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "aud": ({}, {"aud": "https://other.example.org/auth/token"}, "`aud`"),
    "alg": ({"alg": "RS256"}, {}, "`alg`"),
    "exp": ({}, {"exp": 1_700_000_000}, "expired"),
    "sub": ({}, {"sub": "somebody"}, "the client is unknown"),
}


@pytest.mark.crossed
@pytest.mark.parametrize("wrong", WRONG)
def test_an_assertion_with_one_fault_is_refused_with_its_reason(wrong: str, signer: Signer) -> None:
    """AUTH-28"""
    header, claims, why = WRONG[wrong]
    status, said = signer.ask(header, **claims)
    assert (status, why in said) == (401, True), said
    assert signer.ask() == (200, "")


@pytest.mark.skipif(
    importlib.util.find_spec(OTHER_CLIENT) is None, reason="not installed: pip install cumulus-fhir-support"
)
def test_a_client_of_another_make_reads_with_its_key(signer: Signer) -> None:
    """AUTH-27: it finds the token address by itself, and signs by a library of its own."""
    made = importlib.import_module(OTHER_CLIENT).FhirClient
    base = signer.address.removesuffix("/auth/token")

    async def read() -> dict[str, Any]:
        asked = made(base, ["Questionnaire"], smart_client_id=signer.client_id, smart_pem=signer.key.read_text())
        async with asked as client:
            answer = await client.request("GET", "Questionnaire?_count=1")
            return dict(answer.json())

    assert asyncio.run(read())["resourceType"] == "Bundle"
