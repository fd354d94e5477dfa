"""Which folders can be a home, and how a command finds its home."""

import os
import stat

import pytest

from pipelines.cli import run
from tests.pipelines.commands.test_cli import put
from tests.support.ledgers import lose_tables


def test_the_home_is_for_its_owner_only(chartferry, home):
    """STATE-HOME-01"""
    (home / "inbox").chmod(0o700)  # the test's own
    put(home)
    chartferry("import")
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    shown = [path for path in home.rglob("*") if path.stat().st_mode & 0o077 and "published" not in path.parts]
    assert shown == []


@pytest.mark.alike
@pytest.mark.parametrize("command", ["status", "rejects export"])
def test_a_ledger_that_is_made_from_its_journal_is_for_its_owner_only(chartferry, home, command):
    """STATE-HOME-01: also by commands that only look."""
    put(home)
    chartferry("import")
    lose_tables(home)
    os.umask(0o022)
    assert chartferry(*command.split())[0] == 0
    assert stat.S_IMODE((home / "ledger.db").stat().st_mode) == 0o600


def test_home_comes_from_the_environment(home, monkeypatch, capsys):
    """CLI-GLOBAL-01"""
    monkeypatch.setenv("CHARTFERRY_HOME", str(home))
    put(home)
    assert run(["import"]) == 0
    assert (home / "ledger.db").exists()


def test_a_folder_that_holds_other_things_is_no_home_and_stays_as_it_is(home, tmp_path):
    """STATE-HOME-01"""
    other = tmp_path / "documents"
    other.mkdir(mode=0o755)
    (other / "letter.txt").write_text("a letter")
    other.chmod(0o755)
    assert run(["--home", str(other), "import"]) == 6
    assert (stat.S_IMODE(other.stat().st_mode), [path.name for path in other.iterdir()]) == (0o755, ["letter.txt"])
    other.chmod(0o700)
    assert run(["--home", str(other), "import"]) == 0


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_home_that_cannot_be_written_is_reported_in_one_line(tmp_path, capsys):
    (tmp_path / "home").mkdir(mode=0o500)
    assert run(["--home", str(tmp_path / "home"), "import"]) == 6
    assert "cannot be written" in capsys.readouterr().err


def test_a_home_of_another_user_is_reported_in_one_line_and_left_alone(home, monkeypatch, capsys):
    monkeypatch.setattr("pipelines.home.folder.os.geteuid", lambda: 4321)
    assert run(["--home", str(home), "import"]) == 6
    err = capsys.readouterr().err
    assert err.splitlines() == [
        f"chartferry: {home}: belongs to another user: a home is one user's; name a folder of your own (--home)"
    ]


def test_a_link_that_leads_nowhere_is_no_home(tmp_path, capsys):
    (tmp_path / "home").symlink_to("nowhere")
    assert run(["--home", str(tmp_path / "home"), "import"]) == 6
    assert capsys.readouterr().err.splitlines() == [
        f"chartferry: {tmp_path / 'home'}: is a file, or a link that leads nowhere: name a folder (--home)"
    ]


def test_a_home_that_cannot_be_made_is_reported_in_one_line_that_says_what_to_do(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert run(["--home", str(tmp_path / "file" / "home"), "import"]) == 6
    assert capsys.readouterr().err.splitlines() == [
        f"chartferry: {tmp_path / 'file' / 'home'}: cannot be made (Not a directory): name another folder (--home)"
    ]


def test_a_home_whose_files_duckdb_would_put_elsewhere_is_reported_in_one_line_and_not_made(tmp_path, capsys):
    """STATE-HOME-01: what stands before the `?` would be made a store, outside of the home."""
    home = tmp_path / "what?" / "home"
    assert run(["--home", str(home), "import"]) == 6
    assert "DuckDB takes a ? for the end of a file's path; name another (--home)" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
