"""SIGKILL of the importer at random moments, against the real service: store, ledger and source agree in the end.

Seeded; each run kills the importer some times, lets it end, and compares. Here few runs, more of them marked `long`.
"""

import json
import multiprocessing
import os
import random
import time

import pytest

from pipelines.cli import run
from pipelines.ledger.doubts import undecided
from pipelines.ledger.ledger import Ledger
from tests.conftest import running
from tests.support.commands import OUTCOMES, forget_settings, resources
from tests.support.payers import paid, payments, practice
from tests.support.publishing import publish_nothing as publish_nothing_here
from tests.support.unpublished import publish_nothing

PATIENTS = 4
PAYMENTS = 120
TASKS = 80
CHILDREN = multiprocessing.get_context("forkserver")
PRELOADED = [
    "pipelines.cli",
    "pipelines.importing.imports",
    "pipelines.session.connections",
    "tests.pipelines.loading.test_importer_kills",
]


@pytest.fixture(scope="module", autouse=True)
def preloaded():
    CHILDREN.set_forkserver_preload(PRELOADED)


@pytest.fixture(params=[False, True], ids=["with additions", "bare"])
def service(request, tmp_path):
    folder = tmp_path / "service"
    folder.mkdir()
    with running(folder, world=practice(folder / "world", PATIENTS), interface_only=request.param) as found:
        yield found


def an_import(home, environ, publishing):
    os.environ.update(environ)
    with open(os.devnull, "w") as nothing:  # noqa: PTH123 - a device
        os.dup2(nothing.fileno(), 1)
        os.dup2(nothing.fileno(), 2)
    if not publishing:
        publish_nothing()
    os._exit(run(["--home", str(home), "import"]))


def source(home, name, chosen):
    """Payments and tasks of this run: equal ones among them, and what they come to by patient."""
    home.mkdir()
    (home / "inbox").mkdir()
    text, wanted = payments(name, PAYMENTS, PATIENTS, chosen)
    (home / "inbox" / "payments.csv").write_text(text)
    lines = [f"{name}-{n},p{n % PATIENTS},{name} call {n},requested,a" for n in range(TASKS)]
    (home / "inbox" / "tasks.csv").write_text(
        "\n".join(["task_id,patient_id,description,status,requester_id", *lines, ""])
    )
    return wanted


def told(home):
    """The lines of the journal: how far an import has come, however fast the machine is."""
    journal = home / "journal.ndjson"
    return journal.read_bytes().count(b"\n") if journal.exists() else 0


def killed_and_ended(service, home, monkeypatch, capsys, seed, kills, publishing=False):
    """One run: the importer killed `kills` times, each soon after a drawn number of commits, then left to its end.

    Return how many kills met it alive.

    publishing: whether it publishes what it imported, where it may be killed too: up to a second later.
    """
    chosen = random.Random(seed)
    credentials = service.service.auth.add_client(f"importer {home.name} {seed}")
    environ = {
        "FHIR_BASE_URL": service.url,
        "FHIR_CLIENT_ID": credentials["client_id"],
        "FHIR_CLIENT_SECRET": credentials["client_secret"],
        "CHARTFERRY_SETTLING_SECONDS": "0",
    }
    forget_settings(monkeypatch)
    if not publishing:
        publish_nothing_here(monkeypatch)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    wanted, met = source(home, f"s{seed}", chosen), 0
    for _ in range(kills):
        facts = told(home) + chosen.randint(1, 18)
        child = CHILDREN.Process(target=an_import, args=(home, environ, publishing))
        child.start()
        ends = time.monotonic() + 20
        while child.is_alive() and told(home) < facts and time.monotonic() < ends:
            time.sleep(0.001)
        child.join(chosen.uniform(0.0, 1.0 if publishing else 0.02))
        met += child.is_alive()
        child.kill()
        child.join()
    code = run(["--home", str(home), "import"])
    for _ in range(5):  # payments that the target never got: somebody looks, and lets them go again
        if code != 5:
            break
        ledger = Ledger.open(home / "ledger.db")
        doubts = [row for batch in ledger.batches() for row in undecided(ledger, batch["target"], batch["batch_id"])]
        ledger.close()
        for row in doubts:
            if row.state == "in_doubt":
                assert run(["--home", str(home), "doubts", "resend", f"{row.batch_id}:{row.line}"]) == 0
        code = run(["--home", str(home), "import"])
    assert code == 0, "".join(capsys.readouterr())
    check(service, home, wanted, capsys)
    return met


def check(service, home, wanted, capsys):
    """Resources in the store = ledger = source, to the row and the cent."""
    ledger = Ledger.open(home / "ledger.db")
    records = ledger.tables()["record"].to_pylist()
    batches = ledger.batches()
    ledger.close()
    notices = resources(service.client, "PaymentNotice")
    assert paid(notices) == wanted
    tasks = resources(service.client, "Task")
    assert len({b["description"] for b in tasks}) == len(tasks) == TASKS
    assert {record["resource_id"] for record in records} == {body["id"] for body in [*notices, *tasks]}
    assert len(records) == PAYMENTS + TASKS
    assert {record["state"] for record in records} <= {"created", "adopted"}
    for batch in batches:
        assert batch["state"] == "finished"
        assert batch["records"] == batch["accepted"] == sum(batch[name] for name in OUTCOMES)
    capsys.readouterr()
    assert run(["--home", str(home), "verify", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["differences"] == []
    assert found["ledger_cents"] == found["target_cents"] == sum(cents * n for (_, cents), n in wanted.items())


TWO = 4
"""A seed with two kills."""


@pytest.mark.parametrize("seed", [TWO, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(4))])
def test_a_killed_importer_leaves_store_ledger_and_source_in_agreement(service, tmp_path, monkeypatch, capsys, seed):
    """LEDGER-01, LEDGER-05, EXTRA-05"""
    met = killed_and_ended(service, tmp_path / "home", monkeypatch, capsys, seed, kills=1 + seed % 3)
    assert met or seed != TWO


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 140))
def test_a_killed_importer_leaves_agreement_at_many_more_moments(service, tmp_path, monkeypatch, capsys, seed):
    """LEDGER-01, LEDGER-05, EXTRA-05"""
    killed_and_ended(service, tmp_path / "home", monkeypatch, capsys, seed, 1 + seed % 5, publishing=True)
