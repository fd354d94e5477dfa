"""A load that resumes a killed one: its checks are green, and the counts of batch and runs add up."""

import os
import shutil
from datetime import UTC, datetime

import pytest

from pipelines.dagster.checks import AFTER_LOAD
from pipelines.dagster.stages.loading import load_all
from pipelines.dagster.stages.outcome import StageOutcome
from pipelines.dagster.stages.receiving import batch_id_of, receive_all
from pipelines.dagster.stages.validating import validate_all
from pipelines.feeds.files.catalog import load_feeds
from pipelines.receiving.stage import receive
from pipelines.session.opening import open_session


@pytest.mark.parametrize(("additions", "number"), [(True, 300), (False, 10)], ids=["with additions", "bare"])
def test_a_run_that_goes_on_after_a_kill_ends_green(home, target, monkeypatch, additions, number):
    """LEDGER-26. At the bare interface payments go one at a time here: of several under way, one may be intended and
    not sent yet when the kill comes, and would wait for a person."""
    target.additions = additions
    monkeypatch.setattr("pipelines.client.profiles.ROWS_A_BUNDLE", 100)
    if not additions:
        monkeypatch.setenv("CHARTFERRY_AT_ONCE", "1")
    rows = "".join(f"k{n},p{n},1.00,2026-03-01,\n" for n in range(number))
    path = home / "inbox" / "payments.csv"
    path.write_text("payment_id,patient_id,amount,paid_on,claim_id\n" + rows)
    since = datetime.now(UTC)
    with open_session(home, os.environ) as session:
        feed = session.catalog.named("payments")
        assert feed
        received = receive(path, feed, home)
        of = (session, feed, [received.batch_id], since)
        assert validate_all(*of).facts[received.batch_id].accepted == number
        with monkeypatch.context() as patched:
            patched.setattr("pipelines.loading.book.Book._settle", dies_the_second_time())
            with pytest.raises(KeyboardInterrupt):
                load_all(*of, StageOutcome())
        outcome = load_all(*of, StageOutcome())
        ledger, target_id = session.ledger, session.target
        batch, runs = ledger.batch(target_id, received.batch_id), ledger.runs(target_id, received.batch_id)
    assert batch
    found = {each.name: list(each.violations(outcome.facts[received.batch_id])) for each in AFTER_LOAD}
    assert found == {each.name: [] for each in AFTER_LOAD}
    assert (outcome.failed, list(outcome.done)) == ({}, [received.batch_id])
    assert len(target.of("PaymentNotice")) == number
    settled = batch["created"] + batch["adopted"]
    assert (batch["state"], settled, batch["accepted"]) == ("finished", number, number)
    counts = ("created", "adopted", "unchanged", "accepted", "amount_created")
    assert [[run[name] for name in counts] for run in runs] == [[batch[name] for name in counts]]
    told = outcome.done[received.batch_id]
    assert (told["created"] + told["adopted"], told["unchanged"]) == (number, 0)
    assert told["target"] == batch["target"], "as the tables and other runs name it"


def test_the_load_repeats_the_warnings_of_the_validation(home, target):
    """LEDGER-26: here, that a row looks like a total."""
    path = home / "inbox" / "payments.csv"
    rows = "k1,p1,1.00,2026-03-01,\nk2,p1,2.00,2026-03-01,\nk3,,3.00,2026-03-01,\n"
    path.write_text("payment_id,patient_id,amount,paid_on,claim_id\n" + rows)
    with open_session(home, os.environ) as session:
        feed = session.catalog.named("payments")
        assert feed
        batch_id = receive(path, feed, home).batch_id
        validate_all(session, feed, [batch_id], datetime.now(UTC))
        facts = load_all(session, feed, [batch_id], datetime.now(UTC), StageOutcome()).facts
    assert "line 4: a rejected row looks like a total" in str(facts[batch_id].result.message)
    assert len(target.of("PaymentNotice")) == 2


@pytest.mark.parametrize("is_purged", [False, True])
def test_a_file_that_another_run_takes_meanwhile_is_received_by_both(home, monkeypatch, is_purged):
    """As where one was started by hand beside that of the sensor."""
    path = home / "inbox" / "payments.csv"
    path.write_text("payment_id,patient_id,amount,paid_on,claim_id\nk1,p1,1.00,2026-03-01,\n")
    payments = load_feeds().match(path.name)
    assert payments
    batch_id = batch_id_of(payments, path)
    receive(path, payments, home)
    if is_purged:
        shutil.rmtree(home / "batches" / batch_id)
    monkeypatch.setattr("pipelines.dagster.stages.receiving.waiting_files", lambda *_: {batch_id: path})
    outcome = receive_all(payments, home, [batch_id])
    if is_purged:
        assert list(outcome.failed) == [batch_id]
    else:
        assert (outcome.failed, outcome.done[batch_id]["file"]) == ({}, "payments.csv")


def dies_the_second_time():
    from pipelines.loading.book import Book

    settle, times = Book._settle, []

    def dying(self, results):
        times.append(len(results))
        if len(times) > 1:
            raise KeyboardInterrupt
        settle(self, results)

    return dying
