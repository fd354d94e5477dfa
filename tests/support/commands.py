"""The two commands as a user types them, each in its own process, and a client that looks into a home's service."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
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
    """`chartferry` or `fhir-service` of this environment, with its arguments."""
    return [str(BIN / name), *map(str, arguments)]


def environment(**more: str) -> dict[str, str]:
    """The environment of a user who has set nothing of ours."""
    return {name: value for name, value in os.environ.items() if not name.startswith(OURS)} | more


def forget_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same for a command in this process."""
    for name in [name for name in os.environ if name.startswith(OURS)]:
        monkeypatch.delenv(name)


def run(name: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Runs a command to its end; what it prints, as text. No command may ever show a traceback."""
    done = finish(command(name, *arguments), env=environment(), timeout=60 * MINUTES)
    assert "Traceback" not in done.stdout + done.stderr
    return done


def load(home: Path, reference: Path) -> subprocess.CompletedProcess[str]:
    """Reference data into the store of a home."""
    home.mkdir(parents=True, exist_ok=True)
    return run("fhir-service", "load", "--store", home / "service.duckdb", reference)


def home_with(store: Path, folder: Path) -> Path:
    """A new home over a copy of a loaded store, which no process has open."""
    folder.mkdir()
    shutil.copy(store, folder / "service.duckdb")
    return folder


@contextmanager
def listening(home: Path, **environ: str) -> Iterator[str]:
    """The address of a service over a home's store, which every command of that home then uses."""
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
    """The service over a home's store, and a client of it with the importer's own credentials."""
    with listening(home) as url:
        credentials = json.loads((home / "credentials.json").read_text(encoding="utf-8"))
        form = {name: credentials[name] for name in ("client_id", "client_secret")}
        answer = loopback.post(f"{url}/auth/token", data=form | {"grant_type": "client_credentials"})
        headers = {"authorization": f"Bearer {answer.json()['access_token']}"}
        with loopback.Client(base_url=url, headers=headers, timeout=60) as client:
            yield client


def resources(client: httpx.Client, kind: str) -> list[dict[str, Any]]:
    """All resources of a type, page after page; as many, and as many different ones, as the first page promises."""
    page = client.get(f"/{kind}", params={"_count": 1000}).raise_for_status().json()
    total, found = page["total"], list(page.get("entry", []))
    while following := next((link["url"] for link in page["link"] if link["relation"] == "next"), None):
        page = client.get(following).raise_for_status().json()
        found += page.get("entry", [])
    assert len({entry["resource"]["id"] for entry in found}) == len(found) == total
    return [entry["resource"] for entry in found]


def totals(client: httpx.Client, *kinds: str) -> dict[str, int]:
    """How many resources of each type the service has."""
    return {kind: client.get(f"/{kind}", params={"_count": 1}).raise_for_status().json()["total"] for kind in kinds}


def totals_close(summary: dict[str, Any]) -> None:
    """Of each batch of an import: records = accepted + rejected, and accepted = the outcomes and what waits."""
    for batch in summary["batches"]:
        counts = batch["counts"]
        assert counts["records"] == counts["accepted"] + counts["rejected"]
        assert counts["accepted"] == sum(counts[name] for name in OUTCOMES) + batch["waiting"]
