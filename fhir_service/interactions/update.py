"""Update: of a Task, and of a QuestionnaireResponse to entered-in-error. Checks, preconditions, the writer's entry."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from fhir_service.interface.checking import parse, rule_problems
from fhir_service.interface.datatypes import is_id
from fhir_service.interface.json_text import dump_json
from fhir_service.interface.outcomes import BUSINESS_RULE, CONFLICT, INVALID, TOO_LARGE, FhirError, unknown_resource
from fhir_service.interface.site import Site
from fhir_service.interface.vocabulary import Problem, Resource
from fhir_service.store.view import CurrentVersion, Needs
from fhir_service.writing.entry import CommitContext

LARGEST = 4 << 20
"""The most bytes that earlier updates may have added to a resource: notes are added, and each version is kept."""


@dataclass(frozen=True, slots=True)
class Preconditions:
    """`If-Unmodified-Since` as a time, `If-Match` and `If-None-Match` as sent; None for a missing one."""

    unmodified_since: datetime | None = None
    match: str | None = None
    none_match: str | None = None

    def check(self, current: CurrentVersion) -> None:
        """Raise the conflict outcome if the resource has changed since."""
        changed = current.updated_at.astimezone(UTC).replace(microsecond=0)
        if self.unmodified_since and changed > self.unmodified_since:
            raise FhirError(CONFLICT)
        if self.match is not None and self.match != "*" and etag(current.version) not in _tags(self.match):
            raise FhirError(
                CONFLICT, f"the resource has version {current.version}, which If-Match does not name: read it again"
            )
        # Compare the numbers only: `If-None-Match` compares tags weakly (RFC 9110).
        if self.none_match is not None and not {"*", f'"{current.version}"'}.isdisjoint(
            tag.removeprefix("W/") for tag in _tags(self.none_match)
        ):
            raise FhirError(CONFLICT, f"the resource has version {current.version}, which If-None-Match excludes")


def _tags(match: str) -> list[str]:
    """Return the entity tags of a condition."""
    return [tag.strip() for tag in match.split(",")]


def etag(version: int) -> str:
    """Return the weak ETag of a version."""
    return f'W/"{version}"'


_ASCTIME = re.compile(r"[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}\Z", re.ASCII)
# An HTTP-date may name a leap second, which `datetime` does not know.
_LEAP_SECOND = re.compile(r"(\d\d:\d\d):60(?= )", re.ASCII)


def http_date(text: str | None) -> datetime | None:
    """Return the time of an HTTP-date in one of its three forms (RFC 9110); None if it is missing or invalid."""
    if not text or not (text.endswith("GMT") or _ASCTIME.match(text)):
        return None
    try:
        found = parsedate_to_datetime(_LEAP_SECOND.sub(r"\1:59", text))
        # The form of asctime names no zone: every HTTP-date is in UTC.
        return found.astimezone(UTC) if found.tzinfo else found.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return None


def parse_task(resource: Resource, body: Any, resource_id: str, site: Site, additions: bool) -> Any:
    """Return the model of a Task update. Raises the 400 of its first problem."""
    parsed: Any = parse(resource, body, site, additions, resource.update_model)
    if parsed.id not in (None, resource_id):
        raise Problem("TASK-UPDATE-15", INVALID, "Task.id", "the id differs from the id in the path").error()
    return parsed


@dataclass(frozen=True, slots=True)
class StatusUpdate:
    """The content of an update of a QuestionnaireResponse."""

    status: str


def parse_response(resource: Resource, body: Any, resource_id: str, _site: Site, _additions: bool) -> StatusUpdate:
    """Return the status of an update; all but `id` and `status` is ignored. Raises the 400 of its first problem."""
    name = resource.name
    if not isinstance(body, dict):
        raise Problem("COMMON-35", INVALID, name, "an object is expected").error()
    for element, rule_id in (("id", "QR-UPDATE-04"), ("status", "QR-UPDATE-05")):
        if not isinstance(body.get(element), str) or not body[element]:
            why = "a string that is not empty is expected" if element in body else "a required element is missing"
            raise Problem(rule_id, INVALID, f"{name}.{element}", why).error()
    if body["id"] != resource_id:
        raise Problem("QR-UPDATE-07", INVALID, f"{name}.id", "the id differs from the id in the path").error()
    return StatusUpdate(body["status"])


PARSERS = {"Task": parse_task, "QuestionnaireResponse": parse_response}


@dataclass(slots=True)
class Update:
    """The entry of one update. It checks existence, then preconditions, then rules."""

    resource: Resource
    id: str
    model: Any
    client: str
    site: Site
    size: int
    preconditions: Preconditions = Preconditions()

    def ask(self, needs: Needs) -> None:
        # An invalid id cannot exist: `act` answers 404.
        needs.current[self.resource.name].update(filter(is_id, [self.id]))
        if not isinstance(self.model, StatusUpdate):
            needs.records.update(self.resource.named(self.model))

    def act(self, desk: CommitContext) -> tuple[str, ...]:
        """Change the resource. Return the ids of its patients after and before."""
        current = desk.view.current[self.resource.name].get(self.id)
        if current is None:
            raise unknown_resource(self.resource.name, self.id)
        self.preconditions.check(current)
        if isinstance(self.model, StatusUpdate):
            self._set_status(desk, current)
        else:
            self._change(desk, current)
        stored = desk.view.current[self.resource.name][self.id].stored
        patients = map(self.resource.patient, (stored, current.stored))
        return tuple(dict.fromkeys(filter(None, patients)))

    def _set_status(self, desk: CommitContext, current: CurrentVersion) -> None:
        name = self.resource.name
        if self.model.status != "entered-in-error":
            raise Problem("QR-UPDATE-06", BUSINESS_RULE, f"{name}.status", "the status is not supported").error()
        if current.stored["status"] != "entered-in-error":
            self._store(desk, current)

    def _change(self, desk: CommitContext, current: CurrentVersion) -> None:
        for problem in rule_problems(self.resource, self.model, self.site, desk.view):
            raise problem.error()
        self._store(desk, current)

    def _store(self, desk: CommitContext, current: CurrentVersion) -> None:
        before = current.stored
        stored = self.resource.merge(before, self.model, desk.moment)
        body = dump_json(stored)
        if len(body) > LARGEST + self.size and stored.get("note") != before.get("note"):
            what = f"the resource would have more than {LARGEST >> 20} MB with its notes: use another one for more"
            raise FhirError(TOO_LARGE, what, f"{self.resource.name}.note", text="Resource too large")
        new = current.followed(desk.now, self.client, body.decode())
        desk.changes.replace_resource(self.resource.name, current, stored, new)
        desk.view.current[self.resource.name][self.id] = new
        if param := self.resource.param("identifier"):
            codes, formerly, patient = param.values(stored), param.values(before), self.resource.patient(stored)
            desk.view.identify(self.resource.name, self.id, patient, codes, formerly)
