"""Machines that share a ledger and a store of batches, and no disk."""

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from pipelines.cli import run
from pipelines.home.stores import Store
from pipelines.ledger.batch_store import StoredBatches
from tests.support.exports import PAYMENTS

ROWS = "k1,p1,1.00,2026-03-01,\nk2,p1,2.00,2026-03-01,\nk3,,3.00,2026-03-01,\n"


class Machines:
    """Machines with homes of their own, one ledger and one store."""

    def __init__(self, folder: Path, place: str, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self.place, self._capsys = folder, place, capsys

    def home(self, name: str) -> Path:
        home = self.folder / name
        (home / "inbox").mkdir(parents=True, exist_ok=True)
        return home

    def put(self, name: str, rows: str = ROWS, file: str = "payments.csv") -> Path:
        path = self.home(name) / "inbox" / file
        path.write_text(PAYMENTS + rows)
        return path

    def does(self, name: str, *arguments: str) -> tuple[int, str, str]:
        self._capsys.readouterr()
        code = run(["--home", str(self.home(name)), *arguments])
        out, err = self._capsys.readouterr()
        assert "Traceback" not in err
        return code, out, err

    def asked(self, name: str, *arguments: str) -> dict[str, Any]:
        code, out, err = self.does(name, *arguments, "--json")
        assert out, err
        found = dict(json.loads(out))
        assert found["exit_code"] == code
        return found

    def loses(self, name: str) -> None:
        """Remove a machine with its disk."""
        shutil.rmtree(self.home(name))


def batches_at(place: str, home: Path) -> StoredBatches:
    return StoredBatches(home / "batches", place, lambda: "a deployment")


def a_batch(batches: StoredBatches, name: str = "payments-1", file: str = "payments.csv") -> Path:
    """Make the folder of a batch like a stage does."""
    folder = batches.path / name
    (folder / "source").mkdir(parents=True, exist_ok=True)
    (folder / "source" / file).write_text("rows of p1")
    (folder / "sha256").write_text(hashlib.sha256(b"rows of p1").hexdigest() + "\n")
    return folder


def amounts(target) -> list[float]:
    return sorted(body["amount"]["value"] for body in target.of("PaymentNotice"))


def rows_at(machines: Machines, name: str, batch: str) -> list[str]:
    """Return the files with rows that a machine has of a batch."""
    files = (machines.home(name) / "batches" / batch).rglob("*")
    return sorted(path.name for path in files if path.suffix in (".csv", ".parquet") and path.name[0] != "w")


def has_rows(store: Store, batch: str) -> bool:
    """True if a store has the file of a batch, or rows that a stage made of it."""
    found = (store.read(key) for key in store.ages(f"files/{batch}/"))
    return any(b"p1" in held.content or b"PAR1" in held.content for held in found if held)
