"""Start a command in the warm process, and act in its place: `python -S -E launcher.py SOCKET COMMAND...`.

It passes on its files, folder and environment. It ends with the command's exit code, and the command ends with it. It
imports little of the standard library and nothing else, so that it starts in 20 ms.
"""

import json
import os
import signal
import socket
import sys
from collections.abc import Mapping, Sequence

SIGNALS = (signal.SIGTERM, signal.SIGINT)
ENDED_BADLY = 97


def order(
    address: str, command: Sequence[str], files: Sequence[int], environ: Mapping[str, str], cwd: str, session: bool
) -> tuple[socket.socket, int]:
    """Start a command with these three files. Return the connection that reports its end, and its process id."""
    asked = {"command": list(command), "environ": dict(environ), "cwd": cwd, "umask": umask(), "session": session}
    body = json.dumps(asked).encode()
    told = socket.socket(socket.AF_UNIX)
    told.connect(address)
    socket.send_fds(told, [len(body).to_bytes(4, "big")], files)
    told.sendall(body)
    return told, int.from_bytes(told.recv(4), "big")


def umask() -> int:
    """Return the umask of this process, without setting it: other threads would see that."""
    with open("/proc/self/status", encoding="utf-8") as status:  # noqa: PTH123 - pathlib is slow to import
        return next(int(line.split()[1], 8) for line in status if line.startswith("Umask:"))


def main() -> None:
    """Run a command in the warm process, and end like it."""
    told, number = order(sys.argv[1], sys.argv[2:], (0, 1, 2), os.environ, os.getcwd(), session=False)  # noqa: PTH109
    for name in SIGNALS:
        signal.signal(name, lambda got, _: os.kill(number, got))
    for file in (0, 1, 2):
        os.close(file)
    answer = told.recv(4)
    code = int.from_bytes(answer, "big", signed=True) if answer else ENDED_BADLY
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


if __name__ == "__main__":
    main()
