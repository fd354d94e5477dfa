"""Interrupts are held back to the end of a piece of work, by signal and thread, and end its waits at once."""

import gc
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FrameType
from typing import Any

import httpx
import pytest

from pipelines.client import threads as waits
from pipelines.client.client import FhirClient
from pipelines.client.pace import RetryPauses
from pipelines.client.replies import NotSent
from pipelines.client.threads import nobody_waits, result_of, threads
from pipelines.client.tokens import Credentials
from pipelines.home.exits import INTERRUPTED
from pipelines.loading.interrupts import INTERRUPTS, Interrupts, without_interrupts
from tests.support.exports import payments


class Ended(BaseException):
    """The exception that a handler raises, as that of Dagster does."""


def end(number: int, _: FrameType | None) -> None:
    raise Ended(number)


@pytest.fixture
def handlers() -> Iterator[None]:
    """Let both signals raise, as in a run of Dagster."""
    before = {number: signal.signal(number, end) for number in INTERRUPTS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("handlers")
@pytest.mark.parametrize("number", INTERRUPTS)
def test_an_interrupt_is_raised_at_the_end_of_a_block_and_ends_its_pauses(number: int) -> None:
    patience, steps = RetryPauses(), list[str]()

    def work() -> None:
        with without_interrupts(patience):
            signal.raise_signal(number)
            signal.raise_signal(number)
            steps.append("last")

    with pytest.raises(Ended, match=str(int(number))):
        work()
    assert (steps, patience.is_over) == (["last"], True)
    assert {signal.getsignal(each) for each in INTERRUPTS} == {end}


@pytest.mark.usefixtures("handlers")
def test_an_error_within_a_block_wins_over_a_held_back_interrupt() -> None:
    def work() -> None:
        with without_interrupts(RetryPauses()):
            signal.raise_signal(signal.SIGINT)
            raise ValueError("its own")

    with pytest.raises(ValueError, match="its own"):
        work()


def test_signals_that_are_ignored_or_end_the_process_at_once_stay_so() -> None:
    before = {number: signal.signal(number, signal.SIG_IGN) for number in INTERRUPTS}
    try:
        with without_interrupts(RetryPauses()):
            assert {signal.getsignal(number) for number in INTERRUPTS} == {signal.SIG_IGN}
            signal.raise_signal(signal.SIGINT)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@pytest.mark.usefixtures("handlers")
def test_a_handler_copied_from_one_signal_to_another_meanwhile_interrupts_too() -> None:
    """Dagster assigns the handler of SIGINT to SIGTERM."""
    came = list[BaseException]()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    with Interrupts(RetryPauses(), came.append):
        signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGINT))
        signal.raise_signal(signal.SIGTERM)
    assert [type(each) for each in came] == [KeyboardInterrupt]


@pytest.mark.usefixtures("handlers")
def test_another_thread_is_not_interrupted() -> None:
    within, done = threading.Event(), threading.Event()

    def work() -> None:
        with without_interrupts(RetryPauses()):
            within.set()
            done.wait(60)

    thread = threading.Thread(target=work)
    thread.start()
    assert within.wait(60)
    with pytest.raises(Ended):
        signal.raise_signal(signal.SIGINT)
    done.set()
    thread.join()


def take_one(pool: ThreadPoolExecutor, work: Callable[[], bool], begin: Callable[[], None]) -> bool:
    future = pool.submit(work)
    begin()
    return result_of(future)


def take_from_several(pool: ThreadPoolExecutor, work: Callable[[], bool], begin: Callable[[], None]) -> bool:
    results = pool.map(lambda _: work(), range(1))
    begin()
    return next(results)


@pytest.mark.parametrize("take", [take_one, take_from_several])
def test_an_interrupt_that_comes_just_before_a_wait_ends_it(
    monkeypatch: pytest.MonkeyPatch, take: Callable[..., bool]
) -> None:
    """The thread that works gets the signal, which so ends no wait of the main thread by itself."""
    monkeypatch.setattr(waits, "A_WHILE", 0.01)
    begun, seen, ended_in_time = threading.Event(), threading.Event(), list[bool]()
    main = threading.main_thread().ident or 0

    def work() -> bool:
        begun.wait(10)
        while sys._current_frames()[main].f_code is not threading.Condition.wait.__code__:
            pass
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)
        ended_in_time.append(seen.wait(10))
        return True

    with threads(1, "work") as pool:
        with pytest.raises(KeyboardInterrupt):
            take(pool, work, begun.set)
        seen.set()
    assert ended_in_time == [True]


def await_the_end() -> None:
    """Go on once nobody waits for this thread, or after a while."""
    until = time.monotonic() + 5
    while not nobody_waits() and time.monotonic() < until:
        pass


def running(frame: FrameType | None) -> Iterator[str]:
    """The names of the functions that run, the innermost first."""
    while frame:
        yield frame.f_code.co_name
        frame = frame.f_back


def ended_by(read: Callable[[FhirClient], object], work: str) -> list[str]:
    """Read from a target that went away after a search's first page, with an interrupt before the second attempt.

    work: the name of threads. Returns the addresses of the attempts in them.
    """
    main, attempts = threading.main_thread().ident or 0, list[str]()
    interrupting = threading.Lock()

    def answer(request: httpx.Request) -> httpx.Response:
        if not threading.current_thread().name.startswith(work):
            link = {"relation": "next", "url": "/Task?_count=2&_offset=2"}
            entry = [{"resource": {"resourceType": "Task", "id": name}} for name in "ab"]
            return httpx.Response(200, json={"resourceType": "Bundle", "total": 100, "link": [link], "entry": entry})
        attempts.append(str(request.url))
        raise httpx.ConnectError("away")

    def sleep(_: float) -> None:
        if interrupting.acquire(blocking=False):
            while result_of.__name__ not in running(sys._current_frames()[main]):
                pass
            signal.pthread_kill(main, signal.SIGINT)
        await_the_end()

    transport, patience = httpx.MockTransport(answer), RetryPauses(3, sleep=sleep)
    client = FhirClient("http://127.0.0.1:1", Credentials(token="t"), patience=patience, transport=transport)
    gc.disable()  # Python ignores an interrupt within what a search for garbage calls
    try:
        with pytest.raises(KeyboardInterrupt):
            read(client)
    finally:
        gc.enable()
    return attempts


def test_an_interrupt_ends_the_attempts_at_pages_under_way() -> None:
    """The target may be away for long: each page would be asked for seven times, with pauses."""
    attempts = ended_by(lambda client: [*client.pages("Task", at_once=2)], "page")
    assert len({*attempts}) == len(attempts)
    assert 1 <= len(attempts) <= 2


def test_an_interrupt_ends_the_attempts_under_way_and_begins_no_queued_work() -> None:
    """Threads may have threads of their own, which end with them."""

    def read(client: FhirClient) -> None:
        with threads(2, "outer") as pool:
            list(pool.map(lambda _: [*client.pages("Task", at_once=1)], range(50)))

    attempts = ended_by(read, "page")
    assert 1 <= len(attempts) <= 2


def test_no_request_begins_after_the_work_that_wanted_its_answer_has_ended() -> None:
    """A search that fails is often repeated in parts."""
    transport = httpx.MockTransport(lambda _: pytest.fail("it was asked"))
    client, said = FhirClient("http://127.0.0.1:1", Credentials(token="t"), transport=transport), list[str]()
    begun = threading.Event()

    def ask() -> None:
        begun.set()
        await_the_end()
        with pytest.raises(NotSent) as raised:
            client.get("/Task")
        said.append(str(raised.value))

    def begin_and_end() -> None:
        with threads(1, "work") as pool:
            pool.submit(ask)
            begun.wait(60)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        begin_and_end()
    assert said == ["nobody waits for its answer"]


INTERRUPTED_AGAIN = """
import sys
from sqlalchemy.engine.default import DefaultDialect
from pipelines import cli

def interrupted(*_, **__):
    raise KeyboardInterrupt

class Late:
    __del__ = interrupted

late, DefaultDialect.do_close = Late(), interrupted
if sys.argv.pop(1) == "the end":
    cli.print = interrupted
cli.main()
"""
SAID = "\nchartferry: stopped; start the same command again to finish\n"


@pytest.mark.alike
@pytest.mark.parametrize(
    ("where", "code", "said"), [("the ledger", INTERRUPTED, SAID), ("the end", -signal.SIGINT, "\n")]
)
def test_an_interrupt_that_comes_again_while_a_command_ends_shows_no_traceback(
    home: Path, asked: Callable[..., Any], where: str, code: int, said: str
) -> None:
    """Its exit code is that of a command that was interrupted once. The ledger is closed, or a line is printed."""
    payments(home, ("k1", "p1", "1.00"))
    asked("import")
    command = [sys.executable, "-c", INTERRUPTED_AGAIN, where, "--home", str(home), "status"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (ended.returncode, ended.stderr) == (code, said)


FREED = """
import signal, time
from pipelines import cli
from pipelines.commands import chartferry

class Freed:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)

def work(_):
    Freed()
    time.sleep(60)

chartferry.run_command = work
cli.main()
"""


@pytest.mark.alike
def test_an_interrupt_that_comes_while_an_object_is_freed_ends_a_command() -> None:
    """Python ignores it there."""
    ended = subprocess.run([sys.executable, "-c", FREED], capture_output=True, text=True, timeout=50, check=False)
    assert (ended.returncode, "\n" + ended.stderr) == (INTERRUPTED, SAID)


TERMINATED = """
import signal
from pipelines import cli
from pipelines.commands import chartferry

chartferry.run_command = lambda _: signal.raise_signal(signal.SIGTERM)
cli.main()
"""


@pytest.mark.alike
def test_sigterm_ends_a_command_as_ctrl_c_does() -> None:
    """A shutdown and systemd end programs by it: what is under way gets its outcome, and is in no doubt."""
    ended = subprocess.run([sys.executable, "-c", TERMINATED], capture_output=True, text=True, check=False)
    assert (ended.returncode, "\n" + ended.stderr) == (INTERRUPTED, SAID)
