"""Requests sent side by side by threads, for one thread that deals them out and takes their answers."""

from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from functools import partial
from threading import Condition
from typing import Any, Generic, TypeVar

from pipelines.client.threads import A_WHILE

Asked = TypeVar("Asked")
Came = Callable[[], object]
"""Work for the dealing thread that follows from an answer."""


class Queue(Generic[Asked]):
    """Requests of one kind.

    ask: sends a request in a thread and returns a function, which is called at once under the lock and returns the
    work that is left. most: returns how many requests may be under way now. waiting: requests that no thread has
    taken. under_way: how many threads have a request.
    """

    def __init__(self, ask: Callable[[Asked], Callable[[], Came | None]], most: Callable[[], int]) -> None:
        self.ask, self.most = ask, most
        self.waiting: deque[Asked] = deque()
        self.under_way = 0

    @property
    def free(self) -> int:
        """The number of requests that may begin now."""
        return max(0, min(len(self.waiting), self.most() - self.under_way))


class Requests:
    """Waiting requests, requests under way and their answers, and the error that ends them.

    `changed` guards all of this, and all that `ask` and `most` share. A thread takes its request itself, so a request
    that no thread has taken was not sent. It counts the request out in the step that stores the answer, so nobody
    waits for an answer that is there.
    """

    def __init__(self) -> None:
        self.changed = Condition()
        self.failed: BaseException | None = None
        self._came: list[Came] = []
        self._queues: dict[Queue[Any], Executor] = {}

    def open(self, queue: Queue[Any], threads: Executor) -> None:
        """Let these threads send the requests of a queue."""
        self._queues[queue] = threads

    def put(self, queue: Queue[Asked], asked: Iterable[Asked]) -> None:
        with self.changed:
            queue.waiting.extend(asked)

    def fail(self, error: BaseException) -> None:
        """End the sending; the first error is its reason. It takes no lock, since Ctrl-C may come within it."""
        self.failed = self.failed or error

    def take(self, wait: bool) -> list[Came]:
        """Let requests begin; return the work that their answers have left.

        wait: wait until there is some. It returns nothing if no request is under way or can begin.
        """
        with self.changed:
            for queue, threads in self._queues.items():
                for _ in range(queue.free):
                    threads.submit(self._work, queue)
            if wait:
                while not self.changed.wait_for(self._has_come_or_nothing_will, A_WHILE):
                    pass  # Python handles a signal between waits, so a signal just before a wait does not end it
            came, self._came = self._came, []
        return came

    def _has_come_or_nothing_will(self) -> bool:
        return bool(self._came) or not any(each.under_way or each.free for each in self._queues)

    def _work(self, queue: Queue[Any]) -> None:
        """Send a request in a thread, then the next that waits, without a wait for the dealing thread between them."""
        while asked := self._taken(queue):
            try:
                note = queue.ask(asked)
            except BaseException as error:  # noqa: BLE001 - raised where the sending ends
                note = partial(self.fail, error)
            with self.changed:
                queue.under_way -= 1
                try:
                    if came := note():
                        self._came.append(came)
                except BaseException as error:  # noqa: BLE001 - raised where the sending ends
                    self.fail(error)
                self.changed.notify_all()

    def _taken(self, queue: Queue[Asked]) -> Asked | None:
        with self.changed:
            if not queue.free:
                self.changed.notify_all()  # wakes a thread that waits for requests that are no longer taken
                return None
            queue.under_way += 1
            return queue.waiting.popleft()
