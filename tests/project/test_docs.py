"""Everything that docs names exists: commands with their options, variables, sensors, schedules and alerts."""

import re
import shlex
from dataclasses import fields
from pathlib import Path

import click
import pytest

from fhir_service.__main__ import main as service
from fhir_service.settings import Settings
from pipelines.commands.chartferry import cli as chartferry
from pipelines.dagster import alerts, reload
from pipelines.definitions import build_definitions

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
COMMANDS: dict[str, click.Command] = {"chartferry": chartferry, "fhir-service": service}
WRITTEN = re.compile(r"(?:`|^(?:\$ )?)(?P<line>(?:chartferry|fhir-service) [^`\n]+)", re.MULTILINE)
OPERATORS = (ROOT / "docs" / "operators.md").read_text(encoding="utf-8")


def written(page: Path) -> list[str]:
    """The command lines of a page, without what is remarked or piped behind them."""
    found = WRITTEN.findall(page.read_text(encoding="utf-8"))
    return [re.split(r" +#| [|>]", line)[0].strip() for line in found]


def unknown(line: str) -> list[str]:
    """The commands and options of a line that there are not."""
    name, *words = shlex.split(line.replace("...", ""))
    command = COMMANDS[name]
    while isinstance(command, click.Group):
        words = behind_options(words)
        if not words:
            return []
        if words[0] not in command.commands:
            return [words[0]]
        command = command.commands[words.pop(0)]
    options = {each for param in command.params for each in param.opts}
    return [word for word in words if word.startswith("--") and word.partition("=")[0] not in options]


def behind_options(words: list[str]) -> list[str]:
    """Return the words after the options of a group. Each of these has a value, except `--help`."""
    while words and words[0].startswith("-"):
        words = words[1 if words[0] == "--help" else 2 :]
    return words


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_that_a_page_names_is_there_with_its_options(page: Path) -> None:
    assert {line: wrong for line in written(page) if (wrong := unknown(line))} == {}


def test_commands_are_found_in_pages_and_wrong_ones_are_seen() -> None:
    assert len(written(ROOT / "docs" / "operators.md")) > 15
    assert unknown("chartferry --home var import --again BATCH") == []
    assert unknown("chartferry doubts accept A:1 --resource R --gone") == ["--gone"]
    assert unknown("fhir-service client remove ID") == ["remove"]


def wrong_links(page: Path, text: str) -> list[str]:
    """Return the links of a page to files that are not there, or to headings that their page does not have."""
    links = [link for link in re.findall(r"\]\(([^)\s]+)\)", prose(text)) if "://" not in link]
    return [link for link in links if not leads_somewhere(page, *link.partition("#")[::2])]


def leads_somewhere(page: Path, name: str, heading: str) -> bool:
    path = page.parent / name if name else page
    if not path.exists():
        return False
    headings = re.findall(r"^#+ (.*)$", prose(path.read_text(encoding="utf-8")), re.MULTILINE) if heading else []
    return not heading or heading in {re.sub(r"[^\w -]", "", each.lower()).replace(" ", "-") for each in headings}


def prose(text: str) -> str:
    return re.sub(r"^ *```.*?^ *```$", "", text, flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_of_a_page_leads_to_a_file_and_a_heading(page: Path) -> None:
    assert wrong_links(page, page.read_text(encoding="utf-8")) == []


def test_wrong_links_are_seen() -> None:
    text = "[a](feeds.md#times) [b](feeds.md#none) [c](none.md) [d](#none) [e](https://example.org/none)"
    assert wrong_links(ROOT / "docs" / "targets.md", text) == ["feeds.md#none", "none.md", "#none"]


def test_the_first_page_lists_all_commands() -> None:
    text = PAGES[0].read_text(encoding="utf-8")
    for name, command in COMMANDS.items():
        [listed] = re.findall(rf"^{name} --help +# (.*)$", text, re.MULTILINE)
        assert isinstance(command, click.Group)
        assert sorted(listed.split(", ")) == sorted(command.commands)


def test_operators_read_of_every_setting_of_the_service() -> None:
    options = {param.name for param in service.commands["serve"].params}
    rows = re.findall(r"^\| `FHIR_SERVICE_.*", OPERATORS, re.MULTILINE)
    named = {name.lower() for row in rows for name in re.findall(r"FHIR_SERVICE_(\w+)", row)}
    assert named == {field.name for field in fields(Settings)} - options


def test_the_architecture_page_names_what_is_there() -> None:
    """A name is in the module that is said of it, and a path leads somewhere: a bare file name to some file."""
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    paths = set(re.findall(r"`([\w./]+\.(?:py|sql|toml))`", page))
    assert {path for path in paths if not modules(path)} == set()
    named = re.findall(r"`(?:\w+\.)?(\w+)` in\s+`([\w./]+\.py)`", page)
    assert len(named) > 15
    assert {
        name for name, path in named if not any(name in module.read_text("utf-8") for module in modules(path))
    } == set()


def modules(path: str) -> list[Path]:
    return [
        *ROOT.glob(path),
        *(found for top in ("pipelines", "fhir_service", "sql") for found in ROOT.glob(f"{top}/**/{path}")),
    ]


def test_every_variable_that_a_page_names_is_read_somewhere() -> None:
    code = "".join(
        path.read_text(encoding="utf-8")
        for path in [*ROOT.glob("pipelines/**/*.py"), *ROOT.glob("fhir_service/**/*.py")]
    )
    named = {name for page in PAGES for name in re.findall(r"\bCHARTFERRY_[A-Z_]*[A-Z]\b", page.read_text("utf-8"))}
    assert {name for name in named if name not in code} == set()


def test_one_table_names_every_setting() -> None:
    """Apart from those that `up` gives to what it starts."""
    code = "".join(path.read_text(encoding="utf-8") for path in ROOT.glob("pipelines/**/*.py"))
    settings = set(re.findall(r"\"(CHARTFERRY_[A-Z_]*[A-Z])\"", code)) - {"CHARTFERRY_CLINIC", "CHARTFERRY_CODE_SERVER"}
    rows = re.findall(r"^\| (`(?:CHARTFERRY_[A-Z_]+(?:`, `)?)+`) \|", OPERATORS, re.MULTILINE)
    assert len(settings) > 20
    assert settings - {name for row in rows for name in re.findall(r"CHARTFERRY_[A-Z_]+", row)} == set()


def test_operators_read_of_every_sensor_schedule_and_alert(tmp_path: Path) -> None:
    repository = build_definitions({"CHARTFERRY_HOME": str(tmp_path)}).get_repository_def()
    automatic = {each.name for each in repository.sensor_defs} | {each.name for each in repository.schedule_defs}
    assert {
        name for name in automatic if not re.search(rf"^\| (sensor|schedule) `{name}` \|", OPERATORS, re.MULTILINE)
    } == set()
    texts = [Path(str(each.__file__)).read_text(encoding="utf-8") for each in (alerts, reload)]
    kinds = set(re.findall(r'"([a-z]+_[a-z_]+)"', "".join(texts)))
    told = set(
        re.findall(r"^\| `([a-z_]+)` \| [a-z]", OPERATORS.partition("## Alerts")[2].partition("\n## ")[0], re.MULTILINE)
    )
    assert len(told) == 14
    assert told <= kinds
