"""`metrics` and `metrics.prom`: the figures of an import for Prometheus, and the board and alerts made of them."""

import json
import os
import re
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import dagster as dg
import httpx
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from pipelines.dagster.standing.sensor import standing_sensor
from pipelines.feeds.files.catalog import load_feeds
from tests.support.commands import command, environment
from tests.support.exports import payments, tasks
from tests.support.starting import start

DEPLOY = Path(__file__).parents[3] / "deploy"


def figures(text):
    """The samples of a text by name and labels."""
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


@pytest.fixture
def imported(home, target, asked):
    payments(home, ("k1", "p1", "1.00"), ("k2", "p1", "2.50"), ("k3", "p2", "four"))
    return asked("import")["batches"][0]["batch_id"]


def test_batches_rows_and_rejects_are_counted(imported, home, chartferry):
    """OPS-01: and the file that an import leaves says the same."""
    code, out, _ = chartferry("metrics")
    found = figures(out)
    assert code == 0
    assert found["chartferry_batches", "payments", "finished"] == 1
    assert found["chartferry_batches", "payments", "failed"] == 0
    assert (found["chartferry_rows", "payments", "created"], found["chartferry_rows", "payments", "rejected"]) == (2, 1)
    assert found["chartferry_rejects_open", "under a day", "payments"] == 1
    assert found["chartferry_rows_in_doubt", "payments"] == 0
    assert time.time() - found["chartferry_last_run_timestamp_seconds",] < 3600
    left = figures((home / "metrics.prom").read_text())
    moving = "chartferry_figures_timestamp_seconds"
    assert {key: value for key, value in left.items() if key[0] != moving} == {
        key: value for key, value in found.items() if key[0] != moving
    }
    assert (home / "metrics.prom").stat().st_mode & 0o777 == 0o600


def test_rows_in_doubt_and_files_that_wait_are_counted(home, target, asked, chartferry):
    """OPS-01"""
    target.additions, target.faults = False, ["lost_before"]
    payments(home, ("k1", "p1", "1.00"))
    asked("import")
    (home / "inbox" / "nobodys.txt").write_text("x")
    found = figures(chartferry("metrics")[1])
    assert found["chartferry_rows_in_doubt", "payments"] == 1
    assert found["chartferry_inbox_files",] == 1
    assert time.time() - found["chartferry_inbox_oldest_timestamp_seconds",] < 600
    assert found["chartferry_lease_held",] == 0


KILLED_AT_WORK = """
import os, sys
from pathlib import Path
from pipelines.ledger.ledger import Ledger
from pipelines.ledger.rows import Intent

ledger = Ledger.open(Path(sys.argv[1]))
ledger.start_batch("here", "payments-b", feed="payments")
ledger.start_run("here", "payments-b")
lease = ledger.lease("here").__enter__()
ledger.intend(lease, "default", "PaymentNotice", [Intent("k", 1, "payments-b", 2, "h", "f", "p1")])
print("holds it", flush=True)
sys.stdin.read()
os._exit(9)
"""


def test_a_loader_that_was_killed_is_at_work_no_more(imported, home, chartferry):
    """OPS-01: at once, where it was a process of this machine. What it was sending is in doubt from then on."""
    names = ("chartferry_lease_held",), ("chartferry_rows_in_doubt", "payments")
    command = [sys.executable, "-c", KILLED_AT_WORK, str(home / "ledger.db")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as loader:
        assert loader.stdin
        assert loader.stdout
        assert loader.stdout.readline() == "holds it\n"
        found = figures(chartferry("metrics")[1])
        assert [found[name] for name in names] == [1, 0]
        loader.stdin.close()
        loader.wait()
        found = figures(chartferry("metrics")[1])
        assert [found[name] for name in names] == [0, 1]


def test_a_settled_doubt_counts_no_more_and_an_undo_changes_no_first_outcome(home, target, asked, chartferry):
    """OPS-01: the file and the command say so."""
    target.additions, target.faults = False, ["lost_before"]
    tasks(home, "k1", "k2")
    batch = asked("import")["batches"][0]["batch_id"]
    assert figures(chartferry("metrics")[1])["chartferry_rows_in_doubt", "tasks"] == 1
    asked("doubts", "resend", f"{batch}:2")
    assert figures((home / "metrics.prom").read_text())["chartferry_rows_in_doubt", "tasks"] == 0
    asked("import")
    settled = figures((home / "metrics.prom").read_text())
    assert settled["chartferry_rows_in_doubt", "tasks"] == 0
    assert settled["chartferry_rows", "tasks", "created"] == 2
    assert settled["chartferry_batches", "tasks", "finished"] == 1
    assert len(asked("undo", batch)["taken_back"]) == 2
    undone = figures(chartferry("metrics")[1])
    same = ("chartferry_rows", "chartferry_batches", "chartferry_rejects_open", "chartferry_rows_in_doubt")
    assert {key: value for key, value in undone.items() if key[0] in same} == {
        key: value for key, value in settled.items() if key[0] in same
    }


def test_the_file_of_metrics_is_rewritten_after_a_decision_by_hand(imported, home, chartferry):
    """OPS-01: no import and no daemon rewrites it then."""
    open_now = "chartferry_rejects_open", "under a day", "payments"
    assert figures((home / "metrics.prom").read_text())[open_now] == 1
    with closing(sqlite3.connect(home / "ledger.db")) as ledger:
        [(reject,)] = ledger.execute("SELECT reject_id FROM reject").fetchall()
    assert chartferry("rejects", "discard", reject, "--why", "a test")[0] == 0
    assert figures((home / "metrics.prom").read_text())[open_now] == 0


def test_a_sensor_notes_its_tick_and_writes_the_figures(imported, home):
    """OPS-01: so that a dead daemon is seen by the age of its last tick."""
    (home / "metrics.prom").unlink()
    sensor = standing_sensor(home, os.environ, load_feeds().feeds)
    with dg.instance_for_test() as instance:
        sensor(dg.build_sensor_context(instance=instance))
    found = figures((home / "metrics.prom").read_text())
    assert time.time() - found["chartferry_sensor_last_tick_timestamp_seconds", "standing_check_after_imports"] < 600
    assert found["chartferry_daemon_last_tick_timestamp_seconds",] > 0


def test_a_home_without_a_ledger_has_figures_of_itself_alone(home, chartferry):
    """OPS-01: nothing is made by looking."""
    found = figures(chartferry("metrics")[1])
    assert found["chartferry_inbox_files",] == 0
    assert not any(key[0] == "chartferry_batches" for key in found)
    assert not (home / "ledger.db").exists()


def test_the_figures_are_served_anew_at_each_scrape(imported, home):
    """OPS-01"""
    arguments = command("chartferry", "--home", home, "metrics", "--serve", "--port", 0)
    with start(arguments, stdout=subprocess.PIPE, text=True, env=environment()) as served:
        try:
            assert served.stdout
            url = served.stdout.readline().removeprefix("listening on ").strip()
            first = figures(httpx.get(url, trust_env=False, timeout=60).text)
            (home / "inbox" / "late.csv").write_text("x")
            second = figures(httpx.get(url, trust_env=False, timeout=60).text)
        finally:
            served.terminate()
    assert first["chartferry_batches", "payments", "finished"] == 1
    assert (first["chartferry_inbox_files",], second["chartferry_inbox_files",]) == (0, 1)


def test_the_board_and_the_alerts_ask_for_figures_that_there_are(imported, home, chartferry):
    """OPS-01"""
    (home / "inbox" / "late.csv").write_text("x")
    (home / "dagster" / "ticks").mkdir(parents=True, exist_ok=True)
    (home / "dagster" / "ticks" / "inbox").touch()
    known = {key[0] for key in figures(chartferry("metrics")[1])} | {"chartferry_last_publication_timestamp_seconds"}
    board = json.loads((DEPLOY / "grafana-imports.json").read_text())
    rules = yaml.safe_load((DEPLOY / "prometheus-alerts.yml").read_text())["groups"][0]["rules"]
    asked_for = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    asked_for += [rule["expr"] for rule in rules]
    named = {name for expression in asked_for for name in re.findall(r"chartferry_[a-z_]+", expression)}
    assert len(named) > 10
    assert named <= known
    operators = (DEPLOY.parent / "docs" / "operators.md").read_text()
    assert [rule["alert"] for rule in rules if f"`{rule['alert']}`" not in operators] == []
