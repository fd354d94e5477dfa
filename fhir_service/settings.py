"""The settings of a service: one field each, from a flag, else from `FHIR_SERVICE_<NAME>`, else the default."""

import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from fhir_service.interface.site import Site

PREFIX = "FHIR_SERVICE_"
TOKEN_PATH = "/auth/token"  # noqa: S105 - an address
# Addresses that mean "every one of this machine": one listens there, but cannot be reached under them.
_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104 - recognised, not bound


class SettingError(ValueError):
    """A setting that cannot be used. The message names it in one line."""


@dataclass(frozen=True)
class Settings:
    """Everything that can be set. `max_body`, `max_batch` and `cache` are bytes, `memory_limit` is the database's.

    read_seconds: how long the reads of one request may take.
    cache: for bodies of resources that were read; 0 for none. A store that other processes may write to has none.
    workers: processes that serve one PostgreSQL store behind one address.
    """

    store: str = field(repr=False)  # a URL may hold a password
    host: str = "127.0.0.1"
    port: int = 8400
    base_url: str | None = None
    vendor: str = "example"
    customer: str = "demo"
    interface_only: bool = False
    requests_per_second: float | None = None
    max_body: int = 1 << 20
    max_batch: int = 64 << 20
    page_size: int = 10
    max_page_size: int = 100
    memory_limit: str = "1GB"
    cache: int = 64 << 20
    audit: str | None = None
    workers: int = 1
    read_seconds: int = 30

    def __post_init__(self) -> None:
        for name, (holds, says) in _LIMITS.items():
            if not holds(getattr(self, name)):
                raise SettingError(f"{name.replace('_', '-')}: {says}")
        if self.workers > 1 and self.store_path:
            raise SettingError(
                "workers: one process at a time can write to a DuckDB file; leave --workers out, or use a PostgreSQL "
                "store (docs/scaling.md)"
            )

    @cached_property
    def url(self) -> str:
        """The address at which this machine reaches the service: `http://host:port`."""
        host = _EVERYWHERE.get(self.host, self.host)
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"

    @cached_property
    def site(self) -> Site:
        """The interface's placeholders."""
        return Site((self.base_url or self.url).rstrip("/"), self.vendor, self.customer)

    @cached_property
    def store_path(self) -> Path | None:
        """The file of an embedded store; None for a database server."""
        if "://" in self.store and not self.store.startswith("duckdb:///"):
            return None
        return Path(self.store.removeprefix("duckdb:///")).absolute()

    @cached_property
    def audit_path(self) -> Path:
        """The path of the audit: beside an embedded store, else in the working folder, unless it is named."""
        if self.audit:
            return Path(self.audit).absolute()
        store = self.store_path
        return store.with_name(f"{store.name}.audit.ndjson") if store else Path("fhir-service.audit.ndjson").absolute()

    def bound_to(self, port: int) -> "Settings":
        """Return these settings with the port that was bound."""
        return replace(self, port=port)

    def environ(self) -> dict[str, str]:
        """Return the variables from which another process reads these settings."""
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        return {PREFIX + name.upper(): str(value) for name, value in values.items() if value is not None}

    @classmethod
    def read(cls, environ: Mapping[str, str], **flags: Any) -> "Settings":
        """Return the settings from flags (None: not given) and an environment. Raises SettingError."""
        values: dict[str, Any] = {name: flag for name, flag in flags.items() if flag is not None}
        for one in fields(cls):
            text = environ.get(PREFIX + one.name.upper())
            if one.name not in values and text:
                values[one.name] = _parsed(one.name, text)
            elif one.name not in values and one.default is MISSING:
                raise SettingError(f"no {one.name} is named: use --{one.name} or {PREFIX}{one.name.upper()}")
        return cls(**values)


def _flag(text: str) -> bool:
    return {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}[
        text.lower()
    ]


_PARSERS: dict[str, tuple[Callable[[str], Any], str]] = {
    "port": (int, "a whole number"),
    "interface_only": (_flag, "true or false"),
    "requests_per_second": (float, "a number"),
    "max_body": (int, "a whole number of bytes"),
    "max_batch": (int, "a whole number of bytes"),
    "cache": (int, "a whole number of bytes"),
    "workers": (int, "a whole number"),
    "read_seconds": (int, "a whole number of seconds"),
    "page_size": (int, "a whole number"),
    "max_page_size": (int, "a whole number"),
}


def _parsed(name: str, text: str) -> Any:
    parse, expected = _PARSERS.get(name, (str, ""))
    try:
        return parse(text.strip())
    except (ValueError, KeyError):
        raise SettingError(f"{PREFIX}{name.upper()}: {expected} is expected") from None


def _placeholder(text: str) -> bool:
    """True if a text can be a part of a host name, as in `http://schemas.{vendor}.com`."""
    return bool(re.fullmatch(r"[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?", text))


def _address(text: str | None) -> bool:
    return text is None or bool(re.fullmatch(r"https?://[^\s/?#@]+(?:/[^\s?#]*)?", text))


_LIMITS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "store": (bool, "a file or a database URL is expected"),
    "port": (lambda n: 0 <= n <= 65535, "a number between 0 and 65535 is expected"),
    "workers": (lambda n: 1 <= n <= 64, "a number between 1 and 64 is expected"),
    "read_seconds": (lambda n: 0 < n <= 86_400, "a number of seconds between 1 and 86400 is expected"),
    "base_url": (_address, "an address such as https://host/path is expected"),
    "vendor": (_placeholder, "letters, digits, dots and dashes are expected"),
    "customer": (_placeholder, "letters, digits, dots and dashes are expected"),
    "requests_per_second": (lambda n: n is None or 0 < n < float("inf"), "a number above zero is expected"),
    "max_body": (lambda n: n > 0, "a number above zero is expected"),
    "max_batch": (lambda n: n > 0, "a number above zero is expected"),
    "cache": (lambda n: n >= 0, "a number from zero on is expected"),
    "page_size": (lambda n: 0 < n <= 1000, "a number between 1 and 1000 is expected"),
    "max_page_size": (lambda n: 0 < n <= 1000, "a number between 1 and 1000 is expected"),
}
