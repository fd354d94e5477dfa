"""The code servers of clinics that run on other hosts: the address of each, as the file of clinics says it."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

CODE_SERVER = "CHARTFERRY_CODE_SERVER"
"""The setting that tells the commands of a clinic the address of its code server."""
ADDRESS = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?):(?P<port>[0-9]{1,5})")
EVERY = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}  # noqa: S104 - nothing listens at it here
"""Hosts of addresses at which one listens, but which nobody can reach; and where this host itself reaches them."""
SAID_BY_ALL = ("name", "code_server", "runs", "environment")
"""What a file says of a clinic whose home is on another host.

Variables with the prefix of `environment` may still be set here, as after a move: they reach no process.
"""


@dataclass(frozen=True)
class CodeServer:
    """The code server of a clinic on another host. runs: how many runs of Dagster the clinic may have under way."""

    clinic: str
    address: str
    runs: int

    @property
    def at(self) -> tuple[str, int]:
        """Host and port of its address, which the file was checked to have."""
        host, _, port = self.address.rpartition(":")
        return host, int(port)


def host_and_port(address: str) -> tuple[str, int] | None:
    """Return host and port of an address; None if it is none. The host of an IPv6 address keeps its brackets."""
    found = ADDRESS.fullmatch(address)
    if not found or not 1 <= int(found["port"]) <= 65535:
        return None
    return found["host"], int(found["port"])


def host_of(said: Mapping[str, Any]) -> str:
    """Return the host that a clinic's home is on; empty for the host of the pages."""
    found = host_and_port(said.get("code_server", ""))
    return found[0] if found else ""


def problems_of_code_server(said: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is wrong with the code server that a clinic of the file has."""
    address = said.get("code_server")
    if address is None:
        return
    found = host_and_port(address)
    if not found:
        yield f"code_server: {address!r} is no address: HOST:PORT, as 10.0.0.5:4000"
    elif found[0] in EVERY:
        yield f"code_server: nobody reaches {found[0]}: name the address of its host"
    if not said.get("home"):
        for key in said:
            if key not in SAID_BY_ALL:
                yield f"{key}: is of no use without home: say it in the file on the clinic's host"
