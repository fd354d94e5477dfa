"""Hosts on one machine: network namespaces with addresses of their own, joined by a bridge, without a shared disk.

A command of a host sees the host's folder alone, under one path for all, has process numbers of its own, and reaches
only what is served at the bridge. It needs root and `ip`.
"""

import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

LACKING = "hosts of their own need Linux, root, and the programs ip and unshare"
CAN = os.geteuid() == 0 and all(map(shutil.which, ("ip", "unshare", "mount")))
ENTER = 'mount --bind "$1" "$2" && mount -t tmpfs tmpfs "$3" && shift 3 && exec "$@"'
BLOCK = 1 << 16
NUMBERS = count()


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, stdout=subprocess.DEVNULL)


class Host:
    """One host. path: its folder as its commands see it. disk: that folder as this process sees it."""

    def __init__(self, network: "Network", number: int) -> None:
        self._network, self.name = network, f"{network.name}h{number}"
        self.address, self._plug = f"{network.prefix}.{number + 1}", f"{network.name}v{number}"
        self.disk, self.path = network.disks / self.name, network.path
        self.disk.mkdir(mode=0o700)
        ip("netns", "add", self.name)
        ip("link", "add", self._plug, "type", "veth", "peer", "name", "eth0", "netns", self.name)
        ip("link", "set", self._plug, "master", network.name)
        ip("-n", self.name, "addr", "add", f"{self.address}/24", "dev", "eth0")
        for device in ("eth0", "lo"):
            ip("-n", self.name, "link", "set", device, "up")
        self.cut_off(False)

    def start(self, command: Sequence[str], environ: Mapping[str, str], **options: Any) -> "subprocess.Popen[Any]":
        """Start a command on the host. Killing it kills all processes that it has started."""
        within = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", ENTER, "sh"]
        places = [str(self.disk), str(self.path), str(self._network.disks)]
        whole = ["ip", "netns", "exec", self.name, *within, *places, *command]
        return subprocess.Popen(whole, env=environ, **options)

    def cut_off(self, is_cut: bool = True) -> None:
        """Disconnect the host from all others, or connect it again."""
        ip("link", "set", self._plug, "down" if is_cut else "up")

    def takes(self, address: str, before: "Host | None" = None) -> None:
        """Give the host one more address, for a service that may have run on another host before."""
        if before:
            ip("-n", before.name, "addr", "del", f"{address}/24", "dev", "eth0")
        ip("-n", self.name, "addr", "add", f"{address}/24", "dev", "eth0")

    def forgets_neighbours(self) -> None:
        """Forget which host has which address."""
        ip("-n", self.name, "neigh", "flush", "dev", "eth0")

    def loses_disk(self) -> None:
        shutil.rmtree(self.disk)
        self.disk.mkdir(mode=0o700)


class Network:
    """A bridge with hosts. prefix: the first three numbers of all addresses; the bridge has the number 1.

    served: the socket behind each served port. away: ports that do not answer for now.
    """

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        number = next(NUMBERS)  # the addresses of an earlier network may take a while to vanish
        self.name, self.prefix = f"cf{os.getpid() % 100_000}n{number}", f"10.211.{(os.getpid() + number) % 250}"
        self.address = f"{self.prefix}.1"
        self.disks, self.path = folder / "disks", folder / "disk"
        for made in (self.disks, self.path):
            made.mkdir(mode=0o700)
        self._stack, self._hosts = stack, 0
        self.served, self.away = dict[int, str](), set[int]()
        ip("link", "add", self.name, "type", "bridge")
        stack.callback(_quietly, "link", "del", self.name)
        ip("addr", "add", f"{self.address}/24", "dev", self.name)
        ip("link", "set", self.name, "up")

    def host(self) -> Host:
        self._hosts += 1
        made = Host(self, self._hosts)
        self._stack.callback(_quietly, "netns", "del", made.name)
        return made

    def serve(self, port: int | None = None, path: str | None = None) -> int:
        """Make a loopback port, or a socket in a folder, reachable for hosts. Return its port at the bridge."""
        server = socket.create_server((self.address, 0), backlog=100)
        self._stack.callback(server.close)
        ours = int(server.getsockname()[1])
        if path is not None:
            self.served[ours] = path

        def connected() -> socket.socket:
            if path is None:
                return socket.create_connection(("127.0.0.1", port or 0))
            joined = socket.socket(socket.AF_UNIX)
            joined.connect(path)
            return joined

        def accept() -> None:
            with suppress(OSError):
                while True:
                    outer = server.accept()[0]
                    if ours in self.away:
                        outer.close()
                        continue
                    if path is not None:
                        notice_when_cut_off(outer)
                    try:
                        inner = connected()
                    except OSError:  # the served program does not answer
                        outer.close()
                        continue
                    for one, other in ((outer, inner), (inner, outer)):
                        threading.Thread(target=_pass_on, args=(one, other), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        return ours


@contextmanager
def network(folder: Path) -> Iterator[Network]:
    """Make a bridge. Its hosts and its ports are removed at the end."""
    with ExitStack() as stack:
        yield Network(folder, stack)


def _quietly(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=False, stderr=subprocess.DEVNULL)


def notice_when_cut_off(connection: socket.socket) -> None:
    """Probe the peer of a connection with the keepalive settings that our sessions give a PostgreSQL server."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in ((socket.TCP_KEEPIDLE, 15), (socket.TCP_KEEPINTVL, 5), (socket.TCP_KEEPCNT, 3)):
        connection.setsockopt(socket.IPPROTO_TCP, option, value)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 90_000)


def _pass_on(one: socket.socket, other: socket.socket) -> None:
    with suppress(OSError):
        while block := one.recv(BLOCK):
            other.sendall(block)
    for each in (one, other):
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
        each.close()
