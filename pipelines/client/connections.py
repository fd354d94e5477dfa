"""The connections to a target. Each request and its whole answer have one time limit, after which they raise
`TimedOut`.

A connection that has received more than its answer is never used again: the next request would take the rest for its
own answer, and so the id of another resource for that of its create. httpx ensures neither, so this module has its own
transport. An answer is read whole, with a limit of memory too: some answers never end.
"""

import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from functools import cache
from ipaddress import ip_address
from math import inf
from typing import Any
from urllib.request import getproxies

import httpcore
import httpx

from pipelines.client.addresses import is_loopback
from pipelines.client.replies import TimedOut, UnknownOutcome
from pipelines.home.exits import BadSetting

IDLE_SECONDS = 2.0
PIECE = 64 << 10
"""Bytes of a request written to a connection at once. A larger write has many steps, each with its own timeout."""
ERRORS = (
    httpcore.TimeoutException,
    httpcore.NetworkError,
    httpcore.ProtocolError,
    httpcore.ProxyError,
    httpcore.UnsupportedProtocol,
)
REASONS: dict[type[Exception], str] = {
    httpx.ConnectTimeout: "no connection in time",
    httpx.PoolTimeout: "no connection was free in time",
    httpx.ReadTimeout: "no answer in time",
    httpx.WriteTimeout: "the request could not be sent in time",
    httpx.ConnectError: "no connection",
    httpx.NetworkError: "the connection was lost",
    httpx.RemoteProtocolError: "the connection was closed, or the answer is no HTTP",
    httpx.UnsupportedProtocol: "the address begins with neither http:// nor https://",
}
"""By error, in the order in which they are looked for."""
_of_thread = threading.local()


def begin(seconds: float) -> None:
    """Limit the time for this thread's request and answer to so many seconds from now."""
    _of_thread.seconds, _of_thread.ends = seconds, time.monotonic() + seconds


def client_for(url: str, transport: httpx.BaseTransport | None = None, **options: Any) -> httpx.Client:
    """Return an HTTP client for an address. Raises `BadSetting`.

    The environment's proxies and trusted certificates apply only to addresses beyond this machine.

    Args:
        transport: replaces the transport of this module.
        options: further options of `httpx.Client`.
    """
    if transport is None:
        beyond = not is_loopback(url)
        tls = _tls(beyond) if beyond or url.lower().startswith("https:") else None
        proxies = _proxies(getproxies()) if beyond else {}
        options["mounts"] = {
            pattern: None if address is None else Transport(tls, _proxy(address))
            for pattern, address in proxies.items()
        }
        transport = Transport(tls)
    return httpx.Client(transport=transport, **options)


@cache
def _tls(trust_env: bool) -> ssl.SSLContext:
    """Return the TLS context for all clients of this process: making one reads every trusted certificate."""
    tls = httpx.create_ssl_context(trust_env=trust_env)
    # On since Python 3.13. For a mere formality it refuses certificates of private authorities that other programs
    # accept.
    tls.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return tls


def _proxies(named: Mapping[str, str]) -> dict[str, str | None]:
    """Return the proxy for each pattern of addresses, None for no proxy, from the environment as httpx reads it.

    named: a proxy by scheme, and under `no` the hosts without proxy.
    """
    excepted = [host.strip() for host in named.get("no", "").split(",") if host.strip()]
    if "*" in excepted:
        return {}
    found = {f"{scheme}://": named[scheme] for scheme in ("http", "https", "all") if named.get(scheme)}
    whole = {pattern: proxy if "://" in proxy else f"http://{proxy}" for pattern, proxy in found.items()}
    return {**whole, **dict.fromkeys(map(_pattern, excepted))}


def _pattern(host: str) -> str:
    """Return httpx's pattern for a host of `NO_PROXY`. A name also covers the hosts below it."""
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
    """A transport for `httpx.Client` with this module's connections, which can raise `TimedOut` too."""

    def __init__(self, tls: ssl.SSLContext | None, proxy: httpcore.Proxy | None = None) -> None:
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
    """The content of an answer, read as it comes."""

    def __init__(self, answer: httpcore.Response) -> None:
        self._answer = answer

    def __iter__(self) -> Iterator[bytes]:
        try:
            yield from self._answer.iter_stream()
        except ERRORS as error:
            raise _of_httpx(error) from error

    def close(self) -> None:
        self._answer.close()


def why_of(error: Exception) -> str:
    """Return in plain words why a request got no answer, such as `connection refused`, and nothing of the request."""
    cause: BaseException | None = error
    while cause:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"its certificate is not trusted: {cause.verify_message}"
        if isinstance(error, httpx.ConnectError) and isinstance(cause, OSError) and cause.strerror:
            return cause.strerror[:1].lower() + cause.strerror[1:]
        cause = cause.__cause__ or cause.__context__
    return next((words for kind, words in REASONS.items() if isinstance(error, kind)), type(error).__name__)


def _of_httpx(error: Exception) -> Exception:
    """Return the httpx error with the name of an httpcore error."""
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

    The last byte of each piece received is kept for another read. If no read takes it, the answer ended before that
    byte.
    """

    def __init__(self, stream: httpcore.NetworkStream) -> None:
        self._stream = stream
        self._last, self._was_read = b"", False

    def start_tls(self, *given: Any, **named: Any) -> httpcore.NetworkStream:
        return _Connection(self._stream.start_tls(*given, **named))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        if self._was_read:  # the next request begins here; the pool sends it by another connection
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
    """Raise `TimedOut` if this thread has no time left. late: words for what the target did not do."""
    if time.monotonic() > _of_thread.ends:
        raise TimedOut(f"{late} within {_of_thread.seconds:g} seconds")


MOST_BYTES = 128 << 20
"""The most bytes of an unpacked answer: many times a page of 1,000 resources."""
TIMEOUTS = 2
"""The number of timeouts for a whole answer with its head: one timeout alone begins anew with each byte."""
ABOUT_THE_BYTES = (b"content-encoding", b"content-length", b"transfer-encoding")
READ = httpx.ByteStream(b"")
"""Replaces an answer's stream, which refers back to the answer: that circle would keep whole bundles in memory."""


class Unbounded(UnknownOutcome):
    """The answer is larger than any expected one, or is compressed several times, unasked: a few bytes of that may
    unpack to more than memory holds.
    """

    final = True


def ask(http: httpx.Client, method: str, url: str, **given: Any) -> httpx.Response:
    """Send a request and return its answer. Raises as httpx does, and `Late` and `Unbounded`."""
    begin(TIMEOUTS * (http.timeout.read or inf))
    content = bytearray()
    with http.stream(method, url, **given) as answer:
        if len(answer.headers.get_list("content-encoding", split_commas=True)) > 1:
            raise Unbounded("its answer is packed more than once")
        for part in answer.iter_bytes():
            content += part
            if len(content) > MOST_BYTES:
                raise Unbounded(f"its answer is larger than {MOST_BYTES >> 20} MiB")
    answer.stream = READ
    headers = [pair for pair in answer.headers.raw if pair[0].lower() not in ABOUT_THE_BYTES]
    return httpx.Response(answer.status_code, headers=headers, content=bytes(content))
