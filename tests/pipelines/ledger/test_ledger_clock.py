"""The times in a ledger that machines share are by one clock, however far apart those of the machines are."""

from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from pipelines.importing.current_problems import broken_now
from pipelines.ledger import clock
from pipelines.ledger import tables as t
from pipelines.ledger.ledger import Ledger
from pipelines.ledger.rows import Sighting
from pipelines.loading.lookup import PatientLookups
from pipelines.loading.row import AcceptedRow
from tests.support.beyond import Beyond
from tests.support.fake_target import FakeTarget
from tests.support.setting_clocks import set_clock

TARGET = "here"
HEADER = "payment_id,patient_id,amount,paid_on,claim_id"
CLOCKS = [timedelta(minutes=5), timedelta(hours=-2)]


@pytest.fixture
def url(postgres: Any, ledger_on_server: str) -> Iterator[str]:
    with postgres.database(like=ledger_on_server) as made:
        yield made


def test_times_of_a_ledger_on_a_server_are_by_the_clock_of_that_server(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SCALE-03"""
    monkeypatch.setattr(clock, "ASKED", clock.ASKED.replace("()", "() - interval '7 hours'", 1))
    told = list[datetime]()
    for number, off in enumerate(CLOCKS):
        set_clock(monkeypatch, off)
        with closing(Ledger.open(url)) as ledger, ledger.lease(TARGET):
            ledger.start_batch(TARGET, f"payments-{number}", feed="payments")
            told += [datetime.fromisoformat(at) for (at,) in ledger.read(select(t.lease.c.taken_at))]
            told += [datetime.fromisoformat(row["received_at"]) for row in ledger.batches()[-1:]]
    assert told == sorted(told)
    assert all(abs(at - datetime.now(UTC) + timedelta(hours=7)) < timedelta(minutes=1) for at in told)


def test_the_clock_of_a_server_is_not_followed_back(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """SCALE-03, LEDGER-01: as after a failover to a server whose clock is behind."""
    asked = clock.ASKED
    for number, off in enumerate(("0 hours", "2 hours", "3 hours")):
        monkeypatch.setattr(clock, "ASKED", asked.replace("()", f"() - interval '{off}'", 1))
        with closing(Ledger.open(url)) as ledger:
            ledger.start_batch(TARGET, f"payments-{number}", feed="payments")
            told = [(row["batch_id"], row["received_at"]) for row in ledger.batches()]
    assert told == sorted(told, key=lambda each: each[1])
    assert [name for name, _ in sorted(told)] == [name for name, _ in told]


def test_without_a_server_it_is_this_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    set_clock(monkeypatch, CLOCKS[0])
    assert timedelta(minutes=4) < clock.LedgerClock()() - datetime.now(UTC) < timedelta(minutes=6)


class Clockless:
    """A target that shows no time, and has one resource more at each look."""

    def __init__(self) -> None:
        self.there = 0

    def server_time(self) -> None:
        return None

    def pages(self, *_: object) -> Iterator[Any]:
        self.there += 1
        found = [{"resource": {"resourceType": "PaymentNotice", "id": f"r{n}"}} for n in range(self.there)]
        yield {"resourceType": "Bundle", "total": self.there, "entry": found}


def test_sightings_of_machines_with_different_clocks_are_ordered_by_the_ledger_clock(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SCALE-03, LEDGER-04: by its own clock, a machine that is behind would seem to have looked earlier."""
    target: Any = Clockless()
    row = AcceptedRow(2, 1, "k", "p1", "h", "p1", None, 100, '{"request":{"reference":"Patient/p1"}}', "")
    seen = list[Sighting]()
    for off in CLOCKS:
        set_clock(monkeypatch, off)
        with closing(Ledger.open(url)) as ledger:
            seen.append(PatientLookups(target, "PaymentNotice", ledger.clock).look(row))
    assert [sighting.ids for sighting in seen] == ["r0", "r0 r1"]
    assert seen[0].noted_at < seen[1].noted_at


@pytest.fixture(params=["+", "-"], ids=["ahead", "behind"])
def off_by_an_hour(request: pytest.FixtureRequest, url: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A ledger on a server whose clock is an hour off this machine's, named in the environment; its URL."""
    there = clock.ASKED.replace("()", f"() {request.param} interval '1 hour'", 1)
    monkeypatch.setattr(clock, "ASKED", there)
    monkeypatch.setenv("CHARTFERRY_LEDGER", url)
    return url


@pytest.mark.alike
def test_a_failed_file_is_broken_until_a_corrected_one_came_whatever_the_clocks_say(
    off_by_an_hour: str, home: Path, target: FakeTarget, asked: Any
) -> None:
    """SCALE-03: when a file came is stored by the clock of the outcomes."""

    def failed() -> list[str]:
        with closing(Ledger.open(off_by_an_hour)) as ledger:
            found = broken_now(ledger, home, ledger.clock())["payments"].failed
        return [name.partition("-")[0] for name in found]

    for row, totals, told in (
        ("k1,p1,1.00,2026-03-01,", '{"rows": 1}', []),
        ("k2,p1,1.00,2026-03-01,", '{"rows": 5}', ["payments"]),
        ("k2,p1,2.00,2026-03-01,", '{"rows": 1}', []),
    ):
        (home / "inbox" / "payments-1.csv").write_text(f"{HEADER}\n{row}\n")
        (home / "inbox" / "payments-1.csv.control.json").write_text(totals)
        asked("import")
        assert failed() == told


def test_an_object_is_taken_once_although_the_clocks_are_an_hour_apart(
    off_by_an_hour: str, beyond: Beyond, target: FakeTarget, asked: Any
) -> None:
    """SCALE-03"""
    beyond.put("payments-1.csv", "k1,p1,1.00,2026-03-01,")
    assert [len(asked("import")["batches"]) for _ in range(3)] == [1, 0, 0]
