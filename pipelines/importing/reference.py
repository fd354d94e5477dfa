"""`reference load`: put patients, practitioners, claims, questionnaires and the like to any target that takes them.

A resource that the target has under the id or identifier stays as it is: a file never overwrites a chart. If its
identifiers show that it is another resource than the file's, the load says so, and puts nothing that refers to it. An
interrupted load is simply repeated. The bundled service loads its own reference data.
"""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from fhir_service.paths import is_folder
from pipelines.client.client import PAGE
from pipelines.client.pace import Attempts, RetryPauses
from pipelines.client.replies import TOO_LARGE, NoResult, Reply, RequestRefused, TargetFailed, TargetUnusable, TooLarge
from pipelines.client.threads import threads
from pipelines.home.exits import ALL_LOADED, SET_ASIDE
from pipelines.home.files import write_whole
from pipelines.home.reference_files import reference_files, reference_lines
from pipelines.importing.naming import NamedAtTarget, condition_of, id_as_name, is_another
from pipelines.session.bundled import STORE, load_reference
from pipelines.session.connections import TargetConnection
from pipelines.session.needed_reads import reading

Body = dict[str, Any]
Outcome = str | Reply | Exception
"""The outcome of a resource: the target's answer, an error, or the reason why it was not put."""
ORDER = tuple(
    "Organization Practitioner Group Patient Questionnaire Encounter Claim Observation DiagnosticReport".split()
)
"""The types that are put, each after the types that it may refer to."""
OUTCOMES = ("created", "there", "unchanged", "updated", "refused", "unresolved", "left")
REFUSED = "reference.refused.ndjson"
TRIES = 3
MOST_FAILED = 10
"""Resources in a row at which the target fails, after which it counts as unusable."""
NAMELESS = "the resource has no identifier to find it by at the target; --ids-are SYSTEM makes one from its id"
ANOTHER = "the target has a different {} under this id, with another identifier of the same system"
NAMES_ANOTHER = "it refers to {}, and the target has a different resource under that id"
NAMES_REFUSED = "it refers to {}, which was refused"
SEVERAL = "the target has several {} of this name"
FAILS = "the target answers this resource with an error of its own ({})"
HEAVY = f"the resource is too large for the target (HTTP {TOO_LARGE})"
NEITHER = "the target accepts a {} neither under a given id nor by a conditional create"


class ReferenceLine(NamedTuple):
    """A resource with its file and line. body: empty if the line holds no resource."""

    file: str
    line: int
    body: Body

    @property
    def kind(self) -> str:
        return str(self.body.get("resourceType", ""))


@dataclass
class PutCounts:
    """The numbers of resources by type and outcome (`created`, `there`, `refused`); other types are `left`.

    kept_in: the file of the refused resources.
    """

    counts: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    refused: list[dict[str, Any]] = field(default_factory=list)
    kept_in: Path | None = None

    def refuse(self, line: ReferenceLine, kind: str, why: str, expression: str | None = None) -> None:
        self.counts[kind]["refused"] += 1
        problem = {"expression": expression, "text": why}
        name = line.body.get("id")
        self.refused.append({"file": line.file, "line": line.line, "type": kind, "id": name, "problems": [problem]})

    @property
    def exit_code(self) -> int:
        return SET_ASIDE if any(each["refused"] for each in self.counts.values()) else ALL_LOADED

    def as_json(self) -> dict[str, Any]:
        counts = [{"type": kind, **each} for kind, each in self.counts.items()]
        return {"counts": counts, "refused": self.refused}

    def lines(self) -> Iterator[str]:
        for kind, each in self.counts.items():
            yield f"{kind}: {', '.join(f'{each[name]:,} {name}' for name in OUTCOMES if each[name])}"
        if self.kept_in:
            yield f"refused: {self.kept_in}"


def put_reference(
    connection: TargetConnection, home: Path, paths: Sequence[Path], environ: Mapping[str, str], ids_are: str | None
) -> PutCounts:
    """Put the resources of NDJSON files, or of folders of them, to a target. Raises `TargetUnusable`, `OSError`.

    ids_are: the system under which the files' ids become identifiers, for resources without one at a target that
    assigns ids.
    """
    files = [file for path in paths for file in (reference_files(path) if is_folder(path) else [path])]
    put = PutCounts()
    if connection.bundled:
        for each in load_reference(home / STORE, files, environ, home / REFUSED, "by hand")["counts"]:
            put.counts[str(each["type"])].update({name: n for name, n in each.items() if isinstance(n, int)})
    else:
        ReferenceLoad(connection, put, ids_are).put(files)
        if put.refused:
            write_whole(home / REFUSED, b"".join(orjson.dumps(each) + b"\n" for each in put.refused))
    put.kept_in = home / REFUSED if put.exit_code else None
    return put


def _lines(files: Iterable[Path]) -> Iterator[ReferenceLine]:
    for path in files:
        for number, text in enumerate(reference_lines(path), 1):
            if text.strip():
                yield ReferenceLine(path.name, number, _body(text))


def _body(text: bytes) -> Body:
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError:
        return {}
    return found if isinstance(found, dict) and isinstance(found.get("resourceType"), str) else {}


class ReferenceLoad:
    """One load. names: by `Type/id` in the files, the reference at the target if that differs.

    others: references under which the target has another resource than the files or lacks the files' resource, with
    the reason why nothing that refers to them is put. failed: resources in a row at which the target failed. end: the
    error after which no more are put.
    """

    def __init__(self, connection: TargetConnection, put: PutCounts, ids_are: str | None = None) -> None:
        self._client, self._found, self._put = connection.client, connection.capabilities, put
        self._ids_are = ids_are
        self._there = NamedAtTarget(self._client, self._found.identified)
        self._names: dict[str, str] = {}
        self._others: dict[str, str] = {}
        self._failed = 0
        self._end: Exception | None = None

    def put(self, files: Sequence[Path]) -> None:
        """Put all of these files, one type after another."""
        kinds: dict[str, list[Path]] = defaultdict(list)
        for path in files:
            for kind in {line.kind for line in _lines([path])}:
                kinds[kind].append(path)
        for line in (line for line in _lines(kinds.pop("", ())) if not line.kind):
            self._put.refuse(line, "unknown", "the line is not a FHIR resource in JSON")
        for kind in sorted(kinds, key=lambda kind: ORDER.index(kind) if kind in ORDER else len(ORDER)):
            lines = (line for line in _lines(kinds[kind]) if line.kind == kind)
            if kind not in ORDER:
                self._put.counts[kind]["left"] += sum(1 for _ in lines)
                continue
            with threads(8, "reference") as pool:
                while some := list(islice(lines, PAGE)):
                    for line, outcome in zip(some, self._some(pool, kind, some), strict=True):
                        self._note(kind, line, outcome)

    def _some(self, pool: ThreadPoolExecutor, kind: str, lines: Sequence[ReferenceLine]) -> list[Outcome]:
        if kind in self._found.puts:
            ids = [str(line.body["id"]) for line in lines if "id" in line.body]
            with reading(kind):
                there = self._client.read_many(kind, ids)
            return self._each(pool, lines, partial(self._under_its_id, kind, there), lambda body: body.get("id"))
        if kind in self._found.conditional:
            bodies = [self._named(line.body) for line in lines]
            with reading(kind):
                known = self._there.ids(kind, bodies)
            put = partial(self._by_identifier, kind, known)
            return self._each(pool, lines, put, lambda body: condition_of(self._named(body)))
        return [NEITHER.format(kind)] * len(lines)

    def _each(
        self,
        pool: ThreadPoolExecutor,
        lines: Sequence[ReferenceLine],
        put: Callable[[ReferenceLine], Outcome],
        name_of: Callable[[Body], Any],
    ) -> list[Outcome]:
        """Put lines side by side, but those of one name one after another: two at once may both find nothing there."""
        lanes: dict[str, list[int]] = defaultdict(list)
        for place, line in enumerate(lines):
            lanes[str(name_of(line.body) or place)].append(place)
        done = pool.map(lambda lane: [(at, self._unless_misled(put, lines[at])) for at in lane], lanes.values())
        found = dict(chain.from_iterable(done))
        return [found[place] for place in range(len(lines))]

    def _unless_misled(self, put: Callable[[ReferenceLine], Outcome], line: ReferenceLine) -> Outcome:
        """Put a resource, unless its references mean another one at the target, or the load has ended."""
        named = REFERENCE.findall(_json(line.body)) if self._others else []
        misled = next((each for each in named if each in self._others), None)
        outcome = self._end or (self._others[misled].format(misled) if misled else put(line))
        if isinstance(outcome, Exception) and _why_refused(outcome) is None:
            self._end = outcome
        return outcome

    def _note(self, kind: str, line: ReferenceLine, outcome: Outcome) -> None:
        self._failed = self._failed + 1 if isinstance(outcome, TargetFailed) else 0
        if isinstance(outcome, Reply):
            self._put.counts[kind]["created" if outcome.status == 201 else "there"] += 1
            name = line.body.get("id")
            if name and outcome.resource_id and outcome.resource_id != name:
                self._names[f"{kind}/{name}"] = f"{kind}/{outcome.resource_id}"
        elif isinstance(outcome, str):
            self._refuse(kind, line, outcome)
        elif (why := _why_refused(outcome)) is not None and self._failed < MOST_FAILED:
            self._refuse(kind, line, *why)
        else:
            raise TargetUnusable(
                f"the target could not be used: no clear answer to {kind} ({outcome}); repeat the command:"
                " resources that were loaded are not loaded twice"
            )

    def _refuse(self, kind: str, line: ReferenceLine, why: str, expression: str | None = None) -> None:
        """Refuse a resource. If the target assigns ids, the resource with the file's id may be another one there."""
        self._put.refuse(line, kind, why, expression)
        if kind in self._found.conditional and kind not in self._found.puts:
            self._others.setdefault(f"{kind}/{line.body.get('id')}", NAMES_REFUSED)

    def _under_its_id(self, kind: str, there: Mapping[str, Body], line: ReferenceLine) -> Outcome:
        name = line.body.get("id")
        if not isinstance(name, str):
            return "there is no id"
        if name in there:
            return self._as_it_is(kind, there[name], line)
        return _tried(lambda: self._new(kind, name, line), self._client.patience)

    def _new(self, kind: str, name: str, line: ReferenceLine) -> str | Reply:
        """Put a resource unless a read finds it. A search by ids is not trusted, since a PUT overwrites."""
        try:
            found = self._client.read(kind, name)
        except NoResult as error:
            error.final = True  # the read has tried again already
            raise
        if found is not None:
            return self._as_it_is(kind, found, line)
        return Reply(201, self._client.update(kind, name, self._text(line.body)).location)

    def _as_it_is(self, kind: str, found: Body, line: ReferenceLine) -> str | Reply:
        """Leave the target's resource; refuse the file's if it is another one."""
        if not is_another(found, line.body):
            return Reply(200)
        self._others[f"{kind}/{found['id']}"] = NAMES_ANOTHER
        return ANOTHER.format(kind)

    def _by_identifier(self, kind: str, known: dict[str, list[str]], line: ReferenceLine) -> Outcome:
        """Create a resource under the condition of its name, unless the target is known to have that name."""
        body = self._named(line.body)
        if (condition := condition_of(body)) is None:
            return NAMELESS
        outcome = _tried(lambda: self._unless_there(kind, known, condition, body), self._client.patience)
        if isinstance(outcome, Reply) and outcome.resource_id:
            known[condition] = [outcome.resource_id]
        return outcome

    def _unless_there(self, kind: str, known: dict[str, list[str]], condition: str, body: Body) -> str | Reply:
        """Create a resource unless its name is known there. After an unclear answer, search for the name again."""
        if condition in known and not known[condition]:
            known |= self._there.ids(kind, [body])
        if ids := known.get(condition):
            return Reply(200, f"{kind}/{ids[0]}") if len(ids) == 1 else SEVERAL.format(kind)
        known[condition] = []
        return self._client.create(kind, self._text(body), condition)

    def _named(self, body: Body) -> Body:
        """Return the body. If it has no name for another target to find it by, add its id as an identifier."""
        return id_as_name(body, self._ids_are) if self._ids_are and condition_of(body) is None else body

    def _text(self, body: Body) -> bytes:
        """Return the body with references as the target has them."""
        text = _json(body)
        if self._names:
            text = REFERENCE.sub(lambda found: f'"reference":"{self._names.get(found[1], found[1])}"', text)
        return text.encode()


REFERENCE = re.compile(r'"reference":"([^"\\]+)"')


def _json(body: Body) -> str:
    return json.dumps(body, ensure_ascii=False, separators=(",", ":"))


def _why_refused(error: Exception) -> tuple[str, str | None] | None:
    """Return why the target does not take a resource, with the expression; None if more than this one is concerned."""
    if isinstance(error, RequestRefused):
        said = error.reply.outcome or {}
        return said.get("diagnostics") or said.get("text") or str(error), said.get("expression")
    if isinstance(error, TooLarge):
        return HEAVY, None
    return (FAILS.format(error), None) if isinstance(error, TargetFailed) else None


def _tried(send: Callable[[], str | Reply], patience: RetryPauses) -> Outcome:
    """Send, and repeat with pauses while the target asks for that, and a few times while its answer is unclear.

    A repeat makes no second resource, since it is a PUT under an id or a conditional create.
    """
    attempts = Attempts(patience)
    while True:
        try:
            return send()
        except (RequestRefused, TooLarge) as error:
            return error
        except NoResult as error:
            is_last = attempts.number >= TRIES and error.retry_after is None
            if not attempts.next(error.retry_after, error.final or is_last):
                return error
