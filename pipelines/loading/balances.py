"""Balances of patients at a target that keeps none: the charges of its Claims less the payments of its PaymentNotices.

A balance is read before the first payment of a patient is sent, and then follows the rows in the order of the lane.
Payments that the ledger knows as made and a search does not show yet count as paid. Balances are not stored: every run
reads them anew.

A target with balances judges each payment after all earlier ones. This module does so too. A payment above the balance
waits while the target may still refuse an earlier one, and all later payments of its patient wait behind it.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Collection, Iterator, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

import orjson
from sqlalchemy import select

from fhir_service.interface.billing import ABOVE_BALANCE
from pipelines.client.client import FhirClient
from pipelines.client.comparison import NOT_IN_FORCE, copayment_of, referred
from pipelines.client.identifiers import identifier_value, values_of
from pipelines.client.replies import NoResult
from pipelines.client.threads import threads
from pipelines.client.whole import LARGE, whole_search
from pipelines.ledger import tables as t
from pipelines.ledger.ledger import Ledger
from pipelines.ledger.rows import Reason
from pipelines.ledger.states import LANDED
from pipelines.loading.row import AcceptedRow

Body = dict[str, Any]
MOST = 10**12
PATIENTS_A_SEARCH = 20
MOST_WAITING = 20_000
"""The number of payments that may wait for answers to others. Beyond it, payments are set aside at once, with all
later payments of their patients.
"""
READERS = 4
ABOVE = Reason(
    "PAY-CREATE-04",
    "PaymentNotice.amount.value",
    None,
    f"{ABOVE_BALANCE}, by the Claims and PaymentNotices of the target",
    True,
)
TOO_MANY = ABOVE._replace(message="too many payments wait for the outcomes of others; retry this reject after the load")


class Balances:
    """The cents that patients owe. Raises `BalancesUnknown` if the target does not tell."""

    def __init__(self, client: FhirClient, ledger: Ledger, target: str, system: str) -> None:
        """Begin without balances. system: of the identifiers that rows have at the target."""
        self._client, self._ledger, self._target, self._system = client, ledger, target, system
        self._owed: dict[str, int] = {}
        self._there = set[str]()
        self._taken: dict[str, int] = {}
        """Cents by key that were taken off the balance for payments without an answer."""
        self._open: Counter[str] = Counter()
        """The number of those payments by patient."""
        self._waiting: dict[str, deque[AcceptedRow]] = {}
        self.waiting: set[str] = set()
        """Keys of the waiting payments."""
        self._turned_away = set[str]()
        """Patients with a payment that was set aside because too many wait."""

    @property
    def taken(self) -> Collection[str]:
        """Keys of the payments that are off the balance and have no answer yet."""
        return self._taken.keys()

    def judge(self, rows: Sequence[AcceptedRow]) -> dict[str, Reason | None]:
        """Return the payments that are not sent now, by key: the reason if one is set aside, None if it waits.

        All other payments, copayments too, are taken off the balance.
        """
        self._read(sorted({row.patient_id for row in rows if row.patient_id}.difference(self._owed)))
        found: dict[str, Reason | None] = {}
        for row in rows:
            patient = row.patient_id or ""
            if identifier_value(row.key, row.generation) in self._there:
                continue  # part of the balance already: its conditional create finds it
            if row.intended:
                self._take(row)  # may be there: it is sent again whatever the balance, and at worst counts twice
            elif patient in self._turned_away:
                found[row.key] = TOO_MANY
            elif patient in self._waiting or (not self._is_within(row) and self._open[patient]):
                found[row.key] = self._wait(row)
            elif self._is_within(row):
                self._take(row)
            else:
                found[row.key] = ABOVE
        return found

    def answered(self, row: AcceptedRow, refused: bool) -> None:
        """Note that the target has answered a payment. A refused payment goes back on the balance."""
        cents = self._taken.pop(row.key, None)
        if cents is not None:
            self._open[row.patient_id or ""] -= 1
            self._owed[row.patient_id or ""] += cents if refused else 0

    def released(self) -> tuple[list[AcceptedRow], list[AcceptedRow]]:
        """Take the waiting payments whose turn has come; return those to send, in order, and those above the
        balance.
        """
        sending, above = list[AcceptedRow](), list[AcceptedRow]()
        for patient in [each for each in self._waiting if not self._open[each]]:
            waiting = self._waiting[patient]
            while waiting and (self._is_within(waiting[0]) or not self._open[patient]):
                row = waiting.popleft()
                self.waiting.discard(row.key)
                if self._is_within(row):
                    self._take(row)
                    sending.append(row)
                else:
                    above.append(row)
            if not waiting:
                del self._waiting[patient]
        return sending, above

    def _is_within(self, row: AcceptedRow) -> bool:
        return (row.amount_cents or 0) <= self._owed[row.patient_id or ""] or any(copayment_of(orjson.loads(row.body)))

    def _take(self, row: AcceptedRow) -> None:
        patient, cents = row.patient_id or "", row.amount_cents or 0
        self._owed[patient] -= cents
        self._taken[row.key] = cents
        self._open[patient] += 1

    def _wait(self, row: AcceptedRow) -> Reason | None:
        if len(self.waiting) >= MOST_WAITING:
            self._turned_away.add(row.patient_id or "")
            return TOO_MANY
        self.waiting.add(row.key)
        self._waiting.setdefault(row.patient_id or "", deque()).append(row)
        return None

    def _read(self, patients: Sequence[str]) -> None:
        parts = [patients[at : at + PATIENTS_A_SEARCH] for at in range(0, len(patients), PATIENTS_A_SEARCH)]
        with threads(READERS, "balances") as pool:
            for owed in pool.map(self._of_some, parts):
                self._owed |= owed

    def _of_some(self, patients: Sequence[str]) -> dict[str, int]:
        named = ",".join(f"Patient/{each}" for each in patients)
        owed, shown = defaultdict(int, dict.fromkeys(patients, 0)), set[str]()
        for claim in self._all("Claim", {"patient": named}):
            owed[_patient(claim, "patient")] += _charge(claim)
        for notice in self._all("PaymentNotice", {"request": named}):
            if notice.get("status") not in NOT_IN_FORCE and _is_in_dollars(notice.get("amount")):
                owed[_patient(notice, "request")] -= _cents(notice.get("amount"))
            shown.add(notice["id"])
            self._there.update(map(str, values_of(self._system, notice)))
        for patient, resource_id, cents in payments_made(self._ledger, self._target, patients):
            owed[patient] -= 0 if resource_id in shown else cents
        return {patient: owed[patient] for patient in patients}

    def _all(self, kind: str, params: dict[str, str]) -> Iterator[Body]:
        try:
            yield from whole_search(self._client.pages(kind, params, LARGE), kind)
        except NoResult as error:
            raise BalancesUnknown(f"{kind} could not be read for the balances ({error})") from None


class BalancesUnknown(Exception):
    """The target does not tell what patients owe. The text is the sentence that ends the load."""


def _patient(body: Body, element: str) -> str:
    reference = body.get(element)
    return (
        referred(reference).removeprefix("Patient/") if isinstance(reference, dict) and "reference" in reference else ""
    )


def _charge(claim: Body) -> int:
    """Return the total of a Claim, else the sum of its items; 0 if any of its amounts is not in dollars."""
    shown = claim.get("item")
    items = [each for each in shown if isinstance(each, dict)] if isinstance(shown, list) else []
    moneys = [claim.get("total"), *(item.get(name) for item in items for name in ("net", "unitPrice"))]
    if claim.get("status") in NOT_IN_FORCE or not all(map(_is_in_dollars, moneys)):
        return 0
    total = _part(claim.get("total"), "value")
    return int((_number(total) if total is not None else sum(map(_of_item, items))) * 100)


def _of_item(item: Body) -> Decimal:
    if (net := _part(item.get("net"), "value")) is not None:
        return _number(net)
    quantity, factor = _part(item.get("quantity"), "value"), item.get("factor")
    price = _number(_part(item.get("unitPrice"), "value"))
    return price * (1 if quantity is None else _number(quantity)) * (1 if factor is None else _number(factor))


def _cents(money: Any) -> int:
    return int(_number(_part(money, "value")) * 100)


def _is_in_dollars(money: Any) -> bool:
    """True if an amount has no currency other than US dollars."""
    return _part(money, "currency") in (None, "USD")


def _part(element: Any, name: str) -> Any:
    return element.get(name) if isinstance(element, dict) else None


def _number(value: Any) -> Decimal:
    """Return a number of a target's resource; 0 for a value that is no number, or is larger than any charge."""
    try:
        found = Decimal(str(value or 0))
    except InvalidOperation:
        return Decimal(0)
    return found if found.is_finite() and abs(found) < MOST else Decimal(0)


def payments_made(ledger: Ledger, target: str, patients: Sequence[str]) -> Iterator[tuple[str, str, int]]:
    """Yield patient, resource id and cents of each payment made for these patients."""
    c = t.record.c
    query = select(c.patient_id, c.resource_id, c.amount_cents).where(
        c.target == target, c.resource_type == "PaymentNotice", c.state.in_(LANDED), c.resource_id.is_not(None)
    )
    for patient, resource_id, cents in ledger.read_of(query, c.patient_id, patients):
        yield patient, resource_id, cents or 0
