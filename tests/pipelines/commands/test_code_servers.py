"""Clinics whose code server is on another host: what their file may say, and what reaches pages, daemon and host."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from pipelines.cli import run as chartferry
from pipelines.commands import serve_code
from pipelines.commands.definitions import write_workspace
from pipelines.commands.processes import stop
from pipelines.commands.supervising import CannotStart, ChildProcess, check_own, check_web_host
from pipelines.commands.up_clinics import WatchedServer, environment_for, environment_of_pages
from pipelines.dagster.names import DagsterNames
from pipelines.home.dagster_folder import (
    WRITTEN_FOR_OTHERS,
    check_at_server,
    prepare_served_dagster,
    prepare_shared_dagster,
    problem_of,
)
from pipelines.home.exits import BadSetting
from pipelines.home.folder import BadHome
from pipelines.session.clinics import CodeServer, read_clinics, read_code_servers, shared_environment
from tests.support.clinics import TWO, clinics_file
from tests.support.commands import forget_settings

FAR = '[[clinic]]\nname = "far"\ncode_server = "10.0.0.5:4000"\n'
STORAGE = {"DAGSTER_POSTGRES_URL": "postgresql+psycopg2://dagster@db/dagster"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        *(
            (
                f'[[clinic]]\nname = "far"\ncode_server = "{address}"\n',
                f"clinic far: code_server: {address!r} is no address: write HOST:PORT, such as 10.0.0.5:4000",
            )
            for address in ("", "10.0.0.5", ":4000", "a b:1", "h:0", "h:65536", "h:١", "http://h:4000", "fd00::5:4000")
        ),
        (
            FAR.replace("10.0.0.5", "0.0.0.0"),  # noqa: S104 - nothing listens at it
            "clinic far: code_server: nobody reaches 0.0.0.0: name the address of its host",
        ),
        ('[[clinic]]\nname = "far"\ncode_server = 4000\n', "clinic far: code_server: is not of the right kind (str)"),
        (
            FAR + 'target = "https://chart.example.org/fhir"\n',
            "clinic far: target: is of no use without home: say it in the file on the clinic's host",
        ),
        (
            FAR + FAR.replace('"far"', '"near"'),
            "clinics far and near have one code server, 10.0.0.5:4000: each needs its own",
        ),
        (
            FAR + 'home = "north"\n' + FAR.replace('"far"', '"near"').replace("4000", "4001") + 'home = "north"\n',
            "clinics far and near have one home, {}/north: each needs its own",
        ),
        (FAR + '[clinic.settings]\nCHARTFERRY_CODE_SERVER = "h:1"\n', "clinic far: settings: is of no use without"),
        (
            FAR + 'home = "north"\n[clinic.settings]\nCHARTFERRY_CODE_SERVER = "h:1"\n',
            "clinic far: settings: CHARTFERRY_CODE_SERVER: is said by code_server",
        ),
    ],
)
def test_a_code_server_that_cannot_be_used_is_reported_in_one_clear_sentence(
    tmp_path: Path, text: str, said: str
) -> None:
    """SCALE-04"""
    with pytest.raises(BadSetting) as raised:
        read_clinics(clinics_file(tmp_path, text), {})
    assert str(raised.value).startswith(f"clinics.toml: {said.format(tmp_path)}")


def test_clinics_on_different_hosts_may_have_the_same_home_path(tmp_path: Path) -> None:
    """SCALE-04: each host has a disk of its own, so these homes are not looked at here."""
    near = FAR.replace('"far"', '"near"').replace("10.0.0.5", "[fd00::6]")
    file = clinics_file(tmp_path, FAR + 'home = "/srv/home"\n' + near + 'home = "/srv/home"\nruns = 5\n')
    assert read_clinics(file, {}) == []
    assert read_code_servers(file) == [CodeServer("far", "10.0.0.5:4000", 2), CodeServer("near", "[fd00::6]:4000", 5)]


def test_a_clinics_file_for_several_hosts_gives_each_clinic_only_its_own_settings(tmp_path: Path) -> None:
    """SCALE-04: the pages' host starts nothing for a clinic whose code server is elsewhere."""
    text = TWO.replace('home = "south"', 'home = "south"\ncode_server = "south.internal:4000"\nenvironment = "S_"')
    environ = {"S_FHIR_TOKEN": "t", "S_FHIR_CLIENT_ID": "c", **STORAGE}
    file = clinics_file(tmp_path, text + 'target = "https://south.example.org/fhir"\n')
    assert [clinic.name for clinic in read_clinics(file, environ)] == ["north"]
    assert shared_environment(file, environ) == STORAGE
    [south] = read_clinics(file, environ, only="south")
    assert south.environ == {
        **STORAGE,
        "FHIR_BASE_URL": "https://south.example.org/fhir",
        "FHIR_TOKEN": "t",
        "FHIR_CLIENT_ID": "c",
        "CHARTFERRY_HOME": str(tmp_path / "south"),
        "CHARTFERRY_CLINIC": "south",
        "CHARTFERRY_CODE_SERVER": "south.internal:4000",
    }
    with pytest.raises(
        BadSetting, match=r"clinic far: has no home here: run this on the host of its code server, 10\.0\.0\.5:4000$"
    ):
        read_clinics(clinics_file(tmp_path, FAR), {}, only="far")


def test_variables_of_a_clinic_that_has_moved_to_another_host_reach_no_process_here(tmp_path: Path) -> None:
    """SCALE-04"""
    moved = FAR + 'environment = "FAR_"\n'
    file = clinics_file(tmp_path, '[[clinic]]\nname = "north"\nhome = "north"\n' + moved)
    environ = {"FAR_FHIR_CLIENT_ID": "c", "FAR_CHARTFERRY_WEBHOOK": "https://w", **STORAGE}
    assert shared_environment(file, environ) == STORAGE
    [north] = read_clinics(file, environ)
    assert not [name for name in north.environ if "FHIR" in name or "WEBHOOK" in name]


def test_clinics_do_not_share_the_workers_of_an_executor(tmp_path: Path) -> None:
    """SCALE-04: a worker with the settings of one would make the steps of another."""
    with pytest.raises(BadSetting, match=r"clinic north: CHARTFERRY_EXECUTOR is celery, .* one home: unset it$"):
        read_clinics(clinics_file(tmp_path, TWO), {"CHARTFERRY_EXECUTOR": "celery"})


def test_the_workspace_names_sockets_of_this_host_and_addresses_of_others(tmp_path: Path) -> None:
    """SCALE-04: under the names of the clinics, which no proxy of the environment gets between."""
    far = [CodeServer("far", "10.0.0.5:4000", 2), CodeServer("east", "[fd00::6]:4001", 2)]
    write_workspace(
        tmp_path / "workspace.yaml", {"north": tmp_path / "north.sock", **{each.clinic: each.at for each in far}}
    )
    assert yaml.safe_load((tmp_path / "workspace.yaml").read_text())["load_from"] == [
        {"grpc_server": {"socket": str(tmp_path / "north.sock"), "location_name": "north"}},
        {"grpc_server": {"host": "10.0.0.5", "port": 4000, "location_name": "far"}},
        {"grpc_server": {"host": "[fd00::6]", "port": 4001, "location_name": "east"}},
    ]
    assert environment_for(far) == {"no_grpc_proxy": "10.0.0.5,fd00::6"}
    assert environment_for([]) == {}
    own = {"DAGSTER_GRPC_TIMEOUT_SECONDS": "40"}
    assert environment_of_pages(far, {"A": "b"}) == {"A": "b", "DAGSTER_GRPC_TIMEOUT_SECONDS": "15"}
    assert environment_of_pages(far, own) == own
    assert environment_of_pages([], {"A": "b"}) == {"A": "b"}
    stop([])  # such as where all clinics are on other hosts
    assert DagsterNames("far").partition("payments-1") == "far/payments-1"


def test_hosts_of_one_dagster_have_its_storage_in_postgresql(tmp_path: Path) -> None:
    """SCALE-04: and no path of one host reaches another. An operator may take the settings over."""
    for folder in (prepare_shared_dagster(tmp_path / "all", {"far": 3}, True)[0], prepare_served_dagster(tmp_path)):
        said = yaml.safe_load((folder / "dagster.yaml").read_text())
        assert said["storage"] == {"postgres": {"postgres_url": {"env": "DAGSTER_POSTGRES_URL"}}}
        assert said["local_artifact_storage"]["config"] == {"base_dir": {"env": "DAGSTER_HOME"}}
        assert said["compute_logs"]["class"] == "NoOpComputeLogManager"
    assert folder == tmp_path / "dagster" / "served"
    settings = folder / "dagster.yaml"
    own = "storage: {postgres: {postgres_url: {env: OWN}}}\n"
    settings.write_text(own)
    prepare_served_dagster(tmp_path)
    assert settings.read_text() == own
    settings.write_text(WRITTEN_FOR_OTHERS)
    prepare_served_dagster(tmp_path)
    assert settings.read_text() != WRITTEN_FOR_OTHERS
    folder, _ = prepare_shared_dagster(tmp_path / "all", {"far": 3})
    on_disk = (
        f"^{folder / 'dagster.yaml'}: Dagster's storage is on this disk, .*: set DAGSTER_POSTGRES_URL on each host$"
    )
    with pytest.raises(BadHome, match=on_disk):
        check_at_server(folder)
    for text in ("", "storage: {}", "storage: {sqlite: {base_dir: x}}"):
        (folder / "dagster.yaml").write_text(text)
        with pytest.raises(BadHome, match=on_disk):
            check_at_server(folder)
    for text in ("storage: {mysql: {}}", "storage: {custom: {module: m, class: OfOurs}}"):
        (folder / "dagster.yaml").write_text(text)
        check_at_server(folder)


def test_an_address_of_the_storage_that_dagster_does_not_take_is_reported_in_one_sentence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """SCALE-04: with another driver each event of a run would fail."""
    assert problem_of({}) is None
    assert problem_of(STORAGE) is None
    said = "DAGSTER_POSTGRES_URL begins with no postgresql+psycopg2://, which is what Dagster's storage takes"
    assert problem_of({"DAGSTER_POSTGRES_URL": "postgresql://dagster:secret@db/dagster"}) == said
    monkeypatch.setattr("pipelines.home.dagster_folder.find_spec", lambda name: None)
    assert problem_of(STORAGE) == (
        "DAGSTER_POSTGRES_URL needs dagster-postgres, which is not installed: pip install 'chartferry[cluster]'"
    )


def test_the_commands_say_it_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """SCALE-04: before anything is started."""
    forget_settings(monkeypatch)
    file = clinics_file(tmp_path, FAR)

    def said(*words: str) -> tuple[int, str]:
        return chartferry([*words]), capsys.readouterr().err

    storage = "Dagster's storage is on this disk, which other hosts do not have: set DAGSTER_POSTGRES_URL on each host"
    all_of_it = ("--home", str(tmp_path / "all"), "up", "--clinics", str(file))
    assert said(*all_of_it) == (6, f"chartferry: {tmp_path}/all/dagster/dagster.yaml: {storage}\n")
    monkeypatch.setenv("DAGSTER_POSTGRES_URL", "postgresql://db")
    assert said(*all_of_it)[1].startswith("chartferry: DAGSTER_POSTGRES_URL begins with no ")
    monkeypatch.setenv("DAGSTER_POSTGRES_URL", STORAGE["DAGSTER_POSTGRES_URL"])
    monkeypatch.setenv("CHARTFERRY_WEB_HOST", "10.0.0.2")
    for command in (all_of_it, ("--home", str(tmp_path / "one"), "up")):
        assert said(*command) == (
            6,
            (
                "chartferry: CHARTFERRY_WEB_HOST is '10.0.0.2': the pages can listen only on 127.0.0.1 or"
                " 0.0.0.0; set one of them\n"
            ),
        )
    assert not (tmp_path / "one").exists()
    told: list[str] = []
    check_web_host({}, told.append)
    check_web_host({"CHARTFERRY_WEB_HOST": "0.0.0.0"}, told.append)  # noqa: S104 - nothing listens at it
    assert told == ["Dagster's pages listen on 0.0.0.0, without sign-in: all who reach this machine can use them"]
    monkeypatch.setenv("DAGSTER_POSTGRES_URL", "postgresql://db")
    north = ("--home", str(tmp_path / "north"), "serve")
    assert said(*north, "127.0.0.1:4000")[1].startswith("chartferry: DAGSTER_POSTGRES_URL begins with no ")
    monkeypatch.setenv("DAGSTER_POSTGRES_URL", STORAGE["DAGSTER_POSTGRES_URL"])
    assert said(*north, "4000") == (6, "chartferry: '4000' is no address: write HOST:PORT, such as 10.0.0.5:4000\n")
    elsewhere = (
        "192.0.2.1:4000 cannot be used to listen on (Cannot assign requested address): name a free address of this host"
    )
    assert said(*north, "192.0.2.1:4000") == (6, f"chartferry: {elsewhere}\n")
    code, usage = said(*north)
    assert (code, "Missing argument '[HOST:PORT]'" in usage) == (2, True)
    monkeypatch.setenv("FHIR_BASE_URL", "https://chart.example.org/fhir")
    assert said(*north, "127.0.0.1:4000")[1].startswith("chartferry: set FHIR_CLIENT_ID and FHIR_CLIENT_SECRET ")


def test_a_code_server_is_ready_once_it_listens_and_its_port_is_its_own(tmp_path: Path) -> None:
    """SCALE-04: Dagster's server would share a port with that of another clinic."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        child = ChildProcess("code server", (), tmp_path / "log", listens=("127.0.0.1", port))
        assert child.ready()
        with pytest.raises(CannotStart, match="Address already in use"):
            check_own("127.0.0.1", port)
    assert not child.ready()
    check_own("127.0.0.1", port)


def test_an_unreachable_code_server_is_reported_once_and_once_when_it_answers_again() -> None:
    """SCALE-04: the pages go on for the other clinics."""
    said: list[str] = []
    server = socket.create_server(("127.0.0.1", 0))
    address = f"127.0.0.1:{server.getsockname()[1]}"
    watched = WatchedServer(CodeServer("far", address, 2), said.append)
    watched.look_once()
    assert said == []
    server.close()
    watched.look()
    watched.look()  # not due
    assert watched.thread
    watched.thread.join()
    watched.look_once()
    away = f"far: its code server at {address} does not answer (Connection refused); its imports wait, "
    assert said == [f"{away}all other clinics continue"]
    with socket.create_server(("127.0.0.1", int(address.rpartition(":")[2]))):
        watched.look_once()
    assert said[1:] == [f"far: its code server at {address} answers again"]


PAGES_BEGIN = """\
import sys
import dagster as dg
from dagster._cli.workspace.cli_target import workspace_opts_to_load_target
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster_shared.cli import WorkspaceOpts

target = workspace_opts_to_load_target(WorkspaceOpts(workspace=(sys.argv[2],)))
with dg.DagsterInstance.local_temp(sys.argv[1]) as instance, WorkspaceProcessContext(instance, target, "0") as context:
    [entry] = context.create_request_context().get_code_location_entries().values()
    print(entry.load_error.to_string())
"""


@pytest.mark.long
def test_the_pages_begin_although_a_code_server_takes_connections_and_never_answers(tmp_path: Path) -> None:
    """SCALE-04: after the patience that they were given, with an error in place of its definitions."""
    (tmp_path / "dagster").mkdir()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        far = CodeServer("far", f"127.0.0.1:{silent.getsockname()[1]}", 2)
        write_workspace(tmp_path / "workspace.yaml", {far.clinic: far.at})
        # Dagster reads the setting as it is imported.
        environ = os.environ | environment_of_pages([far], {}) | {"DAGSTER_GRPC_TIMEOUT_SECONDS": "1"}
        command = (sys.executable, "-c", PAGES_BEGIN, tmp_path / "dagster", tmp_path / "workspace.yaml")
        said = subprocess.run(command, env=environ, capture_output=True, text=True, check=True, timeout=120).stdout
    assert "taking longer than 1 seconds" in said


def test_changed_feeds_are_read_anew_by_the_code_server_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """SCALE-04: the pages are on another host. A code server that does not answer is asked again later."""
    asked: list[tuple[object, ...]] = []
    answers = [(1, b""), (0, b"null"), (0, b'"a.toml: no key"')]

    def answered(command: tuple[str, ...], **given: object) -> "subprocess.CompletedProcess[bytes]":
        environ = given["env"]
        assert isinstance(environ, dict)
        asked.append((*command[3:], environ["no_grpc_proxy"]))
        code, out = answers[len(asked) - 1]
        return subprocess.CompletedProcess(command, code, out, b"")

    monkeypatch.setattr(subprocess, "run", answered)
    with pytest.raises(OSError, match="does not answer"):
        serve_code.definitions_of("0.0.0.0", 4000, os.environ, True, False)  # noqa: S104 - nothing listens at it
    assert serve_code.definitions_of("10.0.0.5", 4000, {}, False, False) is None
    assert serve_code.definitions_of("[::]", 4000, {}, True, True) == "a.toml: no key"
    assert asked == [
        ("127.0.0.1:4000", "120", "127.0.0.1"),
        ("10.0.0.5:4000", "0", "10.0.0.5"),
        ("[::1]:4000", "120", "failed", "::1"),
    ]
