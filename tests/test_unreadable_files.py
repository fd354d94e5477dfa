"""Files that cannot be read, imported by the command: each is a failed batch, the others go on."""

import gzip
import io
import json
import shutil
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import duckdb
import pytest

from pipelines.cli import run as run_here
from tests.support.commands import forget_settings, load
from tests.support.publishing import publish_nothing, publish_only

REFERENCE = Path(__file__).parents[1] / "data" / "samples" / "reference"
UNREADABLE = 4

GOOD = "payment_id,patient_id,amount,paid_on,claim_id\nG-1,p001,1.00,2026-01-01,\n"
UNREADABLE_FILES = {
    "payments-cut.csv.gz": gzip.compress(GOOD.encode() * 5000, mtime=0)[:-20],
    "payments-empty.csv": b"",
    "payments-no-header.csv": GOOD.splitlines(keepends=True)[1].encode(),
    "payments-picture.csv": b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x10" + bytes(range(256)) * 4,
    "payments-utf16.csv": GOOD.encode("utf-16"),
    "tasks-cut.ndjson.gz": gzip.compress(b'{"task_id": "T-1"}\n' * 5000, mtime=0)[:-20],
}


@pytest.fixture(scope="module")
def bad_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home, some = tmp_path_factory.mktemp("bad") / "var", tmp_path_factory.mktemp("reference")
    for kind in ("patient", "practitioner", "claim"):  # what a payment needs
        shutil.copy(REFERENCE / f"{kind}.ndjson", some)
    assert load(home, some).returncode in (0, 3)
    return home


@pytest.fixture(scope="module")
def bad_import(bad_home, tmp_path_factory) -> dict[str, Any]:
    """The output of an import of all unreadable files, and a good one."""
    inbox, said, noted = tmp_path_factory.mktemp("inbox"), io.StringIO(), io.StringIO()
    for name, content in UNREADABLE_FILES.items():
        (inbox / name).write_bytes(content)
    (inbox / "payments-good.csv").write_text(GOOD, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(said), redirect_stderr(noted):
        forget_settings(patch)
        publish_only(patch, "import_batch")
        code = run_here(["--home", str(bad_home), "import", "--json", str(inbox)])
    found: dict[str, Any] = json.loads(said.getvalue())
    assert found["exit_code"] == code
    return found | {"stderr": noted.getvalue()}


def test_unreadable_files_end_the_import_with_4(bad_import):
    """CLI-IMPORT-06: nothing that is told is of their content."""
    assert bad_import["exit_code"] == UNREADABLE
    assert ": validate done in " in bad_import["stderr"]
    told = bad_import["stderr"] + "".join(batch["message"] or "" for batch in bad_import["batches"])
    for content in ("Traceback", "G-1", "p001", "2026-01-01", "T-1", "IHDR"):
        assert content not in told


@pytest.mark.parametrize("name", UNREADABLE_FILES)
def test_an_unreadable_file_is_a_failed_batch_with_one_sentence(bad_home, bad_import, name):
    """One sentence that names the file; nothing was sent; the batch is published as failed."""
    (batch,) = [batch for batch in bad_import["batches"] if batch["file"] == name]
    assert (batch["state"], batch["counts"].get("accepted", 0)) == ("failed", 0)
    assert batch["message"].startswith(f"{name}: ")
    assert "\n" not in batch["message"]
    with duckdb.connect(str(bad_home / "published" / "reports.duckdb"), read_only=True) as published:
        states = published.execute("SELECT state FROM import_batch WHERE file_name = ?", [name]).fetchall()
    assert states == [("failed",)]


def test_the_other_files_go_on(bad_import):
    (batch,) = [batch for batch in bad_import["batches"] if batch["file"] == "payments-good.csv"]
    assert (batch["state"], batch["counts"]["created"]) == ("finished", 1)


def test_the_summary_for_people_names_each_failed_file(bad_home, bad_import, tmp_path, monkeypatch, capsys):
    """The same as text, on a home that knows the files as failed already."""
    for name, content in UNREADABLE_FILES.items():
        (tmp_path / name).write_bytes(content)
    forget_settings(monkeypatch)
    publish_nothing(monkeypatch)
    assert run_here(["--home", str(bad_home), "import", str(tmp_path)]) == UNREADABLE
    said = capsys.readouterr().out
    for name in UNREADABLE_FILES:
        assert sum(f": {name}: " in line for line in said.splitlines()) == 1, said
