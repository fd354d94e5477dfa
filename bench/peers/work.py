"""The rows of the table: the work that is measured, how requests are sent, and how answers are judged."""

import itertools
import json
import random
import re
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from urllib.parse import urlsplit

from bench.make_rows import patient
from bench.peers.bodies import BUNDLE, PEOPLE, bundles, singles, stamped
from bench.peers.servers import Server, Unable, run

LUA = Path(__file__).with_name("send.lua")
BUNDLE_CLIENTS = 4
LOST = "lost"
"""The status of a request that got no answer."""
TEMPLATES = 8
"""The number of different bundles of a kind. Each time one is sent it gets new identifiers."""
SINGLES = 2_000
PAGE = 20
KINDS = {"tasks": "Task", "payments": "PaymentNotice", "responses": "QuestionnaireResponse"}


@dataclass(frozen=True)
class Work:
    """A row of the table. group: the name by which `--only` selects it."""

    group: str
    what: str
    clients: int
    kind: str = "Task"
    conditional: bool = False


WORKS = (
    *(Work("reads", "read a task by id", clients) for clients in (1, 8, 32)),
    *(Work("searches", f"search by patient, first {PAGE} and total", clients) for clients in (1, 8, 32)),
    *(Work("tasks", "create a Task", clients) for clients in (1, 8, 32, 128)),
    *(Work("payments", "create a PaymentNotice", clients, "PaymentNotice") for clients in (1, 8, 32, 128)),
    *(Work("bundles", f"{name} in bundles of {BUNDLE}", BUNDLE_CLIENTS, kind) for name, kind in KINDS.items()),
    *(
        Work("bundles", f"{name} in bundles of {BUNDLE}, each if none exists", BUNDLE_CLIENTS, kind, conditional=True)
        for name, kind in KINDS.items()
    ),
)
GROUPS = tuple(dict.fromkeys(work.group for work in WORKS))


@dataclass(frozen=True)
class Measured:
    """The outcome of one server in one round. wrong: unexpected answers by status, and lost requests."""

    seconds: float
    right: int
    wrong: Counter[str] = field(default_factory=Counter)
    p50_ms: float | None = None
    p99_ms: float | None = None

    @property
    def rate(self) -> float:
        """Return the expected answers a second; for bundles, the entries a second."""
        return self.right / self.seconds


# --- By wrk -------------------------------------------------------------------------------------------


class Sender:
    """Send requests by wrk. Its script reads bodies and paths from files in a folder."""

    def __init__(self, folder: Path, ids: dict[str, list[str]]) -> None:
        self._folder, self._ids = folder, ids

    def measure(self, server: Server, work: Work, seconds: float, number: int) -> Measured:
        """Return the outcome of one round. number: the run's, up to 9999; runs of one number send the same bodies."""
        if work.group == "bundles":
            return send_bundles(server, work, seconds, number)
        method, path, expected = {
            "reads": ("GET", "/Task/", "200"),
            "searches": ("GET", "/Task?", "200"),
        }.get(work.group, ("POST", f"/{work.kind}", "201"))
        file = self._lines(server, work)
        return told(wrk(server, work.clients, seconds, method, path, file, number), expected)

    def _lines(self, server: Server, work: Work) -> Path:
        shared = work.group not in ("reads", "searches")
        path = self._folder / (f"{work.kind}.ndjson" if shared else f"{work.group} {server.name}.txt")
        if not path.exists():
            lines = singles(work.kind, SINGLES) if shared else [*map(str.encode, self._queries(server, work))]
            path.write_bytes(b"\n".join(lines) + b"\n")
        return path

    def _queries(self, server: Server, work: Work) -> list[str]:
        return self._ids[server.name] if work.group == "reads" else searches(server.search)


def searches(beyond: str) -> list[str]:
    return [f"patient=Patient/{patient(at)}&_count={PAGE}{beyond}" for at in range(PEOPLE)]


def wrk(server: Server, clients: int, seconds: float, method: str, path: str, file: Path, number: int) -> str:
    """Run wrk; return what it and its script print. The last line is the script's JSON. Raises Unable."""
    headers = [word for name, value in server.headers.items() for word in ("-H", f"{name}: {value}")]
    limits = ("-d", f"{max(1, round(seconds))}s", "--timeout", "60s")
    arguments = (method, path, file, number)
    return run("wrk", "-t", min(2, clients), "-c", clients, *limits, "-s", LUA, *headers, server.url, "--", *arguments)


def told(printed: str, expected: str) -> Measured:
    """Read what wrk and its script printed."""
    said = json.loads(printed.strip().splitlines()[-1])
    statuses: Counter[str] = Counter()
    for thread in said["statuses"]:
        statuses.update(thread)
    right = statuses.pop(expected, 0)
    if said["lost"]:
        statuses[LOST] = said["lost"]
    return Measured(said["seconds"], right, statuses, said["p50_ms"], said["p99_ms"])


# --- Bundles ------------------------------------------------------------------------------------------


class Bundles:
    """Clients that post bundles until a deadline. A bundle under way at the deadline is waited for, and counts.

    wrk would drop it: with two seconds for a bundle and a deadline of five, that is a third of the work.
    """

    def __init__(self, server: Server, templates: list[bytes], number: int) -> None:
        self._server, self._templates, self._first = server, templates, number * 10**8
        self._lock = threading.Lock()
        self.right, self.wrong = 0, Counter[str]()
        self.tasks: list[str] = []
        """The ids of the tasks that were created."""

    def send(self, clients: int, numbers: Iterable[int], seconds: float = float("inf")) -> float:
        """Send the bundles of these numbers until the deadline. Return the seconds that it took."""
        began, shared = time.perf_counter(), iter(numbers)
        threads = [threading.Thread(target=self._client, args=(shared, began + seconds)) for _ in range(clients)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return time.perf_counter() - began

    def _client(self, shared: Iterator[int], end: float) -> None:
        connection = HTTPConnection(urlsplit(self._server.url).netloc, timeout=600)
        for number in shared:
            body = stamped(self._templates[number % len(self._templates)], self._first + number)
            try:
                connection.request("POST", "/", body, self._server.headers)
                answer = connection.getresponse()
                self._count(str(answer.status), answer.read())
            except (OSError, HTTPException):
                connection.close()
                self._count(LOST, b"")
            if time.perf_counter() >= end:
                break
        connection.close()

    def _count(self, status: str, content: bytes) -> None:
        """Count each entry by its status, or by the status of the bundle if that failed as a whole."""
        statuses = Counter(one.decode() for one in _STATUS.findall(content)) if status == "200" else Counter()
        if unanswered := BUNDLE - statuses.total():
            statuses[status if status != "200" else LOST] += unanswered
        with self._lock:
            self.right += statuses.pop("201", 0)
            self.wrong += statuses
            self.tasks += [found.decode() for found in _LOCATION.findall(content)]


_STATUS = re.compile(rb'"status"\s*:\s*"([0-9]{3})')
_LOCATION = re.compile(rb'"location"\s*:\s*"[^"]*?Task/([A-Za-z0-9.-]+)')


def send_bundles(server: Server, work: Work, seconds: float, number: int) -> Measured:
    sender = Bundles(server, bundles(work.kind, TEMPLATES, server.bundle_type, work.conditional), number)
    taken = sender.send(work.clients, itertools.count(), seconds)
    return Measured(taken, sender.right, sender.wrong)


def preload(server: Server, tasks: int) -> list[str]:
    """Store tasks, a multiple of the bundle's size. Return their ids in any order. Raises Unable."""
    sender = Bundles(server, bundles("Task", TEMPLATES, server.bundle_type, conditional=False), 0)
    sender.send(BUNDLE_CLIENTS, range(tasks // BUNDLE))
    if sender.wrong or len(sender.tasks) != tasks:
        raise Unable(
            f"{server.name} did not take the tasks: {sender.right} of {tasks} were created; {told_wrong(sender.wrong)}"
        )
    return random.Random(tasks).sample(sorted(sender.tasks), tasks)


def told_wrong(wrong: Counter[str]) -> str:
    """Return unexpected answers as text, such as `3 of status 500, 1 lost`."""
    return ", ".join(f"{times:,} {'' if one == LOST else 'of status '}{one}" for one, times in sorted(wrong.items()))
