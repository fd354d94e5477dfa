"""Scratch folders: what a killed process left goes at the next start, whatever its name; what is in use stays."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pipelines.home.preparing import prepare_home
from pipelines.home.scratch import throwaway_folder

DIES = """
import os, signal, sys
from pathlib import Path
from pipelines.home.scratch import throwaway_folder
with throwaway_folder(Path(sys.argv[1])) as folder:
    (folder / "patients.csv").write_text("a name")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_scratch_folders_of_a_killed_process_are_removed_at_the_next_start(tmp_path: Path) -> None:
    """STATE-HOME-08"""
    died = subprocess.run([sys.executable, "-c", DIES, tmp_path], check=False)
    assert died.returncode == -signal.SIGKILL
    assert list(tmp_path.rglob("patients.csv"))
    prepare_home(tmp_path)
    assert list((tmp_path / "scratch").glob("*")) == []


@pytest.mark.parametrize(
    "left", [".rehearsal-a/x", ".dry-run-b/x", ".rejects-c/x", "batches/.incoming-d", "scratch/anything", "scratch/e/x"]
)
def test_scratch_of_earlier_versions_is_removed_under_its_old_names(tmp_path: Path, left: str) -> None:
    """STATE-HOME-08"""
    (tmp_path / left).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / left).write_text("a name")
    prepare_home(tmp_path)
    assert not (tmp_path / left).exists()


def test_a_folder_in_use_stays(tmp_path: Path) -> None:
    """STATE-HOME-08"""
    with throwaway_folder(tmp_path) as folder:
        (folder / "x").write_text("a name")
        prepare_home(tmp_path)
        assert (folder / "x").exists()
        assert folder.parent == tmp_path / "scratch"
        assert folder.stat().st_mode & 0o077 == 0
    assert not folder.exists()
