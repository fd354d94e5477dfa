"""The connections to a target. Each request and its whole answer have one time, after which they raise `Late`.

A connection on which more came than the answer is never used again: the next request would take that for its own
answer, of a create the id of another resource. httpx has neither, so this is a transport of our own for it.
"""

import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from functools import cache
from ipaddress import ip_address
from typing import Any
from urllib.request import getproxies

import httpcore
import httpx

from pipelines.client.addresses import is_loopback
from pipelines.client.replies import Late
from pipelines.home.exits import BadSetting

IDLE_SECONDS = 2.0
PIECE = 64 << 10
"""Bytes of a request that are given to a connection at once: it takes them in many steps, each with a whole timeout."""
ERRORS = (
    httpcore.TimeoutException,
    httpcore.NetworkError,
    httpcore.ProtocolError,
    httpcore.ProxyError,
    httpcore.UnsupportedProtocol,
)
_of_thread = threading.local()


def begin(seconds: float) -> None:
    """Give what this thread sends, and the answers that it reads, so many seconds from now on, together."""
    _of_thread.seconds, _of_thread.ends = seconds, time.monotonic() + seconds


def client_for(url: str, transport: httpx.BaseTransport | None = None, **options: Any) -> httpx.Client:
    """Return an HTTP client for what is at an address. Raises `BadSetting`.

    The environment names proxies and trusted certificates for what is beyond this machine alone.

    Args:
        transport: what to send by instead.
        options: more of `httpx.Client`.
    """
    if transport is None:
        beyond = not is_loopback(url)
        tls = _tls(beyond)
        proxies = _proxies(getproxies()) if beyond else {}
        options["mounts"] = {
            pattern: None if address is None else Transport(tls, _proxy(address))
            for pattern, address in proxies.items()
        }
        transport = Transport(tls)
    return httpx.Client(transport=transport, **options)


@cache
def _tls(trust_env: bool) -> ssl.SSLContext:
    """The context of TLS for all clients of this process: making one reads every certificate that is trusted."""
    tls = httpx.create_ssl_context(trust_env=trust_env)
    # On since Python 3.13: for a formality, it refuses certificates of private authorities that all else trusts.
    tls.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return tls


def _proxies(named: Mapping[str, str]) -> dict[str, str | None]:
    """Return the proxy for each pattern of addresses, None for no proxy, as httpx itself understands the environment.

    named: a proxy by scheme, and at `no` the hosts that have none.
    """
    excepted = [host.strip() for host in named.get("no", "").split(",") if host.strip()]
    if "*" in excepted:
        return {}
    found = {f"{scheme}://": named[scheme] for scheme in ("http", "https", "all") if named.get(scheme)}
    whole = {pattern: proxy if "://" in proxy else f"http://{proxy}" for pattern, proxy in found.items()}
    return {**whole, **dict.fromkeys(map(_pattern, excepted))}


def _pattern(host: str) -> str:
    """Return the pattern of httpx for a host of `NO_PROXY`: a name stands for the hosts below it too."""
    if "://" in host:
        return host
    try:
        version = ip_address(host.partition("/")[0]).version
    except ValueError:
        return f"all://{host}" if host.lower() == "localhost" else f"all://*{host}"
    return f"all://{host}" if version == 4 else f"all://[{host}]"


def _proxy(address: str) -> httpcore.Proxy:
    try:
        proxy = httpx.Proxy(address)
    except (ValueError, httpx.InvalidURL):
        proxy = None
    if proxy is None or proxy.url.scheme not in ("http", "https"):
        raise BadSetting("HTTP_PROXY, HTTPS_PROXY or ALL_PROXY names a proxy that is no http:// or https:// address")
    return httpcore.Proxy(_url(proxy.url), proxy.raw_auth, proxy.headers.raw, proxy.ssl_context)


def _url(url: httpx.URL) -> httpcore.URL:
    return httpcore.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path)


class Transport(httpx.BaseTransport):
    """Sends the requests of an `httpx.Client` by connections of our own, which raise `Late` too."""

    def __init__(self, tls: ssl.SSLContext, proxy: httpcore.Proxy | None = None) -> None:
        self._pool = httpcore.ConnectionPool(
            tls, proxy, max_connections=None, keepalive_expiry=IDLE_SECONDS, network_backend=_Network()
        )

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        asked = httpcore.Request(
            request.method,
            _url(request.url),
            headers=request.headers.raw,
            content=request.stream,
            extensions=request.extensions,
        )
        try:
            found = self._pool.handle_request(asked)
        except ERRORS as error:
            raise _of_httpx(error) from error
        return httpx.Response(found.status, headers=found.headers, stream=_Answer(found), extensions=found.extensions)

    def close(self) -> None:
        self._pool.close()


class _Answer(httpx.SyncByteStream):
    """The content of an answer, as it comes."""

    def __init__(self, answer: httpcore.Response) -> None:
        self._answer = answer

    def __iter__(self) -> Iterator[bytes]:
        try:
            yield from self._answer.iter_stream()
        except ERRORS as error:
            raise _of_httpx(error) from error

    def close(self) -> None:
        self._answer.close()


def name_of(error: Exception) -> str:
    """Return the name of an error of a connection, or why the other side's certificate is not trusted."""
    cause: BaseException | None = error
    while cause:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"its certificate is not trusted: {cause.verify_message}"
        cause = cause.__cause__ or cause.__context__
    return type(error).__name__


def _of_httpx(error: Exception) -> Exception:
    """Return an error of httpcore as httpx raises it, by the same name."""
    made: Exception = getattr(httpx, type(error).__name__)(str(error))
    return made


class _Network(httpcore.NetworkBackend):
    """The network of this machine, over TCP."""

    def __init__(self) -> None:
        self._network = httpcore.SyncBackend()

    def connect_tcp(self, *given: Any, **named: Any) -> httpcore.NetworkStream:
        return _Connection(self._network.connect_tcp(*given, **named))


class _Connection(httpcore.NetworkStream):
    """One connection.

    The last byte of each piece that comes is kept for a read of its own: if no read takes it, the answer ended before.
    """

    def __init__(self, stream: httpcore.NetworkStream) -> None:
        self._stream = stream
        self._last, self._was_read = b"", False

    def start_tls(self, *given: Any, **named: Any) -> httpcore.NetworkStream:
        return _Connection(self._stream.start_tls(*given, **named))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        if self._was_read:  # so the next request begins here; the pool sends it by another connection
            if self._last or self._stream.get_extra_info("is_readable"):
                raise httpcore.ConnectionNotAvailable
            self._was_read = False
        for start in range(0, len(buffer), PIECE):
            _check("it did not take the request")
            self._stream.write(buffer[start : start + PIECE], timeout)

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        _check("its answer did not end")
        if last := self._last:
            self._last = b""
            return last
        found = self._stream.read(max_bytes, timeout)
        self._was_read = True
        if len(found) < 2:
            return found
        self._last = found[-1:]
        return found[:-1]

    def close(self) -> None:
        self._stream.close()

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


def _check(late: str) -> None:
    """Raise `Late` if this thread has no time left. late: says of the target what it did not do."""
    if time.monotonic() > _of_thread.ends:
        raise Late(f"{late} within {_of_thread.seconds:g} seconds")
