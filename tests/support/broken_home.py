"""A home with one problem of each kind."""

from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pipelines.ledger.ledger import Ledger
from pipelines.ledger.rows import Intent, Reject

NOW = datetime(2026, 3, 29, 1, 30, tzinfo=UTC)


class Home:
    """A home whose ledger has a good batch, a failed one, one in doubt and an unfinished one."""

    def __init__(self, path: Path) -> None:
        self.path, self.now = path, NOW - timedelta(days=2)
        path.mkdir()
        with closing(self.ledger()) as ledger:
            self.add(ledger, "payments-good", "finished")
            self.add(ledger, "payments-bad", "failed", message="bad.csv: it is not UTF-8")
            self.add(ledger, "tasks-doubt", "running", in_doubt=3)
            self.send(ledger, "tasks-doubt", 3)
            ledger.doubt_sending("t")
            self.add(ledger, "tasks-left", "running")
            reject = Reject(2, 1, "A1", "rule", None, None, None, [])
            ledger.reject("t", "default", "PaymentNotice", "payments-good", [reject])

    def ledger(self) -> Ledger:
        return Ledger.open(self.path / "ledger.db", lambda: self.now)

    def send(self, ledger: Ledger, name: str, rows: int) -> None:
        with ledger.lease("t") as lease:
            intents = [Intent(f"{name}{line}", 1, name, line, "h", "f", "p1") for line in range(2, 2 + rows)]
            ledger.intend(lease, "default", "Task", intents)

    def add(
        self, ledger: Ledger, name: str, state: str, file: str = "", message: str | None = None, **counts: int
    ) -> None:
        (self.path / "batches" / name / "source").mkdir(parents=True)
        ledger.start_batch("t", name, feed=name.partition("-")[0], file_name=file or f"{name}.csv")
        number = ledger.start_run("t", name)
        ledger.finish_run("t", name, number, state=state, counts=counts, message=message)
        ledger.finish_batch("t", name, state, counts)
