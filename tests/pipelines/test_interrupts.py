"""Interrupts that end a piece of work at its end: of which signals, in which thread, and what is as before then."""

import signal
import threading
from collections.abc import Iterator
from types import FrameType

import pytest

from pipelines.client.pace import Patience
from pipelines.loading.interrupts import INTERRUPTS, Interrupts, undivided


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
