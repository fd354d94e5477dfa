"""Interrupts that end a piece of work at its end: of which signals, in which thread, and what is as before then."""

import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from pipelines.client import pace
from pipelines.client.pace import Patience, result_of
from pipelines.home.exits import INTERRUPTED
from pipelines.loading.interrupts import INTERRUPTS, Interrupts, undivided
from tests.support.exports import payments


class Ended(BaseException):
    """What a handler raises, as Dagster's does."""


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
    patience, steps = Patience(), list[str]()

    def work() -> None:
        with undivided(patience):
            signal.raise_signal(number)
            signal.raise_signal(number)
            steps.append("last")

    with pytest.raises(Ended, match=str(int(number))):
        work()
    assert (steps, patience.is_over) == (["last"], True)
    assert {signal.getsignal(each) for each in INTERRUPTS} == {end}


@pytest.mark.usefixtures("handlers")
def test_a_block_that_fails_says_so() -> None:
    def work() -> None:
        with undivided(Patience()):
            signal.raise_signal(signal.SIGINT)
            raise ValueError("its own")

    with pytest.raises(ValueError, match="its own"):
        work()


def test_what_is_ignored_or_ends_the_process_at_once_stays_so() -> None:
    before = {number: signal.signal(number, signal.SIG_IGN) for number in INTERRUPTS}
    try:
        with undivided(Patience()):
            assert {signal.getsignal(number) for number in INTERRUPTS} == {signal.SIG_IGN}
            signal.raise_signal(signal.SIGINT)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@pytest.mark.usefixtures("handlers")
def test_one_who_takes_over_the_signals_meanwhile_may_give_one_to_another() -> None:
    """Dagster lets SIGTERM do what SIGINT does whenever it changes what that is."""
    came = list[BaseException]()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    with Interrupts(Patience(), came.append):
        signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGINT))
        signal.raise_signal(signal.SIGTERM)
    assert [type(each) for each in came] == [KeyboardInterrupt]


@pytest.mark.usefixtures("handlers")
def test_another_thread_is_not_interrupted() -> None:
    within, done = threading.Event(), threading.Event()

    def work() -> None:
        with undivided(Patience()):
            within.set()
            done.wait(60)

    thread = threading.Thread(target=work)
    thread.start()
    assert within.wait(60)
    with pytest.raises(Ended):
        signal.raise_signal(signal.SIGINT)
    done.set()
    thread.join()


def test_an_interrupt_that_comes_just_before_a_wait_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread that works gets the signal, which so ends no wait of the main thread by itself."""
    monkeypatch.setattr(pace, "A_WHILE", 0.01)
    begun, seen = threading.Event(), threading.Event()
    main = threading.main_thread().ident or 0

    def work() -> bool:
        begun.wait(10)
        while sys._current_frames()[main].f_code is not threading.Condition.wait.__code__:
            pass
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)
        return seen.wait(10)

    def begin_and_wait(future: Future[bool]) -> None:
        begun.set()
        result_of(future)

    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(work)
        with pytest.raises(KeyboardInterrupt):
            begin_and_wait(future)
        seen.set()
        assert future.result()


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
SAID = "\nchartferry: stopped; the same command goes on where it ended\n"


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
