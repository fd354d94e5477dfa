"""Several clinics in one deployment: what their file may say, the environment of each, and who is held up by whom."""

import os
import shutil
import sys
import time
from pathlib import Path

import dagster as dg
import pytest
import yaml

from pipelines.cli import run as chartferry
from pipelines.commands import supervising
from pipelines.commands.processes import SupervisedProcess
from pipelines.commands.supervising import CannotStart, ChildProcess
from pipelines.dagster.run_resource import workplace_resource
from pipelines.home.dagster_folder import WRITTEN_ANEW, prepare_shared_dagster
from pipelines.home.exits import BadSetting
from pipelines.home.folder import BadHome
from pipelines.home.sensor_ticks import note_tick
from pipelines.session.clinics import KEYS, Clinic, read_clinics, shared_environment
from tests.support.clinics import TWO, clinics_file
from tests.support.commands import forget_settings, run

NO_CREDENTIALS = (
    "set FHIR_CLIENT_ID and FHIR_CLIENT_SECRET (or FHIR_CLIENT_SECRET_FILE, or FHIR_CLIENT_KEY_FILE), or FHIR_TOKEN"
)
IN_ADDRESS = "is an address with a user or a password: put it into the environment"
TARGET = 'target = "https://chart.example.org/fhir"\n'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name = 1", "name: there is no such key: each clinic is a [[clinic]]"),
        ("", "names no clinic: each is a [[clinic]] with name and home"),
        ("no", "the file is not valid TOML: Expected '=' after a key in a key/value pair (at end of document)"),
        ('[[clinic]]\nname = "north"\n', "clinic north: has no home"),
        ('[[clinic]]\nhome = "north"\n', "clinic 1: has no name"),
        (
            TWO.replace('"north"', '"North/East"', 1),
            "clinic North/East: name: is no plain name: up to 30 small letters and digits, a letter first",
        ),
        (TWO.replace('"south"', '"north"', 1), "two clinics have the name north"),
        (
            TWO.replace('home = "south"', 'home = "./north/"'),
            "clinics north and south have one home, {}/north: each needs its own",
        ),
        (
            TWO.replace('home = "south"', 'home = "north/south"'),
            "clinics north and south: the home of one lies in that of the other, {}/north: each needs its own",
        ),
        (
            TWO.replace('home = "south"', 'home = "west"'),
            "clinic south: home: {}/west is not there: make the folder, or mount it",
        ),
        (TWO + 'feeds = ["more"]\n', "clinic south: feeds: {}/more: there is no such folder"),
        (TWO + "feeds = [1]\n", "clinic south: feeds: is not a list of folders"),
        (
            TWO + 'colour = "red"\n',
            f"clinic south: colour: there is no such key ({', '.join(KEYS)})",
        ),
        (TWO + "runs = true\n", "clinic south: runs: is not of the right kind (int)"),
        (TWO + "runs = 0\n", "clinic south: runs: is not from 1 to 100"),
        (TWO + "port = 70000\n", "clinic south: port: is not from 0 to 65535"),
        (
            TWO.replace('"north"\n[[', '"north"\nport = 8401\n[[') + "port = 8401\n",
            "clinics north and south have one port, 8401: each needs its own",
        ),
        (
            TWO + 'environment = "south"\n',
            "clinic south: environment: is no prefix of variables: capital letters, digits and _, which ends it",
        ),
        (
            TWO.replace('"north"\n[[', '"north"\nenvironment = "S_"\n[[') + 'environment = "S_SOUTH_"\n',
            "clinics north and south: their variables begin alike, with S_: each needs a prefix of its own",
        ),
        (
            TWO + TARGET,
            f"clinic south: {NO_CREDENTIALS}",
        ),
        (
            TWO + 'target = "http://192.0.2.1"\n',
            "clinic south: FHIR_BASE_URL is http:// beyond this machine: use https://, or CHARTFERRY_INSECURE=yes",
        ),
        (TWO + '[clinic.settings]\nFHIR_CLIENT_ID = "c"\n', "clinic south: has credentials and no target: say target"),
        (
            TWO + '[clinic.settings]\nFHIR_TOKEN = "t"\n',
            "clinic south: settings: FHIR_TOKEN: is a secret: put it into a file of its own, or into the environment",
        ),
        *(
            (
                TWO + f'[clinic.settings]\n{name} = "t"\n',
                f"clinic south: settings: {name}: is a secret: put it into a file of its own, or into the environment",
            )
            for name in ("CHARTFERRY_BULK_TOKEN", "AWS_SECRET_ACCESS_KEY", "AZURE_STORAGE_ACCOUNT_KEY", "PGPASSWORD")
        ),
        *(
            (
                TWO + f'[clinic.settings]\nCHARTFERRY_LEDGER = "{url}"\n',
                f"clinic south: settings: CHARTFERRY_LEDGER: {IN_ADDRESS}",
            )
            for url in ("postgresql://u:p@db/south", "postgresql://db/south?user=u&password=p")
        ),
        (TWO.replace('home = "south"', 'home = "~no-such-user/x"'), "'~no-such-user/x' is not a path on this machine"),
        (TWO.replace('home = "south"', 'home = "s\\u0000"'), "'s\\x00' is not a path on this machine"),
        (TWO + 'target = "\\u0000"\n', "clinic south: target: holds a character that no address has"),
        (TWO + '[clinic.settings]\nFHIR_BASE_URL = "u"\n', "clinic south: settings: FHIR_BASE_URL: is said by target"),
        (
            TWO + "[clinic.settings]\nCHARTFERRY_AT_ONCE = 4\n",
            "clinic south: settings: CHARTFERRY_AT_ONCE: is not a variable of the environment with a text as its value",
        ),
    ],
)
def test_a_file_that_cannot_be_used_is_reported_in_one_clear_sentence(tmp_path: Path, text: str, said: str) -> None:
    """Before anything is started, and before any home is touched."""
    with pytest.raises(BadSetting) as raised:
        read_clinics(clinics_file(tmp_path, text), {})
    assert str(raised.value) == f"clinics.toml: {said.format(tmp_path)}"
    assert list((tmp_path / "north").iterdir()) == [tmp_path / "north" / "inbox"]


def test_an_empty_folder_is_no_home(tmp_path: Path) -> None:
    """Its disk may not be mounted: a new ledger there would load everything again."""
    file = clinics_file(tmp_path, TWO)
    (tmp_path / "south" / "inbox").rmdir()
    says = f"{tmp_path}/south has no folder inbox: mount it, or make that folder for a new home"
    with pytest.raises(BadSetting, match=says):
        read_clinics(file, {})
    with pytest.raises(BadSetting, match=says):
        read_clinics(file, {}, only="south")
    [north] = read_clinics(file, {}, only="north")  # whatever is wrong with the other
    note_tick(tmp_path / "south", "inbox")
    assert list((tmp_path / "south").iterdir()) == []
    home = tmp_path / "south"
    with (
        pytest.raises(dg.DagsterResourceFunctionError),
        dg.build_resources({"place": workplace_resource(home, {**north.environ})}),
    ):
        raise AssertionError("a run has begun in an empty folder")
    assert list(home.iterdir()) == []


def test_the_command_says_it_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    forget_settings(monkeypatch)
    file = clinics_file(tmp_path, TWO)

    def up(*options: str, home: str = "all") -> tuple[int, str]:
        return chartferry(
            ["--home", str(tmp_path / home), *options, "up", "--clinics", str(file)]
        ), capsys.readouterr().err

    assert up(home="south") == (
        6,
        (
            f"chartferry: clinic south: its home is also the home of the deployment, {tmp_path}/south: name"
            " another home for the deployment by --home\n"
        ),
    )
    code, said = up("--feeds", str(tmp_path))
    assert (code, "--clinics excludes --feeds and --port" in said) == (2, True)
    monkeypatch.setenv("FHIR_TOKEN", "t")
    assert up() == (6, "chartferry: FHIR_TOKEN is set, and each clinic of clinics.toml has its own target: unset it\n")
    monkeypatch.delenv("FHIR_TOKEN")
    file.unlink()
    assert up() == (6, f"chartferry: {file}: cannot be read: No such file or directory\n")


def test_a_command_is_run_for_one_clinic(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With its home, its settings and nothing of the other; its options are its own."""
    forget_settings(monkeypatch)
    file = clinics_file(tmp_path, TWO + '[clinic.settings]\nCHARTFERRY_AT_ONCE = "no"\n')

    def of_south(*command: str) -> tuple[int, str, str]:
        """Run what a command of south becomes, in this process."""
        taken: list[tuple[str, tuple[str, ...], dict[str, str]]] = []
        with monkeypatch.context() as patched:
            patched.setattr(os, "execve", lambda *given: taken.append(given))
            chartferry(["clinic", str(file), "south", *command])
            [(program, words, environ)] = taken  # this process becomes the command: signals reach it
            assert (program, words) == (sys.executable, (sys.executable, "-m", "pipelines.cli", *command))
            assert environ["CHARTFERRY_CLINIC"] == "south"
            patched.setattr(os, "environ", environ)
            return chartferry(list(command)), *capsys.readouterr()

    code, out, err = of_south("import", "--json")
    assert (code, out, "CHARTFERRY_AT_ONCE" in err) == (6, "", True)
    assert of_south("up") == (
        6,
        "",
        "chartferry: CHARTFERRY_CLINIC is set: start clinic south by `chartferry up --clinics FILE`\n",
    )
    (tmp_path / "north" / "ledger.db").write_bytes(b"")
    done = run("chartferry", "clinic", file, "north", "status", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert chartferry(["clinic", str(file), "west", "status"]) == 6
    assert capsys.readouterr().err == "chartferry: clinics.toml: has no clinic west: it has north, south\n"
    assert chartferry(["clinic", str(tmp_path / "none.toml"), "west", "status"]) == 6
    assert capsys.readouterr().err == f"chartferry: {tmp_path}/none.toml: cannot be read: No such file or directory\n"


def test_no_process_sees_the_target_or_the_secrets_of_another_clinic(tmp_path: Path) -> None:
    """Nor do the pages and the daemon, which all clinics share."""
    (tmp_path / "feeds").mkdir()
    text = (
        TWO.replace('"north"\n[[', f'"north"\nenvironment = "N_"\nfeeds = ["feeds"]\nruns = 3\n{TARGET}[[')
        + 'environment = "S_"\n[clinic.settings]\nCHARTFERRY_AT_ONCE = "4"\n'
    )
    environ = {
        "N_FHIR_TOKEN": "of-north",
        "W_FHIR_TOKEN": "of-a-clinic-that-was-here",
        "W_FHIR_CLIENT_SECRET": "of-it-too",
        "S_CHARTFERRY_LEDGER": "of-south",
        "FHIR_SERVICE_STORE": "x",
        "PATH": "/bin",
        "CHARTFERRY_AT_ONCE": "2",
        "CHARTFERRY_LEDGER": "of-nobody",
        "CHARTFERRY_HOME": "/nowhere",
    }
    north, south = read_clinics(clinics_file(tmp_path, text), environ)
    common = {"PATH": "/bin", "CHARTFERRY_AT_ONCE": "2"}
    assert (north.bundled, north.runs, south.bundled, south.runs) == (False, 3, True, 2)
    assert north.environ == {
        **common,
        "FHIR_BASE_URL": "https://chart.example.org/fhir",
        "FHIR_TOKEN": "of-north",
        "CHARTFERRY_CLINIC": "north",
        "CHARTFERRY_HOME": str(tmp_path / "north"),
        "CHARTFERRY_FEEDS": str(tmp_path / "feeds"),
    }
    assert south.environ == {
        **common,
        "CHARTFERRY_AT_ONCE": "4",
        "CHARTFERRY_LEDGER": "of-south",
        "CHARTFERRY_CLINIC": "south",
        "CHARTFERRY_HOME": str(tmp_path / "south"),
    }
    assert shared_environment(tmp_path / "clinics.toml", environ) == common
    assert read_clinics(tmp_path / "clinics.toml", environ, only="south") == [south]
    of_copies = {"CHARTFERRY_COPIES": "s3://tables/", "S_CHARTFERRY_COPIES": "/copies"}
    copies = [
        each.environ["CHARTFERRY_COPIES"] for each in read_clinics(tmp_path / "clinics.toml", environ | of_copies)
    ]
    assert copies == ["s3://tables/north", "/copies"]
    with pytest.raises(BadSetting, match="clinic south: S_FHIR_BASE_URL is set: it is said by target"):
        read_clinics(tmp_path / "clinics.toml", environ | {"S_FHIR_BASE_URL": "https://elsewhere.example.org"})


def test_dagster_limits_the_runs_of_each_clinic_and_settings_of_an_operator_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "dagster"))
    folder, without = prepare_shared_dagster(tmp_path, {"north": 3, "south": 2})
    assert without == []
    with dg.DagsterInstance.from_config(str(folder)) as instance:
        queue = instance.get_concurrency_config().run_queue_config
        assert queue
        assert queue.max_concurrent_runs == -1
        assert [dict(each) for each in queue.tag_concurrency_limits[1:]] == [
            {"key": "chartferry/clinic", "value": "north", "limit": 3},
            {"key": "chartferry/clinic", "value": "south", "limit": 2},
        ]
    settings = folder / "dagster.yaml"
    assert yaml.safe_load(settings.read_text())["sensors"]["num_workers"] == 8
    prepare_shared_dagster(tmp_path, {"north": 1})
    assert "south" not in settings.read_text()
    own = settings.read_text().removeprefix(WRITTEN_ANEW)
    settings.write_text(own)
    shares = {"north": 2, "south": 2}
    assert prepare_shared_dagster(tmp_path, shares) == (folder, ["south"])
    assert settings.read_text() == own
    limits = "concurrency: {runs: {tag_concurrency_limits: [{key: chartferry/clinic, limit: 2, value: %s}]}}"
    for text, without in {
        limits % "{applyLimitPerUniqueValue: true}": [],
        limits % "{applyLimitPerUniqueValue: false}": ["north", "south"],
        limits % "[south]": ["north", "south"],
        "": ["north", "south"],
    }.items():
        settings.write_text(text)
        assert prepare_shared_dagster(tmp_path, shares) == (folder, without)
    for text in ("a: [", "text", "concurrency: text", "concurrency: {runs: {tag_concurrency_limits: {a: 1}}}", "\0"):
        settings.write_text(text)
        with pytest.raises(BadHome, match=f"^{settings}: .*: mend it, or remove it to have it written anew$"):
            prepare_shared_dagster(tmp_path, shares)


def test_a_failing_process_of_one_clinic_is_retried_each_minute_a_shared_one_ends_the_deployment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervising, "RESTARTS", 2)
    said: list[str] = []

    def ward(clinic: Clinic | None) -> SupervisedProcess:
        child = ChildProcess("toy", (sys.executable, "-c", "print('no luck')"), tmp_path / "toy.log")
        made = SupervisedProcess(child, os.environ, clinic)
        made.start(said.append)
        return made

    def looks(at: SupervisedProcess, number: int) -> None:
        for _ in range(number):
            process = at.child.process
            assert process
            process.wait(60)
            at.look(said.append)  # sees that it ended
            at.look(said.append)  # starts it anew, where that is due

    north = ward(Clinic("north", tmp_path, {}, bundled=True))
    looks(north, 3)
    again = "north: toy ended (no luck); starting it again"
    assert said == [again, again, f"{again} in 60 s, all other clinics continue"]
    assert north.due
    assert 50 < north.due - time.monotonic() <= 60
    north.due, north.child.starts = 0, []
    north.look(said.append)
    looks(north, 1)
    assert said[3:] == [f"{again} in 60 s, all other clinics continue"]
    north.due = 0
    north.look(said.append)
    north.child.starts = [time.monotonic() - 121]
    looks(north, 1)
    assert said[4:] == [again]
    north.child.stop()
    with pytest.raises(CannotStart, match="toy ended too often, and is not started again: no luck"):
        looks(ward(None), 3)


def test_a_home_that_vanishes_ends_no_other_clinic(tmp_path: Path) -> None:
    """Its process is tried again later; that of one that all share cannot do without its log."""
    said: list[str] = []
    log = tmp_path / "home" / "toy.log"
    child = ChildProcess("toy", (sys.executable, "-c", "print('here')"), log)
    north = SupervisedProcess(child, os.environ, Clinic("north", log.parent, {}, bundled=True))
    north.start(said.append)
    gone = (
        f"north: toy cannot be started: {log}: No such file or directory; trying again in 60 s, all other"
        " clinics continue"
    )
    assert said == [gone]
    assert north.is_settled()
    log.parent.mkdir()
    north.due = 0
    north.look(said.append)
    assert child.process
    child.process.wait(60)
    shutil.rmtree(log.parent)
    north.look(said.append)
    north.look(said.append)
    unread = f"north: toy ended ({log} cannot be read: No such file or directory); starting it again"
    assert said == [gone, unread, gone]
    with pytest.raises(CannotStart, match="toy cannot be started"):
        SupervisedProcess(child, os.environ).start(said.append)
