"""Every record that was read is somewhere, whatever several machines did that share a ledger on PostgreSQL and a store
of batches, by seed: machines that are lost with their disks included.
"""

import json
import random
import shutil

import psycopg
import pytest
from sqlalchemy.dialects import postgresql

from pipelines.cli import run
from tests.pipelines.test_every_record import History, play
from tests.support.any_order import COLUMNS
from tests.support.ledgers import views_of_readers

pytestmark = pytest.mark.long

MACHINES = "abc"


class OfMachines(History):
    """A history in which each command runs on one of several machines, whose feed files are equal."""

    def __init__(self, folder, target, capsys, dice, url, monkeypatch):
        self.folder, self.capsys, self.url, self.says = folder, capsys, url.replace("+psycopg", ""), {}
        self.number = 0
        super().__init__(self.machine("a"), target, self.ask, self.run, dice, monkeypatch=monkeypatch)
        self.says = {feed: (self.home / "feeds" / f"{feed}.toml").read_text() for feed in COLUMNS}

    def machine(self, name):
        """Return a machine's home."""
        home = self.folder / name
        for part in ("inbox", "feeds", "batches"):
            (home / part).mkdir(parents=True, exist_ok=True)
        for feed, text in self.says.items():
            (home / "feeds" / f"{feed}.toml").write_text(text)
        return home

    def run(self, *arguments):
        self.capsys.readouterr()
        code = run(["--home", str(self.home), *map(str, arguments)])
        out, err = self.capsys.readouterr()
        assert "Traceback" not in err
        return code, out, err

    def ask(self, *arguments):
        return json.loads(self.run(*arguments, "--json")[1])

    def step(self):
        self.home = self.machine(self.dice.choice(MACHINES))
        super().step()

    def nothing(self):
        """Each machine looks into its inbox."""
        for name in MACHINES:
            self.home = self.machine(name)
            super().nothing()

    def edit(self, feed, text):
        self.says[feed] = text
        self.machine(self.home.name)

    def put(self, feed, text):
        self.number += 1
        (self.home / "inbox" / f"{feed}-{self.number:03}.csv").write_text(text)

    def with_a_batch(self, *command):
        if batches := self.rows("SELECT batch_id FROM batch ORDER BY 1"):
            self.chartferry(*command, self.dice.choice(batches)[0])

    def lose(self):
        """A machine goes with its disk. The files in its inbox come to another one."""
        for path in (self.home / "inbox").glob("*.csv"):
            shutil.copy(path, self.machine("a" if self.home.name == "b" else "b") / "inbox")
        shutil.rmtree(self.home)
        self.machine(self.home.name)

    def look(self):
        acting = self.home
        for name in MACHINES:
            self.home = self.machine(name)
            super().look()
        self.home = acting

    def end_leases(self):
        with psycopg.connect(self.url) as db:
            db.execute("DELETE FROM lease")

    def rows(self, query):
        with psycopg.connect(self.url) as db:
            for statement in views_of_readers(postgresql.dialect(), "public"):
                db.execute(statement)
            found = db.execute(query).fetchall()
            db.rollback()
        return found


@pytest.mark.publishes("payment", "task", "questionnaire_response")
@pytest.mark.parametrize("seed", range(12))
def test_every_record_that_machines_read_is_somewhere(
    seed, additions, home, target, postgres, ledger_on_server, tmp_path, capsys, monkeypatch
):
    """LEDGER-19, STATE-HOME-02"""
    with postgres.database(like=ledger_on_server) as url:
        monkeypatch.setenv("CHARTFERRY_LEDGER", url)
        monkeypatch.setenv("CHARTFERRY_BATCHES", str(tmp_path / "shared"))
        play(OfMachines(tmp_path / "machines", target, capsys, random.Random(f"machines {seed}"), url, monkeypatch))
