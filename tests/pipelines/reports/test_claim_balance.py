"""Balances by claim, as the service tells them or made from Claims and PaymentNotices; patients without names."""

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import orjson
import pytest

from fhir_service.interface.billing import Charge, allocate, in_order
from fhir_service.interface.json_text import parse_json
from fhir_service.reference.claims import charge
from pipelines.loading.balances import _charge
from pipelines.reports.changed_resources import sweep_changes
from pipelines.reports.readings import note_reading
from pipelines.reports.service_data import CHARGES, PATIENT, PATIENTS, WithoutNames, forget_patients, keep_told
from tests.support.publishing import TARGET, Target, World, publish_only, unpublished


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    publish_only(monkeypatch, "claim_balance", "patient")
    with unpublished(tmp_path) as made:
        made.reports = []
        yield made


MADE_AT = datetime(2026, 1, 6, 11, tzinfo=UTC)


def telling(*rows: dict[str, Any]) -> Any:
    return lambda _, file: file.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))


def claim(name: str, cents: int, patient: str = "p1", created: str = "2026-01-01", **fields: Any) -> dict[str, Any]:
    body: dict[str, Any] = {"resourceType": "Claim", "id": name, "status": "active", "created": created}
    body |= {"patient": {"reference": f"Patient/{patient}"}, "total": {"value": cents / 100, "currency": "USD"}}
    return body | fields


def notice(name: str, cents: int, patient: str = "p1", of: str | None = None, **fields: Any) -> dict[str, Any]:
    body: dict[str, Any] = {"resourceType": "PaymentNotice", "id": name, "status": "active"}
    body |= {"request": {"reference": f"Patient/{patient}"}, "amount": {"value": cents / 100}}
    if of:
        part = {"url": "claim", "valueReference": {"reference": f"Claim/{of}"}}
        body["extension"] = [{"url": "http://x/other"}, {"url": "http://x/copayment-claims", "extension": [part]}]
    return body | fields


def read(world: World, *resources: dict[str, Any]) -> None:
    for kind in ("Claim", "PaymentNotice"):
        sweep_changes(Target(list(resources)), world.home, TARGET, kind, clock=world.clock)


SHOWN = "SELECT claim_id, charged, copayments, paid, open, applied_by FROM claim_balance"


@pytest.mark.long
def test_claim_balances_are_those_of_the_bundled_service(world: World) -> None:
    """REPORT-28: with the time up to which they are true."""
    row = {"claim_id": "c1", "patient_id": "p1", "created": "2026-01-05", "cents": 10050}
    keep_told(telling(row | {"paid_cents": 2000, "copaid_cents": 500}), world.home, TARGET, CHARGES)
    read(world, claim("elsewhere", 100))
    world.publish()
    dollars = map(Decimal, ("100.50", "5.00", "20.00", "80.50"))
    assert world.rows(SHOWN) == [("c1", *dollars, "target")]
    assert world.rows("SELECT DISTINCT read_at FROM claim_balance") == [(None,)]
    note_reading(world.home, TARGET, CHARGES, MADE_AT, is_read=True)
    note_reading(world.home, TARGET, CHARGES, MADE_AT + timedelta(hours=1), is_read=False)
    world.publish()
    assert world.rows("SELECT read_at = '2026-01-06 11:00:00+00' FROM claim_balance") == [(True,)]
    keep_told(telling(), world.home, TARGET, CHARGES)
    world.publish()
    assert [claim_id for claim_id, *_ in world.rows(SHOWN)] == ["elsewhere"]


def test_at_other_targets_claim_balances_are_computed_from_claims_and_payments(world: World) -> None:
    """REPORT-28: items are added up if a Claim has no total; cancelled and absurd amounts are left out."""
    item = {"unitPrice": {"value": 10.1}, "quantity": {"value": 3}}
    summed = claim("items", 0, item=[{"net": {"value": 5}}, item])
    del summed["total"]
    read(
        world,
        summed,
        claim("gone", 100, status="cancelled"),
        claim("absurd", 100, total={"value": 1e300}),
        claim("words", 100, total={"value": "much"}),
        claim("euros", 100, total={"value": 1, "currency": "EUR"}),
        claim("francs", 100, item=[{"net": {"value": 1, "currency": "CHF"}}]),
        notice("n1", 530),
        notice("n2", 100, status="entered-in-error"),
        notice("n3", 100, of="gone", amount={}),
        notice("n4", 100, amount={"value": 1, "currency": "EUR"}),
    )
    world.publish()
    assert world.rows(SHOWN) == [("items", *map(Decimal, ("35.30", "0.00", "5.30", "30.00")), "publication")]


def test_at_other_targets_the_oldest_claim_is_the_earliest_instant_in_any_zone(world: World) -> None:
    """REPORT-28: of two claims the one written with the earlier day, three hours later, was paid."""
    times = {"a": "2026-01-01T23:00:00-05:00", "b": "2026-01-02T01:00:00Z", "c": "2026-01-03"}
    read(world, *(claim(name, 100, created=at) for name, at in times.items()), notice("n1", 100))
    world.publish()
    assert world.rows("SELECT claim_id, paid FROM claim_balance WHERE paid > 0") == [("b", Decimal(1))]


def test_the_computed_payments_of_claims_equal_the_allocation_of_the_service_in_any_order(world: World) -> None:
    """REPORT-28, PAY-CREATE-09, PAY-CREATE-10: a copayment to its claim, all else to the oldest claims first."""
    chance = random.Random(7)
    resources: list[dict[str, Any]] = []
    expected: dict[str, Decimal] = {}
    for patient in (f"p{number}" for number in range(200)):
        days = [f"2026-01-0{chance.randint(1, 4)}" for _ in range(chance.randint(1, 5))]
        charges = [Charge(f"{patient}-c{place}", day, chance.randint(1, 60)) for place, day in enumerate(days)]
        resources += [claim(each.claim, each.cents, patient, each.created) for each in charges]
        for place in range(chance.randint(0, 6)):
            of = chance.choice([None, chance.choice(charges).claim])
            resources.append(notice(f"{patient}-n{place}", cents := chance.randint(1, 50), patient, of))
            allocate(cents, in_order(charges), of)
        expected |= {each.claim: Decimal(each.paid) / 100 for each in charges}
    read(world, *chance.sample(resources, len(resources)))
    world.publish()
    assert dict(world.rows("SELECT claim_id, paid FROM claim_balance")) == expected


def test_service_import_and_tables_agree_on_the_charge_of_a_claim(world: World) -> None:
    """REPORT-28, PAY-BALANCE-02, PAY-BALANCE-03, PAY-BALANCE-04: its total, else net or price times quantity, factor"""
    chance = random.Random(8)

    def money() -> dict[str, Any]:
        return {"value": chance.randrange(0, 900, 4) / 100, "currency": chance.choice(["USD"] * 9 + ["CHF"])}

    def some(**fields: Any) -> dict[str, Any]:
        return {name: value for name, value in fields.items() if chance.random() < 0.6}

    claims, expected = [], dict[str, Decimal]()
    for number in range(200):
        items = [
            some(net=money(), unitPrice=money(), quantity={"value": chance.choice([0, 0.5, 3])}, factor=0.5)
            for _ in range(chance.randint(1, 3))
        ]
        one = claim(f"c{number}", 0, status=chance.choice(["active", "active", "active", "draft"]), item=items)
        one |= {"total": money() if chance.random() < 0.2 else {}}
        claims.append(one)
        flaws: list[Any] = []
        told = charge(parse_json(orjson.dumps(one).decode()), flaws)
        cents = told.cents if told and not flaws else 0
        assert _charge(one) == cents
        expected |= {one["id"]: Decimal(cents) / 100} if cents else {}
    read(world, *claims)
    world.publish()
    assert dict(world.rows("SELECT claim_id, charged FROM claim_balance")) == expected
    assert len(expected) > 50


ALL_OF = "SELECT patient_id, sex, birth_years FROM patient"


def test_patients_are_published_only_where_the_home_says_so(world: World) -> None:
    """REPORT-29: those of old age share a band."""
    born = {"a": 1936, "b": 1939, "c": 1940, "d": 2001, "e": None}
    rows = [{"id": name, "gender": "female", "birthYear": year} for name, year in born.items()]
    keep_told(telling(*rows, {"id": "f", "gender": "SECRET", "birthYear": 1900}), world.home, TARGET, PATIENTS)
    world.publish()
    assert world.rows(ALL_OF) == []
    (world.home / "reports.toml").write_text("publish_patients = true\n")
    world.publish()
    bands = ["before 1940", "before 1940", "1940-1949", "2000-2009", None]
    assert world.rows(ALL_OF) == [
        *((name, "female", band) for name, band in zip(born, bands, strict=True)),
        ("f", None, "before 1940"),
    ]
    forget_patients(world.home, TARGET)
    world.publish()
    assert world.rows(ALL_OF) == []


def test_no_name_and_no_birthday_of_patients_at_other_targets_is_stored(world: World) -> None:
    """REPORT-29"""
    (world.home / "reports.toml").write_text("publish_patients = true\n")
    body: dict[str, Any] = {"resourceType": "Patient", "id": "a", "gender": "male", "birthDate": "1971-07-09"}
    body["name"] = [{"text": "S"}]
    others: list[dict[str, Any]] = [
        {"resourceType": "Patient", "id": "b", "birthDate": "odd"},
        {"resourceType": "Patient", "id": "c"},
    ]
    client = WithoutNames(Target([body, *others]))
    sweep_changes(client, world.home, TARGET, PATIENT, clock=world.clock)
    world.publish()
    assert world.rows(ALL_OF) == [("a", "male", "1970-1979"), ("b", None, None), ("c", None, None)]
    [kept] = world.home.glob("batches/_reports/*/patients.parquet")
    assert not any(secret in kept.read_bytes() for secret in (b"07-09", b"name"))
