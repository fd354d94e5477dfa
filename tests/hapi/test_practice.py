"""The exports of one practice at HAPI, beside the bundled service: to the row and the cent, and once.

Skipped where the data is not at hand, as `tests/test_practice.py` is.
"""

import json
import shutil
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple

import duckdb
import httpx
import pytest

from tests.hapi.server import JSON, Hapi, chartferry, new_home, said, there
from tests.support.commands import load, run
from tests.support.realdata import MISSING, REALDATA

FEEDS = Path(__file__).parents[2] / "docs" / "examples"
REFERENCE, INBOX = REALDATA / "practice" / "reference", REALDATA / "practice" / "inbox"
SET_ASIDE = 3
FATES = """
SELECT source_key, resource_type, state, amount FROM import_row WHERE state = 'created'
UNION ALL
SELECT source_key, batch.resource_type, 'reject', NULL
FROM reject JOIN import_batch AS batch USING (batch_id)"""
pytestmark = [pytest.mark.long, pytest.mark.skipif(not (REFERENCE.is_dir() and INBOX.is_dir()), reason=MISSING)]


class Fate(NamedTuple):
    """The outcome of a record: `created` with its amount, or `reject`."""

    kind: str
    state: str
    amount: Decimal | None


def fates(home: Path) -> dict[str, Fate]:
    """By key, what a home has published of its records."""
    with duckdb.connect(str(home / "published" / "reports.duckdb"), read_only=True) as published:
        return {key: Fate(*rest) for key, *rest in published.execute(FATES).fetchall()}


def at_the_bundled_service(home: Path) -> dict[str, Fate]:
    load(home, REFERENCE)
    assert run("chartferry", "--home", home, "--feeds", FEEDS, "import", INBOX).returncode == SET_ASIDE
    return fates(home)


def lacks_its_patient(url: str, key: str, tasks: Mapping[str, str]) -> bool:
    """True if the record is a task whose patient the server does not have."""
    return key in tasks and httpx.get(f"{url}/{tasks[key]}", headers=JSON, trust_env=False).status_code == 404


def test_hapi_gets_the_resources_that_the_bundled_service_gets_from_the_same_exports(
    hapi: Hapi, tmp_path: Path
) -> None:
    """TARGET-02, TARGET-04, TARGET-06: the import computes the balances. A second one makes nothing."""
    home, url = new_home(tmp_path / "hapi"), hapi.url
    shutil.copytree(FEEDS, home / "feeds", ignore=shutil.ignore_patterns("hapi-client"))
    print(chartferry(home, url, "reference", "load", REFERENCE).stdout)
    first = said(home, url, "import", INBOX)
    here, bundled = fates(home), at_the_bundled_service(tmp_path / "bundled")
    assert here.keys() == bundled.keys()
    other = {key for key, fate in here.items() if fate != bundled[key]}
    lines = (INBOX / "tasks.ndjson").read_text(encoding="utf-8").splitlines()
    tasks = {task["id"]: task["for"]["reference"] for task in map(json.loads, lines) if "for" in task}
    print(f"{first['totals']}; {len(other)} differ")
    assert all(lacks_its_patient(url, key, tasks) for key in other)
    payments = {key: fate.amount for key, fate in bundled.items() if fate[:2] == ("PaymentNotice", "created")}
    amounts = ((key, Decimal(str(body["amount"]["value"]))) for key, body in there(url, "billing", "PaymentNotice"))
    assert sorted(each for each in amounts if each[0] in here) == sorted(payments.items())
    again = said(home, url, "import", INBOX)
    assert (again["totals"].get("created", 0), again["totals"].get("in_doubt", 0)) == (0, 0)
    assert fates(home) == here
