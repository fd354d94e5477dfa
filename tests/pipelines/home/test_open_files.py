"""A process that may open too few files says so before it begins; it takes what it is allowed where that is enough."""

import resource
import subprocess
import sys
from pathlib import Path

import pytest

SHOWN = "import resource; print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])"
BEGUN = f"from pipelines.home.preparing import check_open_files; check_open_files(); {SHOWN}"


def limited(arguments: list[str], most: int, allowed: int) -> subprocess.CompletedProcess[str]:
    """Run Python with a soft and a hard limit of open files."""
    return subprocess.run(
        [sys.executable, *arguments],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (most, allowed)),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("command", [["up"], ["import"]])
def test_a_limit_of_open_files_that_is_too_low_is_reported_in_one_line(tmp_path: Path, command: list[str]) -> None:
    """CLI-CMD-13, CLI-IMPORT-08: before anything is made."""
    home = tmp_path / "home"
    ended = limited(["-m", "pipelines.cli", "--home", str(home), *command], 20, 20)
    assert ended.returncode == 6
    assert ended.stderr == (
        "chartferry: a process may have only 20 files open here, which is too few: allow 256"
        " (`ulimit -n 256`, or LimitNOFILE of a systemd unit)\n"
    )
    assert not home.exists()


def test_a_process_takes_what_it_is_allowed() -> None:
    """CLI-CMD-13"""
    assert limited(["-c", BEGUN], 20, 300).stdout == "256\n"
    assert limited(["-c", BEGUN], 300, 400).stdout == "300\n"
