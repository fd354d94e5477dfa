"""Rows that a real HAPI server refuses: rejects with its words, sent once it takes them. Odd keys, and doubles.

`make test-hapi`.
"""

from collections.abc import Sequence
from math import ceil, log2
from pathlib import Path
from typing import Any

import duckdb
import httpx
import pytest

from bench.network import network
from tests.hapi.server import JSON, SAMPLES, Hapi, chartferry, new_home, said, there
from tests.support.commands import OUTCOMES

SOURCE = "refused"
ROWS = 600
ABSENT = {f"k{number}": f"newcomer-{number}" for number in (7, 250, 599)}
"""Tasks of patients who are not there yet, by key."""
TRIED, BUNDLES, ROWS_A_BUNDLE = 3, 8, 100
"""Writes by which the target's promises are tried; transactions of 600 rows on four lines; the most rows in one."""
NOTHING_WRONG = 1e-9
"""The share of requests with which the network before HAPI does something; it counts all writes."""
FEED = f"""kind = "tasks"
source = "{SOURCE}"
files = ["calls*"]
timezone = "UTC"
[columns]
task_id = "task_id"
patient_id = "patient_id"
description = "description"
status = "status"
requester_id = "requester_id"
"""
REASONS = """
SELECT line, source_key, string_agg(message, ' ') FROM reject JOIN reject_reason USING (reject_id)
WHERE reject.state = 'open' GROUP BY ALL ORDER BY line"""
pytestmark = pytest.mark.long


def calls(home: Path) -> Path:
    """A home with a feed; an export of tasks."""
    (home / "feeds").mkdir()
    (home / "inbox").mkdir()
    (home / "feeds" / "calls.toml").write_text(FEED)
    path = home / "inbox" / "calls.csv"
    patients = (ABSENT.get(f"k{n}", f"p{n % 200 + 1:03}") for n in range(ROWS))
    lines = (f"k{n},{patient},call {n},requested,dr-01" for n, patient in enumerate(patients))
    path.write_text("\n".join(["task_id,patient_id,description,status,requester_id", *lines]) + "\n")
    return path


def reasons(home: Path) -> list[tuple[Any, ...]]:
    """Line, key and words of each reject that is open, as published."""
    with duckdb.connect(str(home / "published" / "reports.duckdb"), read_only=True) as published:
        return published.execute(REASONS).fetchall()


def test_rows_that_are_refused_are_rehearsed_set_aside_with_the_servers_words_and_sent_later(
    hapi: Hapi, tmp_path: Path
) -> None:
    """TARGET-02, LEDGER-07"""
    home, path = new_home(tmp_path / "home", balances=False), tmp_path / "newcomers.ndjson"
    export = calls(home)
    with network(hapi.url, NOTHING_WRONG, at_once=False, single=False) as (url, did):
        rehearsed = said(home, url, "rehearse", export, "--reference", SAMPLES / "reference")
        assert (rehearsed["totals"]["created"], rehearsed["totals"]["refused"]) == (ROWS - 3, 3)
        assert {row["key"] for row in rehearsed["rows"] if row["state"] != "created"} == ABSENT.keys()
        assert not [*there(url, SOURCE, "Task")]
        assert not did
        found = said(home, url, "import", export)
        print(f"{ROWS} rows, {len(ABSENT)} refused: {did.total()} writes", flush=True)
        assert (found["totals"]["created"], found["totals"]["refused"]) == (ROWS - 3, 3)
        assert did.total() <= TRIED + BUNDLES + 2 * ceil(log2(ROWS_A_BUNDLE)) * len(ABSENT)
        refused = reasons(home)
        assert [(line, key) for line, key, _ in refused] == [(int(key[1:]) + 2, key) for key in ABSENT]
        assert all("HAPI-1094: Resource Patient/unknown-" in words for *_, words in refused), "without an id"
        path.write_text("".join(f'{{"resourceType": "Patient", "id": "{one}"}}\n' for one in ABSENT.values()))
        assert chartferry(home, url, "reference", "load", path).returncode == 0
        assert said(home, url, "rejects", "retry")["totals"]["created"] == 3
        assert reasons(home) == []
        assert sorted(key for key, _ in there(url, SOURCE, "Task")) == sorted(f"k{n}" for n in range(ROWS))
        assert {each["kind"] for each in said(home, url, "verify")["differences"]} <= {"unknown"}


def test_updates_go_together_and_each_makes_one_version(hapi: Hapi, tmp_path: Path) -> None:
    """LEDGER-08, TARGET-04"""
    home, source, rows = new_home(tmp_path / "home", balances=False), "hapi-updates", ROWS_A_BUNDLE + 20
    path = few_calls(home, source, [f"k{number}" for number in range(rows)])
    feed = home / "feeds" / "calls.toml"
    feed.write_text(f'changed = "update"\n{feed.read_text()}')
    export = path.read_text()
    assert said(home, hapi.url, "import", path)["totals"]["created"] == rows
    path.write_text(export.replace(",call,", ",ring,"))
    found = said(home, hapi.url, "import", path)
    assert (found["totals"]["updated"], found["exit_code"]) == (rows, 0)
    bodies = [body for _, body in there(hapi.url, source, "Task")]
    assert {(body["description"], body["meta"]["versionId"]) for body in bodies} == {("ring", "2")}
    assert len(bodies) == rows
    assert said(home, hapi.url, "verify")["differences"] == []


def few_calls(home: Path, source: str, keys: Sequence[str]) -> Path:
    """As `calls`, of some keys of a source of their own."""
    path, feed = calls(home), home / "feeds" / "calls.toml"
    lines = (f'"{key}",p001,call,requested,dr-01' for key in keys)
    path.write_text("\n".join(["task_id,patient_id,description,status,requester_id", *lines]) + "\n")
    feed.write_text(feed.read_text().replace(SOURCE, source))
    return path


def test_keys_of_every_kind_are_found_again_in_transactions(hapi: Hapi, tmp_path: Path) -> None:
    """LEDGER-01, LEDGER-15: with what has a meaning in a search; a home that knows nothing makes none again."""
    odd = ["a|b", "a,b", "50%", "na\u00efve key", "a&b=c", "back\\slash", "a+b", "$1", "a?b", "a#b", "a/b", "A", "a"]
    for attempt, outcome in enumerate(("created", "adopted")):
        home = new_home(tmp_path / f"home-{attempt}", balances=False)
        totals = said(home, hapi.url, "import", few_calls(home, "odd", odd))["totals"]
        assert {name: totals[name] for name in OUTCOMES if totals[name]} == {outcome: len(odd)}
    assert sorted(key for key, _ in there(hapi.url, "odd", "Task")) == sorted(odd)


def test_resources_that_are_there_twice_are_named_one_by_one(hapi: Hapi, tmp_path: Path) -> None:
    """TARGET-03, CLI-CMD-17: what no import of ours makes, as a network would that doubles a create."""
    home, keys = new_home(tmp_path / "home", balances=False), [f"k{number}" for number in range(20)]
    said(home, hapi.url, "import", few_calls(home, "twice", keys))
    made = dict(there(hapi.url, "twice", "Task"))
    for body in map(made.__getitem__, keys[:3]):
        again = {name: part for name, part in body.items() if name not in ("id", "meta")}
        httpx.post(f"{hapi.url}/Task", json=again, headers=JSON, timeout=60, trust_env=False).raise_for_status()
    ids = {body["id"] for _, body in there(hapi.url, "twice", "Task")} - {body["id"] for body in made.values()}
    found = said(home, hapi.url, "verify")["differences"]
    assert sorted(each["resource_id"] for each in found if each["kind"] == "double") == sorted(ids)
    assert len(ids) == 3
