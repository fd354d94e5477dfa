"""Requests side by side, in threads of their own, for the one thread that deals them out and takes their answers."""

from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from functools import partial
from threading import Condition
from typing import Any, Generic, TypeVar

from pipelines.client.threads import A_WHILE

Asked = TypeVar("Asked")
Came = Callable[[], object]
"""Work for the thread that deals requests out, about what came of one."""


class Queue(Generic[Asked]):
    """Requests of one kind.

    ask: sends one, in a thread; returns what is to be noted of its answer at once, which gives the work that is left.
    most: how many may be under way now. waiting: those that no thread has taken. under_way: how many threads have one.
    """

    def __init__(self, ask: Callable[[Asked], Callable[[], Came | None]], most: Callable[[], int]) -> None:
        self.ask, self.most = ask, most
        self.waiting: deque[Asked] = deque()
        self.under_way = 0

    @property
    def free(self) -> int:
        """Return how many requests may begin now."""
        return max(0, min(len(self.waiting), self.most() - self.under_way))


class Requests:
    """Requests that wait, are under way or have been answered, and the error that ends them.

    `changed` guards all of this, and all that `ask` and `most` share. A thread takes its request itself: what no thread
    has taken was not sent. It counts the request out in the step that puts the answer down: nobody waits for an answer
    that is there.
    """

    def __init__(self) -> None:
        self.changed = Condition()
        self.failed: BaseException | None = None
        self._came: list[Came] = []
        self._queues: dict[Queue[Any], Executor] = {}

    def open(self, queue: Queue[Any], threads: Executor) -> None:
        """Have the requests of a queue sent by these threads."""
        self._queues[queue] = threads

    def put(self, queue: Queue[Asked], asked: Iterable[Asked]) -> None:
        with self.changed:
            queue.waiting.extend(asked)

    def fail(self, error: BaseException) -> None:
        """End the sending: the first error is its reason. Takes no lock: Ctrl-C may come in the middle of this, too."""
        self.failed = self.failed or error

    def take(self, wait: bool) -> list[Came]:
        """Let requests begin, and take what has come, or wait for it. Nothing comes where none is under way or can
        begin.
        """
        with self.changed:
            for queue, threads in self._queues.items():
                for _ in range(queue.free):
                    threads.submit(self._work, queue)
            if wait:
                while not self.changed.wait_for(self._has_come_or_nothing_will, A_WHILE):
                    pass  # Python deals with a signal between waits: one that came just before a wait does not end it
            came, self._came = self._came, []
        return came

    def _has_come_or_nothing_will(self) -> bool:
        return bool(self._came) or not any(each.under_way or each.free for each in self._queues)

    def _work(self, queue: Queue[Any]) -> None:
        """In a thread: send a request, and then the next that waits. Nobody else has to be waited for in between."""
        while asked := self._taken(queue):
            try:
                note = queue.ask(asked)
            except BaseException as error:  # noqa: BLE001 - it is raised where the sending ends
                note = partial(self.fail, error)
            with self.changed:
                queue.under_way -= 1
                try:
                    if came := note():
                        self._came.append(came)
                except BaseException as error:  # noqa: BLE001 - it is raised where the sending ends
                    self.fail(error)
                self.changed.notify_all()

    def _taken(self, queue: Queue[Asked]) -> Asked | None:
        with self.changed:
            if not queue.free:
                self.changed.notify_all()  # who waits for what is not taken any more
                return None
            queue.under_way += 1
            return queue.waiting.popleft()
