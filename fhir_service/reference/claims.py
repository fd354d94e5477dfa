"""A loaded Claim as a charge: its total, or else the sum of its items, on the day it was created, in cents."""

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

from fhir_service.reference.reading import Flaw
from fhir_service.reference.references import time_of

UNCHARGED = ("cancelled", "draft", "entered-in-error")
MOST = Decimal(10) ** 13


@dataclass(frozen=True, slots=True)
class ClaimCharge:
    """The charge of a Claim: `created` is a date or datetime."""

    created: str
    cents: int


def charge(claim: dict[str, Any], flaws: list[Flaw]) -> ClaimCharge | None:
    """Return the charge of a Claim; None if it charges nothing. Flaws refuse the Claim (PAY-BALANCE-02 to 04)."""
    if any(money.get("currency", "USD") != "USD" for money in _moneys(claim)):
        flaws.append(Flaw("Claim.total.currency", "the currency is not USD"))
    created = time_of(claim, "created", "Claim", flaws)
    if not claim.get("created"):
        flaws.append(Flaw("Claim.created", "a required element is missing"))
    amount = _amount(claim)
    if amount is None:
        flaws.append(Flaw("Claim.total", "there is neither a total nor an item with an amount"))
        return None
    if not (wrong := _wrong(amount)):
        if claim.get("status") in UNCHARGED or created is None:
            return None
        return ClaimCharge(created, int(amount * 100))
    flaws.append(Flaw("Claim.total", wrong))
    return None


def _moneys(claim: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield claim.get("total", {})
    for item in claim.get("item", ()):
        yield item.get("net", {})
        yield item.get("unitPrice", {})


def _amount(claim: dict[str, Any]) -> Decimal | None:
    total = _number(claim.get("total", {}).get("value"))
    if total is not None:
        return total
    parts = [part for item in claim.get("item", ()) if (part := _item_amount(item)) is not None]
    return sum(parts, Decimal(0)) if parts else None


def _item_amount(item: dict[str, Any]) -> Decimal | None:
    """Return the net amount of an item, or else its price times quantity and factor."""
    net, price = _number(item.get("net", {}).get("value")), _number(item.get("unitPrice", {}).get("value"))
    if net is not None or price is None:
        return net
    quantity, factor = _number(item.get("quantity", {}).get("value")), _number(item.get("factor"))
    return price * (1 if quantity is None else quantity) * (1 if factor is None else factor)


def _number(value: Any) -> Decimal | None:
    return value if isinstance(value, Decimal) else None


def _wrong(amount: Decimal) -> str | None:
    try:
        if amount < 0:
            return "the amount is below zero"
        if amount >= MOST:
            return "the amount is too large"
        return "the amount has more than two decimals" if amount != amount.quantize(Decimal("0.01")) else None
    except InvalidOperation:
        return "the amount has more than two decimals"
