"""Ports of programs that listen on loopback."""

import socket
import subprocess
import time


def free_port() -> int:
    """Return a port that no program listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    return port


def until_it_listens(port: int, server: subprocess.Popen[bytes]) -> None:
    """Wait until a program that was just started listens."""
    for _ in range(600):
        with socket.socket() as tried:
            if tried.connect_ex(("127.0.0.1", port)) == 0:
                return
        assert server.poll() is None, "the server has ended"
        time.sleep(0.1)
    raise AssertionError("the server does not listen")
