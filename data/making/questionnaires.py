"""Five questionnaires in use, an older version of one of them, and a draft that the service refuses."""

from typing import Any

from data.making.tools import Json

LOINC = "http://loinc.org"
SNOMED = "http://snomed.info/sct"
ICD10 = "http://hl7.org/fhir/sid/icd-10"
VENDOR = "http://example.com"
INTERNAL = "http://schemas.demo.example.com/fhir/systems/internal"

FREQUENCY = (
    ("LA6568-5", "Not at all"),
    ("LA6569-3", "Several days"),
    ("LA6570-1", "More than half the days"),
    ("LA6571-9", "Nearly every day"),
)
PHQ9 = (
    ("44250-9", "Little interest or pleasure in doing things"),
    ("44255-8", "Feeling down, depressed, or hopeless"),
    ("44259-0", "Trouble falling or staying asleep, or sleeping too much"),
    ("44254-1", "Feeling tired or having little energy"),
    ("44251-7", "Poor appetite or overeating"),
    ("44258-2", "Feeling bad about yourself - or that you are a failure or have let yourself or your family down"),
    ("44252-5", "Trouble concentrating on things, such as reading the newspaper or watching television"),
    ("44253-3", "Moving or speaking so slowly that other people could have noticed, or the opposite"),
    ("44260-8", "Thoughts that you would be better off dead, or of hurting yourself in some way"),
)


def coding(system: str, code: str, display: str | None = None) -> dict[str, str]:
    return {"system": system, "code": code} | ({"display": display} if display else {})


def item(link: str, system: str, code: str, text: str, type: str, **more: Any) -> Json:
    return {"linkId": link, "code": [coding(system, code)], "text": text, "type": type} | more


def choice(
    link: str, system: str, code: str, text: str, options: list[Json], repeats: bool = False, **more: Any
) -> Json:
    shown = [{"valueCoding": option} for option in options]
    return item(link, system, code, text, "choice", repeats=repeats, answerOption=shown, **more)


def codings(system: str, *options: tuple[str, str]) -> list[Json]:
    return [dict(coding(system, code, display)) for code, display in options]


def questionnaire(
    id: str, name: str, codes: list[dict[str, str]], description: str, items: list[Json], **more: Any
) -> Json:
    head = {"resourceType": "Questionnaire", "id": id, "name": name, "status": "active", "description": description}
    return head | {"code": codes, "item": items} | more


def phq9(questions: tuple[tuple[str, str], ...] = PHQ9) -> list[Json]:
    return [choice(f"/{code}", LOINC, code, text, codings(LOINC, *FREQUENCY)) for code, text in questions]


def intake() -> list[Json]:
    symptoms = codings(
        SNOMED, ("25064002", "Headache"), ("422587007", "Nausea"), ("84229001", "Fatigue"), ("49727002", "Cough")
    )
    yes_no = codings(INTERNAL, ("yes", "Yes"), ("no", "No"))
    takes = {"question": "medicines", "operator": "=", "answerCoding": yes_no[0]}
    history = [
        choice("medicines", INTERNAL, "takes-medicines", "Do you take any medicines?", yes_no),
        item("medicine-list", INTERNAL, "medicine-list", "Which ones?", "text", repeats=False, enableWhen=[takes]),
        item("allergies", INTERNAL, "allergies", "Allergies, and what happens", "text", repeats=False),
    ]
    body = [
        item("height", LOINC, "8302-2", "Height in cm", "decimal"),
        item("weight", LOINC, "29463-7", "Weight in kg", "decimal"),
    ]
    return [
        choice("symptoms", SNOMED, "418799008", "Which of these do you have today?", symptoms, repeats=True),
        item("reason", LOINC, "29299-5", "What brings you here, in your own words?", "text", repeats=False),
        {
            "linkId": "history",
            "code": [coding(INTERNAL, "history")],
            "text": "Your history",
            "type": "group",
            "item": history,
        },
        {
            "linkId": "body",
            "code": [coding(INTERNAL, "body")],
            "text": "Height and weight",
            "type": "group",
            "item": body,
        },
    ]


def social() -> list[Json]:
    smoking = codings(
        LOINC, ("LA18976-3", "Current every day smoker"), ("LA15920-4", "Former smoker"), ("LA18978-9", "Never smoker")
    )
    drinks = codings(
        VENDOR, ("never", "Never"), ("monthly", "Monthly or less"), ("weekly", "Weekly"), ("daily", "Daily")
    )
    packs_when = [
        {"question": "smoking", "operator": "=", "answerCoding": smoking[0]},
        {"question": "smoking", "operator": "=", "answerCoding": smoking[1]},
    ]
    worry_when = [{"question": "drinks", "operator": "exists", "answerBoolean": True}]
    return [
        choice("smoking", LOINC, "72166-2", "Do you smoke?", smoking),
        item("packs", INTERNAL, "packs-a-day", "Packs a day", "decimal", enableWhen=packs_when, enableBehavior="any"),
        choice("drinks", VENDOR, "drinks", "How often do you have a drink?", drinks),
        item(
            "worry",
            VENDOR,
            "worries",
            "Is there anything that worries you?",
            "text",
            repeats=False,
            enableWhen=worry_when,
        ),
    ]


def pain() -> list[Json]:
    """With the R4 types that the service takes as its own: `integer` for a number, `string` for a text."""
    places = codings(
        SNOMED,
        ("22253000", "Pain"),
        ("161891005", "Backache"),
        ("57676002", "Joint pain"),
        ("21522001", "Abdominal pain"),
    )
    causes = codings(ICD10, ("M54.5", "Low back pain"), ("R51", "Headache"), ("M25.5", "Pain in joint"))
    return [
        {"linkId": "hint", "text": "0 is no pain, 10 the worst you can think of.", "type": "display"},
        item("score", LOINC, "72514-3", "Pain from 0 to 10", "integer"),
        choice("where", SNOMED, "363698007", "What kind of pain?", places, repeats=True),
        choice("cause", ICD10, "R52", "What is it treated as?", causes),
        item("words", INTERNAL, "pain-words", "Describe it", "string"),
    ]


def feedback() -> list[Json]:
    marks = codings(INTERNAL, ("1", "Poor"), ("2", "Fair"), ("3", "Good"), ("4", "Very good"), ("5", "Excellent"))
    staff = codings(VENDOR, ("desk", "Front desk"), ("nurse", "Nursing"), ("doctor", "Doctor"), ("billing", "Billing"))
    return [
        choice("mark", INTERNAL, "overall", "How was your visit?", marks),
        choice("thanks", VENDOR, "thanks", "Who did well?", staff, repeats=True),
        item("remark", INTERNAL, "remark", "Anything else?", "text", repeats=False),
    ]


def questionnaires() -> list[Json]:
    """In the order in which they are loaded: the second of the name PHQ9 retires the first."""
    phq9_code = [coding(LOINC, "44249-1", "PHQ-9")]
    return [
        questionnaire("q-phq9-2024", "PHQ9", phq9_code, "The form of 2024, with two questions.", phq9(PHQ9[:2])),
        questionnaire("q-phq9", "PHQ9", phq9_code, "Over the **last two weeks**, how often ...", phq9()),
        questionnaire(
            "q-intake", "Intake", [coding(INTERNAL, "intake")], "# Intake\n\nFor **new** patients.", intake()
        ),
        questionnaire("q-social", "SocialHistory", [coding(LOINC, "29762-2")], "Smoking and drinking.", social()),
        questionnaire("q-pain", "PainDiary", [coding(VENDOR, "pain-diary")], "Kept by the patient.", pain()),
        questionnaire("q-feedback", "VisitFeedback", [coding(INTERNAL, "feedback")], "After the visit.", feedback()),
        questionnaire("q-draft", "Falls", [coding(INTERNAL, "falls")], "Not finished.", feedback()[:1], status="draft"),
    ]
