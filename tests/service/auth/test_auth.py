"""Clients, tokens and scopes, over a new store with a clock that tests move."""

import asyncio
import base64
import threading
from datetime import UTC, datetime, timedelta, timezone

import httpx
import pytest
from sqlalchemy import insert, select
from starlette.applications import Starlette
from starlette.routing import Route

from fhir_service.auth.clients import Auth, UnknownClient, hashed
from fhir_service.auth.token_address import token_response
from fhir_service.interface.outcomes import FhirError
from fhir_service.interface.scopes import Caller, ScopeError, within
from fhir_service.interface.site import Site
from fhir_service.store.bodies import BodyCache
from fhir_service.store.store import Store
from fhir_service.store.tables import CLIENT, TOKEN
from fhir_service.writing.writer import Writer


class Clock:
    """A clock that tests move, in a zone that is not UTC."""

    def __init__(self):
        self.now = datetime(2026, 3, 1, 9, 30, tzinfo=timezone(timedelta(hours=-7)))

    def __call__(self):
        return self.now

    def forward(self, seconds):
        self.now += timedelta(seconds=seconds)


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def store(tmp_path, empty):
    with empty(tmp_path) as url:
        opened = Store.open(url)
        yield opened
        opened.close()


@pytest.fixture
def writer(store, clock):
    started = Writer(store, Site(), clock, lambda: "unused", BodyCache(0))
    yield started
    started.close()


@pytest.fixture
def auth(store, writer, clock):
    return Auth(store, writer, clock, cached_tokens=5)


def form(client, **more):
    secrets = {"client_id": client["client_id"], "client_secret": client["client_secret"]}
    return {"grant_type": "client_credentials", **secrets, **more}


def basic(user, password):
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def bearer(auth, client, **more):
    status, body = auth.token(form(client, **more))
    assert status == 200, body
    return f"Bearer {body['access_token']}"


def refused(auth, header):
    with pytest.raises(FhirError) as caught:
        auth.caller(header)
    return caught.value.outcome.status, caught.value.outcome.code, caught.value.text, caught.value.headers


UNKNOWN = (401, "unknown", "Authentication failed", {"www-authenticate": "Bearer"})


def test_a_token_request_answers_what_rfc_6749_says(auth):
    """AUTH-07, AUTH-19: no scope asked yields all scopes of the client."""
    client = auth.add_client("importer")
    status, body = auth.token(form(client))
    token = body.pop("access_token")
    assert (status, body) == (200, {"token_type": "Bearer", "expires_in": 36000, "scope": "system/*.cruds"})
    assert auth.caller(f"Bearer {token}") == Caller(client["client_id"], "system/*.cruds")


def test_http_basic_is_accepted_as_well(auth):
    """AUTH-08"""
    client = auth.add_client("importer")
    status, body = auth.token({"grant_type": "client_credentials"}, basic(client["client_id"], client["client_secret"]))
    assert status == 200
    assert auth.caller(f"bearer {body['access_token']}").client == client["client_id"]


@pytest.mark.parametrize("header", [None, "", "Bearer", "Bearer ", "Bearer x", "Bearer " + "a" * 43, "Basic eDp5"])
def test_anything_but_a_known_token_fails_authentication(auth, header):
    """AUTH-01, AUTH-02, AUTH-04"""
    auth.add_client("importer")
    assert refused(auth, header) == UNKNOWN


def test_another_scheme_with_a_known_token_fails_authentication(auth):
    """AUTH-02"""
    token = bearer(auth, auth.add_client("importer")).removeprefix("Bearer ")
    for header in (token, f"Token {token}", f"Basic {token}", f"Bearer{token}", f"Bearer {token} x"):
        assert refused(auth, header) == UNKNOWN


@pytest.mark.parametrize(
    ("changes", "status", "code"),
    [
        ({"grant_type": None}, 400, "invalid_request"),
        ({"grant_type": ""}, 400, "invalid_request"),
        ({"grant_type": "password"}, 400, "unsupported_grant_type"),
        ({"client_secret": "wrong"}, 401, "invalid_client"),
        ({"client_id": "nobody"}, 401, "invalid_client"),
        ({"client_secret": None}, 401, "invalid_client"),
        ({"client_id": None}, 401, "invalid_client"),
        ({"scope": "system/Task.delete"}, 400, "invalid_scope"),
        ({"scope": "patient/Task.read"}, 400, "invalid_scope"),
        ({"scope": "openid"}, 400, "invalid_scope"),
    ],
)
def test_errors_of_the_token_address_are_those_of_rfc_6749(auth, store, changes, status, code):
    """AUTH-09, AUTH-21"""
    sent = form(auth.add_client("importer")) | changes
    answered, body = auth.token({name: value for name, value in sent.items() if value is not None})
    assert (answered, body["error"]) == (status, code)
    assert set(body) == {"error", "error_description"}
    with store.read() as connection:
        assert connection.execute(select(TOKEN)).all() == []


def test_a_broken_basic_header_is_an_unknown_client(auth):
    """AUTH-08, AUTH-09"""
    client = auth.add_client("importer")
    for header in ("Basic", "Basic %%%", "Basic " + base64.b64encode(b"no colon").decode(), "Bearer x", "Basic /w=="):
        assert auth.token({"grant_type": "client_credentials"}, header)[1]["error"] == "invalid_client"
    both = auth.token(form(client), basic(client["client_id"], client["client_secret"]))
    assert (both[0], both[1]["error"]) == (400, "invalid_request")


def test_a_token_lasts_36000_seconds(auth, clock):
    """AUTH-10: with and without the cache."""
    header = bearer(auth, auth.add_client("importer"))
    clock.forward(36_000)
    assert auth.caller(header).scope == "system/*.cruds"
    clock.forward(1)
    assert refused(auth, header) == UNKNOWN
    auth._cache.forget(auth.list_clients()[0]["client_id"])
    assert refused(auth, header) == UNKNOWN


def test_tokens_that_ran_out_are_dropped_from_the_store(auth, store, clock):
    client = auth.add_client("importer")
    for _ in range(3):
        bearer(auth, client)
        clock.forward(36_001)
    with store.read() as connection:
        assert len(connection.execute(select(TOKEN)).all()) == 1


def test_revoking_a_client_ends_its_tokens_at_once(auth, store):
    """AUTH-11: those in the cache and those in the store; other clients keep theirs."""
    client, other = auth.add_client("one"), auth.add_client("other")
    cached, stored, others = bearer(auth, client), bearer(auth, client), bearer(auth, other)
    assert auth.caller(cached).client == client["client_id"]
    auth.revoke(client["client_id"])
    assert refused(auth, cached) == refused(auth, stored) == UNKNOWN
    assert auth.caller(others).client == other["client_id"]
    assert auth.token(form(client))[1]["error"] == "invalid_client"
    assert Auth(store, auth._writer, auth._clock).caller(others).client == other["client_id"]
    revoked = {known["client_id"]: known["revoked_at"] for known in auth.list_clients()}
    assert revoked == {client["client_id"]: auth._clock(), other["client_id"]: None}


def test_a_token_that_was_met_is_known_until_it_expires_or_is_found_to_have_ended(auth, store, writer, clock):
    """AUTH-10, AUTH-11: that admits a create. The store is asked later whether the token was ended."""
    client, elsewhere = auth.add_client("n"), Auth(store, writer, clock)
    digests = [hashed(bearer(auth, client).removeprefix("Bearer ")) for _ in range(2)]
    assert [auth.met(digest) for digest in digests] == [None, None]
    auth.look_up(digests)
    assert [auth.met(digest).client for digest in digests] == [client["client_id"]] * 2
    clock.forward(36_001)
    assert auth.met(digests[0]) is None
    clock.forward(-3_600)
    elsewhere.revoke(client["client_id"])
    auth.look_up(digests)
    assert auth.met(digests[0]) is None


def test_no_token_is_issued_to_a_client_that_is_revoked_while_it_asks(auth, store, monkeypatch):
    """AUTH-11: its secret was right a moment before."""
    client = auth.add_client("n")
    held = auth._authenticate(client["client_id"], client["client_secret"])
    monkeypatch.setattr(auth, "_authenticate", lambda *_: held)
    auth.revoke(client["client_id"])
    status, body = auth.token(form(client))
    assert (status, body["error"]) == (401, "invalid_client")
    with store.read() as connection:
        assert connection.execute(select(TOKEN.c.hash)).all() == []


def test_revoking_twice_is_the_same_and_an_unknown_client_is_named(auth):
    client = auth.add_client("one")
    auth.revoke(client["client_id"])
    auth.revoke(client["client_id"])
    with pytest.raises(UnknownClient):
        auth.revoke("nobody")


def test_a_look_up_under_way_cannot_bring_a_revoked_token_back(auth):
    """AUTH-11: the row was read before the revocation and is cached after it."""
    client = auth.add_client("one")
    header = bearer(auth, client)
    put = auth._cache.put

    def revoked_meanwhile(digest, known, epoch):
        auth._cache.put = put
        worker = threading.Thread(target=auth.revoke, args=[client["client_id"]])
        worker.start()
        worker.join()
        put(digest, known, epoch)

    auth._cache.put = revoked_meanwhile
    auth.caller(header)
    assert refused(auth, header) == UNKNOWN


def test_the_cache_of_tokens_is_bounded_and_forgotten_tokens_still_work(auth):
    client = auth.add_client("one")
    headers = [bearer(auth, client) for _ in range(9)]
    for header in headers * 2:
        assert auth.caller(header).client == client["client_id"]
    for number in range(100):
        refused(auth, f"Bearer {number:043d}")
    assert len(auth._cache) == 5


def test_secrets_and_tokens_are_256_random_bits_and_only_their_hashes_are_stored(auth, store, tmp_path):
    """AUTH-12, AUTH-13, AUTH-15"""
    clients = [auth.add_client(f"c{number}") for number in range(20)]
    tokens = [bearer(auth, client).removeprefix("Bearer ") for client in clients]
    secrets = [client["client_secret"] for client in clients]
    assert len(set(secrets + tokens)) == 40
    assert all(len(base64.urlsafe_b64decode(text + "=")) == 32 for text in secrets + tokens)
    with store.read() as connection:
        assert {row.secret_hash for row in connection.execute(select(CLIENT))} == {hashed(text) for text in secrets}
        assert {row.hash for row in connection.execute(select(TOKEN))} == {hashed(text) for text in tokens}
    shown = str(auth.list_clients())
    files = b"".join(path.read_bytes() for path in tmp_path.iterdir() if path.is_file())
    for text in secrets + tokens:
        assert text not in shown
        assert text.encode() not in files


def test_secrets_and_tokens_are_compared_in_constant_time(auth, monkeypatch):
    """AUTH-14: every comparison of a secret or token goes through `compare_digest`, an unknown client's too."""
    compared = []

    def compare(stored, shown):
        compared.append((stored, shown))
        return stored == shown

    monkeypatch.setattr("fhir_service.auth.clients.compare_digest", compare)
    client = auth.add_client("one")
    auth.caller(bearer(auth, client))
    auth.token(form(client) | {"client_id": "nobody"})
    assert [b == hashed(client["client_secret"]) for _, b in compared] == [True, False, True]


def test_a_new_store_has_no_clients_and_no_tokens(auth, store):
    """AUTH-23"""
    assert auth.list_clients() == []
    with store.read() as connection:
        assert connection.execute(select(TOKEN)).all() == []


@pytest.mark.parametrize(
    ("scope", "resource", "letters"),
    [
        ("system/Task.read", "Task", "rs"),
        ("system/Task.write", "Task", "cu"),
        ("system/Task.*", "Task", "cruds"),
        ("system/Task.c", "Task", "c"),
        ("system/Task.ds", "Task", "ds"),
        ("system/Task.read system/Task.c", "Task", "crs"),
        ("system/Task.read system/*.c", "Task", "crs"),
        ("system/*.read", "DiagnosticReport", "rs"),
        ("system/Task.cruds", "PaymentNotice", ""),
    ],
)
def test_a_scope_reaches_what_it_names_and_nothing_else(scope, resource, letters):
    """AUTH-03, AUTH-16, AUTH-17, AUTH-18"""
    caller = Caller("c", scope)
    assert "".join(letter for letter in "cruds" if caller.may(resource, letter)) == letters
    for letter in "cruds":
        if letter in letters:
            caller.require(resource, letter)
        else:
            with pytest.raises(FhirError) as caught:
                caller.require(resource, letter)
            assert (caught.value.outcome.status, caught.value.outcome.code) == (403, "forbidden")
            assert caught.value.text == "Authorization failed"


@pytest.mark.parametrize(
    ("asked", "held", "inside"),
    [
        ("system/Task.read", "system/*.cruds", True),
        ("system/Task.cruds", "system/Task.read system/Task.write", False),
        ("system/Task.crus", "system/Task.read system/Task.write", True),
        ("system/*.read", "system/Task.read", False),
        ("system/Task.read system/PaymentNotice.read", "system/Task.read", False),
        ("system/Task.rs", "system/Task.r system/*.s", True),
    ],
)
def test_a_token_can_be_limited_but_never_widened(auth, asked, held, inside):
    """AUTH-20, AUTH-21"""
    assert within(asked, held) is inside
    client = auth.add_client("one", held)
    status, body = auth.token(form(client, scope=asked))
    expected = (200, None, asked) if inside else (400, "invalid_scope", None)
    assert (status, body.get("error"), body.get("scope")) == expected


@pytest.mark.parametrize(
    "scope",
    ["", "Task.read", "system/Task", "system/Task.x", "user/*.read", "system/Tasks.read", "system/*.read  system/*.c"],
)
def test_a_client_is_not_added_with_a_scope_that_means_nothing(auth, scope):
    """AUTH-16"""
    with pytest.raises(ScopeError):
        auth.add_client("one", scope)
    assert auth.list_clients() == []


@pytest.fixture
def http(auth):
    async def token(request):
        return await token_response(request, auth)

    app = Starlette(routes=[Route("/auth/token", token, methods=["POST"])])

    async def sent(**request):
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://service") as client:
            return await client.post("/auth/token", **request)

    return lambda **request: asyncio.run(sent(**request))


def test_the_token_address_answers_forms(http, auth):
    """AUTH-07, AUTH-08"""
    client = auth.add_client("one")
    answer = http(data=form(client, scope="system/Task.read"))
    assert (answer.status_code, answer.json()["scope"]) == (200, "system/Task.read")
    assert answer.headers["cache-control"] == "no-store"
    pair = (client["client_id"], client["client_secret"])
    by_basic = http(data={"grant_type": "client_credentials"}, auth=pair)
    assert by_basic.status_code == 200
    assert auth.caller(f"Bearer {by_basic.json()['access_token']}").client == client["client_id"]


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        ("application/json", b"{}"),
        ("", b""),
        ("application/x-www-form-urlencoded", b"grant_type=client_credentials&grant_type=client_credentials"),
        ("application/x-www-form-urlencoded", b"grant_type=\xff"),
        ("application/x-www-form-urlencoded", b"grant_type=%ff"),
        ("application/x-www-form-urlencoded", b"&".join(b"a%d=1" % n for n in range(50))),
        ("application/x-www-form-urlencoded", b"grant_type=" + b"a" * 100_000),
    ],
)
def test_a_body_that_is_not_a_form_is_an_invalid_request(http, content_type, body):
    """AUTH-09"""
    answer = http(content=body, headers={"content-type": content_type})
    assert (answer.status_code, answer.json()["error"]) == (400, "invalid_request")


def test_a_wrong_secret_is_challenged_in_the_way_it_was_sent(http, auth):
    """AUTH-04, AUTH-09"""
    client = auth.add_client("one")
    by_form = http(data=form(client) | {"client_secret": "x"})
    by_basic = http(data={"grant_type": "client_credentials"}, auth=(client["client_id"], "x"))
    assert (by_form.status_code, by_form.headers["www-authenticate"]) == (401, "Bearer")
    assert (by_basic.status_code, by_basic.headers["www-authenticate"]) == (401, 'Bearer, Basic realm="fhir-service"')
    assert by_form.json()["error"] == by_basic.json()["error"] == "invalid_client"


def test_the_creation_times_of_clients_have_a_time_zone(auth):
    auth.add_client("one")
    assert auth.list_clients()[0]["created_at"].astimezone(UTC) == datetime(2026, 3, 1, 16, 30, tzinfo=UTC)


def test_a_client_with_an_empty_scope_may_do_nothing(auth, writer, clock):
    """AUTH-26, AUTH-03: an earlier version could add such a client; this one cannot."""
    client = {"client_id": "scopeless", "client_secret": "s" * 43}
    row = {"id": "scopeless", "name": "n", "secret_hash": hashed("s" * 43), "scope": "", "created_at": clock()}
    writer.transact(lambda connection: connection.execute(insert(CLIENT), [row | {"revoked_at": None}]))
    caller = auth.caller(bearer(auth, client))
    for letter in "cruds":
        with pytest.raises(FhirError) as caught:
            caller.require("Task", letter)
        assert caught.value.outcome.status == 403
    with pytest.raises(ScopeError, match="an empty scope"):
        auth.add_client("x", "")
