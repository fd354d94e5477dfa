"""The ledger: intents and outcomes, repeats, rejects, and runs."""

from datetime import timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa

from pipelines.ledger import tables as t
from pipelines.ledger.doubts import forget_sightings, undecided
from pipelines.ledger.former_versions import intend_change, plan_anew, restore
from pipelines.ledger.lease import utc_text
from pipelines.ledger.ledger import Ledger
from pipelines.ledger.reject_state import close_answered
from pipelines.ledger.rows import KnownRecord, Outcome, Reason, Reject, Repeat, Sighting, reject_id
from pipelines.ledger.standing import undone_at
from pipelines.ledger.states import RowState
from pipelines.ledger.tables import LedgerError
from tests.pipelines.conftest import NOON, Clock
from tests.support.ledgers import OF, PAID, TARGET, intent, start, states


@pytest.fixture
def ledger(ledger: Ledger) -> Ledger:
    """A ledger that has begun two batches."""
    start(ledger, "payments-a", "payments-b")
    return ledger


def test_an_intent_is_on_the_disk_before_its_outcome_is_known(ledger: Ledger, address: str | Path) -> None:
    """LEDGER-01, LEDGER-04: `sending` is committed durably first, and any other connection reads it."""
    with ledger.lease(TARGET) as lease:
        ledger.intend(lease, *OF, [intent("k1"), intent("k2", 3)])
        other = Ledger.open(address)
        assert states(other, "k1", "k2") == ["sending", "sending"]
        other.close()
        ledger.settle(TARGET, *OF, [Outcome("k1", 1, "created", "id-1", 201), Outcome("k2", 1, "refused", None, 422)])
    if ledger.engine.dialect.name == "sqlite":
        assert isinstance(address, Path)
        assert b'"intend"' in address.with_name("journal.ndjson").read_bytes()
        with ledger.engine.connect() as connection:
            assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
    now = utc_text(NOON)
    assert ledger.known(TARGET, *OF, ["k1", "none"]) == {
        "k1": KnownRecord("k1", 1, "payments-a", 2, "h1", "f1", "created", "id-1", "p1", PAID, 1050, now, now)
    }
    [kept, _] = ledger.tables()["record"].to_pylist()
    assert (kept["attempts"], kept["http_status"]) == (1, 201)
    assert ledger.row_counts(TARGET, "payments-a") == {"created": (1, 1050), "refused": (1, 1050)}


def test_a_record_that_is_known_cannot_be_intended_as_new(ledger: Ledger) -> None:
    """LEDGER-01: the ledger refuses a second intent of one generation, and then writes no intent of the bundle."""
    with ledger.lease(TARGET) as lease:
        ledger.intend(lease, *OF, [intent("k1")])
        with pytest.raises(sa.exc.IntegrityError) as caught:
            ledger.intend(lease, *OF, [intent("k2", 3), intent("k1", 4)])
        assert "k1" not in str(caught.value)
        assert set(ledger.known(TARGET, *OF, ["k1", "k2"])) == {"k1"}


def test_a_record_that_is_being_sent_cannot_be_intended_again(ledger: Ledger) -> None:
    """LEDGER-01: the other sender may have created it."""
    with ledger.lease(TARGET) as lease:
        ledger.intend(lease, *OF, [intent("k1")])
        with pytest.raises(LedgerError, match="0 of 1"):
            ledger.intend_again(lease, *OF, [intent("k1")])


def test_a_record_is_identified_by_target_source_resource_and_key(ledger: Ledger) -> None:
    """LEDGER-01"""
    ledger.start_batch("other", "payments-a")
    with ledger.lease(TARGET) as lease, ledger.lease("other") as elsewhere:
        ledger.intend(lease, *OF, [intent("k", generation=2)])
        ledger.intend(lease, "shop", "PaymentNotice", [intent("k")])
        ledger.intend(lease, "default", "Task", [intent("k")])
        ledger.intend(elsewhere, *OF, [intent("k")])
        ledger.settle("other", *OF, [Outcome("k", 1, "created", "x")])
    assert ledger.known(TARGET, *OF, ["k"])["k"].generation == 2
    assert ledger.known("other", *OF, ["k"])["k"].state == "created"
    assert ledger.known(TARGET, "default", "Task", ["k"])["k"].state == "sending"


def test_the_last_undo_of_a_batch_at_its_target_counts(ledger: Ledger, clock: Clock) -> None:
    """LEDGER-18: the reason of a row that was taken back names that undo."""
    for target, command in [(TARGET, "undo")] * 2 + [("other", "undo"), (TARGET, "purge")]:
        clock.pass_seconds(60)
        ledger.note_decisions(target, "user", command, ["payments-a", "payments-b"], None)
    assert undone_at(ledger, TARGET, ["payments-a"]) == {"payments-a": utc_text(NOON + timedelta(minutes=2))}


def test_an_outcome_for_an_unknown_record_is_an_error(ledger: Ledger) -> None:
    with pytest.raises(LedgerError, match="0 of 1"):
        ledger.settle(TARGET, *OF, [Outcome("never", 1, "created")])


def test_a_record_in_doubt_is_tried_again_where_it_stands(ledger: Ledger) -> None:
    """LEDGER-05: the record gets another attempt, and keeps its first batch and line."""
    with ledger.lease(TARGET) as lease:
        ledger.intend(lease, *OF, [intent("k1", 2, "payments-a")])
        ledger.settle(TARGET, *OF, [Outcome("k1", 1, "in_doubt")])
        assert [each.key for each in undecided(ledger, TARGET)] == ["k1"]
        ledger.intend_again(lease, *OF, [intent("k1", 9, "payments-b")])
        assert ledger.read(sa.select(t.repeat.c.line)) == []
        ledger.settle(TARGET, *OF, [Outcome("k1", 1, "created", "id-1", 200)])
    [kept] = ledger.tables()["record"].to_pylist()
    assert [kept[name] for name in ("batch_id", "line", "attempts", "state")] == ["payments-a", 2, 2, "created"]
    assert undecided(ledger, TARGET) == []


@pytest.mark.parametrize(("content", "place"), [("h1", ("payments-a", 2)), ("h2", ("payments-b", 9))])
def test_a_record_belongs_to_the_line_that_was_sent(ledger: Ledger, content: str, place: tuple[str, int]) -> None:
    """LEDGER-02: if another line with other content is sent, a record that was not sent before moves there."""
    with ledger.lease(TARGET) as lease:
        ledger.intend(lease, *OF, [intent("k1", 2, "payments-a", "h1")])
        ledger.settle(TARGET, *OF, [Outcome("k1", 1, "planned")])
        ledger.intend_again(lease, *OF, [intent("k1", 9, "payments-b", content)])
        ledger.settle(TARGET, *OF, [Outcome("k1", 1, "created", "id-1", 201)])
    known = ledger.known(TARGET, *OF, ["k1"])["k1"]
    assert (known.batch_id, known.line) == place
    assert ledger.row_counts(TARGET, place[0]) == {"created": (1, 1050)}
    assert ledger.read(sa.select(t.repeat.c.line)) == []


def test_a_refused_record_corrected_in_another_file_keeps_its_first_outcome_there(ledger: Ledger) -> None:
    """LEDGER-02: the first batch still shows the refusal, the second the creation."""
    with ledger.lease(TARGET) as lease:
        ledger.intend(lease, *OF, [intent("k1", 2, "payments-a")])
        ledger.settle(TARGET, *OF, [Outcome("k1", 1, "refused", None, 422)])
        ledger.intend_again(lease, *OF, [intent("k1", 2, "payments-a")])
        ledger.settle(TARGET, *OF, [Outcome("k1", 1, "refused", None, 422)])
        assert ledger.read(sa.select(t.repeat.c.line)) == []
        ledger.intend_again(lease, *OF, [intent("k1", 5, "payments-b", "h2")])
        ledger.settle(TARGET, *OF, [Outcome("k1", 1, "created", "id-1", 201)])
    assert ledger.row_counts(TARGET, "payments-a") == {"refused": (1, 1050)}
    assert ledger.row_counts(TARGET, batch_id="payments-b") == {"created": (1, 1050)}


def test_a_record_that_is_changed_on_its_line_keeps_its_first_outcome_there(ledger: Ledger) -> None:
    """LEDGER-02: as by `import --remap`, also after another file has changed it."""

    def change(line: int, batch: str, content: str) -> None:
        intend_change(ledger, lease, *OF, [(1, intent("k1", line, batch, content))])
        ledger.settle(TARGET, *OF, [Outcome("k1", 1, "updated", "id-1", 200)])

    with ledger.lease(TARGET) as lease:
        ledger.intend(lease, *OF, [intent("k1", 2, "payments-a")])
        ledger.settle(TARGET, *OF, [Outcome("k1", 1, "created", "id-1", 201)])
        change(2, "payments-a", "h2")
        assert ledger.row_counts(TARGET, "payments-a") == {"created": (1, 1050)}
        assert ledger.read(sa.select(t.repeat.c.line)) == []
        change(5, "payments-b", "h3")
    assert ledger.row_counts(TARGET, "payments-a") == {"created": (1, 1050)}
    assert ledger.row_counts(TARGET, "payments-b") == {"updated": (1, 1050)}


def test_a_row_that_was_loaded_again_counts_by_its_first_outcome_after_a_later_file_too(ledger: Ledger) -> None:
    """LEDGER-02: as by `undo`, `import --again` and a file that updates the record."""
    with ledger.lease(TARGET) as lease:
        ledger.intend(lease, *OF, [intent("k1", 2, "payments-a")])
        ledger.settle(TARGET, *OF, [Outcome("k1", 1, "adopted", "id-1", 200)])
        plan_anew(ledger, lease, [(*OF, "k1", 1)], "withdrawn")
        ledger.settle(TARGET, *OF, [Outcome("k1", 2, "created", "id-2", 201)])
        before = ledger.row_counts(TARGET, "payments-a")
        intend_change(ledger, lease, *OF, [(2, intent("k1", 5, "payments-b", "h2", 2))])
        ledger.settle(TARGET, *OF, [Outcome("k1", 2, "updated", "id-2", 200)])
    assert ledger.row_counts(TARGET, "payments-a") == before == {"adopted": (1, 1050)}


@pytest.mark.parametrize(("came", "counted"), [("updated", "updated"), ("refused", "skipped")])
def test_a_row_that_was_noted_and_then_changed_its_record_counts_by_what_came_of_that(
    ledger: Ledger, came: RowState, counted: str
) -> None:
    """LEDGER-02: as by `import --remap` of rows that were skipped, also after a later file has changed the record."""
    with ledger.lease(TARGET) as lease:
        ledger.intend(lease, *OF, [intent("k1", 2, "payments-a")])
        ledger.settle(TARGET, *OF, [Outcome("k1", 1, "created", "id-1", 201)])
        ledger.note_repeats(TARGET, *OF, "payments-b", [Repeat(5, "k1", "skipped", "id-1", "p1", PAID, 1050)])
        for line, batch, state in ((5, "payments-b", came), (2, "payments-a", "updated")):
            intend_change(ledger, lease, *OF, [(1, intent("k1", line, batch, f"h{line}"))])
            ledger.settle(TARGET, *OF, [Outcome("k1", 1, state, "id-1", 200)])
    assert ledger.row_counts(TARGET, "payments-b") == {counted: (1, 1050)}
    assert ledger.row_counts(TARGET, "payments-a") == {"created": (1, 1050)}


@pytest.mark.parametrize(
    ("generation", "resource", "fate"), [(1, "id-1", "kept"), (2, None, "standing")], ids=["update", "supersede"]
)
def test_a_superseding_record_in_doubt_does_not_have_the_id_of_the_former_resource(
    ledger: Ledger, generation: int, resource: str | None, fate: str
) -> None:
    """LEDGER-08: otherwise a record in doubt would be taken for the former resource, which is to be taken back."""
    with ledger.lease(TARGET) as lease:
        ledger.intend(lease, *OF, [intent("k1", 2, "payments-a")])
        ledger.settle(TARGET, *OF, [Outcome("k1", 1, "created", "id-1", 201)])
        intend_change(ledger, lease, *OF, [(1, intent("k1", 5, "payments-b", "h2", generation))])
        ledger.settle(TARGET, *OF, [Outcome("k1", generation, "in_doubt")])
    assert ledger.known(TARGET, *OF, ["k1"])["k1"].resource_id == resource
    assert ledger.read(sa.select(t.former.c.resource_id, t.former.c.fate)) == [("id-1", fate)]


def test_a_record_whose_change_is_refused_gets_its_last_content_back(ledger: Ledger) -> None:
    """LEDGER-08: not its first."""
    with ledger.lease(TARGET) as lease:
        ledger.intend(lease, *OF, [intent("k1", 2, "payments-a")])
        ledger.settle(TARGET, *OF, [Outcome("k1", 1, "created", "id-1", 201)])
        intend_change(ledger, lease, *OF, [(1, intent("k1", 5, "payments-b", "h2"))])
        ledger.settle(TARGET, *OF, [Outcome("k1", 1, "updated", "id-1", 200)])
        before = ledger.known(TARGET, *OF, ["k1"])
        intend_change(ledger, lease, *OF, [(1, intent("k1", 9, "payments-a", "h3"))])
        restore(ledger, TARGET, *OF, ["k1"])
    assert ledger.known(TARGET, *OF, ["k1"]) == before


def test_repeats_are_noted_once_and_never_over_a_first_outcome(ledger: Ledger) -> None:
    """LEDGER-02, LEDGER-03"""
    with ledger.lease(TARGET) as lease:
        ledger.intend(lease, *OF, [intent("k1", 2, "payments-a")])
        ledger.settle(TARGET, *OF, [Outcome("k1", 1, "created", "id-1", 201)])
    same_line = [Repeat(2, "k1", "unchanged", "id-1", "p1", PAID, 1050)]
    ledger.note_repeats(TARGET, *OF, "payments-a", same_line)
    for _ in range(2):
        ledger.note_repeats(TARGET, *OF, "payments-b", same_line)
    assert ledger.row_counts(TARGET, "payments-a") == {"created": (1, 1050)}
    assert ledger.row_counts(TARGET, batch_id="payments-b") == {"unchanged": (1, 1050)}


def test_a_reject_met_again_is_the_same_reject_with_the_reasons_of_today(ledger: Ledger, clock: Clock) -> None:
    """LEDGER-07"""
    first = Reject(7, 2, "k7", "rule", "p1", PAID, 100, [Reason("PAY-1", "PaymentNotice.amount", "amount", "m", False)])
    later = first._replace(
        stage="load", reasons=[Reason("PAY-2", None, None, "n", True), Reason("X", None, None, "o", True)]
    )
    [name] = ledger.reject(TARGET, *OF, "payments-a", [first])
    clock.pass_seconds(60)
    assert ledger.reject(TARGET, *OF, "payments-a", [later]) == [name] == [reject_id(TARGET, "payments-a", 7, "k7")]
    tables = ledger.tables()
    [row] = tables["reject"].to_pylist()
    assert row == {
        "target": TARGET, "reject_id": name, "batch_id": "payments-a", "line": 7, "lines": 2, "source": "default",
        "resource_type": "PaymentNotice", "source_key": "k7", "stage": "load", "state": "open", "attempts": 2,
        "content_hash": None, "first_seen_at": utc_text(NOON), "last_seen_at": utc_text(NOON + timedelta(seconds=60)),
        "closed_by_batch": None, "patient_id": "p1", "source_at": PAID, "amount_cents": 100, "tried_since": None,
    }  # fmt: skip
    reasons = tables["reject_reason"].to_pylist()
    assert [(r["position"], r["rule_id"], r["retryable"]) for r in reasons] == [(0, "PAY-2", 1), (1, "X", 1)]


def test_a_record_of_a_later_file_closes_the_open_rejects_of_its_key(ledger: Ledger, clock: Clock) -> None:
    """LEDGER-07"""
    start(ledger, "payments-a", "payments-b")
    rejects = [Reject(n, 1, key, "rule", None, None, None, []) for n, key in enumerate(["k1", "k2", None], 2)]
    names = ledger.reject(TARGET, *OF, "payments-a", rejects)
    clock.pass_seconds(60)
    with ledger.lease(TARGET) as lease:
        ledger.intend(lease, *OF, [intent("k1")._replace(batch_id="payments-b")])
        ledger.settle(TARGET, *OF, [Outcome("k1", 1, "created", "id-1", 201)])
    for _ in range(2):
        close_answered(ledger, (TARGET, *OF), "payments-b")
        rows = {r["reject_id"]: (r["state"], r["closed_by_batch"]) for r in ledger.tables()["reject"].to_pylist()}
        assert rows == {names[0]: ("closed", "payments-b"), names[1]: ("open", None), names[2]: ("open", None)}
        ledger.reject(TARGET, *OF, "payments-a", rejects[:1])


def test_batches_keep_their_counts_and_runs_are_numbered(ledger: Ledger, clock: Clock) -> None:
    """LEDGER-02"""
    assert ledger.start_batch(TARGET, "payments-c", feed="payments", file_name="payments.csv")
    assert ledger.start_run(TARGET, "payments-c", feed_hash="f1") == 1
    ledger.finish_run(TARGET, "payments-c", 1, state="finished", counts={"created": 5, "amount_created": 500})
    ledger.finish_batch(TARGET, "payments-c", "finished", {"created": 5, "amount_created": 500})
    clock.pass_seconds(60)
    ledger.finish_batch(TARGET, "payments-c", "finished")
    assert not ledger.start_batch(TARGET, "payments-c", feed="payments")
    ledger.cut_off_run(TARGET, "payments-c", 1, "cut off", "it was killed")  # the run has ended meanwhile
    ledger.count_batch(TARGET, "payments-c", {"created": 4})
    assert ledger.start_run(TARGET, "payments-c") == 2
    ledger.finish_run(TARGET, "payments-c", 2, state="failed", counts={"unchanged": 5}, message="cannot be read")
    batch = ledger.batch(TARGET, "payments-c")
    assert batch
    assert (batch["state"], batch["created"], batch["unchanged"]) == ("finished", 5, 0)
    assert batch["finished_at"] == utc_text(NOON)
    assert ledger.batches() == ledger.batches(TARGET)
    assert ledger.batches()[-1] == batch
    assert [
        (r["run"], r["state"], r["created"], r["unchanged"], r["message"]) for r in ledger.runs(TARGET, "payments-c")
    ] == [
        (1, "finished", 5, 0, None),
        (2, "failed", 0, 5, "cannot be read"),
    ]
    with pytest.raises(LedgerError, match="no such run"):
        ledger.finish_run(TARGET, "payments-c", 3, state="finished", counts={})


def test_a_ledger_that_knows_another_target_says_so(ledger: Ledger) -> None:
    assert ledger.note_target(TARGET, "http://127.0.0.1:8400") == []
    assert ledger.note_target(TARGET, "http://127.0.0.1:9999") == []
    assert ledger.note_target("urn:uuid:b", "http://b") == [TARGET]
    assert ledger.tables()["target"].to_pylist()[0]["base_url"] == "http://127.0.0.1:9999"


def test_a_transaction_holds_all_that_is_written_within_or_nothing(ledger: Ledger, clock: Clock) -> None:
    """LEDGER-01, LEDGER-04: the outcomes of one bundle and the intents of the next are one commit."""
    with ledger.lease(TARGET) as lease:
        ledger.intend(lease, *OF, [intent("k1")])

        def refused_halfway() -> None:
            with ledger.transaction():
                ledger.settle(TARGET, *OF, [Outcome("k1", 1, "created", "id-1", 201)])
                ledger.intend(lease, *OF, [intent("k2", 3, batch="payments-b"), intent("k1")])

        with pytest.raises(sa.exc.IntegrityError):
            refused_halfway()
        assert ledger.known(TARGET, *OF, ["k1", "k2"]).keys() == {"k1"}
        assert states(ledger, "k1") == ["sending"]
        with ledger.transaction():
            ledger.settle(TARGET, *OF, [Outcome("k1", 1, "created", "id-1", 201)])
            ledger.intend(lease, *OF, [intent("k2", 3, batch="payments-b")])
        assert states(ledger, "k1", "k2") == ["created", "sending"]


def test_tables_are_read_in_chunks_with_fixed_types_as_of_one_moment(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipelines.ledger.snapshot.ROWS_A_CHUNK", 2)
    with ledger.lease(TARGET) as lease, ledger.snapshot() as before:
        assert before.reader("record", ["key", "line"]).read_all().to_pylist() == []
        ledger.intend(lease, *OF, [intent(f"k{n}", n) for n in range(2, 7)])
        assert before.reader("record").read_all().num_rows == 0
    with ledger.snapshot() as after:
        reader = after.reader("record", ["key", "line", "resource_id"])
        assert [f"{f.name} {f.type}" for f in reader.schema] == ["key string", "line int64", "resource_id string"]
        assert sorted(r["line"] for r in reader.read_all().to_pylist()) == [2, 3, 4, 5, 6]


def test_what_was_seen_before_rows_were_sent_is_forgotten_once_no_such_row_is_undecided(ledger: Ledger) -> None:
    """LEDGER-06: of each patient, and of the rows without one."""
    seen = [Sighting(patient, ledger.now(), 0, "id-1") for patient in ("p1", "p2", "")]
    with ledger.lease(TARGET) as lease:
        ledger.intend(lease, *OF, [intent("k1"), intent("k2", 3)._replace(patient_id=None)], seen)
    left = []
    for key in ("k2", "k1"):
        forget_sightings(ledger, TARGET, OF[1])
        left.append({row["patient_id"] for row in ledger.tables()["sighting"].to_pylist()})
        ledger.settle(TARGET, *OF, [Outcome(key, 1, "created", f"id-{key}")])
    assert left == [{"p1", ""}, {"p1"}]
