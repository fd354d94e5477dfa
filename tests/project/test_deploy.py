"""The files of `deploy/`: they name settings that there are, and connections that suffice."""

import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import yaml

from fhir_service.serving.serve import GRACE
from fhir_service.settings import PREFIX, Settings
from fhir_service.store.postgresql import POOL
from pipelines.home.dagster_folder import WEB_HOST

DOCS = Path(__file__).parents[2] / "docs"
DEPLOY = Path(__file__).parents[2] / "deploy"
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
STATEFUL: dict[str, Any] = next(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text()))["spec"]
POD: dict[str, Any] = STATEFUL["template"]["spec"]

ENVIRONS = {
    "compose": COMPOSE["service"]["environment"],
    "kubernetes": {one["name"]: one.get("value", "postgresql://x@y/z") for one in POD["containers"][0]["env"]},
}


@pytest.mark.parametrize("environ", ENVIRONS.values(), ids=list(ENVIRONS))
def test_the_service_has_the_settings_that_are_named(environ: dict[str, str]) -> None:
    known = {PREFIX + one.name.upper() for one in fields(Settings)}
    assert not set(environ) - known
    # Of a variable that compose fills in, its default.
    filled = {name: re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", value) for name, value in environ.items()}
    assert Settings.read(filled).workers > 1


def test_the_database_has_connections_for_all_processes() -> None:
    workers = int(COMPOSE["service"]["environment"]["FHIR_SERVICE_WORKERS"])
    (most,) = [int(word.partition("=")[2]) for word in COMPOSE["database"]["command"] if "max_connections" in word]
    assert most >= workers * POOL + 20


def test_a_stopped_service_has_time_to_finish() -> None:
    assert int(COMPOSE["service"]["stop_grace_period"].removesuffix("s")) > GRACE
    assert POD["terminationGracePeriodSeconds"] > GRACE


def test_the_image_has_what_the_import_needs_and_nothing_of_the_tests() -> None:
    said = subprocess.run([sys.executable, DEPLOY / "unneeded.py"], capture_output=True, text=True, check=True)
    unneeded = set(said.stdout.split())
    assert {"pytest", "playwright", "mypy", "hatchling", "pip"} <= unneeded
    assert not {"chartferry", "dagster", "duckdb", "obstore", "psycopg-binary", "uvloop", "packaging"} & unneeded
    # What CHARTFERRY_EXECUTOR may name.
    assert not {"dagster-k8s", "kubernetes", "dagster-celery", "celery", "redis"} & unneeded


def test_the_home_in_the_image_is_that_of_earlier_ones_and_the_runbook_knows_it() -> None:
    said = dict(re.findall(r"(?:^|\s)(CHARTFERRY_HOME)=(\S+)", (DEPLOY / "Containerfile").read_text()))
    [volume] = COMPOSE["import"]["volumes"]
    # Version 0.1.0 has `var` in the folder where the image works.
    assert said["CHARTFERRY_HOME"] == f"{volume.partition(':')[2]}/var"
    assert f":{said['CHARTFERRY_HOME']}/inbox/`" in (DOCS / "scaling.md").read_text()


def test_the_runbook_restarts_the_import_with_its_profile() -> None:
    rows = (DOCS / "scaling.md").read_text().splitlines()
    again = [row.split("|")[2] for row in rows if row.startswith(("| upgrade | back up", "| restore | `--profile"))]
    assert len(again) == 2
    for commands in again:
        assert commands.index("`--profile import down`") < commands.index("`--profile import up -d`")
        assert "`up -d`" not in commands


def test_the_build_context_contains_the_copied_files_and_no_home() -> None:
    handed = {line[1:] for line in (DEPLOY / "Containerfile.dockerignore").read_text().split() if line[0] == "!"}
    lines = [line.split() for line in (DEPLOY / "Containerfile").read_text().splitlines()]
    copied = {word for line in lines if line[:1] == ["COPY"] and "--from=build" not in line for word in line[1:-1]}
    assert handed == copied


def test_the_import_is_published_on_loopback_alone_and_reaches_the_service() -> None:
    asked = COMPOSE["import"]
    assert asked["environment"]["FHIR_BASE_URL"] == "http://service:8400"
    assert {
        port.rpartition(":")[0].rpartition(":")[0] for each in COMPOSE.values() for port in each.get("ports", [])
    } == {"127.0.0.1"}
    assert asked["environment"][WEB_HOST] == "0.0.0.0"  # noqa: S104 - of a container
