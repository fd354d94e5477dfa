"""Letters with accents, which systems write in one sign or in two."""

import unicodedata
from pathlib import Path
from typing import Literal

import pytest

from tests.support.validating import rows, validated

Form = Literal["NFC", "NFD"]


@pytest.mark.parametrize(("feed", "file"), [("NFC", "NFD"), ("NFD", "NFC")])
def test_an_accent_is_the_same_in_one_sign_or_two(feed: Form, file: Form, tmp_path: Path) -> None:
    """FEED-FILE-01, LEDGER-13: in keys, names of columns, conditions, values and crosswalks."""
    toml = """kind = "payments"
files = ["*"]
[take]
"Gerät" = "Kasse Süd"
[columns]
payment_id = "Köln-Nr"
amount = { column = "Betrag", values = { "fünf" = "5.00" } }
paid_on = "Tag"
patient_id = { column = "Name", crosswalk = { file = "namen.csv", from = "Größe", to = "id" } }
"""
    (tmp_path / "namen.csv").write_text(unicodedata.normalize(feed, "Größe,id\nJürg,p1\n"))
    rows_of_file = "é1,fünf,2026-01-01,Jürg,Kasse Süd\n"
    again = unicodedata.normalize(feed, rows_of_file)
    content = unicodedata.normalize(file, f"Köln-Nr,Betrag,Tag,Name,Gerät\n{rows_of_file}") + again
    found = validated(content, tmp_path, toml=unicodedata.normalize(feed, toml))
    assert (found.accepted, found.skipped, found.rejected, found.amount_accepted) == (2, 1, 0, 1000)
    [accepted] = rows(found, "accepted")
    assert (accepted["key"], accepted["patient_id"]) == (unicodedata.normalize("NFC", "é1"), "p1")
