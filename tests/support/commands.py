"""The two commands as a user types them, each in a separate process, and a client of the service over a home."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support import loopback
from tests.support.starting import finish, start

BIN = Path(sys.executable).parent
MINUTES = 5
OURS = ("FHIR_", "CHARTFERRY_", "DAGSTER_")
OUTCOMES = "created adopted unchanged updated superseded skipped refused in_doubt".split()


def command(name: str, *arguments: object) -> list[str]:
    """Return the command line of `chartferry` or `fhir-service` in this environment."""
    return [str(BIN / name), *map(str, arguments)]


def environment(**more: str) -> dict[str, str]:
    """Return an environment without any variable of ours."""
    return {name: value for name, value in os.environ.items() if not name.startswith(OURS)} | more


def forget_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove all variables of ours from the environment of this process."""
    for name in [name for name in os.environ if name.startswith(OURS)]:
        monkeypatch.delenv(name)


def run(name: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; return what it prints. Asserts that it shows no traceback."""
    done = finish(command(name, *arguments), env=environment(), timeout=60 * MINUTES)
    assert "Traceback" not in done.stdout + done.stderr
    return done


def load(home: Path, reference: Path) -> subprocess.CompletedProcess[str]:
    """Load reference data into the store of a home."""
    home.mkdir(parents=True, exist_ok=True)
    return run("fhir-service", "load", "--store", home / "service.duckdb", reference)


def home_with(store: Path, folder: Path) -> Path:
    """Make a home over a copy of a loaded store. No process may have that store open."""
    folder.mkdir()
    shutil.copy(store, folder / "service.duckdb")
    return folder


@contextmanager
def listening(home: Path, **environ: str) -> Iterator[str]:
    """Run a service over a home's store; yield its address. All commands of that home then use this service."""
    arguments = command("fhir-service", "serve", "--store", home / "service.duckdb", "--port", 0)
    with start(arguments, stdout=subprocess.PIPE, text=True, env=environment(**environ)) as service:
        try:
            assert service.stdout is not None
            yield service.stdout.readline().removeprefix("listening on ").strip()
        finally:
            service.terminate()
    assert service.returncode == 0


@contextmanager
def serving(home: Path) -> Iterator[httpx.Client]:
    """Run a service over a home's store. Yield a client with the importer's credentials."""
    with listening(home) as url:
        credentials = json.loads((home / "credentials.json").read_text(encoding="utf-8"))
        form = {name: credentials[name] for name in ("client_id", "client_secret")}
        answer = loopback.post(f"{url}/auth/token", data=form | {"grant_type": "client_credentials"})
        headers = {"authorization": f"Bearer {answer.json()['access_token']}"}
        with loopback.Client(base_url=url, headers=headers, timeout=60) as client:
            yield client


def resources(client: httpx.Client, kind: str) -> list[dict[str, Any]]:
    """Return all resources of a type. Asserts that their number equals `total`, and that none comes twice."""
    page = client.get(f"/{kind}", params={"_count": 1000}).raise_for_status().json()
    total, found = page["total"], list(page.get("entry", []))
    while following := next((link["url"] for link in page["link"] if link["relation"] == "next"), None):
        page = client.get(following).raise_for_status().json()
        found += page.get("entry", [])
    assert len({entry["resource"]["id"] for entry in found}) == len(found) == total
    return [entry["resource"] for entry in found]


def totals(client: httpx.Client, *kinds: str) -> dict[str, int]:
    """Return the number of resources of each type."""
    return {kind: client.get(f"/{kind}", params={"_count": 1}).raise_for_status().json()["total"] for kind in kinds}


def totals_close(summary: dict[str, Any]) -> None:
    """Assert of each batch that records = accepted + rejected, and accepted = all outcomes + planned rows."""
    for batch in summary["batches"]:
        counts = batch["counts"]
        assert counts["records"] == counts["accepted"] + counts["rejected"]
        assert counts["accepted"] == sum(counts[name] for name in OUTCOMES) + batch["waiting"]


def asked_of_status(chartferry: Callable[..., tuple[int, str, str]]) -> list[dict[str, Any]]:
    """Return the batches as `status --json` has them."""
    found: list[dict[str, Any]] = json.loads(chartferry("status", "--json")[1])["batches"]
    return found
