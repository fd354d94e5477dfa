"""`chartferry` without a target: the bundled service is started, found and ends; killed importers and faults."""

import json
import os
import re
import shutil
import stat
import subprocess
import sys
import time
from pathlib import Path

import duckdb
import pytest

from pipelines.client.replies import TargetUnusable
from pipelines.session import bundled
from pipelines.session.bundled import bundled_service
from tests.conftest import small_world
from tests.pipelines.commands.test_cli import put, summary
from tests.support.alive import lives
from tests.support.commands import totals_close
from tests.support.ledgers import read_ledger
from tests.support.starting import OwnService, start

SAMPLES = Path(__file__).parents[3] / "data" / "samples" / "reference"


@pytest.fixture
def own(home, monkeypatch):
    monkeypatch.delenv("FHIR_BASE_URL")
    monkeypatch.delenv("FHIR_TOKEN")
    return home


def test_without_a_target_the_bundled_service_is_started_and_ends_with_the_command(own, chartferry, capsys):
    """CLI-GLOBAL-03, STATE-HOME-06, AUTH-22"""
    put(own, rows=2)
    code, out, _ = chartferry("import")
    assert code == 3  # its patients are not loaded
    assert "(bundled service, urn:uuid:" in out.splitlines()[0]
    assert stat.S_IMODE((own / "credentials.json").stat().st_mode) == 0o600
    assert not (own / "service.duckdb.run").exists()
    assert chartferry("import")[0] == 0


def test_reference_data_is_loaded_before_an_import(own, chartferry, tmp_path):
    """CLI-CMD-01: `make import` does so. Refused records are named, and do not stop it."""
    shutil.copy(SAMPLES / "patient.ndjson", tmp_path)
    shutil.copy(SAMPLES / "claim.ndjson", tmp_path)
    (own / "inbox" / "payments.csv").write_text("payment_id,patient_id,amount,paid_on\n1,p001,1.00,2026-03-01\n")
    code, out, err = chartferry("import", "--reference", tmp_path)
    assert code == 0
    assert out.startswith("target: ")
    refused = own / "service.duckdb.refused.ndjson"
    assert [line.split() for line in err.splitlines()[:3]] == [
        ["type", "created", "unchanged", "updated", "refused", "unresolved"],
        ["Patient", "200", "0", "0", "0", "0"],
        ["Claim", "499", "0", "0", "1", "499"],
    ]
    assert f"Some reference records were refused, see {refused}; the import goes on.\n" in err


def test_a_payment_above_the_balance_is_given_back_with_the_balance(own, chartferry, tmp_path):
    """CLI-CMD-04, LEDGER-23: for whoever corrects it; neither the summary nor the ledger says it."""
    shutil.copy(small_world(), own / "service.duckdb")
    rows = "1,p1,90000.00,2026-03-01\n2,p1,1.00,2026-03-01\n3,P.4-Upper,2.00,2026-03-01\n"
    (own / "inbox" / "payments.csv").write_text(f"payment_id,patient_id,amount,paid_on\n{rows}")
    code, out, err = chartferry("import")
    assert code == 3

    def given_back():
        assert chartferry("rejects", "export", "--out", tmp_path / "out")[0] == 0
        [file] = (tmp_path / "out").iterdir()
        return file.read_text()

    assert "the payment is above the balance owed, which is 149.25 now" in given_back()
    assert "the payment is above the balance owed, which is 0.00 now" in given_back()
    with read_ledger(own) as ledger:
        said = ledger.execute("SELECT message FROM reject_reason").fetchall()
    assert len(said) == 2
    assert "149.25" not in f"{out}{err}{said}"
    ahead = own / "service.duckdb.ahead"
    ahead.touch()  # of a killed service, with payments that the tables lack
    assert "owed, which is" not in given_back()
    ahead.unlink()
    with duckdb.connect(own / "service.duckdb") as store:
        store.execute("UPDATE store SET value = 'of another target' WHERE name = 'id'")
    assert "owed, which is" not in given_back()


def test_the_bundled_service_ends_when_its_command_is_killed(own):
    """CLI-GLOBAL-03"""
    code = "import pathlib, sys, os, time; from pipelines.session import bundled\n"
    code += "from pipelines.session.bundled import bundled_service; bundled.SERVICE = sys.argv[2:]\n"
    code += (
        "with bundled_service(pathlib.Path(sys.argv[1]), os.environ) as url: print(url(), flush=True), time.sleep(60)"
    )
    command = [sys.executable, "-c", code, str(own), *OwnService()]
    with subprocess.Popen(command, cwd=Path(__file__).parents[3], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        url = holder.stdout.readline().strip()
        service = json.loads((own / "service.duckdb.run").read_text())
        assert service["url"] == url
        holder.kill()
    ends = time.monotonic() + 20
    while lives(service["pid"]) and time.monotonic() < ends:
        time.sleep(0.05)
    assert not lives(service["pid"])
    assert not (own / "service.duckdb.run").exists()


BEGUN = """
import subprocess, sys
from pipelines.cli import run

subprocess.Popen.__init__ = lambda *_, **__: sys.exit(str(sorted(sys.modules)))
run(["--home", sys.argv[1], "import"])
"""


def test_the_service_is_begun_before_the_modules_of_an_import_are_loaded(own):
    command = [sys.executable, "-c", BEGUN, str(own)]
    ended = subprocess.run(command, cwd=Path(__file__).parents[3], capture_output=True, text=True, check=False)
    loaded = ended.stderr
    assert "'pipelines.session.bundled'" in loaded, loaded
    for module in ("httpx", "sqlalchemy", "pyarrow", "duckdb", "pydantic", "pipelines.importing.imports"):
        assert f"'{module}'" not in loaded, module


def test_a_running_service_over_the_store_is_used(own, chartferry):
    """CLI-GLOBAL-03"""
    with bundled_service(own, dict(os.environ)) as address:
        url = address()
        (own / ".service.lock").unlink()  # as if it had been started by `fhir-service serve`
        code, out, _ = chartferry("import")
        assert (code, out.splitlines()[0].startswith(f"target: {url} (bundled service")) == (0, True)


def test_a_lost_client_is_made_anew(own, chartferry):
    chartferry("import")
    (own / "credentials.json").write_text('{"client_id": "gone", "client_secret": "gone"}')
    assert chartferry("import")[0] == 0


def test_a_store_that_cannot_be_opened_is_reported_in_one_line(own, chartferry):
    """CLI-IMPORT-08"""
    (own / "service.duckdb").write_bytes(b"not a store" * 1000)
    code, out, err = chartferry("import")
    assert (code, out, len(err.splitlines())) == (6, "", 1)
    assert err.startswith("chartferry: the bundled service did not start: ")


def test_a_service_without_room_says_so_and_what_its_library_says_behind_it_is_left_out(own, chartferry, monkeypatch):
    """CLI-IMPORT-08"""
    said = "Error: there is no space left\nnanobind: leaked 2 instances!\n - leaked instance\nSee https://example.org"
    monkeypatch.setattr(bundled, "SERVICE", (sys.executable, "-S", "-c", f"import sys; sys.exit({said!r})"))
    code, _, err = chartferry("import")
    assert (code, err) == (6, "chartferry: the bundled service did not start: there is no space left\n")
    with pytest.raises(TargetUnusable) as error:
        bundled.load_store(own / "service.duckdb", own, own / "refused", os.environ)
    assert str(error.value) == f"{bundled.NOT_LOADED}: there is no space left"
    with pytest.raises(TargetUnusable) as error:
        bundled.names(own / "service.duckdb")
    assert str(error.value) == "the names could not be read: the bundled service has ended"


@pytest.mark.parametrize("additions", [True, False])
@pytest.mark.parametrize("writes", [1, pytest.param(3, marks=pytest.mark.long)])
def test_a_killed_importer_loses_and_doubles_nothing(home, target, chartferry, additions, writes):
    """LEDGER-01: killed while requests are under way; what the bare interface leaves unknown stays in doubt."""
    target.additions = additions
    target.hold = 0.0 if additions else 0.02
    put(home, rows=1200 if additions else 40)
    command = [sys.executable, "-m", "tests.support.unpublished", "--home", str(home), "import"]
    with start(command, env=os.environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as importer:
        ends = time.monotonic() + 30
        while target.writes < writes and time.monotonic() < ends:
            time.sleep(0.001)
        importer.kill()
        importer.communicate()
    target.hold = 0.0
    code, found = summary(chartferry)
    totals_close(found)
    totals = found["totals"]
    stored = len(target.of("PaymentNotice"))
    if additions:
        assert code == 0
        assert totals["created"] + totals["unchanged"] == stored == 1200
    else:
        assert code in (0, 5)  # in doubt stays what the target never got
        assert totals["in_doubt"] <= 2  # two patients, two lanes
        assert totals["created"] + totals["unchanged"] + totals["adopted"] == stored


def test_a_fault_of_the_program_shows_class_and_place_only(chartferry, home, monkeypatch):
    def fails(*_, **__):
        raise ValueError("patient-name")

    monkeypatch.setattr("pipelines.importing.all_files.import_file", fails)
    put(home)
    code, out, err = chartferry("import")
    assert (code, out) == (1, "")
    assert re.search(r"ValueError at \w+\.py:\d+$", err, re.MULTILINE)
    assert "patient-name" not in err
