"""A ledger with a history, and its loss, for tests of the journal."""

from pathlib import Path

import pytest

from pipelines.ledger import former_versions
from pipelines.ledger.ledger import Ledger
from pipelines.ledger.rejects import discard
from pipelines.ledger.rows import Outcome, Reason, Reject, Repeat
from tests.support.ledgers import OF, PAID, TARGET, close_rejects, intent, start


def send(ledger: Ledger, *keys: str, state: str = "created") -> None:
    start(ledger, "payments-a")
    with ledger.lease(TARGET) as lease:
        ledger.intend(lease, *OF, [intent(key, line) for line, key in enumerate(keys, 2)])
        ledger.settle(TARGET, *OF, [Outcome(key, 1, state, f"id-{key}", 201) for key in keys])


def a_history(ledger: Ledger) -> None:
    """Fill every table of a ledger with rows."""
    ledger.note_target(TARGET, "http://127.0.0.1:1")
    start(ledger, "payments-a", "payments-b")
    number = ledger.start_run(TARGET, "payments-a", feed_hash="f1")
    send(ledger, "k1", "k2")
    ledger.note_repeats(TARGET, *OF, "payments-b", [Repeat(2, "k1", "unchanged", "id-k1", "p1", PAID, 1050)])
    reason = Reason("PAY-1", "PaymentNotice.amount", "amount", "is not an amount", False)
    [name] = ledger.reject(TARGET, *OF, "payments-a", [Reject(9, 1, "k9", "rule", "p1", PAID, 100, [reason])])
    discard(ledger, [name], "ann", "double")
    ledger.finish_run(TARGET, "payments-a", number, state="finished", counts={"created": 2})
    ledger.finish_batch(TARGET, "payments-a", "finished", {"created": 2})


def leave_closed(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a ledger behave as before schema 13: a reject stays closed although its correction is taken back."""
    start(ledger, "payments-a")
    wrong = Reason("PAY-1", None, "amount", "wrong", False)
    ledger.reject(TARGET, *OF, "payments-0", [Reject(2, 1, "k1", "rule", None, None, None, [wrong])])
    send(ledger, "k1")
    close_rejects(ledger, TARGET, ["k1"], "payments-a")
    with ledger.lease(TARGET) as lease, monkeypatch.context() as earlier:
        earlier.setattr(former_versions, "open_unanswered", lambda *_: None)
        former_versions.intend_withdrawal(ledger, lease, [(*OF, "k1", 1)])
        former_versions.undone(ledger, TARGET, former_versions.earlier_versions(ledger, TARGET, *OF, ["k1"]))
    assert [row["state"] for row in ledger.tables()["reject"].to_pylist()] == ["closed"]


def lose(path: Path) -> None:
    for name in ("", "-wal", "-shm"):
        path.with_name(path.name + name).unlink(missing_ok=True)
