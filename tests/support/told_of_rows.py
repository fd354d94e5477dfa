"""The law of corrections, from what a person can see: the resources, the imported files, and the reasons of rejects.

It uses no code of the importer. Each resource must have been allowed when it was created, and each row without a
resource must have a reason that is true.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from tests.support.ledgers import read_ledger

KINDS = ("PaymentNotice", "Task")
TAKEN_BACK = ("cancelled", "entered-in-error")
UNDECIDED = ("planned", "sending", "in_doubt")
FATES = ("was discarded", "is being loaded", "was loaded")
"""What a reason of LEDGER-07 says of the record or the reject: one of these."""


class Put(NamedTuple):
    """A row of a file. knows: the resources, and the keys under way, that its rejects had named when it was written."""

    batch: str
    origin: int
    key: str
    content: tuple[str, str]
    names: tuple[str, ...]
    knows: frozenset[str]
    is_odd: bool

    def is_repeat_of(self, others: Iterable["Put"]) -> bool:
        return any((other.key, other.content) == (self.key, self.content) for other in others)


class Body(NamedTuple):
    """A resource at the target."""

    origin: int
    content: tuple[str, str]
    is_living: bool


class Record(NamedTuple):
    key: str
    place: tuple[str, int]
    state: str
    resource: str | None


class Reject(NamedTuple):
    key: str | None
    state: str
    seen_at: str
    reasons: tuple[tuple[str, str], ...]
    places: frozenset[tuple[str, int]]
    closed_by: str | None
    stands_at: frozenset[tuple[str, int]]


class Seen(NamedTuple):
    """The target and the ledger at one moment."""

    chart: dict[str, Body]
    records: dict[str, Record]
    former: dict[str, tuple[str, int]]
    rejects: dict[str, Reject]
    outcomes: dict[tuple[str, int], tuple[str, str]]
    finished: frozenset[str]

    def living(self, origin: int) -> set[str]:
        return {name for name, body in self.chart.items() if body.origin == origin and body.is_living}

    def of_origin(self, origin: int) -> list[Record]:
        return [record for key, record in self.records.items() if origin_in(key) == origin]

    def places_of(self, resource: str) -> list[tuple[str, int]]:
        """Return the lines that a resource comes from."""
        found = [record.place for record in self.records.values() if record.resource == resource]
        return found + ([self.former[resource]] if resource in self.former else [])

    def of_key(self, key: str) -> Body | None:
        """Return the resources of a key."""
        record = self.records.get(key)
        return self.chart.get(record.resource or "") if record else None


class Told(NamedTuple):
    """A reason of a reject, for one of its rows. moments: before and after the last step."""

    row: Put
    reject: Reject
    message: str
    moments: tuple[Seen, Seen]


def origin_in(key: str) -> int:
    return int(key.partition("-")[0].removeprefix("k"))


def body_of(body: dict[str, Any]) -> Body:
    if body["resourceType"] == "PaymentNotice":
        said, who = f"{body['amount']['value']:.2f}", body["request"]["reference"]
        origin = int(body["amount"]["value"])
    else:
        said, who = body["description"], body.get("for", {}).get("reference", "")
        origin = int(said.split()[0].removeprefix("o"))
    return Body(origin, (who.rpartition("/")[2], said), body["status"] not in TAKEN_BACK)


def look(home: Any, stored: dict[str, Any]) -> Seen:
    chart = {name: body_of(body) for name, body in stored.items() if body["resourceType"] in KINDS}
    with read_ledger(home) as ledger:
        records = ledger.execute("SELECT key, batch_id, line, state, resource_id FROM record").fetchall()
        former = ledger.execute("SELECT resource_id, batch_id, line FROM former ORDER BY version DESC").fetchall()
        again = ledger.execute("SELECT reject_id, batch_id, line FROM resubmission ORDER BY seen_at").fetchall()
        rejects = ledger.execute(
            "SELECT reject_id, source_key, state, last_seen_at, batch_id, line, closed_by_batch FROM reject"
        ).fetchall()
        said = ledger.execute("SELECT reject_id, rule_id, message FROM reject_reason").fetchall()
        repeats = ledger.execute("SELECT batch_id, line, key, state FROM repeat").fetchall()
        finished = ledger.execute("SELECT batch_id FROM batch WHERE state = 'finished'").fetchall()
    reasons, places = defaultdict(list), defaultdict(list)
    for name, *reason in said:
        reasons[name].append(tuple(reason))
    for name, *place in again:
        places[name].append(tuple(place))
    return Seen(
        chart,
        {key: Record(key, (batch, line), state, resource) for key, batch, line, state, resource in records},
        {resource: (batch, line) for resource, batch, line in former},
        {
            name: Reject(key, state, at, tuple(reasons[name]), frozenset([*places[name], (batch, line)]), by, last)
            for name, key, state, at, batch, line, by in rejects
            for last in [frozenset(each for each in places[name] if each[0] == places[name][-1][0])]
        },
        {(batch, line): (key, state) for batch, line, key, state in repeats},
        frozenset(name for (name,) in finished),
    )


NOTHING = Seen({}, {}, {}, {}, {}, frozenset())


class Law:
    """The law. put: the rows of all files, by batch and line. made: the time of each resource at the target.

    discarded: the rejects that a person has discarded, each with its key and the resources at that time. late: the
    resources that the network made of requests whose rows were refused on a second attempt: only `verify` can name
    them.
    """

    def __init__(self, home: Any, target: Any) -> None:
        self.home, self.target = home, target
        self.put: dict[tuple[str, int], Put] = {}
        self.discarded: dict[str, tuple[str | None, frozenset[str]]] = {}
        self.allowed_by: dict[str, Put] = {}
        self.late = set[str]()
        self.said = defaultdict[str, set[str]](set)
        self.now = NOTHING

    # -- what a person knows

    def known_to(self, names: Iterable[str]) -> frozenset[str]:
        """Return what rejects name as stored or under way, when they are exported or before a person imports them."""
        return frozenset(each for name in names for each in self.said[name])

    def _said_by(self, reject: Reject) -> Iterator[str]:
        origin = origin_in(str(reject.key))
        for rule, message in reject.reasons:
            if rule == "LEDGER-08" and reject.key in self.now.records:
                yield from (str(reject.key), self.now.records[reject.key].resource or "")
            if rule == "LEDGER-07" and "was discarded" not in message:
                made = {name: f"{at:%Y-%m-%dT%H:%M:%S.%fZ}" for name, at in self.target.made.items()}
                yield from (name for name in self.now.living(origin) if made[name] <= reject.seen_at)
                yield from (record.key for record in self.now.of_origin(origin) if record.state in UNDECIDED)

    # -- what must be true after each step

    def look(self) -> None:
        if not (self.home / "ledger.db").exists():
            return
        before, self.now = self.now, look(self.home, self.target.stored)
        self._were_allowed(before)
        for name, reject in self.now.rejects.items():
            if name not in before.rejects or reject.seen_at != before.rejects[name].seen_at:
                self._is_true(name, reject, before)
                self.said[name].update(self._said_by(reject))
            self._has_its_state(name, reject, before)
        for place, (key, state) in self.now.outcomes.items():
            if before.outcomes.get(place) != (key, state):
                self._is_known(place, state, before)
        self._all_have_outcomes()

    def _were_allowed(self, before: Seen) -> None:
        new = sorted(self.now.chart.keys() - before.chart.keys(), key=self.target.made.__getitem__)
        there = {name for name, body in before.chart.items() if body.is_living}
        for name in new:
            origin = self.now.chart[name].origin
            others = {each for each in there if self.now.chart[each].origin == origin}
            rows = self._rows_of(name)
            if not rows and any(record.state == "refused" for record in self.now.of_origin(origin)):
                self.late.add(name)
                continue
            assert rows, ("nobody's", name, self.now.chart[name])
            right = [row for row in rows if all(self._is_meant(name, row, other) for other in others)]
            assert right, ("twice", self.now.chart[name], rows, others, [self.allowed_by.get(o) for o in others])
            self.allowed_by[name] = right[0]
            there.add(name)

    def _is_meant(self, name: str, row: Put, other: str) -> bool:
        """True if the author of a row knew of the other one, or wrote both for one reject in one file.

        Two rows that were each set aside because of a third one do not name each other: see `docs/feeds.md`.
        """
        its = self.allowed_by.get(other)
        if other in row.knows or its is None:
            return other in row.knows
        same = not set(row.names).isdisjoint(its.names)
        together = same and row.batch == its.batch
        beside_a_third = bool(not same and row.knows and its.knows)
        return row.key in its.knows or its.key in row.knows or together or beside_a_third

    def _rows_of(self, resource: str) -> list[Put]:
        body = self.now.chart[resource]
        waiting = [record.place for record in self.now.of_origin(body.origin) if record.state in UNDECIDED]
        return [self.put[place] for place in self.now.places_of(resource) or waiting]

    def _is_true(self, name: str, reject: Reject, before: Seen) -> None:
        """Assert that each reason of a reject is true for one of its rows, now or before the last step."""
        for rule, message in reject.reasons:
            rows = [self.put[place] for place in reject.places]
            found = [Told(row, reject, message, (before, self.now)) for row in rows]
            assert any(self._holds(rule, told) for told in found), ("untrue", name, reject, rule, message, rows)

    def _holds(self, rule: str, told: Told) -> bool:
        row = told.row
        records = [record for seen in told.moments if (record := seen.records.get(row.key))]
        bodies = [body for seen in told.moments if (body := seen.of_key(row.key))]
        match rule:
            case "LEDGER-07":
                return self._is_done_with(told)
            case "LEDGER-08":
                other = any(body.is_living and body.content != row.content for body in bodies)
                return other or any(record.state in UNDECIDED for record in records)
            case "LEDGER-13":
                return any(row.key == other.key for other in self._beside(told))
            case "TAKEN-BACK":
                return any(not body.is_living for body in bodies)
            case "business-rule":
                return row.content[1].endswith("50")
        return row.is_odd

    def _is_done_with(self, told: Told) -> bool:
        row, is_named = told.row, "that the row names" in told.message
        [fate] = [each for each in FATES if each in told.message]
        if fate == "was discarded":
            return any((is_named and name in row.names) or self._stands(name, row.key) for name in self.discarded)
        if fate == "is being loaded":
            others = [record for seen in told.moments for record in seen.of_origin(row.origin)]
            return any(record.state in UNDECIDED for record in others) or bool(self._beside(told))
        return any(
            body.origin == row.origin and (body.is_living or not is_named) and self.put[place] != row
            for seen in told.moments
            for resource, body in seen.chart.items()
            for place in seen.places_of(resource)
        )

    def _beside(self, told: Told) -> list[Put]:
        """Return the other rows of the same origin in the same file."""
        batches = {batch for batch, line in told.reject.places if self.put[batch, line] == told.row}
        rows = [other for (batch, _), other in self.put.items() if batch in batches]
        return [other for other in rows if other.origin == told.row.origin and other != told.row]

    def _stands(self, name: str, key: str) -> bool:
        """True if a discarded reject has a key of which no resource was made since."""
        of_key, there = self.discarded[name]
        since = self.now.chart.keys() - there
        return of_key == key and not any(row.key == key for each in since for row in self._rows_of(each))

    def _has_its_state(self, name: str, reject: Reject, before: Seen) -> None:
        assert (reject.state == "discarded") == (name in self.discarded), (name, reject)
        if reject.state == "closed" and (name not in before.rejects or before.rejects[name].state != "closed"):
            origin = origin_in(str(reject.key))
            assert self.now.living(origin) | before.living(origin), ("closed", reject)
            answers = {each for (batch, _), row in self.put.items() if batch == reject.closed_by for each in row.names}
            keys = {self.put[place].key for place in reject.stands_at if place not in self._there()}
            assert name in answers or keys <= {reject.key}, ("closed by a record of another key", reject, keys)
        if reject.state == "closed":
            states = {record.state for record in self.now.of_origin(origin_in(str(reject.key)))}
            assert states & {"created", "adopted"}, ("closed by what is not there", reject, states)

    def _there(self) -> set[tuple[str, int]]:
        """Return the lines that resources come from."""
        return {place for name in self.now.chart for place in self.now.places_of(name)}

    def _is_known(self, place: tuple[str, int], state: str, before: Seen) -> None:
        row = self.put[place]
        bodies = [body for seen in (before, self.now) if (body := seen.of_key(row.key))]
        if state == "skipped":
            assert row.is_repeat_of(self._before(place)), row
        elif state == "refused":
            assert row.content[1].endswith("50"), row
        elif state == "undone":
            assert any(not body.is_living for body in bodies), row
        else:
            assert state in ("unchanged", "created", "adopted"), (state, row)
            assert any(body.content == row.content for body in bodies), (state, row, bodies)

    def _all_have_outcomes(self) -> None:
        places = {record.place for record in self.now.records.values()} | self.now.outcomes.keys()
        places |= {place for reject in self.now.rejects.values() for place in reject.places}
        for place, row in self.put.items():
            if place[0] in self.now.finished and place not in places:
                assert row.is_repeat_of(self._before(place)), ("silent", place, row)

    def _before(self, place: tuple[str, int]) -> list[Put]:
        """Return the rows before a row in its file."""
        return [row for (batch, line), row in self.put.items() if batch == place[0] and line < place[1]]
