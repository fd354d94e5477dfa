"""Balances that an import follows row by row: each payment is taken off once, and given back as it was taken."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from pipelines.loading import balances
from pipelines.loading.balances import Balances
from pipelines.loading.sending import Row

SYSTEM = "urn:chartferry:till:PaymentNotice"


def row(key: str, cents: int, patient: str = "p1") -> Row:
    return Row(2, 1, key, patient, "", patient, None, cents, "{}", "2026-03-01T12:00:00Z")


def notice(name: str, cents: int, patient: str = "p1", status: str = "active") -> dict[str, Any]:
    body: dict[str, Any] = {"resourceType": "PaymentNotice", "id": name, "status": status}
    body |= {"identifier": [{"system": SYSTEM, "value": name}], "amount": {"value": cents / 100}}
    return body | {"request": {"reference": f"Patient/{patient}"}}


@pytest.fixture
def target(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The Claims and PaymentNotices of a target: the first patients are charged 10 dollars each."""
    there: list[dict[str, Any]] = [
        {
            "resourceType": "Claim",
            "id": f"c{number}",
            "status": "active",
            "patient": {"reference": f"Patient/p{number}"},
            "total": {"value": 10},
        }
        for number in (1, 2)
    ]

    def found(_: object, kind: str, params: dict[str, str], at_once: int) -> Any:
        asked = (params.get("patient") or params["request"]).split(",")
        of = "patient" if kind == "Claim" else "request"
        entries = [{"resource": b} for b in there if b["resourceType"] == kind and b[of]["reference"] in asked]
        yield {"resourceType": "Bundle", "entry": entries}

    monkeypatch.setattr(balances, "every_page", found)
    monkeypatch.setattr(balances, "payments_made", lambda *_: [])
    return there


def followed() -> Balances:
    return Balances(cast(Any, SimpleNamespace()), cast(Any, SimpleNamespace()), "t", SYSTEM)


def test_a_refused_payment_is_given_back_though_a_later_read_shows_its_identifier(target: list[dict[str, Any]]) -> None:
    """PAY-CREATE-04"""
    kept = followed()
    assert not kept.above([row("k1", 700)])
    target.append(notice("k1", 700, "p2"))  # the key of another patient's payment
    kept.above([row("k2", 100, "p2")])
    kept.give_back(row("k1", 700))
    assert not kept.above([row("k3", 1000)])


def test_what_was_not_taken_off_is_not_given_back(target: list[dict[str, Any]]) -> None:
    """PAY-CREATE-04: neither what is above the balance, nor one payment twice."""
    kept = followed()
    assert kept.above([row("k1", 1100)])
    kept.give_back(row("k1", 1100))
    assert not kept.above([row("k2", 600)])
    kept.give_back(row("k2", 600))
    kept.give_back(row("k2", 600))
    assert kept.above([row("k3", 1001)])


@pytest.mark.parametrize("status", ["cancelled", "entered-in-error"])
def test_payments_that_were_taken_back_in_the_chart_pay_nothing_and_are_there(
    status: str, target: list[dict[str, Any]]
) -> None:
    """PAY-CREATE-04"""
    target.append(notice("k1", 900, status=status))
    kept = followed()
    assert not kept.above([row("k1", 900), row("k2", 1000)])
    assert kept.above([row("k3", 1)])
