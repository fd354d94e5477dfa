"""600 diagnostic reports of several categories with their observations, and one that the service refuses."""

import base64
from datetime import UTC, date, datetime, timedelta, timezone
from typing import NamedTuple

from data.making.people import PRACTITIONERS
from data.making.questionnaires import INTERNAL, LOINC, SNOMED, coding
from data.making.tools import Dice, Json, number

V2 = "http://terminology.hl7.org/CodeSystem/v2-0074"
UCUM = "http://unitsofmeasure.org"
INTERPRETATION = "http://terminology.hl7.org/CodeSystem/v3-ObservationInterpretation"
LAB, RADIOLOGY = coding(V2, "LAB", "Laboratory"), coding(LOINC, "LP29684-5", "Radiology")
CARDIOLOGY, PATHOLOGY = coding(LOINC, "LP29708-2", "Cardiology"), coding(LOINC, "LP7839-6", "Pathology")
MICROBIOLOGY = coding(V2, "MB", "Microbiology")


class Test(NamedTuple):
    """An observation: LOINC code, display, unit, the range of its values with a number of decimals, the normal range.

    normal: lower and upper end; None for an open end.
    """

    code: str
    display: str
    unit: str
    low: float
    high: float
    decimals: int
    normal: tuple[str | None, str | None]


class Kind(NamedTuple):
    """A kind of report: category, LOINC code, display, observations, and the days until it is issued."""

    category: dict[str, str]
    code: str
    display: str
    tests: tuple[Test, ...] = ()
    days: int = 1


GLUCOSE = Test("2345-7", "Glucose [Mass/volume] in Serum or Plasma", "mg/dL", 68, 240, 0, ("70", "99"))
CREATININE = Test("2160-0", "Creatinine [Mass/volume] in Serum or Plasma", "mg/dL", 0.5, 2.4, 2, ("0.60", "1.30"))
SODIUM = Test("2951-2", "Sodium [Moles/volume] in Serum or Plasma", "mmol/L", 131, 147, 0, ("135", "145"))
POTASSIUM = Test("2823-3", "Potassium [Moles/volume] in Serum or Plasma", "mmol/L", 3.1, 5.6, 1, ("3.5", "5.1"))
HEMOGLOBIN = Test("718-7", "Hemoglobin [Mass/volume] in Blood", "g/dL", 9.1, 17.4, 1, ("12.0", "17.0"))
PLATELETS = Test("777-3", "Platelets [#/volume] in Blood by Automated count", "10*3/uL", 110, 440, 0, ("150", "400"))
CHOLESTEROL = Test("2093-3", "Cholesterol [Mass/volume] in Serum or Plasma", "mg/dL", 120, 310, 0, (None, "200"))
HDL = Test("2085-9", "Cholesterol in HDL [Mass/volume] in Serum or Plasma", "mg/dL", 28, 90, 0, ("40", None))
A1C = Test("4548-4", "Hemoglobin A1c/Hemoglobin.total in Blood", "%", 4.6, 11.8, 1, ("4.0", "5.6"))
TSH = Test("3016-3", "Thyrotropin [Units/volume] in Serum or Plasma", "m[IU]/L", 0.2, 8.9, 2, ("0.40", "4.00"))
RATE = Test("8867-4", "Heart rate", "/min", 48, 122, 0, ("60", "100"))

KINDS = (
    *[Kind(LAB, "51990-0", "Basic metabolic panel - Blood", (GLUCOSE, CREATININE, SODIUM, POTASSIUM))] * 6,
    *[Kind(LAB, "58410-2", "CBC panel - Blood by Automated count", (HEMOGLOBIN, PLATELETS))] * 6,
    *[Kind(LAB, "24331-1", "Lipid 1996 panel - Serum or Plasma", (CHOLESTEROL, HDL))] * 4,
    *[Kind(LAB, "4548-4", "Hemoglobin A1c/Hemoglobin.total in Blood", (A1C,))] * 3,
    *[Kind(LAB, "3016-3", "Thyrotropin [Units/volume] in Serum or Plasma", (TSH,), 2)] * 2,
    *[Kind(RADIOLOGY, "36643-5", "XR Chest 2 Views")] * 4,
    Kind(RADIOLOGY, "24725-4", "CT Head", (), 2),
    Kind(RADIOLOGY, "24558-9", "US Abdomen", (), 3),
    *[Kind(CARDIOLOGY, "11524-6", "EKG study", (RATE,))] * 2,
    Kind(CARDIOLOGY, "42148-7", "US Heart", (), 4),
    Kind(PATHOLOGY, "11529-5", "Surgical pathology study", (), 8),
    Kind(MICROBIOLOGY, "630-4", "Bacteria identified in Urine by Culture", (), 4),
)
STATUSES = (*["final"] * 40, "amended", "corrected", "corrected", "appended", "entered-in-error")
ZONES = (*[UTC] * 4, timezone(timedelta(hours=-5)), timezone(timedelta(hours=-6)), timezone(timedelta(hours=1)))


def reports(visits: dict[str, list[Json]], patients: list[str]) -> tuple[list[Json], list[Json]]:
    """The reports and their observations. visits: the encounters of each patient."""
    dice = Dice("reports")
    found: list[Json] = []
    observations: list[Json] = []
    for index in range(1, 601):
        report, results = _report(dice, index, dice.pick(KINDS), dice.pick(patients), visits)
        found.append(report)
        observations.extend(results)
    found.append({**found[0], "id": "rep-0601", "status": "preliminary"})
    return found, observations


def _report(dice: Dice, index: int, kind: Kind, patient: str, visits: dict[str, list[Json]]) -> tuple[Json, list[Json]]:
    taken = dice.minute(dice.day(date(2024, 4, 1), date(2026, 3, 20))).astimezone(dice.pick(ZONES))
    subject = {"reference": f"Patient/{patient}"}
    done = [visit for visit in visits.get(patient, ()) if visit["status"] == "finished"]
    encounter = {"reference": f"Encounter/{dice.pick(done)['id']}"} if done and dice.chance(0.8) else None
    report: Json = {"resourceType": "DiagnosticReport", "id": f"rep-{index:04d}"}
    if dice.chance(0.3):
        report["text"] = {
            "status": "generated",
            "div": f'<div xmlns="http://www.w3.org/1999/xhtml"><p>{kind.display}</p></div>',
        }
    if dice.chance(0.8):
        report["identifier"] = [
            {"system": "http://lab.example.com/accession", "value": f"A{index * 7919 % 1_000_003:07d}"}
        ]
    report |= {
        "status": dice.pick(STATUSES),
        "category": _categories(dice, kind),
        "code": _code(dice, kind),
        "subject": subject,
    }
    if encounter:
        report["encounter"] = encounter
    report |= _times(dice, index, taken, kind)
    if performers := _performers(dice, index):
        report["performer"] = performers
    observations = [
        _observation(dice, index, place, test, subject, encounter, taken) for place, test in enumerate(kind.tests, 1)
    ]
    if observations:
        report["result"] = [{"reference": f"Observation/{observation['id']}"} for observation in observations]
    if form := _form(index, kind):
        report["presentedForm"] = [form]
    return report, observations


def _categories(dice: Dice, kind: Kind) -> list[Json]:
    """One category; of some lab reports a second, and of some radiology ones a second coding of the same."""
    found = [{"coding": [kind.category]}]
    if kind.category is RADIOLOGY and dice.chance(0.4):
        found[0]["coding"] = [kind.category, coding(SNOMED, "394914008", "Radiology")]
    if kind.category is LAB and dice.chance(0.1):
        found.append({"coding": [coding(V2, "CH", "Chemistry")]})
    return found


def _code(dice: Dice, kind: Kind) -> Json:
    codings = [coding(LOINC, kind.code, kind.display)]
    if dice.chance(0.35):
        codings.append(coding(INTERNAL, f"in-house-{kind.code}", kind.display.partition(" [")[0]))
    return {"coding": codings} | ({"text": kind.display} if dice.chance(0.75) else {})


def _times(dice: Dice, index: int, taken: datetime, kind: Kind) -> Json:
    """When it was taken and issued: some by the day only, some never issued, a few issued before they were taken."""
    found: Json = {"effectiveDateTime": taken.isoformat()}
    if index % 9 == 4:
        found = {"effectiveDateTime": taken.date().isoformat()}
    elif index % 100 == 50:
        found = {"effectivePeriod": {"start": taken.isoformat(), "end": (taken + timedelta(hours=24)).isoformat()}}
    hours = -2 if index % 97 == 13 else dice.between(1, 24 * kind.days)
    issued = taken + timedelta(hours=hours, minutes=dice.below(60))
    return found if index % 11 == 5 else found | {"issued": issued.isoformat()}


def _performers(dice: Dice, index: int) -> list[Json]:
    if index % 17 == 3:
        return []
    count = 3 if index % 25 == 8 else 2 if index % 6 == 1 else 1
    numbers = dice.some(range(1, PRACTITIONERS + 1), count)
    found = [{"reference": f"Practitioner/dr-{one:02d}"} for one in numbers]
    return [*found, {"reference": "Organization/org-lab"}] if index % 40 == 9 else found


def _observation(
    dice: Dice, index: int, place: int, test: Test, subject: Json, encounter: Json | None, taken: datetime
) -> Json:
    steps = round((test.high - test.low) * 10**test.decimals)
    value = round(test.low + dice.below(steps + 1) / 10**test.decimals, test.decimals)
    return {
        "resourceType": "Observation",
        "id": f"obs-{index:04d}-{place}",
        "status": "final",
        "code": {"coding": [coding(LOINC, test.code, test.display)]},
        "subject": subject,
        **({"encounter": encounter} if encounter else {}),
        "effectiveDateTime": taken.isoformat(),
        "valueQuantity": {
            "value": number(f"{value:.{test.decimals}f}"),
            "unit": test.unit,
            "system": UCUM,
            "code": test.unit,
        },
        **_judgement(test, value, index),
    }


def _judgement(test: Test, value: float, index: int) -> Json:
    """The normal range, and of two results in three also what the laboratory says of it."""
    low, high = test.normal
    ends = {name: {"value": number(end), "unit": test.unit} for name, end in (("low", low), ("high", high)) if end}
    code = "L" if low and value < float(low) else "H" if high and value > float(high) else "N"
    said = coding(INTERPRETATION, code, {"L": "Low", "H": "High", "N": "Normal"}[code])
    return {"referenceRange": [ends]} | ({"interpretation": [{"coding": [said]}]} if index % 3 else {})


def _form(index: int, kind: Kind) -> Json | None:
    """The document of some reports: a text, an HTML page, or an address elsewhere, which is never fetched."""
    if index % 30 != 12:
        return None
    if index == 252:
        return {"contentType": "application/pdf", "url": "https://lab.example.com/reports/252.pdf"}
    plain = f"{kind.display}\n\nNo acute findings. Größe normal; «без патологии».\n"
    page = f"<!doctype html><title>{kind.display}</title><p>Impression: unremarkable.</p>\n"
    content, type = (page, "text/html") if index % 60 == 12 else (plain, "text/plain; charset=utf-8")
    data = base64.b64encode(content.encode("utf-8")).decode("ascii")
    return {"contentType": type, "data": data, "title": "Report as issued"}
