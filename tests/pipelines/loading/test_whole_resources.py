"""Rows that are whole resources: the same record, however its elements are ordered and its numbers are written."""

import json
from decimal import Decimal

import pytest

from pipelines.loading.row import AcceptedRow, Identity, own_identifiers
from pipelines.validation.content import canonical
from tests.conftest import running

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


@pytest.mark.parametrize("same", [("1", "1.0", "1.00", "1E0", "10E-1"), ("0", "0.00", "-0", "0E5"), ("1E3", "1000")])
def test_equal_numbers_have_one_canonical_text(same):
    assert len({canonical({"value": Decimal(text)}) for text in same}) == 1


@pytest.mark.parametrize("others", [("1", "10", "0.1", "-1"), ("1" * 40, "1" * 39 + "2"), ("0", "1E-400")])
def test_numbers_of_other_values_are_other_texts(others):
    assert len({canonical({"value": Decimal(text)}) for text in others}) == len(others)


NAMED = (
    '"identifier": [{"system": "urn:till", "value": "R-1"}, {"system": "urn:chartferry:x:PaymentNotice", "value": "n"}]'
)
OURS = {"system": "urn:chartferry:notices:PaymentNotice", "value": "n1"}


@pytest.mark.parametrize(("additions", "kept"), [(True, [{"system": "urn:till", "value": "R-1"}, OURS]), (False, None)])
def test_identifiers_of_its_own_go_with_the_importers_where_the_target_keeps_such(
    home, drop, asked, target, additions, kept
):
    """FEED-FILE-05: the body named its identifiers twice, and was refused. What another import gave finds another."""
    target.additions = additions
    drop("notices-1.ndjson", f"{NAMED}, {SAID}")
    assert asked("import")["totals"]["created"] == 1
    [there] = target.of("PaymentNotice")
    assert there.get("identifier") == kept
    assert there["amount"]["value"] == 12.5
    assert asked("verify")["counts"] == {}


@pytest.mark.alike
@pytest.mark.parametrize("bare", [False, True])
def test_the_bundled_service_takes_resources_with_identifiers(tmp_path, home, drop, asked, monkeypatch, bare):
    """FEED-FILE-05: those that it published in bulk itself have some."""
    folder = tmp_path / "service"
    folder.mkdir()
    with running(folder, interface_only=bare) as found:
        monkeypatch.setenv("FHIR_BASE_URL", found.url)
        monkeypatch.setenv("FHIR_TOKEN", found.headers["authorization"].removeprefix("Bearer "))
        drop("notices-1.ndjson", f"{NAMED}, {SAID}")
        assert asked("import")["totals"]["created"] == 1
        [entry] = found.client.get("/PaymentNotice").json()["entry"]
    assert entry["resource"].get("identifier") == (None if bare else [{"system": "urn:till", "value": "R-1"}, OURS])


def test_a_response_has_the_importers_identifier_alone():
    """FEED-FILE-05: there is room for one."""
    body = (
        '{"resourceType":"QuestionnaireResponse","identifier":{"system":"urn:till","value":"R-1"},"status":"completed"}'
    )
    assert own_identifiers(body) == ('{"resourceType":"QuestionnaireResponse","status":"completed"}', [])
    nested = '{"subject":{"identifier":{"value":"x"}},"amount":{"value":1.10}}'
    assert own_identifiers(nested) == (nested, [])


@pytest.mark.parametrize("resource_type", ["Task", "QuestionnaireResponse"])
def test_a_body_with_identifiers_is_json_whatever_its_source_is_called(resource_type):
    body = json.dumps({"resourceType": resource_type, "identifier": [{"system": "urn:x", "value": "1"}]})
    row = AcceptedRow(1, 1, "k1", "lane", "hash", None, "2026-01-01T00:00:00Z", None, body, "2026-01-01T00:00:00Z")
    sent = json.loads(Identity("till [1]", resource_type).entry(row)[0])
    ours = {"system": f"urn:chartferry:till [1]:{resource_type}", "value": "k1"}
    assert sent["identifier"] == ([{"system": "urn:x", "value": "1"}, ours] if resource_type == "Task" else ours)


@pytest.mark.parametrize("created", ['"x"', "5", "null", '""', '"2026-03"', '"2026-03-01T10:00:00"'])
def test_a_payment_whose_time_is_none_is_rejected(home, drop, asked, target, created):
    """FEED-FILE-05, FEED-PAY-04: its own time was lost unseen, and the order of the payments with it."""
    text = NOTICE.format(amount=SAID).replace('"2026-03-01"', created)
    (home / "inbox" / "notices-1.ndjson").write_text(text)
    assert asked("import")["totals"]["rejected"] == 1
    assert target.of("PaymentNotice") == []
