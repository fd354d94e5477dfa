"""Reference data of a small practice: patients, practitioners, groups, encounters and claims."""

from datetime import date, timedelta

from data.making.tools import Dice, Json, dollars, number
from data.making.words import FAMILY, GIVEN, WHOLE_NAMES

PATIENTS = 200
PRACTITIONERS = 20
WITHOUT_CLAIMS = 12
CANCELLED = (31, 94, 160, 223)  # encounters
WRONG = (58, 127, 208)
NOTE_ID = "http://schemas.example.com/fhir/extensions/note-id"
STREETS = (
    "Main St",
    "Oak Ave",
    "Elm St",
    "Martin Luther King Jr Blvd",
    "O'Farrell St",
    "5th Ave",
    "Calle Ocho",
    "Straße des 17. Juni",
)
SERVICES = (
    ("Office visit", 12_500),
    ("New patient visit", 21_000),
    ("Annual physical", 24_000),
    ("Blood draw", 2_850),
    ("Vaccination", 6_400),
    ("X-ray, two views", 14_275),
    ("Minor procedure", 38_090),
    ("Telephone consultation", 7_500),
)


def patients() -> list[Json]:
    dice = Dice("patients")
    return [_patient(dice, index) for index in range(1, PATIENTS + 1)]


def _patient(dice: Dice, index: int) -> Json:
    if index % 14 == 7:
        family, given, gender = WHOLE_NAMES[index // 14 % len(WHOLE_NAMES)]
    else:
        family, given, gender = (
            dice.pick(FAMILY).replace("_", " "),
            dice.pick(GIVEN),
            dice.pick(("female", "male", "other")),
        )
    found: Json = {
        "resourceType": "Patient",
        "id": f"p{index:03d}",
        "identifier": [{"system": "http://example.com/mrn", "value": f"MRN{100_000 + index * 37}"}],
        "active": True,
        "name": [{"family": family, "given": [given]}],
        "gender": gender,
        "birthDate": dice.day(date(1932, 1, 1), date(2019, 12, 31)).isoformat(),
    }
    if dice.chance(0.7):
        found["telecom"] = [{"system": "phone", "value": f"555-01{dice.below(100):02d}", "use": "mobile"}]
    if dice.chance(0.5):
        line = f"{dice.between(1, 999)} {dice.pick(STREETS)}"
        found["address"] = [
            {"line": [line], "city": "Springfield", "state": "IL", "postalCode": f"627{dice.below(100):02d}"}
        ]
    return found


def practitioners() -> list[Json]:
    dice = Dice("practitioners")
    return [
        {
            "resourceType": "Practitioner",
            "id": f"dr-{index:02d}",
            "active": True,
            "name": [{"family": dice.pick(FAMILY).replace("_", " "), "given": [dice.pick(GIVEN)], "prefix": ["Dr."]}],
        }
        for index in range(1, PRACTITIONERS + 1)
    ]


def groups() -> list[Json]:
    names = (("front-desk", "Front desk"), ("billing", "Billing & claims"), ("care-team", "Care team “North”"))
    return [
        {"resourceType": "Group", "id": id, "active": True, "type": "practitioner", "actual": True, "name": name}
        for id, name in names
    ]


def encounters() -> list[Json]:
    """250 visits, four of them cancelled and three entered in error. Every third carries its note's id."""
    dice = Dice("encounters")
    return [_encounter(dice, index) for index in range(1, 251)]


def _encounter(dice: Dice, index: int) -> Json:
    start = dice.minute(dice.day(date(2025, 3, 1), date(2026, 3, 31)))
    status = "cancelled" if index in CANCELLED else "entered-in-error" if index in WRONG else "finished"
    found: Json = {"resourceType": "Encounter", "id": f"enc-{index:04d}"}
    if index % 3 == 1:
        found["extension"] = [{"url": NOTE_ID, "valueId": f"note-{index:04d}"}]
    found |= {
        "status": status,
        "class": {"system": "http://terminology.hl7.org/CodeSystem/v3-ActCode", "code": "AMB", "display": "ambulatory"},
        "subject": {"reference": f"Patient/p{dice.between(1, PATIENTS):03d}"},
        "participant": [{"individual": {"reference": f"Practitioner/dr-{dice.between(1, PRACTITIONERS):02d}"}}],
        "period": {"start": start.isoformat(), "end": (start + timedelta(minutes=dice.between(10, 60))).isoformat()},
    }
    return found


# --- Claims ---------------------------------------------------------------------------------------


def claims() -> list[Json]:
    """500 claims of all but the last twelve patients: six are cancelled and charge nothing, one is in euros."""
    dice = Dice("claims")
    paying = PATIENTS - WITHOUT_CLAIMS
    found = [
        _claim(dice, index, (index - 1) % paying + 1 if index <= paying else dice.between(1, paying))
        for index in range(1, 501)
    ]
    for index in range(60, 420, 60):
        found[index]["status"] = "cancelled"
    found[499]["total"] = {"value": number("80.00"), "currency": "EUR"}
    return found


def _claim(dice: Dice, index: int, patient: int) -> Json:
    services = [dice.pick(SERVICES) for _ in range(dice.between(1, 4))]
    found: Json = {
        "resourceType": "Claim",
        "id": f"clm-{index:04d}",
        "status": "active",
        "type": {"coding": [{"system": "http://terminology.hl7.org/CodeSystem/claim-type", "code": "professional"}]},
        "use": "claim",
        "patient": {"reference": f"Patient/p{patient:03d}"},
        "created": dice.day(date(2025, 4, 1), date(2025, 12, 31)).isoformat(),
        "provider": {"reference": f"Practitioner/dr-{dice.between(1, PRACTITIONERS):02d}"},
        "priority": {"coding": [{"system": "http://terminology.hl7.org/CodeSystem/processpriority", "code": "normal"}]},
        "insurance": [{"sequence": 1, "focal": True, "coverage": {"display": "Self-pay"}}],
        "item": [
            {
                "sequence": place,
                "productOrService": {"text": name},
                "net": {"value": number(dollars(cents)), "currency": "USD"},
            }
            for place, (name, cents) in enumerate(services, 1)
        ],
    }
    if index % 8:
        found["total"] = {"value": number(dollars(sum(cents for _, cents in services))), "currency": "USD"}
        if index % 4 == 2:
            del found["item"]
    return found


def charge(claim: Json) -> int:
    """What a claim charges, in cents: its total, else the sum of its items; nothing if cancelled or not in dollars."""
    amounts = [claim["total"]] if "total" in claim else [item["net"] for item in claim["item"]]
    if claim["status"] == "cancelled" or amounts[0]["currency"] != "USD":
        return 0
    return sum(int(amount["value"].strip("\0").replace(".", "")) for amount in amounts)
