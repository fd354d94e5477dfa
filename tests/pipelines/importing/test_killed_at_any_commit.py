"""An import killed at any commit of the ledger: commands that read run then, and the next import ends the matter."""

import json
import multiprocessing
import os
import signal
from collections import Counter
from unittest.mock import patch

import pytest

from pipelines.cli import run
from pipelines.home.exits import INTERNAL
from pipelines.ledger.journal_sync import BesideFile
from pipelines.ledger.states import MADE, in_sql
from tests.pipelines.loading.test_importer_kills import PRELOADED
from tests.support.dying import at_call
from tests.support.exports import ANSWERS, PAYMENTS, QUESTIONS, TASKS, feed_file, put
from tests.support.ledgers import read_ledger

CHILDREN = multiprocessing.get_context("forkserver")
READING = (
    "status",
    "status BATCH",
    "verify",
    "verify --all BATCH",
    "rejects export",
    "metrics",
    "evidence",
    "target",
    "import --dry-run",
    "undo --dry-run BATCH",
    "doubts resolve",
    "feeds check",
    "feeds expect payments",
    "feeds map payments",
    "reports",
)
"""Commands that change nothing at the target."""
FAULTS = ("Traceback", "a fault of this program")


@pytest.fixture(scope="module", autouse=True)
def preloaded():
    CHILDREN.set_forkserver_preload([*PRELOADED, "tests.pipelines.importing.test_killed_at_any_commit"])


def dying_import(home, environ, commit, told):
    os.environ.update(environ)
    for number in (1, 2):
        os.dup2(os.open(os.devnull, os.O_WRONLY), number)
    patch.object(BesideFile, "keep", at_call(commit, after=told)(BesideFile.keep)).start()
    os._exit(run(["--home", home, "import"]))


def is_killed(home, commit, told):
    """Import, and kill the importer at a commit: before its journal is told, or between journal and tables. False if
    there are not that many.
    """
    child = CHILDREN.Process(target=dying_import, args=(str(home), dict(os.environ), commit, told))
    child.start()
    child.join(120)
    return child.exitcode == -signal.SIGKILL


@pytest.fixture
def practice(home, target, monkeypatch, additions):
    """A home whose inbox has a file of each kind, with rows to create, change, reject, and one to be refused."""
    monkeypatch.setenv("CHARTFERRY_SETTLING_SECONDS", "0")
    target.stored["q1"] = QUESTIONS
    target.refuse = lambda body: body.get("amount", {}).get("value") == 5
    feed_file(home, "calls", 'kind = "tasks"\nfiles = ["call*"]\nchanged = "update"\n', TASKS)
    feed_file(home, "forms", 'kind = "answers"\nfiles = ["form*"]\nchanged = "supersede"\n', ANSWERS)
    put(home, "payments.csv", PAYMENTS + "".join(f"k{n},p1,{n}.00,2026-03-01,\n" for n in (1, 2, 5, "x")))
    for number, more in enumerate("12"):
        put(home, f"call-{number}.csv", TASKS + f"t1,p1,call {more},requested,a\no{more},p1,other {more},requested,a\n")
        put(home, f"form-{number}.csv", ANSWERS + f"r1,p1,q1,1,said {more}\no{more},p1,q1,1,other {more}\n")
    return home


def at_target(target):
    """The amounts, descriptions and answers that count at the target, each with its number."""
    found = [str(body["amount"]["value"]) for body in target.of("PaymentNotice")]
    found += [body["description"] for body in target.of("Task") if body["status"] != "cancelled"]
    responses = [body for body in target.of("QuestionnaireResponse") if body["status"] == "completed"]
    return Counter([*found, *(body["item"][0]["answer"][0]["valueString"] for body in responses)])


ALL = {"1.0": 1, "2.0": 1, "call 2": 1, "other 1": 2, "other 2": 2, "said 2": 1}


def soundly(chartferry, *words):
    """Run a command, which may fail, and then says why in its own words."""
    code, out, err = chartferry(*words)
    assert code != INTERNAL, (words, out, err)
    assert not [fault for fault in FAULTS if fault in out + err], (words, out, err)
    return code, out, err


def in_doubt(chartferry):
    for batch in json.loads(chartferry("status", "--json")[1])["batches"]:
        [found] = json.loads(chartferry("status", batch["batch_id"], "--json")[1])["batches"]
        yield from (f"{batch['batch_id']}:{row['line']}" for row in found["unsettled"] if row["state"] == "in_doubt")


def all_runs_and_ends(home, target, chartferry, first):
    """Run the commands that read, from this one on, and then an import: each row is then at the target once."""
    batch = max((path.name for path in (home / "batches").glob("*-*")), default="payments-0")
    for words in (*READING[first:], *READING[:first]):
        soundly(chartferry, *words.replace("BATCH", batch).split())
    code, out, err = soundly(chartferry, "import")
    if code == 5:  # payments that a target without additions may not have got: a person lets them go again
        for name in [*in_doubt(chartferry)]:
            assert soundly(chartferry, "doubts", "resend", name)[0] == 0
        code, out, err = soundly(chartferry, "import")
    assert code in (0, 3), out + err
    assert at_target(target) == ALL
    assert json.loads(soundly(chartferry, "verify", "--json")[1])["differences"] == []
    assert {each["state"] for each in json.loads(soundly(chartferry, "status", "--json")[1])["batches"]} == {"finished"}


SURE, MOST = 12, 60
"""The import has at least the first number of commits, and less than the second."""
COMMITS = [pytest.param(number, marks=[pytest.mark.long] * (number != SURE)) for number in range(1, MOST)]


@pytest.mark.alike
@pytest.mark.publishes("import_batch", "import_row")
@pytest.mark.parametrize("told", [True, False], ids=["told", "not told"])
@pytest.mark.parametrize("commit", COMMITS)
def test_an_import_killed_at_any_commit_is_readable_and_completed_by_the_next_one(
    practice, home, target, chartferry, commit, told
):
    """LEDGER-01, CLI-CMD-03: before its line is in the journal, or between journal and tables."""
    assert is_killed(home, commit, told) or commit > SURE
    all_runs_and_ends(home, target, chartferry, commit % len(READING))


def made_by(home, batch):
    """The number of records that a batch has at the target."""
    with read_ledger(home) as ledger:
        query = f"SELECT count(*) FROM record WHERE batch_id = ? AND state IN ({in_sql(MADE)})"
        return ledger.execute(query, [batch]).fetchone()[0]


def states_of(chartferry):
    """The state of each batch, by name."""
    batches = json.loads(soundly(chartferry, "status", "--json")[1])["batches"]
    return {each["batch_id"]: each["state"] for each in batches}


@pytest.mark.alike
@pytest.mark.publishes("import_batch", "import_row")
@pytest.mark.parametrize("told", [True, False], ids=["told", "not told"])
@pytest.mark.parametrize("commit", COMMITS)
def test_a_batch_that_was_killed_and_is_taken_back_stays_so_until_it_is_loaded_again(
    practice, home, target, chartferry, commit, told, additions
):
    """CLI-CMD-10, CLI-CMD-18: by `undo` after a kill at any commit, then `import --again`, then the other files."""
    assert is_killed(home, commit, told) or commit > SURE
    unfinished = [batch for batch, state in states_of(chartferry).items() if state == "running"]
    for batch in unfinished:
        assert soundly(chartferry, "undo", batch)[0] in (0, 3)
    ended = {batch: made_by(home, batch) for batch, state in states_of(chartferry).items() if state == "stopped"}
    assert len(ended) == len(unfinished) or not additions
    (home / "inbox").rename(home / "later")
    (home / "inbox").mkdir()
    soundly(chartferry, "import")
    assert {batch: made_by(home, batch) for batch in ended} == ended
    for batch in ended:
        soundly(chartferry, "import", "--again", batch)
    (home / "inbox").rmdir()
    (home / "later").rename(home / "inbox")
    all_runs_and_ends(home, target, chartferry, commit % len(READING))
