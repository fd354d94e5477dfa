"""One target under several spellings of its address is one target: nothing goes there a second time."""

import pytest

from pipelines.client.client import FhirClient
from pipelines.client.replies import UnknownOutcome
from pipelines.home.exits import UNUSABLE
from pipelines.ledger.addresses import spelled_alike
from tests.support.ledgers import decisions, lose_ledger

PAYMENTS = "payment_id,patient_id,amount,paid_on\nk1,p1,1.00,2026-01-01\n"


@pytest.mark.parametrize(
    ("url", "alike"),
    [
        ("HTTPS://Chart.Example.org", "https://chart.example.org"),
        ("https://chart.example.org:443/", "https://chart.example.org"),
        ("http://chart.example.org:80/fhir//", "http://chart.example.org/fhir"),
        ("http://[::1]:8400", "http://[::1]:8400"),
        ("https://chart.example.org:8443/R4", "https://chart.example.org:8443/R4"),
        ("urn:uuid:Ab", "urn:uuid:Ab"),
        ("https://chart.example.org:port", "https://chart.example.org:port"),
    ],
)
def test_spellings_of_one_address_have_one_form(url, alike):
    """LEDGER-01: by the standard of URLs, and no further: a path keeps its case."""
    assert spelled_alike(url) == alike


def test_an_import_to_the_same_address_spelled_otherwise_sends_nothing_again(home, target, asked, monkeypatch):
    """LEDGER-01, CLI-CMD-19: what shows no id is known by its address."""
    target.additions = False
    target.store_id = None
    path = home.parent / "payments.csv"
    path.write_text(PAYMENTS)
    named = target.url.replace("127.0.0.1", "localhost")
    monkeypatch.setenv("FHIR_BASE_URL", named)
    first = asked("import", path)
    monkeypatch.setenv("FHIR_BASE_URL", named.replace("http://localhost", "HTTP://LocalHost") + "/")
    again = asked("import", path)
    assert (first["totals"]["created"], again["totals"]["created"], again["totals"]["unchanged"]) == (1, 0, 1)
    assert again["other_targets"] == []
    assert len(target.of("PaymentNotice")) == 1


@pytest.mark.alike
@pytest.mark.parametrize("moved", [False, True], ids=["at its address", "that moves later"])
def test_a_target_that_begins_to_show_an_id_is_the_one_that_it_was(home, target, asked, monkeypatch, moved):
    """LEDGER-01: it was known by its address; under its id all of its rows would go there again."""
    target.additions = False
    path = home.parent / "payments.csv"
    path.write_text(PAYMENTS)
    asked("import", path)
    target.additions = True
    again = asked("import", path)
    assert (again["totals"]["created"], again["totals"]["unchanged"], again["other_targets"]) == (0, 1, [])
    if moved:
        monkeypatch.setenv("FHIR_BASE_URL", target.url.replace("127.0.0.1", "localhost"))
        again = asked("import", path)
        assert (again["totals"]["created"], again["totals"]["unchanged"], again["other_targets"]) == (0, 1, [])
    assert len(target.of("PaymentNotice")) == 1
    assert asked("verify")["differences"] == []


def test_a_target_that_moved_and_shows_no_id_any_more_gets_nothing_at_either_address(
    home, target, asked, chartferry, monkeypatch
):
    """LEDGER-01, CLI-CMD-19: also where the ledger is lost."""
    path, moved = home.parent / "payments.csv", target.url.replace("127.0.0.1", "localhost")
    for number, url in enumerate((target.url, moved)):
        monkeypatch.setenv("FHIR_BASE_URL", url)
        path.write_text(PAYMENTS.replace("k1", f"k{number}"))
        asked("import", path)
    lose_ledger(home)
    target.additions = False
    for url in (target.url, moved):
        monkeypatch.setenv("FHIR_BASE_URL", url)
        assert "shows no id now" in chartferry("import", path)[2]
    assert len(target.of("PaymentNotice")) == 2


@pytest.mark.parametrize("shows_an_id", [True, False])
def test_a_target_of_a_lost_ledger_is_the_one_that_it_was(home, target, asked, monkeypatch, shows_an_id):
    """LEDGER-01: by its address, spelled otherwise, or by the id that it shows by now: its runs are on record."""
    target.additions = False
    path = home.parent / "payments.csv"
    path.write_text(PAYMENTS)
    asked("import", path)
    lose_ledger(home)
    target.additions = shows_an_id
    if not shows_an_id:
        monkeypatch.setenv("FHIR_BASE_URL", target.url.replace("http", "HTTP") + "/")
    assert asked("import", path)["batches"][0]["state"] == "failed"
    asked("verify", "--adopt")
    again = asked("import", path)
    assert (again["totals"]["created"], again["totals"]["unchanged"], again["other_targets"]) == (0, 1, [])
    assert len(target.of("PaymentNotice")) == 1


def test_a_target_of_a_lost_ledger_that_shows_no_id_any_more_gets_nothing(home, target, asked, chartferry):
    """LEDGER-01, CLI-CMD-19"""
    path = home.parent / "payments.csv"
    path.write_text(PAYMENTS)
    asked("import", path)
    lose_ledger(home)
    target.additions = False
    code, _, err = chartferry("import", path)
    assert (code, "shows no id now" in err) == (UNUSABLE, True)
    assert len(target.of("PaymentNotice")) == 1


def test_another_store_at_an_address_is_another_target(home, target, asked):
    """LEDGER-01: it has nothing of what was sent to the one before it."""
    target.additions = False
    path = home.parent / "payments.csv"
    path.write_text(PAYMENTS)
    asked("import", path)
    target.additions, target.stored = True, {}
    again = asked("import", path)
    assert (again["totals"]["created"], again["target_id"], len(again["other_targets"])) == (1, "urn:uuid:fake", 1)


def at_another_address(target, monkeypatch) -> None:
    monkeypatch.setenv("FHIR_BASE_URL", target.url.replace("127.0.0.1", "localhost"))


def test_a_bare_target_under_another_address_gets_nothing_again(home, target, asked, chartferry, monkeypatch):
    """LEDGER-01, CLI-CMD-19: until a person says that it is the one that it was. One resource of several tells."""
    target.additions = False
    path = home.parent / "payments.csv"
    path.write_text(PAYMENTS + "k2,p1,2.00,2026-01-01\n")
    asked("import", path)
    last = target.stored.popitem()
    at_another_address(target, monkeypatch)
    code, _, err = chartferry("import", path)
    assert (code, len(target.of("PaymentNotice"))) == (UNUSABLE, 1)
    assert f"has resources that were sent to {target.url}" in err
    code, _, err = chartferry("target", "--formerly", "http://elsewhere")
    assert (code, "nothing was sent to http://elsewhere" in err) == (4, True)
    assert chartferry("target", "--formerly", f"{target.url}/", "--why", "it has a name now")[0] == 0
    target.stored.update([last])
    path.write_text(PAYMENTS + "k2,p1,2.00,2026-01-01\nk3,p1,3.00,2026-01-01\n")
    for created in (1, 0):
        again = asked("import", path)
        assert (again["totals"]["created"], again["totals"]["unchanged"]) == (created, 3 - created)
        assert again["other_targets"] == []
    monkeypatch.setenv("FHIR_BASE_URL", target.url)
    assert asked("import", path)["totals"]["created"] == 0
    assert asked("verify")["differences"] == []


def test_another_bare_server_is_another_target(home, target, asked, chartferry, monkeypatch):
    """LEDGER-01: it has nothing of what was sent to the first, and is not taken for it."""
    target.additions = False
    path = home.parent / "payments.csv"
    path.write_text(PAYMENTS)
    asked("import", path)
    target.stored = {}
    at_another_address(target, monkeypatch)
    code, _, err = chartferry("target", "--formerly", target.url)
    assert (code, "has none of the resources that were last sent" in err) == (4, True)
    assert asked("import", path)["totals"]["created"] == 1
    code, _, err = chartferry("target", "--formerly", target.url)
    assert (code, "is known as a target of its own" in err) == (4, True)


@pytest.mark.parametrize("words", [("import",), ("target", "--formerly")])
def test_a_target_that_does_not_show_if_it_is_a_known_one_gets_nothing(
    home, target, asked, chartferry, monkeypatch, words
):
    """LEDGER-01: nor is it taken for that one by hand. The next command asks again."""
    target.additions = False
    path = home.parent / "payments.csv"
    path.write_text(PAYMENTS)
    asked("import", path)
    at_another_address(target, monkeypatch)
    named = path if words == ("import",) else target.url

    def lost(*_):
        raise UnknownOutcome("HTTP 500")

    with monkeypatch.context() as patched:
        patched.setattr(FhirClient, "read", lost)
        code, _, err = chartferry(*words, named)
    assert (code, "could not be told (HTTP 500): nothing was sent" in err) == (UNUSABLE, True)
    assert (len(target.of("PaymentNotice")), decisions(home)) == (1, [])
    assert "has resources that were sent to" in chartferry("import", path)[2]
    assert chartferry("target", "--formerly", target.url, "--why", "it moved")[0] == 0
    assert decisions(home) == [("target --formerly", target.url.replace("127.0.0.1", "localhost"), "it moved")]
