"""SMART Backend Services: clients that sign an assertion with their key, and everything that proves nothing."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from joserfc import jwt
from joserfc.jwk import ECKey, OctKey, RSAKey

from fhir_service.auth.assertions import TYPE
from fhir_service.auth.client_keys import BadKeys, FetchedKeys, key_set, keys_in
from fhir_service.auth.clients import Auth, UnknownClient
from fhir_service.interface.site import Site
from fhir_service.store.bodies import BodyCache
from fhir_service.store.store import Store
from fhir_service.writing.writer import Writer
from tests.conftest import BOTH, Database
from tests.support.commands import run
from tests.support.serving import Answers, served

STORES = BOTH
pytestmark = pytest.mark.crossed
ADDRESS = "https://chart.example.org/auth/token"
RSA, EC = RSAKey.generate_key(2048, auto_kid=True), ECKey.generate_key("P-384", auto_kid=True)
OTHER = RSAKey.generate_key(2048, {"kid": str(RSA.kid)})
ALGORITHM = {"RSA": "RS384", "EC": "ES384"}
Key = RSAKey | ECKey


class Clock:
    def __init__(self) -> None:
        self.now = datetime(2026, 3, 1, 9, 30, tzinfo=timezone(timedelta(hours=-7)))

    def __call__(self) -> datetime:
        return self.now


def jwks(*keys: Key) -> str:
    return json.dumps({"keys": [key.as_dict(private=False) for key in keys]})


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def auth(tmp_path: Path, empty: Database, clock: Clock) -> Iterator[Auth]:
    with empty(tmp_path) as url:
        store = Store.open(url)
        writer = Writer(store, Site(), clock, lambda: "unused", BodyCache(0))
        yield Auth(store, writer, clock, audience=ADDRESS)
        writer.close()
        store.close()


def assertion(client: str, key: Key, clock: Clock, header: dict[str, Any] | None = None, **claims: Any) -> str:
    now = int(clock().timestamp())
    said = {"iss": client, "sub": client, "aud": ADDRESS, "jti": "one", "exp": now + 240, "iat": now} | claims
    marks = {"alg": ALGORITHM[key.key_type], "kid": key.kid, "typ": "JWT"} | (header or {})
    algorithms = ["RS384", "ES384", "RS256", "HS384", "none"]
    return jwt.encode(marks, {name: value for name, value in said.items() if value is not None}, key, algorithms)


def asked(auth: Auth, signed: str, **more: str) -> tuple[int, dict[str, Any]]:
    form = {"grant_type": "client_credentials", "client_assertion_type": TYPE, "client_assertion": signed}
    return auth.token(form | more)


@pytest.mark.parametrize("key", [RSA, EC], ids=["RS384", "ES384"])
def test_an_assertion_gives_a_token_once(key: Key, auth: Auth, clock: Clock) -> None:
    """AUTH-27, AUTH-28"""
    added = auth.add_client("lab", "system/Task.rs", jwks(RSA, EC))
    assert added.keys() == {"client_id", "scope"}
    signed = assertion(added["client_id"], key, clock)
    status, body = asked(auth, signed)
    assert (status, body["token_type"], body["scope"]) == (200, "Bearer", "system/Task.rs")
    assert auth.caller(f"Bearer {body['access_token']}").client == added["client_id"]
    status, body = asked(auth, signed)
    assert (status, body["error"]) == (401, "invalid_client")
    assert body["error_description"].endswith("its `jti` was used before")
    assert asked(auth, assertion(added["client_id"], key, clock, jti="two"))[0] == 200


WRONG: dict[str, tuple[Key, dict[str, Any], dict[str, Any], str]] = {
    "aud": (RSA, {}, {"aud": "https://other.example.org/auth/token"}, "`aud`"),
    "no aud": (RSA, {}, {"aud": None}, "`aud`"),
    "iss": (RSA, {}, {"iss": "somebody"}, "`iss`"),
    "expired": (RSA, {}, {"exp": -1}, "expired"),
    "exp far ahead": (RSA, {}, {"exp": 3600}, "five minutes"),
    "exp is no number": (RSA, {}, {"exp": "soon"}, "`exp`"),
    "exp is beyond time": (RSA, {}, {"exp": 1e300}, "`exp`"),
    "no exp": (RSA, {}, {"exp": None}, "`exp`"),
    "nbf": (RSA, {}, {"nbf": 200}, "`nbf`"),
    "iat": (RSA, {}, {"iat": 200}, "`iat`"),
    "no jti": (RSA, {}, {"jti": None}, "`jti`"),
    "long jti": (RSA, {}, {"jti": "x" * 501}, "`jti`"),
    "alg": (RSA, {"alg": "RS256"}, {}, "`alg`"),
    "kid": (RSA, {"kid": "unknown"}, {}, "`kid`"),
    "no kid": (RSA, {"kid": ""}, {}, "`kid`"),
    "signature": (OTHER, {}, {}, "signature"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_an_assertion_that_is_wrong_proves_nothing(wrong: str, auth: Auth, clock: Clock) -> None:
    """AUTH-28: `invalid_client`, and what is wrong; the `jti` is not used up by it."""
    client = auth.add_client("lab", "system/Task.rs", jwks(RSA))["client_id"]
    key, header, claims, says = WRONG[wrong]
    now = int(clock().timestamp())
    claims = {
        name: now + value if name in ("exp", "nbf", "iat") and isinstance(value, int) else value
        for name, value in claims.items()
    }
    status, body = asked(auth, assertion(client, key, clock, header, **claims))
    assert (status, body["error"]) == (401, "invalid_client")
    assert says in body["error_description"]
    assert asked(auth, assertion(client, RSA, clock))[0] == 200


@pytest.mark.parametrize("signed", ["", "x", "a.b.c", "e30.e30.", "W10.W10.x", "." * 50_000])
def test_a_text_that_is_not_a_jwt_proves_nothing(signed: str, auth: Auth) -> None:
    """AUTH-28"""
    assert asked(auth, signed)[0] == 401


def test_an_assertion_signed_with_the_public_key_as_a_secret_is_refused(auth: Auth, clock: Clock) -> None:
    """AUTH-28: everybody has the public key."""
    client = auth.add_client("lab", "system/Task.rs", jwks(RSA))["client_id"]
    secret = OctKey.import_key(str(RSA.as_dict(private=False)["n"]))
    claims = {"iss": client, "sub": client, "aud": ADDRESS, "jti": "x", "exp": int(clock().timestamp()) + 60}
    signed = jwt.encode({"alg": "HS384", "kid": RSA.kid}, claims, secret, ["HS384"])
    assert asked(auth, signed)[0] == 401


def test_clients_have_one_way_to_prove_who_they_are(auth: Auth, clock: Clock) -> None:
    """AUTH-28"""
    signs = auth.add_client("lab", "system/Task.rs", jwks(RSA))["client_id"]
    has_secret = auth.add_client("desk", "system/Task.rs")
    assert asked(auth, assertion(has_secret["client_id"], RSA, clock))[0] == 401
    assert asked(auth, assertion(signs, RSA, clock), client_id=has_secret["client_id"])[0] == 401
    both = asked(auth, assertion(signs, RSA, clock), client_secret=has_secret["client_secret"])
    assert (both[0], both[1]["error"]) == (400, "invalid_request")
    assert asked(auth, assertion(signs, RSA, clock), client_assertion_type="other")[0] == 401
    auth.revoke(signs)
    assert asked(auth, assertion(signs, RSA, clock))[0] == 401


def test_keys_are_changed_and_the_old_one_ends(auth: Auth, clock: Clock) -> None:
    """AUTH-27"""
    client = auth.add_client("lab", "system/Task.rs", jwks(RSA))["client_id"]
    auth.change_keys(client, jwks(EC))
    assert asked(auth, assertion(client, RSA, clock))[0] == 401
    assert asked(auth, assertion(client, EC, clock))[0] == 200
    with pytest.raises(UnknownClient):
        auth.change_keys(auth.add_client("desk")["client_id"], jwks(EC))


def test_used_assertions_are_forgotten_once_they_have_expired(auth: Auth, clock: Clock) -> None:
    """AUTH-28: what is kept does not grow for ever."""
    client = auth.add_client("lab", "system/Task.rs", jwks(RSA))["client_id"]
    for round_ in range(3):
        assert asked(auth, assertion(client, RSA, clock))[0] == 200, round_
        clock.now += timedelta(minutes=6)


@pytest.mark.on_both
def test_of_simultaneous_uses_of_one_assertion_one_gets_a_token(auth: Auth, clock: Clock) -> None:
    """AUTH-28"""
    client = auth.add_client("lab", "system/Task.rs", jwks(RSA))["client_id"]
    signed, answers = assertion(client, RSA, clock), list[int]()
    threads = [threading.Thread(target=lambda: answers.append(asked(auth, signed)[0])) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == [200, *[401] * 7]


BAD_KEYS = {
    "no json": "keys",
    "no keys": '{"keys": []}',
    "no set": "[]",
    "too many": json.dumps({"keys": [RSA.as_dict(private=False)] * 21}),
    "private": json.dumps({"keys": [EC.as_dict(private=True)]}),
    "symmetric": json.dumps({"keys": [{"kty": "oct", "k": "c2VjcmV0c2VjcmV0", "kid": "a"}]}),
    "another curve": json.dumps({"keys": [{**ECKey.generate_key("P-256").as_dict(private=False), "kid": "a"}]}),
    "without a kid": json.dumps({"keys": [{k: v for k, v in RSA.as_dict(private=False).items() if k != "kid"}]}),
    "deep": "[" * 5_000,
}


@pytest.mark.parametrize("name", BAD_KEYS)
def test_keys_that_cannot_be_used_are_refused(name: str) -> None:
    """AUTH-27: one sentence."""
    with pytest.raises(BadKeys):
        key_set(BAD_KEYS[name])


@contextmanager
def published(keys: list[str]) -> Iterator[tuple[str, list[int]]]:
    """An address that answers the last of these key sets, and how often it was asked."""
    times = [0]

    class Handler(Answers):
        def do_GET(self) -> None:
            times[0] += 1
            self.answer(200 if self.path == "/jwks" else 302, keys[-1].encode(), location="/jwks")

    with served(Handler) as url:
        yield url, times


def test_keys_at_an_address_are_fetched_and_rotated_there(auth: Auth, clock: Clock) -> None:
    """AUTH-27: a new key is taken as soon as an assertion names it; a redirect is not followed."""
    keys, seconds = [jwks(RSA)], [0.0]
    with published(keys) as (address, times):
        auth._signing._fetched = FetchedKeys(clock=lambda: seconds[0])
        client = auth.add_client("lab", "system/Task.rs", f"{address}/jwks")["client_id"]
        for number in range(3):
            assert asked(auth, assertion(client, RSA, clock, jti=f"a{number}"))[0] == 200
        assert times == [1]
        keys.append(jwks(EC))
        seconds[0] += 11
        assert asked(auth, assertion(client, EC, clock, jti="b"))[0] == 200
        assert asked(auth, assertion(client, RSA, clock, jti="c"))[0] == 401
        auth.revoke(client)
        seconds[0] += 400
        assert asked(auth, assertion(client, EC, clock, jti="e"))[0] == 401
        assert times == [2]  # for who was revoked nobody is asked
        other = auth.add_client("lab", "system/Task.rs", f"{address}/elsewhere")["client_id"]
        assert asked(auth, assertion(other, EC, clock, jti="d"))[0] == 401


@pytest.mark.parametrize("address", ["http://example.org/jwks", "https://a:b@example.org/", "https://", "ftp://x/y"])
def test_keys_come_over_https_alone(address: str, auth: Auth) -> None:
    """AUTH-27"""
    with pytest.raises(BadKeys):
        auth.add_client("lab", "system/Task.rs", address)


def test_a_public_key_as_pem_is_named_by_its_thumbprint(tmp_path: Path) -> None:
    """AUTH-27: what openssl writes is enough."""
    for key in (RSA, EC):
        path = tmp_path / "public.pem"
        path.write_bytes(key.as_pem(private=False))
        [found] = key_set(keys_in(path)).keys
        assert found.kid == found.thumbprint() == key.thumbprint()


def test_the_command_adds_a_client_that_signs(tmp_path: Path) -> None:
    """AUTH-27, CLI-SVC-08"""
    store, keys = ("--store", tmp_path / "s.duckdb"), tmp_path / "jwks.json"
    keys.write_text(jwks(RSA))
    added = json.loads(run("fhir-service", "client", "add", *store, "--name", "lab", "--jwks", keys).stdout)
    assert added.keys() == {"client_id", "scope"}
    keys.write_text("nothing")
    failed = run("fhir-service", "client", "keys", *store, added["client_id"], "--jwks", keys)
    assert failed.returncode == 2
    assert "a JWKS with 1 to 20 public keys is expected" in failed.stderr
    keys.write_text(jwks(EC))
    assert run("fhir-service", "client", "keys", *store, added["client_id"], "--jwks", keys).returncode == 0
    assert run("fhir-service", "client", "keys", *store, "nobody", "--jwks", keys).returncode == 1
