"""The tasks of a quarter: a CSV of the task list, and NDJSON of the telephone system with several comments a task."""

from collections.abc import Iterator
from datetime import date, timedelta
from itertools import count
from typing import Any

from data.making.people import PRACTITIONERS
from data.making.tools import Dice, InboxFile, Json, Record, scatter
from data.making.words import COMMENTS, LABELS, TASKS

COLUMNS = tuple(
    "task_id patient_id description status requester_id owner_id group_id authored due labels"
    " comment comment_author_id comment_time".split()
)
STATUSES = ("requested", "requested", "requested", "completed", "completed", "cancelled")


class Maker:
    """Makes tasks about the patients of the practice."""

    def __init__(self, name: str, prefix: str, patients: list[Json], phone: bool = False) -> None:
        self.dice = Dice(name)
        self.patients = patients
        self.phone = phone
        self._key = (f"{prefix}{number:05d}" for number in count(1001))

    def record(self, fate: str = "created", why: str | None = None, **given: Any) -> Record:
        """A task; `given` puts other values into columns."""
        dice = self.dice
        patient = dice.pick(self.patients)
        name = patient["name"][0]
        day = dice.day(date(2026, 1, 2), date(2026, 3, 31))
        row: Json = {
            "task_id": next(self._key),
            "patient_id": patient["id"] if dice.chance(0.92) else "",
            "description": dice.pick(TASKS).format(name=f"{name['given'][0]} {name['family']}"),
            "status": dice.pick(STATUSES),
            "requester_id": self._practitioner(),
            "owner_id": self._practitioner() if dice.chance(0.7) else "",
            "group_id": dice.pick(("front-desk", "billing", "care-team")) if dice.chance(0.3) else "",
            "authored": self._time(day) if dice.chance(0.9) else "",
            "due": (day + timedelta(days=dice.between(1, 45))).isoformat() if dice.chance(0.6) else "",
        }
        row |= self._labels() | (self._comments(day) if self.phone else self._comment(day))
        row |= given
        return Record(
            [{name: value for name, value in row.items() if value or name in given} if self.phone else row], fate, why
        )

    def _practitioner(self) -> str:
        return f"dr-{self.dice.between(1, PRACTITIONERS):02d}"

    def _time(self, day: date) -> str:
        moment = self.dice.minute(day).replace(tzinfo=None).isoformat()
        return self.dice.pick((day.isoformat(), f"{moment}Z", f"{moment}+01:00", moment))

    def _labels(self) -> Json:
        labels = self.dice.some(LABELS, self.dice.pick((0, 0, 1, 1, 2, 3)))
        return {"labels": labels if self.phone else ";".join(labels)}

    def _comment(self, day: date) -> Json:
        if not self.dice.chance(0.4):
            return {}
        time = self._time(day) if self.dice.chance(0.8) else ""
        return {"comment": self.dice.pick(COMMENTS), "comment_author_id": self._practitioner(), "comment_time": time}

    def _comments(self, day: date) -> Json:
        texts = self.dice.some(COMMENTS, self.dice.between(0, 3))
        return {
            "comments": [{"text": text, "author_id": self._practitioner(), "time": self._time(day)} for text in texts]
        }

    def again(self, record: Record, fate: str, why: str, **given: str) -> Record:
        return Record([record.row | given], fate, why)


def files(patients: list[Json]) -> list[InboxFile]:
    desk = Maker("tasks of the desk", "T", patients)
    ordinary = [desk.record() for _ in range(372)]
    phone = Maker("tasks of the telephone", "TEL-", patients, phone=True)
    calls = [phone.record() for _ in range(98)]
    return [
        InboxFile("tasks-2026-q1.csv", "tasks", COLUMNS, scatter(desk.dice, ordinary, _at_the_desk(desk, ordinary))),
        InboxFile("tasks-phone.ndjson", "tasks", (), scatter(phone.dice, calls, _on_the_phone(phone))),
    ]


def _at_the_desk(maker: Maker, ordinary: list[Record]) -> Iterator[Record]:
    record = maker.record
    for _ in range(2):
        yield record("map", "no `description`", description="")
        yield record("map", "no `requester_id`", requester_id="")
    yield record("map", "no `status`", status="")
    for status in ("open", "in-progress", "Completed"):
        yield record("rule", "a status that the interface does not have", status=status)
    for text in ("31/03/2026", "2026-02-29"):
        yield record("map", "a date that is none, or not ISO 8601", due=text)
    yield record("map", "a date that is none, or not ISO 8601", authored="2026-01-15T25:10:00Z")
    for unknown in ("p999", "p410"):
        yield record("refused", "a patient whom the service does not know", patient_id=unknown)
    for column in ("requester_id", "owner_id"):
        yield record("refused", "a practitioner whom the service does not know", **{column: "dr-77"})
    yield record("refused", "a group that the service does not know", group_id="night-shift")
    yield record("map", "a requester who is a patient", requester_id="Patient/p001")
    for text in ("See fax.", "Called, no answer"):
        yield record("rule", "a comment without its author", comment=text, comment_author_id="", comment_time="")
    yield record("rule", "a vertical tab, as spreadsheets write line breaks", description="Call back\x0bafter lunch")
    for original in (ordinary[50], ordinary[200]):
        yield maker.again(original, "skipped", "a repeated key with equal content")
    why = "a repeated key with different content: both rows"
    changed = record("map", why, status="requested")
    yield changed
    yield maker.again(changed, "map", why, status="completed")
    yield Record(
        ["T09001,p020,Call the pharmacy, ask for Ms. Ito,requested,dr-03,,,,,,,,"],
        "parse",
        "a ragged row: an unquoted comma",
    )


def _on_the_phone(maker: Maker) -> Iterator[Record]:
    record = maker.record
    yield record("map", "comments that are no array", comments="called back")
    yield record("map", "labels that are no texts", labels=[1, 2])
    yield record("rule", "a comment without its author", comments=[{"text": "Will call again."}])
    yield record("refused", "a patient whom the service does not know", patient_id="p999")
    yield Record(['["TEL-09001", "Call back", "requested"]'], "parse", "a line that is no object")
