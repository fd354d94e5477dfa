"""Balances of patients at a target that keeps none: what its Claims charge less what its PaymentNotices paid.

They are read before the first payment of a patient is sent, and followed row by row in the order of the lane. What the
ledger knows as made and a search does not show yet counts as paid. Nothing of them is kept: every run reads them anew.
A payment above the balance waits till the others of the load have their answers, as the target may refuse one of them.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal, InvalidOperation
from typing import Any

import orjson

from pipelines.client.client import FhirClient
from pipelines.client.comparison import referred
from pipelines.client.identifiers import identifier_value, values_of
from pipelines.client.paging import every_page
from pipelines.client.replies import NotDone, NotSent, Refused, Unknown, resources_of
from pipelines.ledger.ledger import Ledger
from pipelines.ledger.payments import payments_made
from pipelines.ledger.rows import Reason
from pipelines.loading.sending import Row

Body = dict[str, Any]
UNCHARGED = ("cancelled", "draft", "entered-in-error")
UNPAID = ("cancelled", "entered-in-error")
PATIENTS_A_SEARCH = 20
MOST_WAITING = 5_000
"""Payments above their balances that wait for the answers of others. Further ones are set aside at once."""
READERS = 4
ABOVE = Reason(
    "PAY-CREATE-04",
    "PaymentNotice.amount.value",
    None,
    "the payment is above the balance owed, by the Claims and PaymentNotices of the target",
    True,
)


class Balances:
    """The cents that patients owe. Raises `BalancesUnknown` where the target does not tell."""

    def __init__(self, client: FhirClient, ledger: Ledger, target: str, system: str) -> None:
        """system: of the identifiers by which the target knows the rows."""
        self._client, self._ledger, self._target, self._system = client, ledger, target, system
        self._owed: dict[str, int] = {}
        self._there = set[str]()
        self._taken: dict[str, int] = {}
        """By key, the cents that were taken off the balance."""
        self._refused_to = set[str]()
        self.waiting: dict[str, Row] = {}
        """By key, payments above the balance that are judged again if the target refuses others."""

    def above(self, rows: Sequence[Row]) -> dict[str, Reason]:
        """By key, why a payment is not sent now. The others are taken off the balance, copayments too."""
        self._read(sorted({row.patient_id for row in rows if row.patient_id} - self._owed.keys()))
        found: dict[str, Reason] = {}
        for row in rows:
            if identifier_value(row.key, row.generation) in self._there:
                continue  # a part of the balance already: its conditional create finds it
            patient, cents = row.patient_id or "", row.amount_cents or 0
            may_be_there = row.intended  # then it is sent again whatever the balance, and counts once more at worst
            if cents > self._owed[patient] and not may_be_there and not _is_copayment(row):
                found[row.key] = ABOVE
            else:
                self._owed[patient] -= cents
                self._taken[row.key] = cents
        return found

    def wait(self, row: Row) -> bool:
        """Have a payment above the balance wait; False if too many do."""
        if len(self.waiting) < MOST_WAITING:
            self.waiting[row.key] = row
        return row.key in self.waiting

    def give_back(self, row: Row) -> None:
        """Put a payment that the target refused back on the balance, if it was taken off."""
        patient = row.patient_id or ""
        cents = self._taken.pop(row.key, None)
        if cents is not None:
            self._owed[patient] += cents
            self._refused_to.add(patient)

    def within_again(self) -> list[Row]:
        """Take the waiting payments that are within the balance, since the target refused others of their patients."""
        again = [row for row in self.waiting.values() if row.patient_id in self._refused_to]
        self._refused_to.clear()
        above = self.above(again)
        within = [row for row in again if row.key not in above]
        for row in within:
            del self.waiting[row.key]
        return within

    def _read(self, patients: Sequence[str]) -> None:
        parts = [patients[at : at + PATIENTS_A_SEARCH] for at in range(0, len(patients), PATIENTS_A_SEARCH)]
        with ThreadPoolExecutor(READERS, "balances") as pool:
            for owed in pool.map(self._of_some, parts):
                self._owed |= owed

    def _of_some(self, patients: Sequence[str]) -> dict[str, int]:
        named = ",".join(f"Patient/{each}" for each in patients)
        owed, shown = defaultdict(int, dict.fromkeys(patients, 0)), set[str]()
        for claim in self._all("Claim", {"patient": named}):
            owed[_patient(claim, "patient")] += _charge(claim)
        for notice in self._all("PaymentNotice", {"request": named}):
            if notice.get("status") not in UNPAID:
                owed[_patient(notice, "request")] -= _cents(notice.get("amount"))
            shown.add(notice["id"])
            self._there.update(map(str, values_of(self._system, notice)))
        for patient, resource_id, cents in payments_made(self._ledger, self._target, patients):
            owed[patient] -= 0 if resource_id in shown else cents
        return {patient: owed[patient] for patient in patients}

    def _all(self, kind: str, params: dict[str, str]) -> Iterator[Body]:
        try:
            for page in every_page(self._client, kind, params, at_once=1):
                yield from resources_of(page, kind)
        except (NotSent, NotDone, Refused, Unknown) as error:
            raise BalancesUnknown(f"{kind} could not be read for the balances ({error})") from None


class BalancesUnknown(Exception):
    """The target does not tell what patients owe: the sentence that ends the load."""


def _is_copayment(row: Row) -> bool:
    return any(
        str(each.get("url")).endswith("/copayment-claims") for each in orjson.loads(row.body).get("extension", ())
    )


def _patient(body: Body, element: str) -> str:
    reference = body.get(element)
    return (
        referred(reference).removeprefix("Patient/") if isinstance(reference, dict) and "reference" in reference else ""
    )


def _charge(claim: Body) -> int:
    """The total of a Claim, else the sum of its items."""
    if claim.get("status") in UNCHARGED:
        return 0
    return _cents(claim["total"]) if "total" in claim else sum(map(_of_item, claim.get("item", ())))


def _of_item(item: Body) -> int:
    if "net" in item:
        return _cents(item["net"])
    quantity, factor = item.get("quantity", {}).get("value", 1), item.get("factor", 1)
    return int(_number(item.get("unitPrice", {}).get("value")) * _number(quantity) * _number(factor) * 100)


def _cents(money: Any) -> int:
    return int(_number(money.get("value")) * 100) if isinstance(money, dict) else 0


def _number(value: Any) -> Decimal:
    try:
        return Decimal(str(value or 0))
    except InvalidOperation:
        return Decimal(0)
