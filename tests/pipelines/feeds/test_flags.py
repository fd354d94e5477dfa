"""`true` and `false` of JSON where a key is expected: no key, and two records never one for it."""

from datetime import UTC, datetime
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from fhir_service.interface.site import Site
from pipelines.feeds.files.catalog import load_feed
from pipelines.home.batch import Received
from pipelines.session.questionnaires import Snapshot
from pipelines.validation.stage import validate

COLUMNS = 'patient_id = "who"\namount = "sum"\npaid_on = "on"\n'
FAULT = "true or false where a key is expected; a key is a text or a number"


def validated(folder: Path, key: str, *rows: str) -> tuple[list[str], list[str]]:
    """The keys of what is accepted, and the reasons of what is not."""
    (folder / "till.toml").write_text(f'kind = "payments"\nfiles = "*"\n[columns]\npayment_id = {key}\n{COLUMNS}')
    rest = '"who": "p1", "sum": 1, "on": "2024-05-01"'
    (folder / "till.ndjson").write_text("".join(f"{{{row}, {rest}}}\n" for row in rows))
    received = Received("b", "0" * 64, folder / "till.ndjson", "till.ndjson", 0, datetime(2024, 6, 1, tzinfo=UTC))
    found = validate(received, load_feed(folder / "till.toml"), Snapshot(), Site(), folder / "run")
    rejects = pq.read_table(found.folder / "rejects.parquet").to_pylist()
    keys = pq.read_table(found.folder / "accepted.parquet")["key"].to_pylist()
    return keys, [reason["message"] for reject in rejects for reason in reject["reasons"]]


@pytest.mark.parametrize("flag", ["true", "false"])
def test_a_flag_is_no_key(flag: str, tmp_path: Path) -> None:
    """FEED-FILE-09: a key is a text or a number, as a text that says true is one."""
    found = validated(tmp_path, '"id"', f'"id": {flag}', '"id": "true"', '"id": 7', '"id": "false"')
    assert found == (["true", "7", "false"], [FAULT])


def test_a_flag_that_the_feed_translates_or_joins_makes_a_key(tmp_path: Path) -> None:
    """FEED-FILE-08: what the feed file says of it is meant."""
    keys, reasons = validated(tmp_path, '{ join = ["id", "late"], with = "-" }', '"id": "a", "late": true')
    assert (keys, reasons) == (["a-true"], [])


def test_a_flag_in_the_place_of_the_first_that_is_there_is_no_key(tmp_path: Path) -> None:
    """FEED-FILE-09"""
    found = validated(tmp_path, '{ first = ["id", "other"] }', '"id": "a", "other": true', '"id": null, "other": true')
    assert found == (["a"], [FAULT])


def test_a_flag_is_no_reference(tmp_path: Path) -> None:
    """FEED-FILE-09, FEED-PAY-05: `true` says that there is a claim, and not which."""
    claims = ("true", '"true"', "7", '"c1"', "false", "null")
    rows = (f'"id": {place}, "claim": {claim}' for place, claim in enumerate(claims))
    found = validated(tmp_path, '"id"\nclaim_id = "claim"', *rows)
    assert found == (["1", "2", "3", "5"], ["true or false where an id is expected; an id is a text or a number"] * 2)
