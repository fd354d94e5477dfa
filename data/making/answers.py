"""The answers to questionnaires, one row each: a CSV of the practice's tablets and NDJSON of the patient portal."""

from collections.abc import Iterator
from datetime import date
from itertools import count
from typing import Any, cast

from data.making.people import PRACTITIONERS
from data.making.questionnaires import questionnaires
from data.making.tools import Dice, InboxFile, Json, Record, number, scatter
from data.making.words import FEEDBACK, FREE_TEXT

HEAD = ("response_id", "patient_id", "questionnaire", "authored", "author", "encounter_id", "note_id")
COLUMNS = (*HEAD, "question", "answer_code", "answer_text", "answer_number")
KNOWN = {one["id"]: one for one in questionnaires()}
IN_USE = ("q-phq9", "q-phq9", "q-intake", "q-intake", "q-social", "q-pain", "q-feedback")
NUMBERS = {"height": (150, 198, 1), "weight": (48, 120, 1), "packs": (0, 2, 2), "score": (0, 10, 0)}


class Maker:
    """Makes responses. visits: the finished encounters of each patient."""

    def __init__(self, name: str, prefix: str, visits: dict[str, list[Json]], patients: list[str]) -> None:
        self.dice = Dice(name)
        self.visits = visits
        self.patients = patients
        self._key = (f"{prefix}{number:04d}" for number in count(1))

    def head(self, asked: str, **given: str) -> Json:
        """What all rows of a response share."""
        patient = given.get("patient_id") or self.dice.pick(self.patients)
        found = {"response_id": next(self._key), "patient_id": patient, "questionnaire": self._named(asked)}
        day = self.dice.day(date(2026, 1, 2), date(2026, 3, 31))
        if self.dice.chance(0.85):
            moment = self.dice.minute(day).replace(tzinfo=None).isoformat()
            found["authored"] = self.dice.pick((f"{moment}Z", f"{moment}-06:00", moment, day.isoformat()))
        if self.dice.chance(0.6):
            number = self.dice.between(1, PRACTITIONERS)
            found["author"] = f"Patient/{patient}" if self.dice.chance(0.6) else f"Practitioner/dr-{number:02d}"
        return found | given

    def _named(self, questionnaire: str) -> str:
        """By id, by name, or by its code."""
        known = KNOWN[questionnaire]
        code = known["code"][0]
        names: list[str] = [known["id"], known["id"], known["name"], f"{code['system']}|{code['code']}"]
        return self.dice.pick(names)

    def ordinary(self) -> Record:
        questionnaire = self.dice.pick(IN_USE)
        head = self.head(questionnaire)
        if visits := self.visits.get(head["patient_id"]):
            visit = self.dice.pick(visits)
            note = visit["extension"][0]["valueId"] if "extension" in visit else None
            if note and self.dice.chance(0.5):
                head["note_id"] = note
            if not note or self.dice.chance(0.3):
                head["encounter_id"] = visit["id"]
        return self.response(questionnaire, head)

    def response(self, questionnaire: str, head: Json, fate: str = "created", why: str | None = None) -> Record:
        """A response that answers as the questionnaire asks."""
        naming = self.dice.pick((_link, _link, _code, _system_and_code))
        answered: dict[str, list[Any]] = {}
        rows: list[Json | str] = []
        for question in _questions(KNOWN[questionnaire]["item"]):
            if not _enabled(question, answered) or self.dice.chance(0.05 if rows else 0):
                continue
            cells = self._answers(question)
            answered[question["linkId"]] = [cell.get("answer_code") for cell in cells]
            rows.extend(head | {"question": naming(question)} | cell for cell in cells)
        return Record(rows, fate, why)

    def _answers(self, question: Json) -> list[Json]:
        if question["type"] == "choice":
            options = [option["valueCoding"] for option in question["answerOption"]]
            chosen = self.dice.some(options, self.dice.between(1, 3) if question["repeats"] else 1)
            written = self.dice.pick((_code_alone, _code_alone, _whole_code))
            return [{"answer_code": written(one)} for one in chosen]
        if question["type"] in ("decimal", "integer"):
            low, high, decimals = NUMBERS[question["linkId"]]
            tenths = self.dice.between(low * 10**decimals, high * 10**decimals)
            return [{"answer_number": f"{tenths / 10**decimals:.{decimals}f}"}]
        return [{"answer_text": self.dice.pick(FEEDBACK if question["linkId"] == "remark" else FREE_TEXT)}]


def _questions(items: list[Json]) -> Iterator[Json]:
    """Those that take an answer, of every depth."""
    for item in items:
        if item["type"] not in ("group", "display"):
            yield item
        yield from _questions(item.get("item", []))


def _enabled(question: Json, answered: dict[str, list[Any]]) -> bool:
    """Whether one of the question's conditions holds (no question here asks for all of several)."""
    conditions = question.get("enableWhen")
    return not conditions or any(_holds(condition, answered) for condition in conditions)


def _holds(condition: Json, answered: dict[str, list[Any]]) -> bool:
    given = answered.get(condition["question"], [])
    if condition["operator"] == "exists":
        return bool(given) is condition["answerBoolean"]
    wanted = condition["answerCoding"]["code"]
    return any(str(code).rpartition("|")[2] == wanted for code in given)


def _link(question: Json) -> str:
    return str(question["linkId"])


def _code(question: Json) -> str:
    return str(question["code"][0]["code"])


def _code_alone(coding: Json) -> str:
    return str(coding["code"])


def _whole_code(coding: Json) -> str:
    return f"{coding['system']}|{coding['code']}"


def _system_and_code(question: Json) -> str:
    return _whole_code(question["code"][0])


# --- The files ------------------------------------------------------------------------------------


def files(patients: list[str], encounters: dict[str, list[Json]]) -> list[InboxFile]:
    visits = {id: [one for one in found if one["status"] == "finished"] for id, found in encounters.items()}
    tablets = Maker("answers of the tablets", "R26-", visits, patients)
    ordinary = [tablets.ordinary() for _ in range(318)]
    for record in ordinary[30:320:120]:
        record.apart = len(record.rows) > 1
    in_tablets = scatter(tablets.dice, ordinary, _in_tablets(tablets, encounters))
    portal = Maker("answers of the portal", "WEB-", visits, patients)
    in_portal = scatter(portal.dice, [portal.ordinary() for _ in range(55)], _in_portal(portal, ordinary))
    return [
        InboxFile("answers-2026-q1.csv", "answers", COLUMNS, in_tablets, control=True),
        InboxFile("answers-portal.ndjson", "answers", (), [_as_json(record) for record in in_portal]),
    ]


def _in_tablets(maker: Maker, encounters: dict[str, list[Json]]) -> Iterator[Record]:
    yield from _bad_answers(maker)
    yield from _bad_heads(maker)
    yield from _bad_encounters(maker, encounters)


def _bad_answers(maker: Maker) -> Iterator[Record]:
    for questionnaire, code in (("q-phq9", "LA9999-9"), ("q-social", "sometimes")):
        found = maker.response(
            questionnaire, maker.head(questionnaire), "rule", "an option that the question does not have"
        )
        yield _changed(found, -1 if questionnaire == "q-phq9" else 0, answer_code=code)
    found = maker.response(
        "q-feedback", maker.head("q-feedback"), "rule", "a question that the questionnaire does not have"
    )
    yield _changed(found, 0, question="waiting-time")
    for _ in range(2):
        found = maker.response("q-phq9", maker.head("q-phq9"), "rule", "two answers to a single choice")
        other = "LA6571-9" if "LA6571-9" not in found.head["answer_code"] else "LA6568-5"
        found.rows.insert(1, found.head | {"answer_code": other})
        yield found
    found = maker.response(
        "q-phq9", maker.head("q-phq9"), "rule", "an option of another code system than the question's"
    )
    yield _changed(found, 0, answer_code="http://snomed.info/sct|LA6568-5")
    found = maker.response("q-phq9", maker.head("q-phq9"), "rule", "a text where an option is expected")
    yield _changed(found, 0, answer_code="", answer_text="quite often")
    found = maker.response("q-phq9", maker.head("q-phq9"), "map", "a row without any answer")
    yield _changed(found, 0, answer_code="")
    found = maker.response("q-phq9", maker.head("q-phq9"), "map", "a row with two kinds of answer")
    yield _changed(found, 0, answer_text="see left")
    found = maker.response("q-pain", maker.head("q-pain"), "map", "a number that is none")
    yield _changed(found, 0, answer_number="7-8")
    found = maker.response(
        "q-phq9", maker.head("q-phq9"), "parse", "a ragged row: the response as a whole is set aside"
    )
    found.rows.insert(1, f"{found.head['response_id']},p003,q-phq9")
    yield found


def _bad_heads(maker: Maker) -> Iterator[Record]:
    def head(fate: str, why: str, **given: str) -> Record:
        return maker.response("q-phq9", maker.head("q-phq9", **given), fate, why)

    for text in ("2026-02-30T10:00:00Z", "March 3rd"):
        yield head("map", "a date that is none, or not ISO 8601", authored=text)
    found = head("map", "no `patient_id`")
    yield _changed_all(found, patient_id="")
    for unknown in ("p999", "p640"):
        yield head("refused", "a patient whom the service does not know", patient_id=unknown, author="")
    yield head("map", "a questionnaire of which there is none", questionnaire="Wellness check 2019")
    found = head("rule", "a retired questionnaire", questionnaire="q-phq9-2024")
    found.rows = found.rows[:1]
    yield _changed(found, 0, question="/44250-9")
    found = head("map", "rows of one response that name two patients")
    yield _changed(found, -1, patient_id="p011" if found.head["patient_id"] != "p011" else "p012")


def _bad_encounters(maker: Maker, encounters: dict[str, list[Json]]) -> Iterator[Record]:
    every = [(patient, one) for patient, found in sorted(encounters.items()) for one in found]
    finished = [(patient, one) for patient, one in every if one["status"] == "finished"]
    noted = [(patient, one) for patient, one in finished if "extension" in one]
    cancelled = next((patient, one) for patient, one in every if one["status"] == "cancelled")
    (patient, visit), (other, note) = finished[0], next(pair for pair in noted if pair[0] != finished[0][0])

    def head(why: str, **given: str) -> Record:
        return maker.response("q-feedback", maker.head("q-feedback", author="", **given), "refused", why)

    yield head("an encounter that the service does not know", patient_id=patient, encounter_id="enc-9999")
    yield head("an encounter of another patient", patient_id=other, encounter_id=visit["id"])
    yield head("an encounter that was cancelled", patient_id=cancelled[0], encounter_id=cancelled[1]["id"])
    yield head("a note that the service does not know", patient_id=patient, note_id="note-9999")
    note_id = note["extension"][0]["valueId"]
    yield head(
        "encounter and note that do not belong together", patient_id=patient, encounter_id=visit["id"], note_id=note_id
    )


def _in_portal(maker: Maker, before: list[Record]) -> Iterator[Record]:
    again = next(record for record in before if len(record.rows) == 9)
    yield Record(
        [dict(row) for row in again.rows if isinstance(row, dict)],
        "unchanged",
        "exported again: the response came in the CSV",
    )
    found = maker.response("q-pain", maker.head("q-pain"), "map", "no `question`")
    yield _changed(found, 0, question="")
    yield maker.response(
        "q-intake",
        maker.head("q-intake", patient_id="p900", author=""),
        "refused",
        "a patient whom the service does not know",
    )
    yield maker.response("q-phq9", maker.head("q-phq9", author="dr-04"), "map", "an author without a type")


def _changed(record: Record, place: int, **cells: str) -> Record:
    record.rows[place] = cast("Json", record.rows[place]) | cells
    return record


def _changed_all(record: Record, **cells: str) -> Record:
    record.rows = [row | cells if isinstance(row, dict) else row for row in record.rows]
    return record


def _as_json(record: Record) -> Record:
    """As the portal writes it: numbers as numbers, nothing for what is absent."""
    for row in record.rows:
        if isinstance(row, dict):
            for name in [name for name, value in row.items() if value == ""]:
                del row[name]
            if "answer_number" in row:
                row["answer_number"] = number(row["answer_number"])
    return record
