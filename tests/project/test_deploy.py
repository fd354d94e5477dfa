"""The files of `deploy/`: they name settings that there are, and connections that suffice."""

import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import yaml

from fhir_service.serve import GRACE
from fhir_service.settings import PREFIX, Settings
from fhir_service.store.postgresql import POOL

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


def test_what_is_stopped_has_time_to_finish() -> None:
    assert int(COMPOSE["service"]["stop_grace_period"].removesuffix("s")) > GRACE
    assert POD["terminationGracePeriodSeconds"] > GRACE
