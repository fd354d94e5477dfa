"""The examples of docs/clients.md do what the page says. That of the HAPI client needs Java: it runs by hand."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import Running, running

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "clients.md").read_text(encoding="utf-8")
JAVA = ROOT / "docs" / "examples" / "hapi-client"
BLOCKS = re.findall(r"^```(\w+)\n((?:(?!```).*\n)*)```\n\n```text\n((?:(?!```).*\n)*)```$", PAGE, re.MULTILINE)
"""Language, program and what it prints, of each example."""


def of(language: str) -> list[tuple[str, str]]:
    return [(program, printed) for name, program, printed in BLOCKS if name == language]


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The variables that the examples read, of a service with the sample data."""
    with running(tmp_path_factory.mktemp("page"), world=ROOT / "data" / "samples" / "reference") as service:
        yield variables(service)


def variables(service: Running) -> dict[str, str]:
    token = service.headers["authorization"].removeprefix("Bearer ")
    return os.environ | {"FHIR_BASE": f"{service.url}/fhir", "FHIR_TOKEN": token}


def printed_by(command: list[str], environment: dict[str, str]) -> str:
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_the_page_has_an_example_of_each_client() -> None:
    assert [language for language, *_ in BLOCKS] == ["python", "python", "python", "java", "sh"]


@pytest.mark.parametrize(
    ("program", "printed"),
    [pytest.param(*each, marks=pytest.mark.long if "asyncio" in each[0] else ()) for each in of("python")],
    ids=["fhirpy", "fhirpy-async", "fhirclient"],
)
def test_the_python_examples_print_what_the_page_says(environment: dict[str, str], program: str, printed: str) -> None:
    """EXTRA-R4-04"""
    assert printed_by([sys.executable, "-c", program], environment) == printed


@pytest.mark.skipif(not shutil.which("curl"), reason="curl is not installed")
def test_the_curl_example_prints_what_the_page_says(environment: dict[str, str]) -> None:
    """EXTRA-R4-01, EXTRA-R4-03"""
    ((program, printed),) = of("sh")
    assert printed_by(["sh", "-c", program], environment) == printed


def test_the_java_example_is_the_program_beside_the_page() -> None:
    ((program, _),) = of("java")
    assert program == (JAVA / "src" / "main" / "java" / "Example.java").read_text(encoding="utf-8")


@pytest.mark.long
@pytest.mark.skipif("WITH_JAVA" not in os.environ, reason="run by hand: WITH_JAVA=1 pytest, with Java and Maven")
def test_the_java_example_prints_what_the_page_says(environment: dict[str, str], tmp_path: Path) -> None:
    """EXTRA-R4-01, EXTRA-R4-02: the HAPI client, with the network that Maven needs."""
    shutil.copytree(JAVA, tmp_path / "hapi-client")
    ((_, printed),) = of("java")
    command = ["mvn", "-q", "-B", "-Dstyle.color=never", "-f", str(tmp_path / "hapi-client"), "compile", "exec:java"]
    assert re.sub(r"\x1b\[[0-9;]*m", "", printed_by(command, environment)) == printed
