"""The payments of three months: a CSV with control totals, a packed CSV of a spreadsheet, and NDJSON of a web shop.

What is acceptable is acceptable in any order: the ordinary payments of a patient never add up to more than the charges.
"""

from collections.abc import Iterator
from datetime import UTC, date, datetime
from itertools import count

from data.making.people import WITHOUT_CLAIMS, charge
from data.making.tools import ACCEPTED, Dice, InboxFile, Json, Record, by, dollars, number, scatter

COLUMNS = ("payment_id", "patient_id", "amount", "paid_on", "claim_id")
USUAL = (1_500, 2_000, 2_500, 2_500, 3_000, 3_500, 4_000, 5_000, 6_250, 7_599, 10_000)


class Practice:
    """Who owes what. left: what ordinary patients may still pay, in cents."""

    def __init__(self, patients: list[Json], claims: list[Json]) -> None:
        self.claims = {
            patient: [one for one in found if charge(one)] for patient, found in by(claims, "patient").items()
        }
        ids = [patient["id"] for patient in patients]
        self.charges = {id: sum(charge(one) for one in self.claims.get(id, ())) for id in ids}
        paying = [id for id in ids[:-WITHOUT_CLAIMS] if self.charges[id]]
        self.kept, self.ordinary = paying[:4], paying[4:]  # the kept ones pay only what is planted
        self.free = ids[-1]
        self.left = {id: self.charges[id] for id in self.ordinary}


class Month:
    """Makes the records of one file."""

    def __init__(self, practice: Practice, number: int) -> None:
        self.practice = practice
        self.number = number
        self.dice = Dice(f"payments {number}")
        self._next = count(1)

    def day(self, day: int) -> str:
        return date(2026, self.number, day).isoformat()

    def record(
        self, patient: str, cents: int, paid_on: str, fate: str = "created", why: str | None = None, **more: str
    ) -> Record:
        """A payment; `more` puts other texts into columns."""
        key = f"P{self.number:02d}-{next(self._next):04d}"
        row = {"payment_id": key, "patient_id": patient, "amount": dollars(cents), "paid_on": paid_on}
        return Record([row | more], fate, why, cents)

    def ordinary(self, records: int) -> list[Record]:
        """Payments as they should be, in the order of their days."""
        days = sorted(self.dice.between(1, 28) for _ in range(records))
        return [self._ordinary(day) for day in days]

    def _ordinary(self, day: int) -> Record:
        left = self.practice.left
        patient = self.dice.pick(self.practice.ordinary)
        while not left[patient]:
            patient = self.dice.pick(self.practice.ordinary)
        cents = min(self.dice.pick(USUAL), left[patient])
        left[patient] -= cents
        record = self.record(patient, cents, self._paid_on(day))
        if self.dice.chance(0.12):
            record.row["claim_id"] = self.dice.pick(self.practice.claims[patient])["id"]
        if cents % 100 == 0 and self.dice.chance(0.1):
            record.row["amount"] = str(cents // 100)
        return record

    def _paid_on(self, day: int) -> str:
        """Mostly the day, at times the moment: with an offset, in UTC, or without either."""
        moment = self.dice.minute(date(2026, self.number, day)).replace(tzinfo=None).isoformat()
        return self.dice.pick((self.day(day),) * 6 + (f"{moment}Z", f"{moment}-06:00", moment))

    def again(self, record: Record, fate: str, why: str, cents: int | None = None) -> Record:
        """The same key once more, with the same content or with another amount."""
        amount = {} if cents is None else {"amount": dollars(cents)}
        return Record([record.row | amount], fate, why, record.cents if cents is None else cents)


def files(patients: list[Json], claims: list[Json]) -> list[InboxFile]:
    """The three files, in the order in which they are loaded."""
    practice = Practice(patients, claims)
    january = Month(practice, 1)
    first = january.ordinary(425)
    in_january = scatter(january.dice, first, _in_january(january, first))
    february = Month(practice, 2)
    in_february = scatter(february.dice, february.ordinary(335), _in_february(february, first))
    march = Month(practice, 3)
    in_march = scatter(march.dice, march.ordinary(200), _in_march(march))
    found = [
        InboxFile("payments-2026-01.csv", "payments", COLUMNS, in_january, control=True, amounts=True),
        InboxFile(
            "payments-2026-02.csv.gz", "payments", COLUMNS, in_february, "\r\n", bom=True, blank_lines=1, amounts=True
        ),
        InboxFile("payments-2026-03.ndjson", "payments", (), [_as_json(record) for record in in_march], amounts=True),
    ]
    _check_balances(practice, found)
    return found


def _in_january(month: Month, first: list[Record]) -> Iterator[Record]:
    """No bad amounts here, so that the control total is the sum of the column."""
    practice, record = month.practice, month.record
    settled, ahead, _, _ = practice.kept
    a, b, c = practice.ordinary[:3]
    for text in ("2026-01-32", "01/14/2026", "yesterday"):
        yield record(a, 2_000, text, "map", "a date that is none, or not ISO 8601")
    yield record(b, 3_000, "", "map", "no `paid_on`")
    yield record("", 3_000, month.day(9), "map", "no `patient_id`")
    for unknown in ("p999", "p8812", "MRN100037"):
        yield record(unknown, 4_500, month.day(12), "refused", "a patient whom the service does not know")
    for patient in (a, c):
        over = practice.charges[patient] + 5_000
        yield record(patient, over, month.day(20), "refused", "an overpayment: more than all charges of the patient")
    why = "paid off twice: of the two, the later by `paid_on` is refused, though it stands first"
    yield record(settled, practice.charges[settled], month.day(25), "refused", why)
    yield record(settled, practice.charges[settled], month.day(24))
    claim = practice.claims[ahead][0]["id"]
    why = "a copayment above the balance, which a copayment may take below zero"
    yield record(ahead, practice.charges[ahead] + 2_500, month.day(15), "created", why, claim_id=claim)
    for original in (first[20], first[300]):
        yield month.again(original, "skipped", "a repeated key with equal content")
    changed = record(a, 2_500, month.day(17), "map", "a repeated key with different content: both rows")
    yield changed
    yield month.again(changed, "map", "a repeated key with different content: both rows", 5_200)


def _in_february(month: Month, before: list[Record]) -> Iterator[Record]:
    practice, record = month.practice, month.record
    _, ahead, other, last = practice.kept
    a, b, c = practice.ordinary[3:6]
    for text in ("12,50", "$40.00", "n/a", "1.2.3"):
        yield record(a, 0, month.day(5), "map", "an amount that is no decimal", amount=text)
    yield record(a, 0, month.day(5), "map", "no `amount`", amount="")
    yield record(b, 0, month.day(6), "rule", "an amount of zero")
    yield record(b, -3_500, month.day(6), "map", "a negative amount (a refund)")
    yield record(b, 0, month.day(6), "rule", "an amount with three decimals", amount="10.005")
    yield record(b, 1_000_000_000, month.day(6), "rule", "an amount above the limit")
    for raw in (f"P02-9001,{c},1,250.00,{month.day(8)},", f"P02-9002,{c},40.00"):
        yield Record([raw], "parse", "a ragged row: an unquoted comma, columns missing")
    yield record("p 17", 2_000, month.day(9), "map", "an id that is no FHIR id")
    yield record(other, 2_000, month.day(10), "refused", "a copayment for an unknown claim", claim_id="clm-9999")
    not_theirs = practice.claims[last][0]["id"]
    yield record(
        other, 2_000, month.day(10), "refused", "a copayment for the claim of another patient", claim_id=not_theirs
    )
    yield record(practice.free, 2_000, month.day(11), "refused", "a payment of a patient without charges")
    yield record(ahead, 1_000, month.day(12), "refused", "a payment of a patient whose balance is below zero")
    for original in before[-3:]:
        yield month.again(original, "unchanged", "exported again: the record came in the January file")


def _in_march(month: Month) -> Iterator[Record]:
    practice, record = month.practice, month.record
    a, b = practice.ordinary[6:8]
    yield record(
        a, practice.charges[a] + 1, month.day(10), "refused", "an overpayment: more than all charges of the patient"
    )
    yield record("p777", 2_000, month.day(11), "refused", "a patient whom the service does not know")
    yield record(b, 2_000, month.day(12), "map", "no `payment_id`", payment_id="")
    broken = record(b, 2_000, month.day(13), "map", "an object where a value is expected")
    broken.rows = [broken.row | {"amount": {"value": number("20.00"), "currency": "USD"}}]
    yield broken
    yield Record(
        ['{"payment_id": "P03-9001", "patient_id": "p010", "amount": 40.00, "paid_'], "parse", "a line cut off"
    )
    twice = (
        '{"payment_id": "P03-9002", "patient_id": "p010", "amount": 40.00, "amount": 45.00, "paid_on": "2026-03-09"}'
    )
    yield Record([twice], "parse", "an object that repeats a name")


def _as_json(record: Record) -> Record:
    """As the web shop writes it: references with their type, amounts as numbers, nothing for what is absent."""
    for row in record.rows:
        if isinstance(row, dict):
            row["patient_id"] = f"Patient/{row['patient_id']}"
            if isinstance(row["amount"], str):
                row["amount"] = number(row["amount"])
    return record


# --- A second opinion -----------------------------------------------------------------------------


def _check_balances(practice: Practice, found: list[InboxFile]) -> None:
    """Keeps the books by the rule itself and compares: an ordinary payment never exceeds the balance at its time."""
    balances = dict(practice.charges)
    for file in found:
        sent = [
            record for record in file.records if record.fate in ACCEPTED and record.fate not in ("skipped", "unchanged")
        ]
        for record in sorted(sent, key=lambda record: _moment(record.row["paid_on"])):
            patient = record.row["patient_id"].removeprefix("Patient/")
            claim = record.row.get("claim_id")
            own = [one["id"] for one in practice.claims.get(patient, ())]
            taken = patient in balances and (claim in own if claim else record.cents <= balances[patient])
            if taken != (record.fate == "created"):
                raise AssertionError(f"{file.name}: {record.row['payment_id']} is planted as {record.fate}")
            balances[patient] = balances.get(patient, 0) - (record.cents if taken else 0)


def _moment(text: str) -> datetime:
    found = datetime.fromisoformat(text)
    return found if found.tzinfo else found.replace(tzinfo=UTC)
