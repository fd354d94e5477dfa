"""One code server under `chartferry up`: it reloads changed feeds and views, and is started anew when it was killed."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
import yaml

from pipelines.commands import up as running
from pipelines.commands.definitions import DEFINITIONS, DefinitionsReloader, stamp_of
from pipelines.dagster import reload
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
    asked: list[tuple[bool, bool]] = []

    def ask(anew: bool, failed: bool) -> None:
        asked.append((anew, failed))
        if len(asked) in (1, 3):
            raise ConnectionError("not yet")

    said: list[str] = []
    reloading = DefinitionsReloader(lambda: stamp_of(home, {"CHARTFERRY_FEEDS": str(more)}), ask, said.append, 0.0)
    looks(reloading, 3)
    assert (asked, said) == ([(False, False)] * 2, [])
    for number, path in enumerate((home / "feeds" / "desk.toml", home / "views" / "own.view.json", more / "keys.csv")):
        path.parent.mkdir(parents=True)
        path.write_text("1")
        looks(reloading, 1)
        assert len(said) == number
        looks(reloading, 3)
        assert len(said) == number + 1
    path.write_text("12")
    looks(reloading, 2)
    path.unlink()
    looks(reloading, 3)
    assert said == ["feeds and views were read again"] * 5
    assert asked[2:] == [(True, False)] * 6


def test_definitions_that_cannot_be_used_are_named_at_the_start_and_once_until_they_are_mended(tmp_path: Path) -> None:
    """CLI-CMD-13: no sensor runs meanwhile, so that nobody else would say that nothing is imported."""
    (tmp_path / "feeds").mkdir()
    broken = tmp_path / "feeds" / "broken.toml"
    broken.write_text("no")
    said: list[str] = []
    asked: list[tuple[bool, bool]] = []

    def ask(anew: bool, failed: bool) -> str | None:
        asked.append((anew, failed))
        return "broken.toml: no" if broken.exists() else None

    reloading = DefinitionsReloader(lambda: stamp_of(tmp_path, {}), ask, said.append)
    looks(reloading, 5)
    assert said == ["broken.toml: no"]
    broken.unlink()
    looks(reloading, 5)
    assert said == ["broken.toml: no", "feeds and views were read again"]
    assert asked == [(False, False), (True, True)]


def test_the_reason_why_definitions_cannot_be_used_is_reported_in_one_sentence() -> None:
    said = "a feed, a view or a setting cannot be used, and nothing is imported until it is corrected: a.toml: no"
    assert reload.sentence_of(["m", "pipelines.feeds.x.FeedError: a.toml: no\n"]) == said
    assert reload.sentence_of([]) is None


@pytest.mark.parametrize(
    ("found", "before", "events"),
    [
        (["a.toml: no"], (), ["definitions_failed"]),
        (["a.toml: no"], ("failed",), []),
        ([], ("failed",), ["well_again"]),
        ([], (), []),
    ],
    ids=["they fail", "they still fail", "they are well again", "they are well"],
)
def test_an_alert_is_sent_when_definitions_begin_to_fail_and_when_they_are_well_again(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    found: list[str],
    before: tuple[str, ...],
    events: list[str],
) -> None:
    """CLI-CMD-13: the sensor that sends all other alerts does not run meanwhile."""
    sent = tmp_path / "sent"
    sent.touch()
    (tmp_path / "mail").write_text(f"#!/bin/sh\ncat >> {sent}; echo >> {sent}\n")
    (tmp_path / "mail").chmod(0o700)
    environ = {"CHARTFERRY_HOME": "/srv/home", "CHARTFERRY_CLINIC": "north"}
    for name, value in (environ | {"CHARTFERRY_ALERT_COMMAND": str(tmp_path / "mail")}).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(reload, "reasons", lambda address, seconds: found)
    reload.main("10.0.0.5:4000", "0", *before)
    assert json.loads(capsys.readouterr().out) == reload.sentence_of(found)
    documents = [json.loads(line) for line in sent.read_text().splitlines()]
    assert [(each["event"], each["home"], each["clinic"]) for each in documents] == [
        (event, "/srv/home", "north") for event in events
    ]
    assert all("a.toml: no" in each["text"] for each in documents if each["event"] == "definitions_failed")


def test_an_alert_that_cannot_be_sent_is_tried_again(tmp_path: Path) -> None:
    environ = {"CHARTFERRY_HOME": str(tmp_path), "CHARTFERRY_ALERT_COMMAND": str(tmp_path / "mail")}
    assert not reload.send("a.toml: no", environ, (0.0, 0.0))
    (tmp_path / "mail").write_text(f"#!/bin/sh\n[ -e {tmp_path}/tried ] || {{ touch {tmp_path}/tried; exit 1; }}\n")
    (tmp_path / "mail").chmod(0o700)
    assert reload.send("a.toml: no", environ, (0.0, 0.0))


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
