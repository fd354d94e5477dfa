"""One code server under `chartferry up`: it reloads changed feeds and views, and is started anew when it was killed."""

import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
import yaml

from pipelines.commands import up as running
from pipelines.commands.definitions import DEFINITIONS, DefinitionsReloader, sentence_of, stamp_of
from tests.support.alive import lives
from tests.support.commands import load
from tests.support.payers import practice
from tests.support.standing import Standing, standing, until

PAYMENTS = "payment_id,patient_id,amount,paid_on\nU-1,p1,1.00,2026-03-02\n"
CASH = """name = "cash"
kind = "payments"
files = ["cash-*.csv"]
[columns]
payment_id = "payment_id"
patient_id = "patient_id"
amount = "amount"
paid_on = "paid_on"
"""
LOCATIONS = """{ workspaceOrError { ... on Workspace { locationEntries { locationOrLoadError { __typename
    ... on RepositoryLocation { repositories { jobs { name } } } } } } } }"""


def looks(reloading: DefinitionsReloader, number: int) -> None:
    for _ in range(number):
        reloading.look()
        if reloading.thread:
            reloading.thread.join()


def test_definitions_are_reloaded_once_their_files_have_changed_and_are_still(tmp_path: Path) -> None:
    home, more = tmp_path / "home", tmp_path / "more"
    reloads: list[str] = []

    def reload() -> str:
        reloads.append("asked")
        if len(reloads) == 1:
            raise ConnectionError("not yet")
        return f"reload {len(reloads)}"

    said: list[str] = []
    reloading = DefinitionsReloader(lambda: stamp_of(home, {"CHARTFERRY_FEEDS": str(more)}), reload, said.append)
    looks(reloading, 3)
    assert (reloads, said) == ([], [])
    for number, path in enumerate((home / "feeds" / "desk.toml", home / "views" / "own.view.json", more / "keys.csv")):
        path.parent.mkdir(parents=True)
        path.write_text("1")
        looks(reloading, 1)
        assert len(said) == number
        looks(reloading, 3)
        assert len(said) == number + 1
    assert said == ["reload 2", "reload 3", "reload 4"]
    path.write_text("12")
    looks(reloading, 2)
    path.unlink()
    looks(reloading, 3)
    assert said[3:] == ["reload 5", "reload 6"]


@pytest.mark.parametrize(
    ("reasons", "said"),
    [
        ([], "feeds and views were read again"),
        (
            ["m", "pipelines.feeds.x.FeedError: a.toml: no\n"],
            "a feed or a view cannot be used, and nothing is imported until it is corrected: a.toml: no",
        ),
    ],
)
def test_the_result_of_a_reload_is_one_sentence(reasons: list[str], said: str) -> None:
    assert sentence_of(reasons) == said


def test_dagsters_processes_find_the_code_server_by_a_socket_of_the_owner(tmp_path: Path) -> None:
    """CLI-CMD-01: the file that names it is in the home, where no system removes what is old."""
    folder, socket = tmp_path / "dagster", tmp_path / "run" / "code.sock"
    folder.mkdir()
    web, daemon = running.pages_and_daemon(folder, {DEFINITIONS: socket}, 3000)
    server = {"socket": str(socket), "location_name": DEFINITIONS}
    assert yaml.safe_load((folder / "workspace.yaml").read_text()) == {"load_from": [{"grpc_server": server}]}
    assert all(str(folder / "workspace.yaml") in each.command for each in (web, daemon))


STOP = """
            try:
                kill(getpid(), SIGINT)
                time.sleep(5)
            except KeyboardInterrupt:
                newest.kill()"""
ONE_BY_ONE = """
            older.kill()
            time.sleep(1)
            print("stays", flush=True)
            newest.kill()"""
SERVED = """if True:
    import subprocess, sys, time
    from os import getpid, kill
    from signal import SIGINT
    from pipelines.dagster import code_server

    def start():
        quiet = subprocess.DEVNULL
        return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], stdout=quiet, stderr=quiet)

    def command(*_, **__):
        older, newest = start(), start()
        print(older.pid, flush=True)
        time.sleep(1)
        try:
            WHAT_COMES
            time.sleep(5)
        finally:
            older.kill()
            newest.kill()

    code_server.lost_runs = lambda _: {}
    code_server.run_module = command
    code_server.serve("module", "socket", 0.1)
"""
"""A code server with two children in place of Dagster's command."""


@pytest.mark.parametrize(
    ("what_comes", "code", "said", "stays"),
    [
        (ONE_BY_ONE, -signal.SIGKILL, "The process that holds the definitions ended.\n", "stays\n"),
        pytest.param(STOP, 0, "", "", marks=pytest.mark.long),
    ],
    ids=["an older one ends and then the newest", "the newest ends after a stop was asked for"],
)
def test_a_code_server_whose_definitions_process_ended_ends_with_all_its_runs(
    what_comes: str, code: int, said: str, stays: str
) -> None:
    """CLI-CMD-13: so that the supervisor starts it anew; a stop that was asked for is left to end in order."""
    program = [sys.executable, "-c", SERVED.replace("WHAT_COMES", what_comes)]
    done = subprocess.run(program, check=False, capture_output=True, text=True, timeout=120, start_new_session=True)
    older, told_later = done.stdout.split("\n", 1)
    assert (done.returncode, done.stderr, told_later) == (code, said, stays)
    until(lambda: not lives(int(older)), "the end of the older process")


def jobs(up: Standing) -> list[str]:
    """The jobs that Dagster's pages show; none while the definitions cannot be loaded."""
    found = up.ask(LOCATIONS)["workspaceOrError"]["locationEntries"]
    repositories = [each for entry in found for each in entry["locationOrLoadError"].get("repositories", [])]
    return [job["name"] for repository in repositories for job in repository["jobs"]]


@pytest.mark.long
def test_a_new_feed_is_used_without_a_restart_and_a_killed_code_server_is_made_anew(tmp_path: Path) -> None:
    """CLI-CMD-13: a feed file that is put there, one that cannot be read, and kills of both processes."""
    home = tmp_path / "home"
    assert load(home, practice(tmp_path / "practice", 5)).returncode == 0
    with standing(home) as up:
        feeds = home / "feeds"
        (feeds / "cash.toml").write_text(CASH)
        until(lambda: "import_cash" in jobs(up), "the new feed")
        (home / "inbox" / "cash-1.csv").write_text(PAYMENTS)
        until(lambda: list(up.partitions("cash").values()) == ["materialized"], "its first file")
        (feeds / "broken.toml").write_text("no")
        until(lambda: not jobs(up), "the broken feed")
        (feeds / "broken.toml").unlink()
        until(lambda: "import_cash" in jobs(up), "the mended feeds")
        for number in (2, 3):
            server = up.child("code server")
            assert server
            victim = server if number == 2 else max(server.children(), key=psutil.Process.create_time)
            victim.kill()
            until(lambda: (now := up.child("code server")) and now != server, "a new code server")  # noqa: B023
            (home / "inbox" / f"cash-{number}.csv").write_text(PAYMENTS.replace("U-1", f"U-{number}"))
            until(
                lambda: list(up.partitions("cash").values()) == ["materialized"] * number,  # noqa: B023
                f"file {number}",
            )
