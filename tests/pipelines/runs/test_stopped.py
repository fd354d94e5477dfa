"""Ctrl-C, and what a killed command leaves: one line, and nothing of it stays once the same file runs again."""

import json
import subprocess
import sys

import pytest

from pipelines.home.scratch import remove_abandoned, workspace
from pipelines.ledger.standing import next_step
from pipelines.runs.summary import Summary

TEXT = "payment_id,patient_id,amount,paid_on,claim_id\nk1,p1,1.00,2026-03-01,\n"


@pytest.mark.parametrize("stopped", [KeyboardInterrupt, EOFError])
def test_a_stopped_command_is_reported_in_one_line_and_goes_on_when_given_again(
    stopped, chartferry, home, target, monkeypatch
):
    """LEDGER-02"""
    (home / "inbox" / "payments.csv").write_text(TEXT)
    with monkeypatch.context() as patched:
        patched.setattr("pipelines.runs.batch.validate_run", lambda *_, **__: raised(stopped))
        code, _, wrong = chartferry("import")
    assert (code, wrong.strip()) == (130, "chartferry: stopped; start the same command again to finish")
    assert chartferry("import")[0] == 0
    assert len(target.of("PaymentNotice")) == 1


def raised(error):
    raise error


def test_a_file_that_was_not_loaded_is_given_up_as_its_status_says(chartferry, home, asked):
    """CLI-CMD-04: its rows cannot be purged while a reject of it is open."""
    (home / "inbox" / "payments.csv").write_text(TEXT + "k2,p1,two,2026-03-01,\n")
    (home / "inbox" / "payments.csv.control.json").write_text('{"rows": 3}')
    name = asked("import")["batches"][0]["batch_id"]
    [reject] = json.loads(chartferry("status", name, "--json")[1])["batches"][0]["rejects"]
    give_up = f"give them up by chartferry purge {name}."
    first = "set its open rejects aside by chartferry rejects discard, and then "
    assert f"not needed, {first}{give_up}" in chartferry("status", name)[1]
    assert chartferry("purge", name)[0] != 0
    assert chartferry("rejects", "discard", reject["reject_id"], "--why", "not needed")[0] == 0
    assert f"not needed, {give_up}" in chartferry("status", name)[1]
    assert chartferry("purge", name)[0] == 0


def test_the_entry_point_imports_nothing_before_it_can_be_stopped():
    """Importing the commands takes a second or two: Ctrl-C in it is one line as well."""
    said = "import sys, pipelines.cli; print(sorted({'click', 'sqlalchemy', 'httpx', 'pyarrow'} & set(sys.modules)))"
    shown = subprocess.run([sys.executable, "-c", said], capture_output=True, text=True, check=True)
    assert shown.stdout == "[]\n"


def test_help_imports_none_of_the_large_libraries():
    """What a command does not need costs its user no time; each of these takes a tenth of a second or more."""
    large = {"dagster", "duckdb", "httpx", "pyarrow", "pydantic", "sqlalchemy"}
    said = f"import sys; from pipelines.cli import run; run(['--help']); print(sorted({large} & set(sys.modules)))"
    shown = subprocess.run([sys.executable, "-c", said], capture_output=True, text=True, check=True)
    assert shown.stdout.splitlines()[-1] == "[]"


def test_status_imports_what_reads_the_ledger_alone(home, chartferry):
    """No feed, no target and no table is looked at: with all of these, an empty home takes more than twice as long."""
    (home / "inbox" / "payments.csv").write_text(TEXT)
    chartferry("import")
    large = {"duckdb", "fhir_service.interface", "httpx", "pyarrow", "pydantic", "rich"}
    asked = ["--home", str(home), "status"]
    said = f"import sys; from pipelines.cli import run; run({asked}); print(sorted({large} & set(sys.modules)))"
    shown = subprocess.run([sys.executable, "-c", said], capture_output=True, text=True, check=True)
    assert "payments-" in shown.stdout
    assert shown.stdout.splitlines()[-1] == "[]"


def test_a_service_imports_what_it_needs_to_listen_alone():
    """An import waits for it. Pages, and keys at an address, are rare."""
    rare = {"httpx", "jinja2", "pyarrow", "rich"}
    said = f"import sys, fhir_service.serving.serve; print(sorted({rare} & set(sys.modules)))"
    shown = subprocess.run([sys.executable, "-c", said], capture_output=True, text=True, check=True)
    assert shown.stdout == "[]\n"


def test_the_files_of_a_killed_validation_are_removed_by_the_next_run(chartferry, home):
    """STATE-HOME-03: they hold rows, and may be as large as the file."""
    (home / "inbox" / "payments.csv").write_text(TEXT)
    chartferry("import")
    (run,) = home.glob("batches/payments-*/run-1")
    before = sorted(path.name for path in run.iterdir())
    (run / ".spill").mkdir()
    (run / ".spill" / "mapped.parquet").write_text("rows")
    (run / "accepted.parquet.part").write_text("rows")
    (home / "inbox" / "payments.csv").write_text(TEXT)
    chartferry("import")
    assert sorted(path.name for path in run.iterdir()) == before


def test_a_workspace_in_use_is_left_alone(tmp_path):
    with workspace(tmp_path) as inner:
        remove_abandoned([tmp_path])
        assert inner.exists()
    assert not inner.exists()


def test_an_import_that_an_error_ended_does_not_say_that_there_was_nothing_to_import():
    """The error alone is what became of it."""
    assert "nothing to import" in list(Summary("a target", "x").lines())
    said = list(Summary("a target", "x", error="another loader took over").lines())
    assert said == ["target: a target", "error: another loader took over"]


def test_the_next_import_notes_rejects_of_a_command_that_was_stopped_before_its_summary(chartferry, home, monkeypatch):
    """CLI-CMD-04: their batch has ended, so that no run of it reports them."""
    (home / "inbox" / "payments.csv").write_text(TEXT + "k2,p1,two,2026-03-01,\n")
    with monkeypatch.context() as patched:
        patched.setattr("pipelines.importing.all_files.close_import", lambda *_: raised(KeyboardInterrupt))
        assert chartferry("import")[0] == 130
    code, said, _ = chartferry("import")
    assert (code, said.splitlines()[1:]) == (
        0,
        [
            f"nothing to import in {home / 'inbox'}",
            "note: open rejects of other batches: 1; chartferry rejects export has them",
        ],
    )


def test_the_status_of_a_failed_batch_says_how_its_file_is_loaded_after_all(chartferry, home, asked):
    """CLI-CMD-04: nothing takes the file again by itself once its feed is mended."""
    (home / "inbox" / "payments.csv").write_text(TEXT.replace("amount", "sum"))
    [failed] = asked("import")["batches"]
    assert failed["state"] == "failed"
    name = failed["batch_id"]
    assert f"not loaded: {next_step(name, 'failed', 'failed', 0)}" in chartferry("status", name)[1].splitlines()


def test_later_imports_name_a_file_that_was_not_loaded_until_its_records_came(chartferry, home, asked):
    """CLI-CMD-04: it is out of the inbox by then, and nothing else of an import would tell of it."""
    (home / "inbox" / "payments.csv").write_text(TEXT)
    (home / "inbox" / "payments.csv.control.json").write_text('{"rows": 2}')
    [stopped] = asked("import")["batches"]
    assert (stopped["state"], asked("import")["not_loaded"]) == ("stopped", [stopped["batch_id"]])
    remedy = next_step(stopped["batch_id"], "stopped", "stopped", 0)
    assert f"not loaded: {remedy}" in chartferry("status", stopped["batch_id"])[1].splitlines()
    code, said, _ = chartferry("import")
    note = f"note: earlier files that were not loaded: payments.csv ({stopped['batch_id']}); chartferry status BATCH"
    assert (code, f"{note} says why, and what to do" in said.splitlines()) == (0, True)
    (home / "inbox" / "payments-2.csv").write_text(TEXT + "k2,p1,2.00,2026-03-01,\n")
    assert asked("import")["not_loaded"] == []
