"""Connections to a target: through a proxy of the environment or directly, and which certificates are trusted."""

import ssl
from base64 import b64encode
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from pipelines.client import connections
from pipelines.client.connections import begin, client_for, why_of
from pipelines.home.exits import BadSetting
from tests.support.serving import Answers, Server, served, serving_in_a_thread

VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")
USER = f"Basic {b64encode(b'ada:word').decode()}"


class Asked(Answers):
    """Is proxy and target in one: notes what each request asks for, and with which credentials of a proxy."""

    protocol_version = "HTTP/1.1"
    seen: list[tuple[str, str | None]]

    def do_GET(self) -> None:
        self.seen.append((self.path, self.headers["proxy-authorization"]))
        self.answer(407 if self.command == "CONNECT" else 204)

    do_CONNECT = do_GET


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    scripted: Any = type("Scripted", (Asked,), {"seen": []})
    with served(scripted) as url:
        scripted.port = url.rpartition(":")[2]
        yield scripted


def ask(url: str) -> None:
    begin(10)
    with client_for(url, timeout=5) as http:
        http.get(url)


@pytest.mark.parametrize(
    ("proxy", "by", "excepted", "user"),
    [
        ("HTTP_PROXY", "http://127.0.0.1:{}", "", None),
        ("ALL_PROXY", "127.0.0.1:{}", "::1, 10.0.0.0/8, example.org, localhost", None),
        ("HTTP_PROXY", "http://ada:word@127.0.0.1:{}", "https://0.0.0.0", USER),
        ("HTTPS_PROXY", "http://127.0.0.1:{}", "", "direct"),
        ("HTTP_PROXY", "http://127.0.0.1:{}", "example.org,0.0.0.0", "direct"),
        ("HTTP_PROXY", "http://127.0.0.1:{}", "x, *", "direct"),
        ("ALL_PROXY", "http://127.0.0.1:{}", "http://0.0.0.0", "direct"),
        ("ALL_PROXY", "http://127.0.0.1:{}", "0.0", "direct"),
    ],
)
def test_a_proxy_of_the_environment_is_used_but_for_what_is_excepted(
    server: Any, monkeypatch: pytest.MonkeyPatch, proxy: str, by: str, excepted: str, user: str | None
) -> None:
    monkeypatch.setenv(proxy, by.format(server.port))
    monkeypatch.setenv("NO_PROXY", excepted)
    beyond = f"http://0.0.0.0:{server.port}/Task"  # is no loopback by its name, and answers here
    ask(beyond)
    assert server.seen == [("/Task", None) if user == "direct" else (beyond, user)]


def test_a_tunnel_that_a_proxy_refuses_is_an_error_of_the_proxy(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", f"http://ada:word@127.0.0.1:{server.port}")
    with pytest.raises(httpx.ProxyError, match="407"):
        ask("https://target.example/Task")
    assert server.seen == [("target.example:443", USER)]


def test_requests_to_this_machine_use_no_proxy(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:1")
    ask(f"http://127.0.0.1:{server.port}/Task")
    assert server.seen == [("/Task", None)]


@pytest.mark.parametrize("proxy", ["socks5://ada:word@127.0.0.1:1", "http://127.0.0.1:none", "ftp://127.0.0.1"])
def test_a_proxy_of_another_kind_is_a_setting_that_is_named(
    server: Any, monkeypatch: pytest.MonkeyPatch, proxy: str
) -> None:
    monkeypatch.setenv("ALL_PROXY", proxy)
    with pytest.raises(BadSetting, match="ALL_PROXY names a proxy") as error:
        ask("https://target.example/Task")
    assert "word" not in str(error.value)
    assert server.seen == []


@pytest.fixture
def authority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The certificate of a clinic's own authority, beside which `server.pem` has one that it signed, and its key.

    That one does not name the key which it was signed with, as those of many such authorities.
    """
    key, now, day = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC), timedelta(days=1)
    clinic, host = (x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)]) for name in ("clinic", "host"))
    own = x509.CertificateBuilder(clinic, clinic, key.public_key(), 1, now - day, now + day)
    own = own.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    signed = x509.CertificateBuilder(clinic, host, key.public_key(), 2, now - day, now + day)
    signed = signed.add_extension(
        x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False
    )
    text = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (tmp_path / "server.pem").write_bytes(text + signed.sign(key, SHA256()).public_bytes(Encoding.PEM))
    (tmp_path / "authority.pem").write_bytes(own.sign(key, SHA256()).public_bytes(Encoding.PEM))
    monkeypatch.setattr(connections, "is_loopback", lambda _: False)
    connections._tls.cache_clear()
    yield tmp_path / "authority.pem"
    connections._tls.cache_clear()


@pytest.fixture
def clinic(authority: Path, server: Any) -> Iterator[str]:
    """A server with a certificate of that authority."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.with_name("server.pem"))
    listening = Server(("127.0.0.1", 0), server)
    listening.socket = context.wrap_socket(listening.socket, server_side=True)
    with serving_in_a_thread(listening) as url:
        yield url.replace("http:", "https:")


def test_a_private_authority_is_trusted_alike_under_each_python(
    clinic: str, authority: Path, server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Since 3.13 Python asks more of a certificate than all else does."""
    monkeypatch.setenv("SSL_CERT_FILE", str(authority))
    ask(clinic)
    assert server.seen == [("/", None)]


def test_an_untrusted_certificate_is_named_as_the_cause(clinic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    with pytest.raises(httpx.ConnectError) as raised:
        ask(clinic)
    assert why_of(raised.value).startswith("its certificate is not trusted: unable to get")
    assert why_of(httpx.ConnectError("p1")) == "no connection"


def test_each_error_of_a_connection_is_said_in_words_that_hold_nothing_of_the_request() -> None:
    errors = [
        error for error in vars(httpx).values() if isinstance(error, type) and issubclass(error, httpx.TransportError)
    ]
    said = {error: why_of(error("p1")) for error in errors}
    assert all("p1" not in words for words in said.values())
    assert said[httpx.ReadTimeout] == "no answer in time"
    assert (said[httpx.ReadError], said[httpx.WriteError]) == ("the connection was lost",) * 2
    assert {error.__name__ for error, words in said.items() if words == error.__name__} == {
        *("TransportError", "TimeoutException", "ProtocolError", "LocalProtocolError", "ProxyError")
    }
