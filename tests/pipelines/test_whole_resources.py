"""Rows that are whole resources: the same record, however its elements are ordered and its numbers are written."""

import sqlite3
from contextlib import closing
from decimal import Decimal

import pytest

from pipelines.validation.content import canonical, dump

FEED = 'kind = "payments"\nfiles = ["notices*"]\nformat = "ndjson"\nresources = true\n'
NOTICE = (
    '{{"resourceType": "PaymentNotice", "id": "n1", "status": "active", "request": {{"reference": "Patient/p1"}},'
    ' "created": "2026-03-01", "payment": {{}}, "recipient": {{}}, {amount}}}\n'
)
SAID = '"amount": {"value": 12.50, "currency": "USD"}'
OTHERWISE = '"amount": {"currency": "USD", "value": 12.5}'
MORE = '"amount": {"value": 12.51, "currency": "USD"}'


@pytest.fixture
def drop(home):
    (home / "feeds").mkdir()
    (home / "feeds/notices.toml").write_text(FEED)

    def drop(name, amount):
        (home / "inbox" / name).write_text(NOTICE.format(amount=amount))

    return drop


def test_the_order_of_elements_and_the_digits_of_a_number_make_no_other_record(home, drop, asked, target):
    """LEDGER-08"""
    drop("notices-1.ndjson", SAID)
    assert asked("import")["totals"]["created"] == 1
    drop("notices-2.ndjson", OTHERWISE)
    assert asked("import")["totals"]["unchanged"] == 1
    drop("notices-3.ndjson", MORE)
    assert asked("import")["totals"]["rejected"] == 1


def test_a_ledger_that_knows_a_resource_by_its_text_knows_it_still(home, drop, asked, target, monkeypatch):
    """LEDGER-08"""
    with monkeypatch.context() as older:
        older.setattr("pipelines.validation.chunk_mapping.canonical", dump)
        drop("notices-1.ndjson", SAID)
        assert asked("import")["totals"]["created"] == 1
    with closing(sqlite3.connect(home / "ledger.db")) as ledger:
        [(before,)] = ledger.execute("SELECT content_hash FROM record")
    drop("notices-2.ndjson", SAID + " ")
    found = asked("import")
    assert (found["totals"]["unchanged"], found["totals"]["rejected"]) == (1, 0)
    drop("notices-3.ndjson", MORE)
    assert asked("import")["totals"]["rejected"] == 1
    with closing(sqlite3.connect(home / "ledger.db")) as ledger:
        assert ledger.execute("SELECT content_hash FROM record").fetchall() == [(before,)]


@pytest.mark.parametrize("same", [("1", "1.0", "1.00", "1E0", "10E-1"), ("0", "0.00", "-0", "0E5"), ("1E3", "1000")])
def test_numbers_of_one_value_are_one_text(same):
    assert len({canonical({"value": Decimal(text)}) for text in same}) == 1


@pytest.mark.parametrize("others", [("1", "10", "0.1", "-1"), ("1" * 40, "1" * 39 + "2"), ("0", "1E-400")])
def test_numbers_of_other_values_are_other_texts(others):
    assert len({canonical({"value": Decimal(text)}) for text in others}) == len(others)
