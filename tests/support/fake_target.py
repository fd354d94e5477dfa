"""A small target on loopback that follows the interface, with or without batch and conditional create, and with faults.

The next write takes a fault: a name (`Faulty.fault_<name>`) or an answer. `target.stored` holds the stored bodies.
"""

import json
import math
import re
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any
from urllib.parse import parse_qs, unquote, urlencode, urlsplit

from tests.support.fake_answers import Faulty, Said, outcome
from tests.support.serving import served

SEARCHED = {"request": ["request"], "patient": ["for", "subject", "patient"], "owner": ["owner"]}
BATCHED = ("Task", "PaymentNotice", "QuestionnaireResponse")
REFERENCE = ("Patient", "Practitioner", "Claim", "Questionnaire")
SEPARATOR = re.compile(r"(?<!\\),")
SPECIAL = re.compile(r"([\\,|$])")


def identifiers(body):
    """Yield the identifiers of a body in the form of a search."""
    shown = body.get("identifier", [])
    for each in shown if isinstance(shown, list) else [shown]:
        yield f"{each.get('system', '')}|" + SPECIAL.sub(r"\\\1", each["value"])


class FakeTarget:
    """A target whose behaviour tests choose.

    Faults: `faults` holds those of the next writes of bodies that are `faulty`. refuse: true for bodies that get a 422.
    fails: true for bodies that get a 500. heaviest_alone: the largest single create, in characters. answers: how many
    requests it answers until it goes away, those for statement and tokens aside.

    Times: `now` is the clock that payments are dated with; `keeps` writes their `created`; `date_header` is the clock
    of the header `Date`, if it is another one. changed_at: by id, the `lastUpdated` that a read shows until the next
    PUT.

    Capabilities: `says` has those of the CapabilityStatement, unless it has all or none; such a target shows no store
    id of ours, and a PUT replaces the resource. `dated`: search by the last change. `reference`: types of reference
    data. `puts`: a PUT creates. does_not: capabilities that it claims and lacks: a `transaction` is answered 501; a
    condition and a search by `identifier` are ignored; a search by the `system` of one alone finds nothing. validate:
    the diagnostics of `$validate`. software: its name in the statement. conflict: the status of an update with an old
    entity tag.

    Searches: found_after: how many searches miss what was stored just now. not_indexed: ids that no search shows.
    instead: the answer to every search. counts: true if searches have a total. links: the text before the path of a
    `next` link. most_a_page: resources on a page, whatever `_count` says.

    Writes: drops: elements that it accepts and does not store. renames: true if a PUT creates under another id. order:
    a function that orders the answers of a batch. brings: true if an answer includes the resource.

    Slow bundles: seconds_a_row counts on a clock of its own, `seconds`. After 60 of them a gateway answers 504; `late`
    has the sizes of such bundles, and late_is_done is true if they are stored.
    """

    def __init__(self, additions=True, limit=None, says=None, does_not=()):
        self.additions, self.limit = additions and says is None, limit
        self.promised = says
        self.does_not, self.fails, self.found_after = set(does_not), lambda body: False, 0
        self.conditions: list[str | None] = []
        self.faults, self.faulty, self.refuse = [], lambda body: True, lambda body: False
        self.validate: Callable[[Any], Sequence[str] | None] | None = None
        self.validated = 0
        self.stored, self.identified, self.held = {}, {}, []
        self.lock = threading.Lock()
        self.writes, self.sizes, self.tokens, self.reads = 0, [], 0, 0
        self.valid_tokens, self.at_work, self.most_at_work = set(), 0, 0
        self.answers: float = math.inf
        self.lanes_doubled = 0
        self.lanes_at_work: Counter[str] = Counter()
        self.hold = 0.0
        self.puts, self.put_faults, self.token_faults = 0, [], []
        self.heaviest = None
        self.known_parameters = {"_id"}
        self.refused_parameters = set[str]()
        self.software: str | None = None
        self.conflict: int | None = None
        self.order: Callable[[list[Any]], list[Any]] = list
        self.brings = False
        self.drops, self.counts, self.links, self.renames = set[str](), True, "", False
        self.most_a_page, self.heaviest_alone = 10_000, 10**9
        self.seconds, self.seconds_a_row, self.late, self.late_is_done = 0.0, 0.0, list[int](), True
        self.made: dict[str, datetime] = {}
        self.not_indexed = set[str]()
        self.instead: Any = None
        self.changed_at: dict[str, datetime] = {}
        self.searches: list[dict[str, list[str]]] = []
        self.now: Callable[[], datetime] = lambda: datetime.now(UTC)
        self.keeps: Callable[[datetime], str] = datetime.isoformat
        self.date_header: Callable[[], datetime] | None = None
        self.url = ""

    @property
    def says(self):
        return self.promised if self.promised is not None else ("batch", "conditional") if self.additions else ()

    def lose(self, name):
        """Remove a resource and its identifier, as a restore of an older copy does."""
        del self.stored[name]
        self.identified = {key: found for key, found in self.identified.items() if found[1] != name}

    def shown(self, name):
        """Return the resource that a read by id shows."""
        return self.stored.get(name)

    def replace(self, name, body):
        """Store the body of a PUT as the interface does, or whole as servers of other makes do."""
        before = self.stored[name]
        if self.promised:
            after = {**body, "id": name}
        elif body["resourceType"] == "QuestionnaireResponse":
            after = {**before, "status": body["status"]}
        else:
            after = {**body, "id": name, "note": [*before.get("note", ()), *body.get("note", ())]}
            kept = ("extension", "authoredOn", "identifier")
            after |= {name: before[name] for name in kept if name in before and name not in body}
        self.stored[name] = after
        self.changed_at.pop(name, None)

    def of(self, kind):
        return [body for body in self.stored.values() if body["resourceType"] == kind]

    def found(self, kind, query):
        """Return the resources that a search by patient, owner or identifier finds."""
        entries = [body for body in self.of(kind) if body["id"] not in self.not_indexed]
        for name, values in query.items():
            if name in SEARCHED:
                wanted = {each for value in values for each in value.split(",")}
                entries = [
                    b for b in entries for element in SEARCHED[name] if b.get(element, {}).get("reference") in wanted
                ]
            if name == "_id" and name in self.known_parameters:
                entries = [b for b in entries if b["id"] in values[0].split(",")]
            if name == "identifier" and name not in self.does_not:
                wanted = set(SEPARATOR.split(values[0]))
                whole = {each for each in wanted if each.endswith("|") and "system" not in self.does_not}
                named = ((b, set(identifiers(b))) for b in entries)
                found = [
                    b for b, has in named if wanted & has or whole & {each.rpartition("|")[0] + "|" for each in has}
                ]
                entries = found if not self.found_after else []
                self.found_after = max(0, self.found_after - 1)
            if name == "_lastUpdated":
                since = datetime.fromisoformat(values[0].removeprefix("ge"))
                entries = [b for b in entries if self.made.get(b["id"], since) >= since]
        return entries

    def etag(self, found):
        return f'W/"{hash(json.dumps(self.stored.get(found), sort_keys=True))}"'

    def arrives(self):
        """Deliver the requests that a gateway held, oldest first. Their answers are lost."""
        while self.held:
            body = self.held.pop(0)
            entries = (
                body["entry"]
                if body["resourceType"] == "Bundle"
                else [{"request": {"method": "POST"}, "resource": body}]
            )
            for entry in entries:
                if entry["request"]["method"] == "POST":
                    self.create(entry["resource"], entry["request"].get("ifNoneExist"))

    def create(self, body, condition=None):
        """Carry out a create. Return status, location and outcome."""
        with self.lock:
            self.conditions.append(condition)
            condition = None if "conditional" in self.does_not else condition
            if condition:
                key = unquote(condition.removeprefix("identifier="))
                if key in self.identified:
                    kind, found = self.identified[key]
                    return 200, f"{self.url}/{kind}/{found}", None
            if self.refuse(body):
                return 422, None, outcome("business-rule", diagnostics="the balance would be negative")
            made = str(uuid.uuid4())
            self.stored[made] = {**{name: part for name, part in body.items() if name not in self.drops}, "id": made}
            self.made[made] = datetime.now(UTC)
            if body["resourceType"] == "PaymentNotice":
                self.stored[made]["created"] = self.keeps(self.now())
            if condition:
                self.identified[key] = (body["resourceType"], made)
            return 201, f"{self.url}/{body['resourceType']}/{made}", None


class Handler(Faulty):
    """Answer HTTP requests for a target."""

    target: FakeTarget

    def do_GET(self):
        path, target = urlsplit(self.path), self.target
        if path.path == "/metadata":
            known = [{"name": "identifier", "type": "token"}] if "identifier" in target.says else []
            known += [{"name": "_lastUpdated", "type": "date"}] if "dated" in target.says else []
            known += [{"name": "_id", "type": "token"}] if "searched" in target.says else []
            conditional = "conditional" in target.says
            shown = {"conditionalCreate": conditional, "searchParam": known, "updateCreate": "puts" in target.says}
            shown |= {"referencePolicy": ["literal", "enforced"]} if "enforced" in target.says else {}
            kinds = (*BATCHED, *REFERENCE) if "reference" in target.says else BATCHED
            rest = {"resource": [{"type": kind, **shown} for kind in kinds]}
            if target.validate:
                rest["resource"] = [each | {"operation": [{"name": "validate"}]} for each in rest["resource"]]
            rest["interaction"] = [{"code": code} for code in ("batch", "transaction") if code in target.says]
            about = {"description": "urn:uuid:fake", "url": target.url} if target.additions else {}
            software = {"software": {"name": target.software}} if target.software else {}
            statement = {"resourceType": "CapabilityStatement", "implementation": about, "rest": [rest]}
            return self.answer(200, statement | software)
        if not self.allowed():
            return None
        target.reads += 1
        kind, _, found = path.path.strip("/").partition("/")
        if found:
            body = target.shown(found)
            tag = [("etag", target.etag(found))] if target.conflict and body else []
            if found in target.changed_at:
                tag.append(("last-modified", format_datetime(target.changed_at[found], usegmt=True)))
            return self.answer(200, body, tag) if body else self.answer(404, outcome("not-found"))
        query = parse_qs(path.query)
        target.searches.append({"type": [kind], **query})
        if target.instead is not None:
            return self.answer(200, target.instead)
        if target.refused_parameters & set(query):
            return self.answer(400, outcome("invalid"))
        entries = target.found(kind, query)
        count, offset = min(int(query["_count"][0]), target.most_a_page), int(query.get("_offset", ["0"])[0])
        links = [{"relation": "self", "url": self.path}]
        if offset + count < len(entries):
            more = {**query, "_offset": [str(offset + count)]}
            links.append({"relation": "next", "url": f"{target.links}/{kind}?{urlencode(more, doseq=True)}"})
        parts = {"resourceType", "id", *query["_elements"][0].split(",")} if "_elements" in query else None
        page = [
            {"resource": {name: part for name, part in body.items() if parts is None or name in parts}}
            for body in entries[offset : offset + count]
        ]
        bundle = {"resourceType": "Bundle", "type": "searchset", "total": len(entries), "link": links}
        if not target.counts:
            del bundle["total"]
        return self.answer(200, bundle | ({"entry": page} if page else {}))

    def do_POST(self):
        content, target = self.rfile.read(int(self.headers["content-length"])), self.target
        if self.path == "/auth/token":
            if target.token_faults:
                return self.fault_said(None, target.token_faults.pop(0))
            target.tokens += 1
            token = f"token-{target.tokens}"
            target.valid_tokens.add(token)
            return self.answer(200, {"access_token": token, "token_type": "Bearer", "expires_in": 36000})
        if not self.allowed():
            return None
        body = json.loads(content)
        if self.path.endswith("/$validate"):
            return self.validation(body)
        target.writes += 1
        fault = target.faults.pop(0) if target.faults and target.faulty(body) else self.fault_of_updates(body)
        if isinstance(fault, Said):
            return self.fault_said(body, fault)
        return getattr(self, "fault_" + fault)(body) if fault else self.write(body)

    def do_PUT(self):
        content, target = self.rfile.read(int(self.headers["content-length"])), self.target
        if not self.allowed():
            return None
        target.puts += 1
        body = json.loads(content)
        fault = target.put_faults.pop(0) if target.put_faults else ""
        found = urlsplit(self.path).path.rpartition("/")[2]
        if answer := self.refusal(fault):
            return self.fault_said(body, answer)
        if fault == "lost_before":
            return self.hang_up()
        if found not in target.stored:
            return self.put_new(found, body)
        if target.conflict and self.headers.get("if-match") != target.etag(found):
            return self.answer(target.conflict, outcome("processing"))
        with target.lock:
            target.replace(found, body)
        return self.hang_up() if fault == "lost_after" else self.answer(200, None)

    def put_new(self, name, body):
        if "puts" not in self.target.says or self.target.refuse(body):
            return self.answer(404, outcome("not-found", diagnostics="not taken"))
        name = f"ours-{name}" if self.target.renames else name
        self.target.stored[name] = body | {"id": name}
        return self.answer(201, None, [("location", f"{self.target.url}/{body['resourceType']}/{name}/_history/1")])

    def validation(self, body):
        target = self.target
        target.validated += 1
        found = target.validate(body) if target.validate else None
        if found is None:
            return self.answer(500, outcome("exception"))
        issues = [outcome("business-rule", diagnostics=each)["issue"][0] for each in found]
        return self.answer(200, {"resourceType": "OperationOutcome", "issue": [*issues, {"severity": "information"}]})


@contextmanager
def serving(target: FakeTarget) -> Iterator[FakeTarget]:
    """Serve a target on a free port."""
    handler = type("ThisHandler", (Handler,), {"target": target})
    with served(handler) as target.url:
        yield target
