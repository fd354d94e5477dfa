"""Balances that an import follows row by row: each payment is taken off once, and given back as it was taken."""

import random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pipelines.loading import balances
from pipelines.loading.balances import ABOVE, TOO_MANY, Balances
from pipelines.loading.row import AcceptedRow

SYSTEM = "urn:chartferry:till:PaymentNotice"


def row(key: str, cents: int, patient: str = "p1") -> AcceptedRow:
    return AcceptedRow(2, 1, key, patient, "", patient, None, cents, "{}", "2026-03-01T12:00:00Z")


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
    monkeypatch.setattr(balances, "payments_made", lambda *_: [])
    return there


def followed(there: list[dict[str, Any]]) -> Balances:
    def pages(kind: str, params: dict[str, str], *_: object, **__: object) -> Any:
        asked = (params.get("patient") or params["request"]).split(",")
        of = "patient" if kind == "Claim" else "request"
        entries = [{"resource": b} for b in there if b["resourceType"] == kind and b[of]["reference"] in asked]
        yield {"resourceType": "Bundle", "entry": entries}

    return Balances(cast(Any, SimpleNamespace(pages=pages)), cast(Any, SimpleNamespace()), "t", SYSTEM)


def test_a_refused_payment_is_given_back_though_a_later_read_shows_its_identifier(target: list[dict[str, Any]]) -> None:
    """PAY-CREATE-04"""
    kept = followed(target)
    assert not kept.judge([row("k1", 700)])
    target.append(notice("k1", 700, "p2"))  # the key of another patient's payment
    kept.judge([row("k2", 100, "p2")])
    kept.answered(row("k1", 700), refused=True)
    assert not kept.judge([row("k3", 1000)])


def test_a_refused_payment_that_was_not_deducted_is_not_credited_to_the_balance(target: list[dict[str, Any]]) -> None:
    """PAY-CREATE-04: neither one above the balance, nor one payment twice."""
    kept = followed(target)
    assert kept.judge([row("k1", 1100)]) == {"k1": ABOVE}
    kept.answered(row("k1", 1100), refused=True)
    assert not kept.judge([row("k2", 600)])
    kept.answered(row("k2", 600), refused=True)
    kept.answered(row("k2", 600), refused=True)
    assert kept.judge([row("k3", 1001)]) == {"k3": ABOVE}


@pytest.mark.parametrize("status", ["cancelled", "entered-in-error"])
def test_payments_that_were_taken_back_in_the_chart_pay_nothing_and_are_there(
    status: str, target: list[dict[str, Any]]
) -> None:
    """PAY-CREATE-04"""
    target.append(notice("k1", 900, status=status))
    kept = followed(target)
    assert not kept.judge([row("k1", 900), row("k2", 1000)])
    kept.answered(row("k2", 1000), refused=False)
    assert kept.judge([row("k3", 1)]) == {"k3": ABOVE}


def test_payments_after_a_waiting_one_of_the_patient_wait_and_other_patients_go_on(
    target: list[dict[str, Any]],
) -> None:
    """PAY-CREATE-04: a copayment too, though it may exceed the balance."""
    kept = followed(target)
    copayment = row("k3", 100)._replace(body='{"extension":[{"url":"http://x/copayment-claims"}]}')
    rows = [row("k1", 600), row("k2", 500), copayment, row("k4", 1), row("q1", 1000, "p2")]
    assert kept.judge(rows) == {"k2": None, "k3": None, "k4": None}
    assert kept.released() == ([], [])
    kept.answered(rows[0], refused=False)
    assert kept.released() == ([copayment, rows[3]], [rows[1]])
    assert kept.judge([row("k5", 300), row("k6", 299)]) == {"k5": None, "k6": None}
    kept.answered(copayment, refused=False)
    assert kept.released() == ([], [])
    kept.answered(rows[3], refused=True)
    assert [[each.key for each in some] for some in kept.released()] == [["k5"], []]


def test_payments_that_wait_are_bounded(target: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    """PAY-CREATE-04: further ones are rejects, which can be tried again."""
    monkeypatch.setattr(balances, "MOST_WAITING", 2)
    kept = followed(target)
    found = kept.judge([row("k1", 600), row("k2", 500), row("k3", 1), row("k4", 1)])
    assert found == {"k2": None, "k3": None, "k4": TOO_MANY}
    kept.answered(row("k1", 600), True)
    kept.released()
    assert kept.judge([row("k5", 1)]) == {"k5": TOO_MANY}


@pytest.mark.parametrize("seed", range(30))
def test_balances_decide_as_a_target_that_judges_each_payment_after_all_before_it(
    seed: int, target: list[dict[str, Any]]
) -> None:
    """PAY-CREATE-04: whenever its answers come, and whichever payments it refuses for another reason."""
    chance = random.Random(seed)
    rows = [row(f"k{n}", chance.choice([1, 100, 300, 700]), chance.choice(["p1", "p2"])) for n in range(40)]
    refused = {each.key for each in rows if chance.random() < 0.3}
    owed, expected = {"p1": 1000, "p2": 1000}, list[str]()
    for each in rows:
        if (each.amount_cents or 0) <= owed[each.patient_id or ""]:
            expected.append(each.key)
            owed[each.patient_id or ""] -= 0 if each.key in refused else each.amount_cents or 0

    kept, coming, under_way, sent = followed(target), list(rows), list[AcceptedRow](), list[str]()
    while coming or under_way or kept.waiting:
        if coming and chance.random() < 0.5:
            size = chance.randint(1, 9)
            page, coming = coming[:size], coming[size:]
            found = kept.judge(page)
            under_way += [each for each in page if each.key not in found]
        elif under_way:
            answered = under_way.pop(0)
            sent.append(answered.key)
            kept.answered(answered, answered.key in refused)
        under_way += kept.released()[0]
    of = {each.key: each.patient_id for each in rows}
    for patient in owed:
        assert [key for key in sent if of[key] == patient] == [key for key in expected if of[key] == patient]
