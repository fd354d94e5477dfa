"""`true`, `false` and words for nothing are no keys or ids, so that two records never share one."""

from pathlib import Path

import pytest

from pipelines.feeds.terms.columns import ValueFault, key, reference
from tests.support import validating

COLUMNS = 'patient_id = "who"\namount = "sum"\npaid_on = "on"\n'
FAULT = "true or false is not a key or an id; check that the feed reads the right column"


def validated(folder: Path, key: str, *rows: str) -> tuple[list[str], list[str]]:
    """The keys of what is accepted, and the reasons of what is not."""
    rest = '"who": "p1", "sum": 1, "on": "2024-05-01"'
    content = "".join(f"{{{row}, {rest}}}\n" for row in rows)
    toml = f'kind = "payments"\nfiles = "*"\n[columns]\npayment_id = {key}\n{COLUMNS}'
    found = validating.validated(content, folder, "till.ndjson", toml)
    rejects = validating.rows(found, "rejects")
    return validating.keys(found), [reason["message"] for reject in rejects for reason in reject["reasons"]]


@pytest.mark.parametrize("flag", ["true", "false"])
def test_a_flag_is_no_key(flag: str, tmp_path: Path) -> None:
    """FEED-FILE-09: nor is a text that says so, as a spreadsheet writes one."""
    found = validated(tmp_path, '"id"', f'"id": {flag}', '"id": "TRUE"', '"id": 7', '"id": "False"')
    assert found == (["7"], [FAULT] * 3)


def test_a_flag_that_the_feed_translates_or_joins_makes_a_key(tmp_path: Path) -> None:
    """FEED-FILE-08: what the feed file says of it is meant."""
    keys, reasons = validated(tmp_path, '{ join = ["id", "late"], with = "-" }', '"id": "a", "late": true')
    assert (keys, reasons) == (["a-true"], [])


def test_a_flag_as_the_first_value_of_several_columns_is_no_key(tmp_path: Path) -> None:
    """FEED-FILE-09"""
    found = validated(tmp_path, '{ first = ["id", "other"] }', '"id": "a", "other": true', '"id": null, "other": true')
    assert found == (["a"], [FAULT])


def test_a_flag_is_no_reference(tmp_path: Path) -> None:
    """FEED-FILE-09, FEED-PAY-05: `true` says that there is a claim, and not which."""
    claims = ("true", '"true"', "7", '"c1"', "false", "null")
    rows = (f'"id": {place}, "claim": {claim}' for place, claim in enumerate(claims))
    found = validated(tmp_path, '"id"\nclaim_id = "claim"', *rows)
    assert found == (["2", "3", "5"], [FAULT] * 3)


@pytest.mark.parametrize("word", ["NULL", "null", "None", "NaN", "undefined"])
def test_a_word_for_nothing_as_key_or_id_is_rejected_with_the_setting_that_makes_it_empty(
    word: str, tmp_path: Path
) -> None:
    """FEED-FILE-09"""
    rows = (f'"id": "{word}", "claim": "c1"', f'"id": 1, "claim": "{word}"', '"id": 2, "claim": "c1"')
    keys, reasons = validated(tmp_path, '"id"\nclaim_id = "claim"', *rows)
    assert keys == ["2"]
    assert len(reasons) == 2
    assert all(reason.endswith(f'empty = ["{word}"]') for reason in reasons)


@pytest.mark.parametrize("word", ["NULL", "none", "true", "NA", "N/A", "(null)", "#N/A"])
@pytest.mark.parametrize("form", ["{}", "{} ", " {}", "{}\t", "{}\u200b", "\u00a0{}", '="{}"', '="{} "'], ids=ascii)
def test_a_flag_or_a_word_for_nothing_is_no_key_with_blanks_or_a_guard_around_it(form: str, word: str) -> None:
    """FEED-FILE-09: but one that the ledger has of a record is that record."""
    text = form.format(word)
    found = key(text)
    assert isinstance(found, ValueFault)
    assert found == key(word)
    assert key(text, {word: "k1"}) == "k1"


@pytest.mark.parametrize("word", ["N/A", "(null)", "#N/A"])
def test_a_word_for_nothing_is_no_reference(word: str) -> None:
    """FEED-FILE-09"""
    assert isinstance(reference(f" {word} ", ("Patient",)), ValueFault)


@pytest.mark.parametrize("text", ["NULL-1", "NA 7", "(null) 1", "N/A/7", "annul", "truelove"])
def test_a_key_that_only_begins_with_such_a_word_is_one(text: str) -> None:
    """FEED-FILE-09"""
    assert key(text) == text


def test_a_formula_around_an_id_as_in_equals_007_is_removed(tmp_path: Path) -> None:
    """FEED-FILE-09"""
    keys, reasons = validated(tmp_path, '"id"\nclaim_id = "claim"', r'"id": "=\"007\"", "claim": "=\"c1\""')
    assert (keys, reasons) == (["007"], [])
