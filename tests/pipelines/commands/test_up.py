"""`chartferry up`: starts service, web server and daemon, says where they are, and ends all of them."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.execution.retries import auto_reexecution_should_retry_run
from dagster._core.storage.tags import GRPC_INFO_TAG, REPOSITORY_LABEL_TAG
from dagster._core.test_utils import create_run_for_test

from pipelines.cli import run as chartferry
from pipelines.commands import processes, supervising, up
from pipelines.commands.supervising import CannotStart, ChildProcess, FolderRemoved
from pipelines.dagster import code_server
from pipelines.dagster.child_process import make_storage
from pipelines.dagster.code_server import give_up, lost_runs
from pipelines.home.dagster_folder import LOAD_POOL, dagster_environment, lacking, prepare_dagster_home
from pipelines.home.exits import BadSetting
from pipelines.home.logs import rotate
from pipelines.home.sensor_ticks import note_tick
from pipelines.session import bundled
from tests.support import loopback
from tests.support.alive import lives
from tests.support.commands import forget_settings
from tests.support.standing import PATIENCE_SECONDS, addresses, gone, processes_of, running_up, until


@pytest.mark.long
@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_up_answers_at_its_addresses_and_leaves_no_process_behind(tmp_path: Path, ending: signal.Signals) -> None:
    """CLI-CMD-13, STATE-HOME-05: all three on loopback until interrupted; even a kill leaves nothing behind."""
    home = tmp_path / "home"
    with running_up(home, "--port", "0", "--web-port", "0") as process:
        found = addresses(process)
        assert loopback.get(f"{found['service']}/health", timeout=60).status_code == 200
        answer = loopback.post(
            f"{found['Dagster']}/graphql",
            json={"query": '{ instance { daemonHealth { daemonStatus(daemonType: "SENSOR") { healthy } } } }'},
            timeout=60,
        )
        assert "errors" not in answer.json()
        assert found["service"].startswith("http://127.0.0.1:")
        assert found["Dagster"].startswith("http://127.0.0.1:")
        assert found["inbox"] == str(home / "inbox")
        assert len(processes_of(home)) >= 3
        assert (home / "dagster" / "dagster.yaml").exists()
        process.send_signal(ending)
        code = process.wait(PATIENCE_SECONDS)
    assert code == (-signal.SIGKILL if ending == signal.SIGKILL else 0)
    assert gone(home)


def test_a_port_that_is_taken_is_reported_in_one_clear_line(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with running_up(tmp_path / "home", "--port", "0", "--web-port", str(port)) as process:
            said, errors = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 6
    assert said == ""
    expected = rf"chartferry: port {port} of 127.0.0.1 cannot be used \(.*\): name another by --web-port or .*\n"
    assert re.fullmatch(expected, errors)


def test_a_home_has_one_supervisor(tmp_path: Path) -> None:
    home = tmp_path / "home"
    folder = prepare_dagster_home(home)
    with supervising.only_up(folder, home), running_up(home, "--port", "0", "--web-port", "0") as process:
        _, errors = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 6
    expected = f"process {os.getpid()} runs `chartferry up` or `serve` over {home} already: end that process first"
    assert errors == f"chartferry: {expected}\n"


def test_a_folder_of_dagster_that_went_is_seen_and_a_home_that_went_ends_it(tmp_path: Path) -> None:
    """CLI-CMD-13: with the folder goes the lock; a second supervisor would run everything twice."""
    home = tmp_path / "home"
    folder = prepare_dagster_home(home)
    with supervising.only_up(folder, home) as look:
        look()
        folder.rename(tmp_path / "aside")
        with pytest.raises(FolderRemoved, match=f"^{re.escape(str(folder))} was removed or replaced"):
            look()
        prepare_dagster_home(home)
        with pytest.raises(FolderRemoved), supervising.only_up(folder, home):
            look()
        home.rename(tmp_path / "elsewhere")
        with pytest.raises(
            CannotStart, match=f"^{re.escape(str(home))} was removed or replaced .*: put the folder back"
        ):
            look()


@pytest.mark.long
def test_up_goes_on_in_a_new_folder_of_dagster(tmp_path: Path) -> None:
    """CLI-CMD-13: it says so, and what is put into the inbox then is imported."""
    home = tmp_path / "home"
    with running_up(home, "--port", "0", "--web-port", "0") as process:
        addresses(process)
        shutil.rmtree(home / "dagster", ignore_errors=True)
        assert process.stdout is not None
        said = f"{home / 'dagster'} was removed or replaced while Dagster ran in it; Dagster's folder is made again, "
        assert process.stdout.readline() == f"{said}without the history of runs\n"
        addresses(process)
        (home / "inbox" / "payments-1.csv").write_text("payment_id,patient_id,amount,paid_on\n")
        until(lambda: list((home / "batches").glob("payments-*/run-1/manifest.json")), "the file is imported")
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_SECONDS) == 0
    assert gone(home)


def test_up_says_in_one_line_why_the_service_did_not_start_and_starts_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A store that cannot be opened: one line, and the rest is never started. A toy stands for the code server."""
    home = tmp_path / "home"
    home.mkdir()
    (home / "service.duckdb").write_bytes(b"no store" * 1000)
    forget_settings(monkeypatch)
    monkeypatch.setattr(up, "SERVICE", bundled.SERVICE)
    monkeypatch.setattr(up, "ATTENDED", (sys.executable, "-S", "-c", "import time; time.sleep(600)"))
    assert chartferry(["--home", str(home), "up", "--port", "0", "--web-port", "0"]) == 6
    errors = capsys.readouterr().err
    assert errors.startswith("chartferry: service did not start: ")
    assert errors.count("\n") == 1
    assert not (home / "dagster" / "webserver.log").exists()
    assert gone(home)


def test_a_target_that_cannot_be_used_is_named_before_anything_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """CLI-GLOBAL-04: http:// beyond this machine is taken with --insecure alone; then the next fault is named."""
    forget_settings(monkeypatch)
    monkeypatch.setenv("FHIR_BASE_URL", "http://192.0.2.1")
    ends = {
        "": "FHIR_BASE_URL is http:// beyond this machine: use https://, or --insecure",
        "--insecure": "set FHIR_CLIENT_ID and FHIR_CLIENT_SECRET (or FHIR_CLIENT_SECRET_FILE, or"
        " FHIR_CLIENT_KEY_FILE), or FHIR_TOKEN",
    }
    for option, said in ends.items():
        assert chartferry(["--home", str(tmp_path), "up", *option.split()]) == 6
        assert capsys.readouterr() == ("", f"chartferry: {said}\n")


def test_settings_that_an_old_dagster_yaml_lacks_are_named(tmp_path: Path) -> None:
    settings = prepare_dagster_home(tmp_path) / "dagster.yaml"
    assert lacking(settings.parent) == []
    earlier = re.sub(r"^(freshness:\n.*|  free_slots_after.*)\n", "", settings.read_text(), flags=re.MULTILINE)
    settings.write_text(earlier)
    said: list[str] = []
    with pytest.raises(BadSetting):
        up.up(tmp_path, {"FHIR_BASE_URL": "odd"}, 0, 0, said.append)
    wanted = "run_monitoring.free_slots_after_run_end_seconds, freshness.enabled"
    assert said == [
        f"{settings} lacks the settings {wanted}: move the file away and start again, and a complete one is written"
    ]
    assert settings.read_text() == earlier


def test_a_large_log_is_rotated_while_its_writer_goes_on(tmp_path: Path) -> None:
    log = tmp_path / "daemon.log"
    with log.open("ab", buffering=0) as writer:
        for number in range(6):
            writer.write(f"run {number}\n".encode() * 10)
            assert not rotate(log, 100)
            assert rotate(log, 10)
            assert log.read_bytes() == b""
        writer.write(b"goes on\n")
    assert log.read_bytes() == b"goes on\n"
    kept = {path.name: path.read_text().split("\n")[0] for path in tmp_path.glob("daemon.log.*")}
    assert kept == {"daemon.log.1": "run 5", "daemon.log.2": "run 4", "daemon.log.3": "run 3"}
    assert not rotate(tmp_path / "none.log")


def test_up_names_every_folder_and_page(tmp_path: Path) -> None:
    said: list[str] = []
    up._tell(
        [ChildProcess("service", (), tmp_path / "service.log", "http://127.0.0.1:8400/health")], tmp_path, said.append
    )
    names = [line.split()[0] for line in said]
    assert names == "service chart inbox reference feeds batches report evidence metrics logs Ctrl-C".split()
    said.clear()
    up._tell([], tmp_path, said.append)
    assert "reference" not in [line.split()[0] for line in said]
    assert f"logs      {tmp_path / 'dagster'}/*.log" in said


def child(tmp_path: Path, code: str) -> ChildProcess:
    made = ChildProcess("toy", (sys.executable, "-c", code), tmp_path / "toy.log")
    made.start(os.environ)
    return made


def test_a_child_that_does_not_listen_is_killed_with_its_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervising, "ENDS_WITHIN_SECONDS", 0.2)
    deaf = (
        "import signal, time; [signal.signal(s, signal.SIG_IGN) for s in (2, 15)];"
        "print('up', flush=True); time.sleep(60)"
    )
    stubborn = child(tmp_path, deaf)
    while "up" not in (tmp_path / "toy.log").read_text():
        time.sleep(0.05)
    stubborn.stop()
    assert stubborn.process
    assert stubborn.process.returncode == -signal.SIGKILL


def test_a_child_that_ends_is_started_anew_and_one_that_does_so_always_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr(supervising, "RESTARTS", 2)
    monkeypatch.setattr(processes, "asked_to_end", lambda *_: time.sleep(0.3))
    toy = child(tmp_path, "print('no luck')")
    with pytest.raises(CannotStart, match="toy ended too often, and is not started again: no luck"):
        processes.watch([processes.SupervisedProcess(toy, os.environ)], -1, said.append)
    assert said == ["toy ended (no luck); starting it again"] * 2


def test_a_new_code_server_fails_the_runs_of_the_former_one_so_that_they_are_retried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs that no code server started are left alone."""
    monkeypatch.setenv("DAGSTER_HOME", str(prepare_dagster_home(tmp_path)))
    ours, status = {REPOSITORY_LABEL_TAG: "__repository__@module"}, dg.DagsterRunStatus
    launched = {**ours, GRPC_INFO_TAG: "{}"}
    with dg.DagsterInstance.get() as instance:
        runs = [
            create_run_for_test(instance, status=before, tags=tags)
            for before, tags in (
                (status.STARTED, launched),
                (status.STARTING, launched),
                (status.CANCELING, launched),
                (status.STARTED, ours),
                (status.STARTED, {**launched, REPOSITORY_LABEL_TAG: "__repository__@another"}),
            )
        ]
        storage = instance.event_log_storage
        storage.initialize_concurrency_limit_to_default(LOAD_POOL)
        assert storage.claim_concurrency_slot(LOAD_POOL, runs[0].run_id, "payments__loaded").is_claimed
        give_up(lost_runs("module"))
        assert storage.get_concurrency_info(LOAD_POOL).active_slot_count == 0
        after = [found.status for run in runs if (found := instance.get_run_by_id(run.run_id))]
        assert after == [status.FAILURE, status.FAILURE, status.CANCELED, status.STARTED, status.STARTED]
        assert auto_reexecution_should_retry_run(instance, instance.get_runs()[-1], None)


def test_lost_runs_are_marked_failed_once_the_daemon_runs_or_a_time_is_over_and_failures_are_retried(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    heard, answers, given = iter([False, True]), iter([OSError, None]), list[str]()

    def give_up(lost: Mapping[str, float | None]) -> None:
        given.extend(lost)
        if error := next(answers):
            raise error

    monkeypatch.setattr(code_server, "give_up", give_up)
    monkeypatch.setattr(code_server, "SECONDS_BETWEEN_TRIES", 0.001)
    monkeypatch.setattr(code_server, "SECONDS_BETWEEN_LOOKS", 0.001)
    code_server.give_up_when(lambda: next(heard), threading.Event(), {"one": 1.0})
    assert given == ["one", "one"]
    assert "Lost runs cannot be given up yet (OSError)." in capsys.readouterr().err
    answers = iter([None])
    code_server.give_up_when(lambda: False, threading.Event(), {"two": 1.0}, seconds=0.01)
    assert given == ["one", "one", "two"]


def test_the_daemon_counts_as_running_once_it_has_evaluated_a_sensor(tmp_path: Path) -> None:
    """Dagster retries a lost run once. A daemon for which the code server is away gives up that retry."""
    (tmp_path / "dagster").mkdir()
    note_tick(tmp_path, "inbox")
    heard = code_server.heard_of_daemon({"CHARTFERRY_HOME": str(tmp_path)})
    assert not heard()
    note_tick(tmp_path, "unfinished")
    assert heard()


def test_child_processes_end_when_the_supervisor_of_their_parent_is_gone() -> None:
    """CLI-CMD-13: no run continues when `up` itself was killed."""
    program = """if True:
        import signal, subprocess, sys, time
        from pipelines.dagster import child_process as of_dagster
        of_dagster.ENDS_WITHIN_SECONDS = 1
        signal.signal(signal.SIGINT, signal.default_int_handler)  # it is ignored where the tests run in the background
        with of_dagster.attended():
            print(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]).pid, flush=True)
            time.sleep(600)"""
    arguments, pipe = [sys.executable, "-c", program], subprocess.PIPE
    with subprocess.Popen(arguments, stdin=pipe, stdout=pipe, text=True, start_new_session=True) as process:
        assert process.stdin
        assert process.stdout
        started = int(process.stdout.readline())
        process.stdin.close()
        assert process.wait(PATIENCE_SECONDS) == -signal.SIGKILL
    until(lambda: not lives(started), "the end of what it started")


@pytest.mark.long
def test_processes_that_start_at_once_over_a_new_home_all_find_dagsters_storage(tmp_path: Path) -> None:
    """CLI-CMD-13"""
    program = "import os, pathlib; from pipelines.dagster import child_process as a; "
    program += "a.make_storage(pathlib.Path(os.environ['DAGSTER_HOME']))"
    prepare_dagster_home(tmp_path)
    environ = dagster_environment(tmp_path, os.environ)
    started = [subprocess.Popen([sys.executable, "-c", program], env=environ) for _ in range(2)]
    assert [process.wait() for process in started] == [0, 0]


def test_threads_that_start_at_once_over_a_new_home_make_dagsters_storage_one_after_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CLI-CMD-13: the lock of a file keeps threads apart, as it does processes."""
    folder = prepare_dagster_home(tmp_path)
    for name, value in dagster_environment(tmp_path, {}).items():
        monkeypatch.setenv(name, value)
    make, turn = dg.DagsterInstance.get, threading.Lock()

    @contextmanager
    def alone() -> Iterator[dg.DagsterInstance]:
        assert turn.acquire(blocking=False)
        with make() as instance:
            time.sleep(0.05)
            yield instance
        turn.release()

    monkeypatch.setattr(dg.DagsterInstance, "get", alone)
    with ThreadPoolExecutor(3) as starting:
        list(starting.map(make_storage, [folder] * 3))
    with make() as instance:
        assert instance.get_runs() == []
