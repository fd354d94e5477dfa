"""Laws of allocation: what is applied to charges is never more than was charged or paid."""

from hypothesis import given
from hypothesis import strategies as st

from fhir_service.interface.billing import Account, Charge, allocate, in_order

charges = st.lists(
    st.builds(
        Charge,
        claim=st.uuids().map(str),
        created=st.sampled_from(["2026-01-01", "2026-01-02"]),
        cents=st.integers(1, 10_000),
    ),
    max_size=6,
    unique_by=lambda charge: charge.claim,
).map(in_order)
payments = st.lists(st.tuples(st.integers(1, 8_000), st.integers(0, 8)), max_size=8)


def _claim(owed: list[Charge], number: int) -> str | None:
    return owed[number].claim if number < len(owed) else None


@given(charges, payments)
def test_no_cent_is_gained_or_lost(owed: list[Charge], paid: list[tuple[int, int]]) -> None:
    """PAY-CREATE-12, PAY-CREATE-13: the rows explain the balance; what is left over is what found no charge."""
    rows = [row for cents, number in paid for row in allocate(cents, owed, _claim(owed, number))]
    applied = sum(cents for _, cents in rows)
    assert applied == sum(charge.paid for charge in owed)
    assert all(0 <= charge.paid <= charge.cents for charge in owed)
    assert applied == min(sum(cents for cents, _ in paid), sum(charge.cents for charge in owed))
    for charge in owed:
        assert charge.paid == sum(cents for reached, cents in rows if reached is charge)


@given(charges, st.integers(1, 20_000))
def test_a_payment_reaches_the_oldest_charges_first(owed: list[Charge], cents: int) -> None:
    """PAY-CREATE-09, PAY-CREATE-10: by creation date, then by id."""
    allocate(cents, owed)
    reached = [charge.paid for charge in owed]
    full = [charge.cents for charge in owed]
    touched = next(
        (n for n, (paid, all_of_it) in enumerate(zip(reached, full, strict=True)) if paid < all_of_it), len(owed)
    )
    assert not any(reached[touched + 1 :])
    assert [(charge.created, charge.claim) for charge in owed] == sorted((c.created, c.claim) for c in owed)


@given(charges.filter(bool), st.integers(1, 20_000), st.data())
def test_a_copayment_reaches_its_own_claim_first(owed: list[Charge], cents: int, data: st.DataObject) -> None:
    """PAY-CREATE-11: only then the others, oldest first."""
    own = data.draw(st.sampled_from(owed))
    rows = allocate(cents, owed, own.claim)
    assert rows[0] == (own, min(cents, own.cents))
    others = [charge for charge in owed if charge is not own]
    assert [charge for charge, _ in rows[1:]] == others[: len(rows) - 1]


def test_a_balance_is_charges_less_payments() -> None:
    """PAY-BALANCE-01."""
    assert Account(charged=1500, paid=1502).balance == -2
