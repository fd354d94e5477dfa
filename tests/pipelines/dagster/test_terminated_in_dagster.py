"""A run that somebody terminates ends: nothing more is sent, and a later run loads what is left."""

import os
import signal

import dagster as dg
import pytest

from pipelines.dagster.stages.receiving import batch_id_of
from pipelines.definitions import build_definitions
from pipelines.feeds.files.catalog import load_feeds
from pipelines.loading.book import Book


@pytest.mark.alike
@pytest.mark.parametrize("by_force", [False, True], ids=["in order", "by force"])
def test_a_run_that_is_terminated_in_the_middle_of_its_load_sends_no_more(home, target, monkeypatch, by_force):
    """Dagster alone takes an interrupt for a reason to make the step again."""
    monkeypatch.setenv("CHARTFERRY_HOME", str(home))
    monkeypatch.setattr("pipelines.client.profiles.ROWS_A_BUNDLE", 100)
    rows = "".join(f"k{n},p{n},1.00,2026-03-01,\n" for n in range(1000))
    path = home / "inbox" / "payments.csv"
    path.write_text("payment_id,patient_id,amount,paid_on,claim_id\n" + rows)
    payments = load_feeds().match(path.name)
    assert payments
    batch_id, job = batch_id_of(payments, path), definitions_job()
    with dg.DagsterInstance.ephemeral() as instance:
        instance.add_dynamic_partitions("payments batches", [batch_id])
        settle, settled = Book._settle, []

        def terminating(book, results):
            settle(book, results)
            settled.append(len(results))
            if len(settled) == 1:
                [run] = instance.get_runs()
                instance.report_run_canceling(run)
                if by_force:
                    instance.report_run_canceled(run)
                os.kill(os.getpid(), signal.SIGTERM)

        monkeypatch.setattr(Book, "_settle", terminating)
        ended = job.execute_in_process(instance=instance, partition_key=batch_id, raise_on_error=False)
        [run] = instance.get_runs()
        assert run.status == dg.DagsterRunStatus.CANCELED
        steps = [event.step_key for event in ended.all_events if event.is_step_up_for_retry]
        assert steps == []
        assert len(target.of("PaymentNotice")) < 1000
        again = definitions_job().execute_in_process(instance=instance, partition_key=batch_id)
    assert again.success
    assert len(target.of("PaymentNotice")) == 1000


def definitions_job():
    return build_definitions(os.environ).get_repository_def().get_job("import_payments")
