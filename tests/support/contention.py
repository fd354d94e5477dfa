"""Writes of many clients at once."""

import os
from pathlib import Path
from typing import Any

from fhir_service.service import Service
from fhir_service.settings import Settings
from tests.conftest import Running


def made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def next_of(page: dict[str, Any]) -> str | None:
    return next((link["url"] for link in page["link"] if link["relation"] == "next"), None)


def task_in(found: Running, path: str) -> list[str]:
    return [entry["resource"]["description"] for entry in found.client.get(path).json().get("entry", ())]


def authorized(store: str) -> dict[str, str]:
    """Return the headers of a new client of a store."""
    opened = Service.open(Settings(store=store, audit=os.devnull))
    client = opened.auth.add_client("load")
    form = {"grant_type": "client_credentials"} | {name: client[name] for name in ("client_id", "client_secret")}
    _, token = opened.auth.token(form)
    opened.close()
    return {"authorization": f"Bearer {token['access_token']}"}
