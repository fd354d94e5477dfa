"""Messy files of the world in the inbox of one import: each is a batch that closes, or is left with one sentence."""

import json
import shutil
from pathlib import Path

import pytest

from pipelines.cli import run
from tests.support.commands import forget_settings, totals_close
from tests.support.fake_target import FakeTarget, serving
from tests.support.realdata import MISSING, REALDATA

pytestmark = pytest.mark.skipif(not REALDATA.is_dir(), reason=MISSING)

FEED = """
kind = "payments"
files = "messy-*"
header = 0
[columns]
payment_id = 1
patient_id = { first = [2, 1] }
amount = { constant = "1.00" }
paid_on = { constant = "2024-05-01" }
"""


def put_all(folder: str, inbox: Path, prefix: str, suffix: str) -> int:
    """Every file of a set under names that a feed takes; gives how many different ones there are."""
    files = [path for path in sorted((REALDATA / folder).rglob("*")) if path.is_file()]
    for number, path in enumerate(files):
        packed = ".gz" if path.suffix == ".gz" else ""
        shutil.copyfile(path, inbox / f"{prefix}{number:03}{suffix}{packed}")
    return len({path.read_bytes() for path in files})


@pytest.mark.long
@pytest.mark.parametrize(
    ("folder", "prefix", "suffix"),
    [("messy_csv", "messy-", ".csv"), ("messy_text", "messy-", ".csv"), ("messy_json", "payments-", ".ndjson")],
)
def test_an_inbox_of_messy_files_is_imported_to_its_end(folder, prefix, suffix, tmp_path, monkeypatch, capsys):
    """FEED-FILE-02, FEED-FILE-04, FEED-FILE-09, CLI-IMPORT-06: and once more, which creates nothing."""
    home = tmp_path / "home"
    (home / "inbox").mkdir(parents=True)
    (home / "feeds").mkdir()
    (home / "feeds" / "messy.toml").write_text(FEED)
    forget_settings(monkeypatch)
    monkeypatch.setattr("pipelines.loading.sending_loop.LATE_SECONDS", 0)
    with serving(FakeTarget()) as target:
        monkeypatch.setenv("FHIR_BASE_URL", target.url)
        monkeypatch.setenv("FHIR_TOKEN", "fixed")
        target.valid_tokens.add("fixed")
        different = put_all(folder, home / "inbox", prefix, suffix)
        run(["--home", str(home), "import", "--json"])
        summary = json.loads(capsys.readouterr().out)
        created = len(target.of("PaymentNotice"))
        assert run(["--home", str(home), "verify"]) == 0
    assert list((home / "inbox").iterdir()) == []
    assert len({batch["batch_id"] for batch in summary["batches"]}) == different
    assert created == sum(batch["counts"].get("created", 0) for batch in summary["batches"])
    assert summary["error"] is None
    totals_close(summary)
    for batch in summary["batches"]:
        assert batch["state"] in ("finished", "failed")
        assert batch["state"] == "finished" or batch["message"].startswith(f"{batch['file']}: ")
        assert "\n" not in (batch["message"] or "")
