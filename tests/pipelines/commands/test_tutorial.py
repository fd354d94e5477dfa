"""The tutorial of docs/feeds.md, executed as written: its commands, its output, its feed file."""

import os
import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.commands import MINUTES, environment
from tests.support.starting import commands_in

ROOT = Path(__file__).parents[3]
DOCUMENT = (ROOT / "docs" / "feeds.md").read_text(encoding="utf-8")
TUTORIAL = DOCUMENT.partition("## A first export")[2].partition("\n## ")[0]
EXAMPLES = ROOT / "docs" / "examples"
ONE_RUNS_OWN = re.compile(
    r"\b[0-9a-f]{16}\b|\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b|-[0-9a-f]{12}\b|127\.0\.0\.1:\d+|\d{8}T\d{6}\.\d+Z"
)
"""Ids of rejects, stores and batches, ports, times."""


class Step(NamedTuple):
    """A command of the tutorial, and what the document says it prints."""

    command: str
    printed: str


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", TUTORIAL, re.MULTILINE | re.DOTALL)


def steps() -> Iterator[Step]:
    for block in blocks("console"):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command = re.match(r"(?:.*\\\n)*.*\n", part)
            assert command
            yield Step(command[0], part[command.end() :])


def assert_printed(shown: str, said: str) -> None:
    """Assert that the output is as documented. `...` matches any lines; names that differ in each run are ignored."""
    wanted = [re.escape(line.rstrip()) for line in ONE_RUNS_OWN.sub("#", said).splitlines()]
    pattern = "".join("(?:.*\n)*?" if line == r"\.\.\." else line + "\n" for line in wanted)
    found = "".join(line.rstrip() + "\n" for line in ONE_RUNS_OWN.sub("#", shown).splitlines())
    assert re.fullmatch(pattern, found), f"the document says\n{said}\nand it is\n{found}"


@pytest.mark.long
def test_the_tutorial_does_what_it_says_and_leaves_no_reject_open(tmp_path: Path) -> None:
    """CLI-CMD-14, CLI-CMD-15, FEED-FILE-08, CLI-CMD-05: from an export never seen to a chart without open rejects.

    `make test` has each of its commands in the tests of that command, and its feed file below.
    """
    for name in ("data", "docs"):
        (tmp_path / name).symlink_to(ROOT / name)
    path = os.pathsep.join([str(commands_in(tmp_path / "bin")), os.environ["PATH"]])
    for step in steps():
        done = subprocess.run(
            ["sh", "-c", step.command],
            cwd=tmp_path,
            env=environment(PATH=path),
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=60 * MINUTES,
            check=False,
        )
        assert "Traceback" not in done.stderr
        assert done.returncode in (0, 3), done.stderr
        assert_printed(done.stdout, step.printed)
    assert list(steps())[-1] == Step("chartferry rejects export\n", "no open rejects\n")


def test_the_tutorial_shows_the_export_and_the_decisions_of_its_feed_file() -> None:
    """FEED-FILE-08."""
    export = (EXAMPLES / "card_terminal_2026-04.csv").read_text(encoding="utf-8")
    assert_printed(export, TUTORIAL.partition("```\n")[2].partition("```\n")[0])
    feed = tomllib.loads((EXAMPLES / "card_terminal.toml").read_text(encoding="utf-8"))
    decided = tomllib.loads(blocks("toml")[0])
    columns = decided.pop("columns")
    assert decided.items() <= feed.items()
    assert columns.items() <= feed["columns"].items()
