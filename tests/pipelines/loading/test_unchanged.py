"""Rows found unchanged in bulk: the ledger is as if each had been decided by itself."""

import json
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, cast
from unittest.mock import create_autospec

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.client.capabilities import Capabilities
from pipelines.client.steps import BARE, FREE_OF_RACES
from pipelines.feeds.files.catalog import load_feeds
from pipelines.home.progress import Progress
from pipelines.ledger import tables as t
from pipelines.ledger.lease import HeldRight
from pipelines.ledger.ledger import Ledger
from pipelines.ledger.reject_state import close_answered
from pipelines.ledger.rows import KnownRecord
from pipelines.ledger.standing import STATES_THERE, RecordContent, Standing, standing_of
from pipelines.ledger.states import ROW_STATES
from pipelines.loading import accepted, intake, unchanged
from pipelines.loading.accepted import LoadPart
from pipelines.loading.book import Book
from pipelines.loading.intake import Intake
from pipelines.loading.load import Load
from pipelines.loading.load_counts import BatchRun
from pipelines.loading.row import AcceptedRow
from pipelines.loading.unchanged import LeftOfPage, UnchangedRows
from pipelines.validation import tables
from tests.pipelines.conftest import NOON, Clock

TARGET = "urn:uuid:target"
OWN, OTHER, THIRD = "own-batch", "other-batch", "third-batch"
CAME = {THIRD: "2026-01-01", OWN: "2026-01-02", OTHER: "2026-01-03"}
OLD, NEW = "2026-02-01T00:00:00.000000Z", "2026-02-20T00:00:00.000000Z"
BETWEEN = "2026-02-10T00:00:00.000000Z"
KEYS = 60
KINDS = {"payments": ("reject", "skip"), "tasks": ("reject", "update"), "answers": ("reject", "supersede")}
Dice = random.Random


class Moved(Progress):
    """Counts the rows that are done."""

    def __init__(self) -> None:
        self.rows = 0

    def advance(self, rows: int) -> None:
        self.rows += rows


class Drawn(NamedTuple):
    """A ledger and a file, as they are drawn: rows of the tables, and of `accepted.parquet`."""

    feed: Any
    accepted: list[tuple[Any, ...]]
    records: list[dict[str, Any]]
    repeats: list[dict[str, Any]]
    rejects: list[dict[str, Any]]
    answers: list[tuple[int, str]]
    holds: list[tuple[Any, ...]]
    doubt: str | None
    part: LoadPart | None
    resuming: bool
    remap: bool
    taken_back: bool
    step: Any


def drawn(dice: Dice) -> Drawn:
    """Most records are there as their rows are, with each kind of difference in some."""
    kind = dice.choice([*KINDS])
    named = load_feeds().named(kind)
    assert named is not None
    feed = replace(named, file=named.file.model_copy(update={"changed": dice.choice(KINDS[kind])}))
    lines = dice.sample(range(2, 200), KEYS)
    rows = [row_of(dice, f"k{number}", line) for number, line in enumerate(lines)]
    keys = [row[2] for row in rows]
    known = dice.sample(rows, dice.choice([0, KEYS // 2, KEYS]))
    rejects = [reject_of(dice, number, dice.choice(rows)) for number in range(dice.choice([0, 6]))]
    return Drawn(
        feed,
        rows,
        [record_of(dice, row, feed.hash, lines) for row in known],
        [repeat_of(dice, line, dice.choice(keys)) for line in dice.sample(lines, 5)],
        rejects,
        [(dice.choice(lines), each["reject_id"]) for each in rejects if dice.random() < 0.5],
        [row_of(dice, f"h{number}", number + 2) for number in range(dice.choice([0, 0, 2]))],
        dice.choice([None, None, keys[0]]),
        dice.choice([None, LoadPart(dice.randrange(2), 2, dice.choice(["", BETWEEN]))]),
        dice.random() < 0.5,
        dice.random() < 0.5,
        dice.random() < 0.5,
        dice.choice([FREE_OF_RACES, BARE]),
    )


def row_of(dice: Dice, key: str, line: int) -> tuple[Any, ...]:
    lane, content = f"lane {dice.randrange(8)}", f"content of {key}"
    about = (f"p{dice.randrange(3)}", dice.choice([None, NOON]), dice.choice([None, 1050]))
    texts = dice.choice([None, f"text of {key} other of {key}"])
    return (line, 1, key, lane, line, content, *about, "{}", texts)


def record_of(dice: Dice, row: tuple[Any, ...], feed_hash: str, lines: Sequence[int]) -> dict[str, Any]:
    """A record of a row's key, mostly with what the row says."""
    line, _, key, _, _, content, patient, at, cents, *_ = row

    def mostly(usual: Any, *others: Any) -> Any:
        return usual if dice.random() < 0.9 else dice.choice(others)

    batch = dice.choice([OWN, OTHER])
    return {
        "key": key,
        "generation": mostly(1, 2),
        "batch_id": batch,
        "line": mostly(line, line + 500, dice.choice(lines)),
        "content_hash": mostly(content, content[:9], f"text of {key}", "other"),
        "feed_hash": mostly(feed_hash, "another feed"),
        "state": mostly("created", *ROW_STATES),
        "resource_id": mostly(f"id of {key}", None),
        "patient_id": mostly(patient, "p9", None),
        "source_at": mostly(at and at.strftime("%Y-%m-%dT%H:%M:%S.%fZ"), OLD, None),
        "amount_cents": mostly(cents, 7, None),
        "attempts": 1,
        "first_attempt_at": OLD,
        "finished_at": mostly(OLD, BETWEEN, NEW, None),
    }


def repeat_of(dice: Dice, line: int, key: str) -> dict[str, Any]:
    state = dice.choice(["unchanged", "skipped", "refused"])
    return {"line": line, "key": key, "state": state, "is_outcome": 1, "attempts": 0, "finished_at": OLD}


def reject_of(dice: Dice, number: int, row: tuple[Any, ...]) -> dict[str, Any]:
    return {
        "target": TARGET,
        "reject_id": f"r{number}",
        "batch_id": dice.choice([OWN, OTHER]),
        "line": row[0],
        "lines": 1,
        "source_key": row[2],
        "stage": "rule",
        "state": dice.choice(["open", "resubmitted", "closed", "discarded"]),
        "attempts": 1,
        "first_seen_at": OLD,
        "last_seen_at": OLD,
        "content_hash": dice.choice([row[5], "other", None]),
    }


def fill(ledger: Ledger, drawn: Drawn, home: Path) -> BatchRun:
    """Write what was drawn; return the batch whose rows are loaded."""
    feed = drawn.feed
    of = (feed.source, feed.resource)
    with ledger.transaction():
        for name in (OTHER, OWN, THIRD):
            ledger.start_batch(TARGET, name, source=of[0], resource_type=of[1], received_at=CAME[name])
            if name != THIRD or not drawn.holds:
                ledger.finish_batch(TARGET, name, "finished")
        stream, numbers = ledger.stream(TARGET, *of), {name: ledger.batch_number(TARGET, name) for name in (OWN, OTHER)}
        named: list[dict[str, Any]] = []
        for record in drawn.records:
            values = dict(record)
            values["batch_no"], values["feed_no"] = (
                numbers[values.pop("batch_id")],
                ledger.feed_version(values.pop("feed_hash")),
            )
            named.append(values | {"stream_id": stream})
        if named:
            ledger.execute(t.records.insert(), named)
        for repeat in drawn.repeats:
            ledger.execute(t.versions.insert(), [repeat | {"stream_id": stream, "batch_no": numbers[OWN]}])
        for reject in drawn.rejects:
            ledger.execute(t.reject.insert(), [reject | {"source": of[0], "resource_type": of[1]}])
        run = ledger.start_run(TARGET, OWN)
    folder = home / OWN / f"run-{run}"
    write(folder / "accepted.parquet", drawn.accepted, tables.ACCEPTED)
    write(folder / "skipped.parquet", [], tables.SKIPPED)
    write(folder / "rejects.parquet", [], tables.REJECTS)
    if drawn.answers:
        write(folder / "answers.parquet", drawn.answers, tables.ANSWERS)
    write(home / THIRD / "run-1" / "accepted.parquet", drawn.holds, tables.ACCEPTED)
    if drawn.holds:
        ledger.finish_run(TARGET, THIRD, ledger.start_run(TARGET, THIRD), state="stopped", counts={})
    validated = {"accepted": KEYS, "rejected": 0, "amount_accepted": 0}
    return BatchRun(
        *(TARGET, OWN, feed, folder, drawn.resuming),
        remap=drawn.remap,
        run=run,
        validated=validated,
        taken_back=drawn.taken_back,
        part=drawn.part,
    )


def write(path: Path, rows: list[tuple[Any, ...]], schema: pa.Schema) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    named = [dict(zip(schema.names, row, strict=False)) for row in rows]
    pq.write_table(pa.Table.from_pylist(named, schema), path)


def outcome(ledger: Ledger, batch: BatchRun, drawn: Drawn, updates: list[Any]) -> dict[str, Any]:
    """Return what the intake of a batch yields and writes, if none of its rows is sent."""
    progress = Moved()
    lease = create_autospec(HeldRight, instance=True)
    load = Load(batch, cast(Any, None), Capabilities(), drawn.step, ledger, lease, progress)
    book = Book(load)
    if drawn.doubt:
        book.loaded.count(drawn.doubt, "in_doubt", 1)
    taker = Intake(book)
    taker.free({"k1", "k2"})
    rows = list(taker.rows_to_send())
    taker.write_unchanged()
    close_answered(ledger, load.of, batch.batch_id)
    return {
        "rows": rows,
        "loaded": book.loaded,
        "undecided": book.loaded.undecided,
        "stopped": book.stopped,
        "refused": book.refused,
        "updates": updates.copy(),
        "moved": progress.rows,
        "tables": {name: sorted(map(repr, found.to_pylist())) for name, found in ledger.tables().items()},
    }


@pytest.fixture(params=["sqlite", "postgresql"])
def two_ledgers(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], tuple[Ledger, Ledger]]]:
    """Makes two empty ledgers of one clock, anew at each call."""
    with ExitStack() as stack:

        def address(number: int) -> str | Path:
            if request.param == "sqlite":
                return tmp_path / f"ledger-{number}.db"
            model = request.getfixturevalue("ledger_on_server")
            return str(stack.enter_context(request.getfixturevalue("postgres").database(like=model)))

        def make() -> tuple[Ledger, Ledger]:
            made = [Ledger.open(address(number), Clock()) for number in range(2)]
            return cast(tuple[Ledger, Ledger], tuple(stack.enter_context(closing(each)) for each in made))

        yield make


@pytest.mark.by_hand
@pytest.mark.parametrize("seed", range(160))
def test_rows_found_unchanged_in_bulk_have_the_outcome_of_a_row_by_row_decision(
    seed: int, two_ledgers: Callable[[], tuple[Ledger, Ledger]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LEDGER-02, LEDGER-08, LEDGER-17"""
    drawn_now, updates = drawn(Dice(seed)), list[Any]()
    monkeypatch.setattr(accepted, "ROWS_A_LOOK", 17)
    monkeypatch.setattr(unchanged, "ROWS_A_COMMIT", 20 if seed % 2 else 20_000)
    monkeypatch.setattr(intake, "update_tasks", lambda _, some: updates.append(some) if some else None)
    told, singly = two_ledgers()
    at_once = outcome(told, fill(told, drawn_now, tmp_path / "told"), drawn_now, updates)
    updates.clear()
    monkeypatch.setattr(
        UnchangedRows, "note", lambda _, page, __: LeftOfPage(page, set(page.column("key").to_pylist()))
    )
    assert at_once == outcome(singly, fill(singly, drawn_now, tmp_path / "singly"), drawn_now, updates)


def a_file_that_came_before(dice: Dice, drawn: Drawn, batch: str) -> Drawn:
    """All rows are there, from a batch."""
    records = [record_of(dice, row, drawn.feed.hash, [2]) for row in drawn.accepted]
    plain = [
        record | {"state": "created", "content_hash": row[5], "patient_id": row[6], "amount_cents": row[8]}
        | {"source_at": None, "line": row[0], "batch_id": batch, "feed_hash": drawn.feed.hash, "finished_at": OLD}
        for record, row in zip(records, drawn.accepted, strict=True)
    ]  # fmt: skip
    rows = [(*row[:7], None, *row[8:]) for row in drawn.accepted]
    return drawn._replace(accepted=rows, records=plain, holds=[], doubt=None, part=None, repeats=[], rejects=[])


@pytest.mark.by_hand
@pytest.mark.parametrize("batch", [OWN, OTHER])
def test_rows_that_came_before_are_not_made_rows_one_by_one(
    batch: str, two_ledgers: Callable[[], tuple[Ledger, Ledger]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LEDGER-02: nor is anything but what is new asked for."""
    dice = Dice(1)
    new = row_of(dice, "new", 1000)
    before = a_file_that_came_before(dice, drawn(dice), batch)._replace(answers=[])
    before = before._replace(accepted=[*before.accepted, new])
    ledger, _ = two_ledgers()
    asked = list[list[str]]()
    known = Ledger.known

    def noted_known(self: Ledger, *of: Any) -> dict[str, KnownRecord]:
        asked.append(list(of[-1]))
        return known(self, *of)

    monkeypatch.setattr(Ledger, "known", noted_known)
    found = outcome(ledger, fill(ledger, before, tmp_path), before, [])
    assert ([row.key for row in found["rows"]], found["loaded"].counts) == (["new"], {"unchanged": KEYS})
    assert asked == [[]]
    noted = [(each["key"], each["state"]) for each in ledger.tables()["repeat"].to_pylist()]
    assert len(noted) == (KEYS if batch == OTHER else 0)


@pytest.mark.by_hand
def test_rows_of_several_pages_are_written_in_one_commit_in_the_order_of_their_lines(
    two_ledgers: Callable[[], tuple[Ledger, Ledger]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LEDGER-08"""
    dice = Dice(1)
    before = a_file_that_came_before(dice, drawn(dice), OTHER)._replace(answers=[])
    ledger, _ = two_ledgers()
    written, note = list[list[int]](), Ledger.note_unchanged

    def noted(self: Ledger, *said: Any) -> None:
        written.append(said[-2])
        note(self, *said)

    monkeypatch.setattr(accepted, "ROWS_A_LOOK", 17)
    monkeypatch.setattr(Ledger, "note_unchanged", noted)
    outcome(ledger, fill(ledger, before, tmp_path), before, [])
    assert written == [sorted(row[0] for row in before.accepted)]


@pytest.mark.by_hand
def test_no_page_is_read_once_the_load_is_ending(
    two_ledgers: Callable[[], tuple[Ledger, Ledger]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C waits for what is read until a row is to be sent, which may be never."""
    before = drawn(Dice(1))._replace(part=None)
    ledger, _ = two_ledgers()
    read, note = list[int](), UnchangedRows.note

    def interrupted(self: UnchangedRows, page: pa.RecordBatch, held: Any) -> LeftOfPage:
        read.append(page.num_rows)
        self._book.is_ending = lambda: True
        return note(self, page, held)

    monkeypatch.setattr(accepted, "ROWS_A_LOOK", 17)
    monkeypatch.setattr(UnchangedRows, "note", interrupted)
    monkeypatch.setattr(intake, "update_tasks", lambda *_: None)
    outcome(ledger, fill(ledger, before, tmp_path), before, [])
    assert read == [17]


def test_closing_facts_are_written_to_the_journal_only_for_open_rejects(
    home: Path, asked: Callable[..., dict[str, Any]]
) -> None:
    """LEDGER-17: a fact used to list each of a million keys."""
    header = "task_id,patient_id,description,status,requester_id\n"
    (home / "inbox" / "tasks-1.csv").write_text(f"{header}t1,p1,call,requested,a\nt2,p1,call,odd,a\n")
    asked("import")
    assert "write_states" not in (home / "journal.ndjson").read_text()
    (home / "inbox" / "tasks-2.csv").write_text(f"{header}t1,p1,call,requested,a\nt2,p1,call,requested,a\n")
    asked("import")
    told = [line for line in (home / "journal.ndjson").read_text().splitlines() if "write_states" in line]
    [[_, [[state, batch, *_]]]] = [json.loads(line)["facts"][0] for line in told]
    assert (state, batch[:6]) == ("closed", "tasks-")


def test_a_record_is_there_in_the_states_that_its_standing_says() -> None:
    """LEDGER-18"""
    record = KnownRecord("k", 1, "b", 2, "h", "f", "", None, None, None, None, None, None)
    there = [state for state in ROW_STATES if standing_of(record._replace(state=state)) is Standing.THERE]
    assert list(STATES_THERE) == there


def test_an_accepted_row_has_every_field_of_a_record_content() -> None:
    """Both are compared field by field."""
    assert set(RecordContent._fields) <= set(AcceptedRow._fields)
