"""Fixtures for tests of `chartferry` in this process: a fake target on loopback, a home that uses it, a ledger."""

import json
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from pipelines.cli import run
from pipelines.client.pace import RetryPauses
from pipelines.ledger.ledger import Ledger
from pipelines.ledger.tables import LedgerError
from tests.support.beyond import Beyond
from tests.support.commands import forget_settings
from tests.support.fake_s3 import FakeBucket, fake_bucket
from tests.support.fake_target import FakeTarget, serving
from tests.support.giving_back import Practice
from tests.support.machines import Machines
from tests.support.publishing import publish_as_marked, publish_last_target


@pytest.fixture
def target():
    """A made-up target with a token that is always good."""
    with serving(FakeTarget()) as target:
        target.valid_tokens.add("fixed")
        yield target


@pytest.fixture(params=[True, False], ids=["with additions", "bare"])
def additions(request, target):
    """True if the target has the additions of our service, false for the interface alone. Tests run with both."""
    target.additions = request.param
    return request.param


@pytest.fixture
def home(request, tmp_path, target, monkeypatch):
    """An empty home with an inbox, in an environment that names the target; loads wait neither for late
    answers nor long before they try again.

    What commands make is published at the end of the test, and not by each of them, unless it is marked `publishes`:
    then each publishes the tables that the mark names, or all.
    """
    publish_as_marked(monkeypatch, request.node)
    forget_settings(monkeypatch)
    monkeypatch.setenv("FHIR_BASE_URL", target.url)
    monkeypatch.setenv("FHIR_TOKEN", "fixed")
    monkeypatch.setattr("pipelines.loading.sending_loop.LATE_SECONDS", 0)
    monkeypatch.setattr(RetryPauses, "wait", lambda _, pause, __=None: time.sleep(min(pause, 0.01)))
    home = tmp_path / "home"
    (home / "inbox").mkdir(parents=True)
    return home


@pytest.fixture(autouse=True)
def whatever_came_can_be_published(request):
    """After every test that imports: of any ledger the tables can be made, and their checks hold. REPORT-01

    `make test` does it only after those that are marked `then_published`, which leave a batch in their ledger.
    """
    home, folder, patch = (
        request.getfixturevalue(name) if name in request.fixturenames else None
        for name in ("home", "tmp_path", "monkeypatch")
    )
    yield
    marked = request.node.get_closest_marker("then_published")
    home = folder / "home" if marked and folder and home is None else home
    some = "not long" in request.config.option.markexpr and not marked
    publishes = request.node.get_closest_marker("publishes")
    apart = some or request.node.get_closest_marker("by_hand") or (publishes and not publishes.args)
    if not isinstance(home, Path) or apart or not (marked or (home / "ledger.db").exists()):
        return
    if patch:
        patch.undo()
    try:
        ledger = Ledger.open(home / "ledger.db", anew=True)
    except LedgerError:
        return
    with closing(ledger):
        published = publish_last_target(home, ledger)
        assert not marked or (published and published.rows["import_batch"])


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
def practice(request, home, target, chartferry):
    """A home at work, at either kind of target in a test that uses `additions`."""
    if "additions" in request.fixturenames:
        request.getfixturevalue("additions")
    return Practice(home, target, chartferry)


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
def few_a_bundle(monkeypatch):
    """Let a bundle have 50 rows at most."""
    monkeypatch.setattr("pipelines.client.profiles.ROWS_A_BUNDLE", 50)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(scope="session")
def ledger_on_server(request: pytest.FixtureRequest) -> str:
    """A ledger on PostgreSQL without a fact, to be copied."""
    url: str = request.getfixturevalue("postgres").create()
    Ledger.open(url).close()
    return url


@pytest.fixture(params=["sqlite", "postgresql"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str | Path]:
    """The address of an empty ledger, on each database. STATE-HOME-02"""
    if request.param == "sqlite":
        yield tmp_path / "ledger.db"
        return
    model = request.getfixturevalue("ledger_on_server")
    with request.getfixturevalue("postgres").database(like=model) as url:
        yield url


@pytest.fixture
def ledger(address: str | Path, clock: Clock) -> Iterator[Ledger]:
    opened = Ledger.open(address, clock)
    yield opened
    opened.close()


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeBucket]:
    with fake_bucket() as made:
        for name, value in made.environ().items():
            monkeypatch.setenv(name, value)
        yield made


@pytest.fixture(params=["folder", "bucket"])
def machines(
    request, home, target, postgres, ledger_on_server, bucket, tmp_path, monkeypatch, capsys
) -> Iterator[Machines]:
    """Machines at a made-up target, over an empty ledger on PostgreSQL and an empty store."""
    assert home.exists()
    place = str(tmp_path / "shared") if request.param == "folder" else "s3://bucket/pre/fix"
    with postgres.database(like=ledger_on_server) as url:
        monkeypatch.setenv("CHARTFERRY_LEDGER", url)
        monkeypatch.setenv("CHARTFERRY_BATCHES", place)
        yield Machines(tmp_path / "machines", place, capsys)


@pytest.fixture(params=["folder", "bucket"])
def place(request, bucket: FakeBucket, tmp_path: Path) -> str:
    """An empty store."""
    assert bucket.url
    return str(tmp_path / "shared") if request.param == "folder" else "s3://bucket/pre/fix"


@pytest.fixture(params=["folder", "bucket"])
def beyond(request, home, bucket, tmp_path, monkeypatch) -> Beyond:
    """An empty inbox outside the home, whose objects are taken at once."""
    assert home.exists()
    place = str(tmp_path / "exports") if request.param == "folder" else "s3://bucket/in/box"
    if request.param == "folder":
        Path(place).mkdir()
    monkeypatch.setenv("CHARTFERRY_INBOX", place)
    monkeypatch.setattr("pipelines.importing.objects.QUIET", timedelta(0))
    monkeypatch.setattr("pipelines.dagster.inbox.objects.QUIET", timedelta(0))
    return Beyond(place, bucket)
