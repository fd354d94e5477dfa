"""Charges, balances, and how payments are applied to charges. Amounts are cents. No store."""

from collections.abc import Iterable
from dataclasses import dataclass

ABOVE_BALANCE = "the payment is above the balance owed"
"""The refusal of a payment (PAY-CREATE-04). Stored rejects are found by this text: a new wording must contain it."""


@dataclass(slots=True)
class Charge:
    """One loaded Claim as money owed: `created` orders charges, `paid` is what payments have covered."""

    claim: str
    created: str
    cents: int
    paid: int = 0

    @property
    def open(self) -> int:
        return self.cents - self.paid


@dataclass(slots=True)
class Account:
    """A patient's charged and paid cents; `fresh` if the store has no row of it yet. read: what was paid when read."""

    charged: int = 0
    paid: int = 0
    fresh: bool = False
    read: int = 0

    @property
    def balance(self) -> int:
        return self.charged - self.paid


def in_order(charges: Iterable[Charge]) -> list[Charge]:
    """Return charges, oldest first, then by id (PAY-CREATE-09, PAY-CREATE-10)."""
    return sorted(charges, key=lambda charge: (charge.created, charge.claim))


def allocate(cents: int, charges: list[Charge], claim: str | None = None) -> list[tuple[Charge, int]]:
    """Apply a payment to charges that are in order, a copayment to its claim first; mark them paid.

    Yield each charge that it reaches, and the cents. What is left over waits for later charges.
    """
    if claim:
        charges = sorted(charges, key=lambda charge: charge.claim != claim)
    rows = []
    for charge in charges:
        left = charge.cents - charge.paid
        if (part := min(left, cents)) > 0:
            charge.paid += part
            cents -= part
            rows.append((charge, part))
        if not cents:
            break
    return rows
