"""Fault runs: an import with one fault, the recovery, and the comparison of store, ledger and source.

A cell of the table is a kind of target, an operation and a moment (`proxy.py`); a run of it has a number.
"""

import multiprocessing
import os
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from fhir_service.interface.site import Site
from pipelines.client.client import FhirClient
from pipelines.client.pace import Pace, RetryPauses
from pipelines.client.replies import TargetUnusable
from pipelines.client.tokens import Credentials
from pipelines.corrections.decisions import accept, resend
from pipelines.corrections.undo import undo
from pipelines.feeds.files.catalog import home_catalog
from pipelines.home.preparing import prepare_home
from pipelines.ledger.doubts import doubtful
from pipelines.ledger.ledger import Ledger
from pipelines.ledger.rows import RecordRow
from pipelines.ledger.states import OUTCOMES
from pipelines.runs.batch import import_file
from pipelines.runs.doubt_lookups import BY_ITSELF, resolve
from pipelines.session.connections import TargetConnection
from pipelines.session.opening import session_at
from pipelines.session.session import Session
from pipelines.session.waiting_files import find_files, unfinished
from pipelines.verifying.verify import verify_target
from tests.faults.proxy import MOMENTS, OPERATIONS, Fault, Proxy
from tests.faults.service import Target, serving
from tests.faults.world import (
    PAYMENTS,
    RESPONSES,
    TASKS,
    Source,
    change_responses,
    change_tasks,
    content,
    first_exports,
    write_feeds,
    write_world,
)

BARE, WITH_ADDITIONS = "bare", "with additions"
DIES = "after the answer, before the ledger"
HELD = "held past the time-out"
TWICE = "delivered twice"
NO_CELLS = {
    (WITH_ADDITIONS, "create"): "rows go in bundles",
    (BARE, "batch"): "the interface has no bundles",
}
"""Operations that a kind of target never sees, with the reason."""

PATIENT_SECONDS, HELD_SECONDS = 60.0, 1.0
CHANGES = ("update", "supersede", "undo")
KINDS = ("PaymentNotice", "Task", "QuestionnaireResponse")
CHILDREN = multiprocessing.get_context("forkserver")
TRIES = 6


class Cell(NamedTuple):
    """One cell of the table."""

    target: str
    operation: str
    moment: str

    @property
    def bare(self) -> bool:
        return self.target == BARE


CELLS = [
    Cell(target, operation, moment)
    for target in (WITH_ADDITIONS, BARE)
    for operation in OPERATIONS
    for moment in MOMENTS
    if (target, operation) not in NO_CELLS
]


@dataclass
class Outcome:
    """The outcome of a run. wrong: the disagreements at the end. by_hand: the number of rows that a person decided.

    doubled: second resources that the network made, each named by `verify`.
    """

    cell: Cell
    number: int
    fired: bool = False
    wrong: list[str] = field(default_factory=list)
    by_hand: int = 0
    doubled: int = 0


# -- the importer


class Importer(NamedTuple):
    """An importer of one home: where its target is, and how long it waits for an answer."""

    home: Path
    url: str
    target_url: str
    credentials: Credentials
    timeout: float = PATIENT_SECONDS
    settling: float = 900.0
    longest_pause: float = 0.05

    @contextmanager
    def session(self) -> Iterator[Session]:
        """A session as `chartferry` opens it, with shorter pauses."""
        prepare_home(self.home)
        longest = self.longest_pause
        patience = RetryPauses(first=longest / 5, longest=longest, sleep=lambda pause: time.sleep(min(pause, longest)))
        client = FhirClient(self.url, self.credentials, self.timeout, patience)
        ledger = Ledger.open(self.home / "ledger.db")
        try:
            capabilities = client.capabilities()
            client.check_access()
            connection = TargetConnection(client, capabilities, self.url, Site(self.target_url), bundled=False)
            catalog = home_catalog(self.home, {})
            yield session_at(connection, self.home, catalog, ledger, pace=Pace(settling_seconds=self.settling))
        finally:
            ledger.close()
            client.close()

    def load(self) -> None:
        """Import unfinished batches and the inbox like `chartferry import`, without publishing."""
        with self.session() as session:
            for waiting in [*unfinished(session), *find_files([self.home / "inbox"], session.catalog)[0]]:
                if import_file(session, waiting).unusable:
                    return

    def take_back(self) -> None:
        """`chartferry undo` of every batch of tasks and responses."""
        with self.session() as session:
            for batch in session.ledger.batches(session.target):
                if batch["resource_type"] != "PaymentNotice":
                    undo(session, batch["batch_id"], dry_run=False)


Work = Callable[[Importer], None]


def in_child(importer: Importer, work: Work) -> None:
    """The work in a process of its own, whose complaints nobody reads."""
    with Path(os.devnull).open("w") as nothing:
        os.dup2(nothing.fileno(), 2)
    work(importer)


def to_its_end(importer: Importer, work: Work) -> None:
    """The work in this process; an importer that could not use its target has ended with a sentence."""
    try:
        work(importer)
    except TargetUnusable:
        return


def killed_at_the_answer(importer: Importer, work: Work, proxy: Proxy, **plan: Any) -> None:
    """The work in a process of its own, which SIGKILL ends when the proxy says so."""
    child = CHILDREN.Process(target=in_child, args=(importer, work))
    proxy.plan(**plan, killed=child.kill)
    child.start()
    child.join()


# -- a run


def run(cell: Cell, number: int, target: Target, proxy: Proxy, home: Path) -> Outcome:
    """One run of a cell. `number` chooses everything: its rows, what goes wrong, and where."""
    dice = random.Random(f"{cell} {number}")
    outcome = Outcome(cell, number)
    timeout = HELD_SECONDS if cell.moment == HELD else PATIENT_SECONDS
    importer = Importer(home, proxy.url, target.url, target.credentials, timeout)
    patient_one = importer._replace(timeout=PATIENT_SECONDS)
    (home / "inbox").mkdir(parents=True)
    write_feeds(home)
    source = first_exports(home, number, dice)
    work: Work = Importer.load
    sent_as = cell.operation
    if cell.operation == "update":
        proxy.plan([])
        patient_one.load()
        change = dice.choice(CHANGES)
        work = prepare_change(change, home, source, dice)
        _wait_for_another_second()
        if change == "undo" and not cell.bare:
            sent_as = "batch"
    faults, expires = _faults(cell._replace(operation=sent_as), dice)
    if cell.moment == DIES:
        killed_at_the_answer(importer, work, proxy, faults=faults, expires=expires)
    else:
        proxy.plan(faults, expires=expires)
        to_its_end(importer, work)
    proxy.deliver()
    outcome.fired, doubled = faults[-1].fired, set(proxy.doubled)
    proxy.plan([])
    recover(patient_one._replace(settling=0.0), work, target, source, outcome)
    outcome.wrong += disagreements(patient_one, target, source, doubled)
    outcome.doubled = len(doubled)
    outcome.wrong += [] if outcome.fired else ["nothing went wrong on the way"]
    return outcome


def prepare_change(change: str, home: Path, source: Source, dice: random.Random) -> Work:
    """Change the content of the source after a first load. Return the work that brings it to the target."""
    if change == "undo":
        for key, wanted in source.wanted.items():
            if wanted[0] == "Task":
                source.wanted[key] = (*wanted[:3], "cancelled", wanted[4])
            elif wanted[0] == "QuestionnaireResponse":
                source.wanted[key] = (*wanted[:3], "entered-in-error")
        return Importer.take_back
    (change_tasks if change == "update" else change_responses)(home, source, dice, "second")
    return Importer.load


def _wait_for_another_second() -> None:
    """`If-Unmodified-Since` tells seconds: what was loaded is to be older than what changes it."""
    time.sleep(1.05 - time.time() % 1)


def _faults(cell: Cell, dice: random.Random) -> tuple[list[Fault], int | None]:
    """Return the fault of a run, after the faults that must come before it; see `Proxy.plan`."""
    rows = {"create": PAYMENTS + TASKS + RESPONSES, "batch": len(KINDS), "update": min(TASKS, RESPONSES)}
    expires = None
    before: list[Fault] = []
    nth = dice.randint(1, rows.get(cell.operation, 1))
    if cell.operation == "token" and dice.random() < 0.5:
        nth, expires = 2, dice.randint(1, len(KINDS))
    if cell.operation == "look-up" and not cell.bare:
        before = [Fault("batch", "after commit", dice.randint(1, len(KINDS)), dice)]
    if cell.operation == "look-up" and cell.bare and dice.random() < 0.5:
        before = [Fault("create", "after commit", dice.randint(1, PAYMENTS), dice)]
        nth = dice.randint(1, 3)
    return [*before, Fault(cell.operation, cell.moment, nth, dice)], expires


# -- the recovery


def recover(importer: Importer, work: Work, target: Target, source: Source, outcome: Outcome) -> None:
    """The work again; then what is left to a person is decided by what the store has, and imported again."""
    for _ in range(TRIES):
        work(importer)
        with importer.session() as session:
            left = [doubt for doubt in doubtful(session.ledger, session.target) if not doubt.is_change]
            if not left:
                return
            listed = resolve(session).left
            for doubt in doubtful(session.ledger, session.target):
                if doubt.name not in listed:
                    outcome.wrong.append(f"{doubt.key} is in doubt and not listed")
                elif not doubt.is_change and listed[doubt.name] not in BY_ITSELF:
                    decide(session, target, source, doubt)
                    outcome.by_hand += 1


def decide(session: Session, target: Target, source: Source, doubt: RecordRow) -> None:
    """A person looks into the chart: is there what the row says, that is no other row's?"""
    records = session.ledger.tables()["record"].to_pylist()
    known = {record["resource_id"] for record in records}
    there = target.all_of(doubt.resource_type, source.patients)
    alike = [found for found, body in there.items() if content(body) == source.wanted[doubt.key] and found not in known]
    if alike:
        accept(session, doubt.name, alike[0])
    else:
        resend(session, doubt.name)


# -- the end


def disagreements(importer: Importer, target: Target, source: Source, doubled: set[str]) -> list[str]:
    """Return the disagreements of store, ledger and source, to the row and the cent."""
    there = {found: body for kind in KINDS for found, body in target.all_of(kind, source.patients).items()}
    with importer.session() as session:
        tables = {name: session.ledger.tables()[name].to_pylist() for name in ("record", "former")}
        batches = session.ledger.batches(session.target)
        differences = verify_target(session).differences
    records = {record["key"]: record for record in tables["record"]}
    wrong = [f"{key}: no record" for key in source.wanted.keys() - records.keys()]
    wrong += [f"{key}: {record['state']}" for key, record in records.items() if record["state"] not in ENDED]
    for key, record in records.items():
        body = there.get(record["resource_id"])
        if body is None or content(body) != source.wanted.get(key):
            wrong.append(f"{key}: the store has {body and content(body)} for {source.wanted.get(key)}")
    ids = [record["resource_id"] for record in records.values()]
    ours = {*ids, *(former["resource_id"] for former in tables["former"])}
    wrong += [f"{len(ids) - len(set(ids))} resources are two rows'"] if len(set(ids)) < len(ids) else []
    wrong += [f"{there[found]['resourceType']}/{found}: not ours" for found in there.keys() - ours - doubled]
    standing = {former["resource_id"] for former in tables["former"]} - set(ids)
    wrong += [f"{found}: still stands" for found in standing & there.keys() if there[found]["status"] in STANDING]
    told = {each.resource_id for each in differences if each.kind == "double"}
    left = [each for each in differences if each.resource_id not in doubled]
    wrong += [f"{found}: a double that verify does not name" for found in doubled - told]
    wrong += [each.line() for each in left if each.resource_id in there or each.row]
    return wrong + [f"{b['batch_id']}: {b['state']} does not close" for b in batches if not _closes(b)]


ENDED = ("created", "adopted", "updated", "superseded", "undone")
STANDING = ("completed", "requested")


def _closes(batch: dict[str, Any]) -> bool:
    accepted = sum(batch[name] for name in OUTCOMES)
    return bool(batch["state"] == "finished" and batch["records"] == batch["accepted"] + batch["rejected"] == accepted)


# -- many runs


@contextmanager
def place(folder: Path, bare: bool, runs: int) -> Iterator[Callable[[Cell, int], Outcome]]:
    """A service with people for that many runs and a proxy before it: gives what does one run, by its number there."""
    world = write_world(folder / "world", runs)
    (folder / "service").mkdir()
    with serving(folder / "service", world, bare) as target, Proxy(target.url) as proxy:
        yield lambda cell, number: run(cell, number, target, proxy, folder / f"home-{number}")
