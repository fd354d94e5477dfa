"""The text of `chartferry --help`, and the messages about arguments that name nothing."""

import click
import pytest

from fhir_service.__main__ import main as service
from pipelines.commands.chartferry import cli

LEDGER_NAME = "chartferry: CHARTFERRY_LEDGER is not the URL of a database (postgresql+psycopg://...)"


def groups(command, name="chartferry"):
    yield name, command
    for inner in command.commands.values():
        if isinstance(inner, click.Group):
            yield from groups(inner, f"{name} {inner.name}")


@pytest.mark.parametrize(("name", "group"), [*groups(cli), *groups(service, "fhir-service")])
def test_every_command_is_listed_with_a_whole_sentence(name, group):
    """In 80 columns, of which click leaves two free, so that nobody has to ask twice."""
    shown = group.get_help(click.Context(group, info_name=name, terminal_width=78))
    listed = shown.partition("Commands:")[2].splitlines()[1:]
    assert len(listed) == len(group.commands)
    assert all(line.endswith(".") and not line.endswith("...") for line in listed)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["status", "nope"], "nope: no such batch (chartferry status lists them)"),
        (["rejects", "export", "--batch", "nope"], "nope: no such batch (chartferry status lists them)"),
        (["import", "--again", "nope"], "nope: no such batch at this target (chartferry status lists them)"),
        (["undo", "nope"], "nope: no such batch at this target (chartferry status lists them)"),
        (["verify", "nope"], "nope: no such batch at this target (chartferry status lists them)"),
        (["doubts", "resolve", "--batch", "nope"], "nope: no such batch at this target (chartferry status lists them)"),
        (["import", "nope.csv"], "nope.csv: there is no such file or folder"),
        (["feeds", "check", "nope.toml"], "nope.toml: cannot be read: No such file or directory"),
        (["feeds", "new", "nope.csv"], "nope.csv: cannot be read: No such file or directory"),
        (["rehearse", "--against", "nope.json"], "nope.json: this is no report of a rehearsal"),
    ],
)
def test_a_batch_or_file_that_does_not_exist_is_reported_in_one_line(arguments, said, chartferry):
    """Exit 4, nothing done, and no traceback."""
    assert chartferry(*arguments) == (4, "", f"chartferry: {said}\n")


@pytest.mark.parametrize("command", ["import", "rehearse"])
def test_an_empty_path_is_not_the_current_folder(command, chartferry):
    """CLI-IMPORT-01: it comes from a variable of the shell that is not set."""
    code, _, err = chartferry(command, "")
    assert (code, "the path is empty; is a shell variable not set?" in err) == (2, True)


@pytest.mark.parametrize("command", ["--home", "--feeds"])
def test_an_empty_path_of_a_home_or_feeds_folder_is_refused(command):
    """CLI-IMPORT-01: otherwise the current folder would become a home, and be closed to others."""
    with pytest.raises(click.BadParameter, match="the path is empty; is a shell variable not set"):
        cli.main([command, "", "status"], standalone_mode=False)


@pytest.mark.parametrize(
    "command",
    [
        "status",
        "verify",
        "verify --adopt",
        "doubts resolve",
        "rejects export",
        "rejects retry",
        "rejects discard 1 --why twice",
        "purge nope",
        "feeds expect payments",
    ],
)
def test_a_home_without_a_ledger_says_how_to_name_another(chartferry, home, command):
    """CLI-CMD-03: in a wrong folder nothing is in doubt or open, and all agrees."""
    said = f"chartferry: {home}: no ledger here, so nothing was imported yet (--home names another folder)\n"
    assert chartferry(*command.split()) == (4, "", said)
    assert not (home / "ledger.db").exists()


def test_a_feeds_folder_that_is_not_there_stops_before_a_file_is_touched(chartferry, home, monkeypatch):
    """CLI-GLOBAL-01: without its feed an export could be taken for another."""
    (home / "inbox" / "payments.csv").write_text("payment_id\n")
    monkeypatch.setenv("CHARTFERRY_FEEDS", str(home / "nope"))
    said = f"chartferry: CHARTFERRY_FEEDS: {home}/nope: there is no such folder\n"
    assert chartferry("import") == (4, "", said)
    assert (home / "inbox" / "payments.csv").exists()


def test_a_ledger_named_wrongly_is_not_made(chartferry, monkeypatch, tmp_path):
    """STATE-HOME-02"""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CHARTFERRY_LEDGER", "ledger")
    assert chartferry("status") == (6, "", f"{LEDGER_NAME}\n")
    assert not (tmp_path / "ledger").exists()
