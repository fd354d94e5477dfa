"""What tests of `chartferry` in this process share: a made-up target on loopback, a home that knows it, a ledger."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from pipelines.cli import run
from pipelines.ledger.ledger import Ledger
from tests.commands import forget_settings
from tests.pipelines.fake_target import FakeTarget, serving


@pytest.fixture
def target():
    """A made-up target with a token that is always good."""
    with serving(FakeTarget()) as target:
        target.valid_tokens.add("fixed")
        yield target


@pytest.fixture
def home(tmp_path, target, monkeypatch):
    """An empty home with an inbox, in an environment that names the target; loads do not wait for late answers."""
    forget_settings(monkeypatch)
    monkeypatch.setenv("FHIR_BASE_URL", target.url)
    monkeypatch.setenv("FHIR_TOKEN", "fixed")
    monkeypatch.setattr("pipelines.loading.stage.LATE_SECONDS", 0)
    home = tmp_path / "home"
    (home / "inbox").mkdir(parents=True)
    return home


@pytest.fixture
def chartferry(home, capsys):
    """Runs a command over the home: exit code, what it prints, what it says of errors and progress."""

    def call(*arguments):
        capsys.readouterr()
        code = run(["--home", str(home), *map(str, arguments)])
        out, err = capsys.readouterr()
        return code, out, err

    return call


@pytest.fixture
def asked(chartferry):
    """Runs a command with `--json`: the document, whose exit code is the command's."""

    def call(*arguments):
        code, out, err = chartferry(*arguments, "--json")
        assert out, err
        found = json.loads(out)
        assert found["exit_code"] == code
        return found

    return call


NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


class Clock:
    def __init__(self) -> None:
        self.now = NOON

    def __call__(self) -> datetime:
        return self.now

    def pass_seconds(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=["sqlite", "postgresql"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str | Path]:
    """Where an empty ledger may be, on each database. STATE-HOME-02"""
    if request.param == "sqlite":
        yield tmp_path / "ledger.db"
        return
    with request.getfixturevalue("postgres").database() as url:
        yield url


@pytest.fixture
def ledger(address: str | Path, clock: Clock) -> Iterator[Ledger]:
    opened = Ledger.open(address, clock)
    yield opened
    opened.close()
