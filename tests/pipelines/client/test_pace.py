"""Kindness to the target: requests a second, the circuit, settings of the environment, progress with rate and time."""

import io

import pytest
from rich.console import Console

from pipelines.client.pace import Attempts, CircuitBreaker, Limiter, Pace, RetryPauses, pace_of, retention_of
from pipelines.home.exits import BadSetting
from pipelines.home.progress import PlainProgress, time_left
from pipelines.home.progress_bars import BarProgress
from tests.support.fake_target import FakeTarget, serving
from tests.support.work import Work, payment


def test_a_limiter_allows_no_more_requests_a_second_than_its_limit():
    now = [100.0]
    slept: list[float] = []

    def sleep(seconds):
        slept.append(seconds)
        now[0] += seconds

    limiter = Limiter(4, lambda: now[0], sleep)
    for _ in range(9):
        limiter()
    assert now[0] == 102.0
    now[0] += 60
    limiter()
    assert sum(slept) == 2.0


def test_the_circuit_opens_after_failures_in_a_row_and_closes_with_a_success():
    circuit = CircuitBreaker(failures=3, openings=2)
    seen = []
    for succeeded in (False, False, True, False, False, False):
        circuit.note(succeeded)
        seen.append(circuit.open)
    assert seen == [False, False, False, False, False, True]
    circuit.half_open()
    states = [(circuit.open, circuit.trying)]
    circuit.note(True)
    states.append((circuit.open, circuit.trying))
    assert states == [(False, True), (False, False)]


def test_the_circuit_gives_up_after_some_openings():
    circuit = CircuitBreaker(failures=1, openings=2)
    for given_up in (False, False, True):
        circuit.note(False)
        assert circuit.given_up is given_up
        circuit.half_open()


def test_attempts_pause_longer_each_time_and_no_shorter_than_the_target_asks():
    slept: list[float] = []
    attempts = Attempts(RetryPauses(attempts=4, first=1.0, sleep=slept.append, random=lambda: 1.0))
    assert [attempts.next(), attempts.next(7.0), attempts.next(), attempts.next()] == [True, True, True, False]
    assert (slept, attempts.number) == ([1.0, 7.0, 4.0], 4)


def test_attempts_end_at_once_where_another_is_of_no_use():
    slept: list[float] = []
    attempts = Attempts(RetryPauses(sleep=slept.append))
    assert (attempts.next(final=True), slept, attempts.number) == (False, [], 1)


def test_the_environment_sets_the_pace():
    assert pace_of({}) == Pace(8, 900.0, None)
    environ = {
        "CHARTFERRY_AT_ONCE": "3",
        "CHARTFERRY_SETTLING_SECONDS": "1.5",
        "CHARTFERRY_REQUESTS_PER_SECOND": "20",
    }
    assert pace_of(environ) == Pace(3, 1.5, 20.0)
    assert (retention_of({}), retention_of({"CHARTFERRY_RETENTION_DAYS": "30"})) == (None, 30.0)


@pytest.mark.parametrize("value", ["0", "65", "many", "nan", "-1"])
def test_a_setting_that_is_no_number_in_its_bounds_is_named(value):
    with pytest.raises(BadSetting, match="CHARTFERRY_AT_ONCE is not a number from 1 to 64"):
        pace_of({"CHARTFERRY_AT_ONCE": value})


def test_no_more_requests_are_under_way_than_asked_for(tmp_path, monkeypatch):
    monkeypatch.setattr("tests.support.work.Pace", lambda **more: Pace(at_once=2, **more))
    with serving(FakeTarget(additions=False)) as target:
        target.hold = 0.1
        work = Work(tmp_path, target)
        assert work.run([payment(number, f"p{number}") for number in range(20)]).counts == {"created": 20}
        assert target.most_at_work == 2
        work.close()


def test_plain_progress_says_rate_and_time_left(monkeypatch):
    """CLI-IMPORT-02"""
    now = [0.0]
    monkeypatch.setattr("pipelines.home.progress.time.monotonic", lambda: now[0])
    said = list[str]()
    progress = PlainProgress(said.append)
    progress.stage("load", "payments-1", 1000)
    now[0] = 5.0
    progress.advance(100)
    assert said == ["payments-1: load 100 of 1,000 rows, 20 a second, 45 s left"]


@pytest.mark.parametrize("width", [80, 200])
def test_on_a_terminal_rate_and_time_left_show_however_narrow_it_is(width, monkeypatch):
    """CLI-IMPORT-02: the bar gives way."""
    now = [0.0]
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    progress = BarProgress(console)
    progress._bars.stop()
    monkeypatch.setattr(progress._bars, "get_time", lambda: now[0])
    progress.stage("validate", "claims_transactions-84ed27b21cca", 1_000_000)
    for moment in range(3):
        now[0] = float(moment)
        progress.advance(2_000)
    console.file = shown = io.StringIO()
    console.print(progress._bars.get_renderable())
    assert "claims_transactions-84ed27b21cca: validate" in shown.getvalue()
    assert "6000/1000000 2,000/s 0:08:17" in shown.getvalue()


def test_an_answer_between_two_stages_goes_to_standard_output(capsys):
    """CLI-IMPORT-02: bars take what is printed while they are drawn, and are drawn again."""
    drawn = io.StringIO()
    progress = BarProgress(Console(file=drawn, force_terminal=True, color_system=None))
    for name in ("undo", "publish"):
        progress.stage(name, "tasks", 1)
        progress.advance(1)
        progress.close()
        print(f"{name} done")
    assert capsys.readouterr().out == "undo done\npublish done\n"
    assert "tasks: undo" not in drawn.getvalue().partition("tasks: publish")[2]
    assert "tasks: publish" in drawn.getvalue()


@pytest.mark.parametrize(("seconds", "text"), [(4.4, "4 s"), (200, "3 min 20 s"), (7500, "2 h 5 min")])
def test_time_left_is_for_people(seconds, text):
    assert time_left(seconds) == text
