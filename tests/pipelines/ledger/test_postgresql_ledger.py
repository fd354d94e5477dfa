"""The ledger on PostgreSQL: all commands from import to undo work as with a ledger in the home."""

import json
import os
import shutil
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from pkgutil import resolve_name
from threading import Barrier, Event
from typing import Any

import duckdb
import psycopg
import pytest
from sqlalchemy import select, text
from sqlalchemy.exc import DBAPIError

from pipelines.cli import run
from pipelines.ledger import tables as t
from pipelines.ledger.addresses import known_as
from pipelines.ledger.former_versions import intend_change
from pipelines.ledger.ledger import Ledger
from pipelines.ledger.notes import RESPONSE, Group, Member, keep_members, members_of
from pipelines.ledger.reject_state import close_answered
from pipelines.ledger.rejects import discard, resubmit, settle_resubmitted
from pipelines.ledger.rows import Intent, Outcome, Reason, Reject
from pipelines.loading.settling import NOT_BY_ITSELF
from tests.conftest import running, small_world
from tests.pipelines.loading.test_shared_notes import MONDAY, forms, in_notes
from tests.pipelines.rehearsing.test_rehearsal import HEADER, ROWS, WORLD
from tests.support import commands
from tests.support.exports import TASKS, payments, tasks
from tests.support.replaying import rows_of

OF_PAYMENTS = ("urn:t", "s", "PaymentNotice")
ABOUT = {"feed": "payments", "source": "s", "resource_type": "PaymentNotice", "file_name": "f", "file_sha256": "0"}


@pytest.fixture(autouse=True)
def ledger_url(postgres, ledger_on_server, monkeypatch, home):
    """The database of an empty ledger, named in the environment."""
    with postgres.database(like=ledger_on_server) as url:
        monkeypatch.setenv("CHARTFERRY_LEDGER", url)
        yield url
    assert not (home / "ledger.db").exists()


@contextmanager
def real_target(folder, monkeypatch, **settings):
    """A service of this tool as the target, named in the environment as a user would."""
    folder.mkdir()
    with running(folder, **settings) as service:
        credentials = service.service.auth.add_client("importer")
        monkeypatch.delenv("FHIR_TOKEN")
        monkeypatch.setenv("FHIR_BASE_URL", service.url)
        monkeypatch.setenv("FHIR_CLIENT_ID", credentials["client_id"])
        monkeypatch.setenv("FHIR_CLIENT_SECRET", credentials["client_secret"])
        yield service


def test_a_server_that_is_cut_off_is_noticed_soon(ledger_url):
    """SCALE-03: unless its URL sets other time limits."""
    for address, seconds in ((ledger_url, "15"), (f"{ledger_url}&keepalives_idle=99", "99")):
        with closing(Ledger.open(address)) as ledger, ledger.engine.connect() as connection:
            raw: Any = connection.connection.driver_connection
            given = raw.info.get_parameters()
            assert (given["keepalives_idle"], given["tcp_user_timeout"]) == (seconds, "90000")
            assert "idle_in_transaction_session_timeout" in given["options"]


def kinds(found):
    return sorted(each["kind"] for each in found["differences"])


def test_a_file_is_imported_once_verified_and_loaded_anew_where_the_store_lost_it(home, target, asked, additions):
    """STATE-HOME-02, LEDGER-01, CLI-CMD-17, CLI-CMD-18"""
    target.refuse = lambda body: body["amount"]["value"] == 3.0
    payments(home, ("k1", "p1", "1.00"), ("k2", "p1", "2.00"), ("k3", "p2", "3.00"), ("k4", "", "4.00"))
    first = asked("import")
    batch = first["batches"][0]["batch_id"]
    commands.totals_close(first)
    assert (first["totals"]["created"], first["totals"]["refused"], first["totals"]["rejected"]) == (2, 1, 1)
    again = asked("import", str(next((home / "batches" / batch / "source").iterdir())))
    assert (again["totals"]["unchanged"], again["totals"]["created"]) == (2, 0)
    assert asked("verify")["differences"] == []
    lost = target.of("PaymentNotice")[0]
    del target.stored[lost["id"]]
    target.identified = {key: found for key, found in target.identified.items() if found[1] != lost["id"]}
    assert kinds(asked("verify")) == ["gone"]
    assert asked("import", "--again", batch)["totals"]["created"] == 1
    assert asked("verify")["differences"] == []


def test_rejects_go_back_and_are_closed_retried_or_discarded(home, target, asked, chartferry):
    """STATE-HOME-02, CLI-CMD-04, CLI-CMD-05, CLI-CMD-06, CLI-CMD-07"""
    target.refuse = lambda body: body["amount"]["value"] == 3.0
    payments(home, ("k1", "p1", "3.00"), ("k2", "", "2.00"), ("k3", "", "1.00"))
    asked("import")
    code, out, _ = chartferry("rejects", "export", "--json")
    file = json.loads(out)["files"][0]
    assert (code, file["rejects"]) == (0, 3)
    header, *rows = Path(file["file"]).read_text(encoding="utf-8").splitlines()
    assert header.startswith("_reject_id,_reasons,")
    corrected = [row.replace("k2,,", "k2,p2,") for row in rows if "k2" in row]
    (home / "inbox" / "fixed.csv").write_text("\n".join([header, *corrected]) + "\n")
    assert asked("import")["totals"]["created"] == 1
    target.refuse = lambda body: False
    assert asked("rejects", "retry")["totals"]["created"] == 1
    left = json.loads(chartferry("rejects", "export", "--json")[1])["files"]
    assert [each["rejects"] for each in left] == [1]
    last = next(row for row in rows if "k3" in row).split(",")[0]
    assert chartferry("rejects", "discard", last, "--why", "paid in cash")[0] == 0
    assert json.loads(chartferry("rejects", "export", "--json")[1])["files"] == []


@pytest.mark.long
def test_doubts_are_settled_and_a_batch_is_taken_back(home, target, asked, ledger_url):
    """STATE-HOME-02, CLI-CMD-08, CLI-CMD-09, CLI-CMD-19"""
    target.additions = False
    target.faults = ["lost_before"]
    payments(home, ("k1", "p1", "1.00"), ("k2", "p1", "2.00"))
    batch = asked("import")["batches"][0]["batch_id"]
    assert asked("doubts", "resolve")["left"] == {f"{batch}:2": NOT_BY_ITSELF}
    assert asked("doubts", "resend", f"{batch}:2")["exit_code"] == 0
    assert asked("import")["totals"]["created"] == 2
    tasks(home, "t1", "t2")
    made = asked("import")["batches"][0]["batch_id"]
    assert len(asked("undo", made)["taken_back"]) == 2
    assert asked("import", "--again", made)["totals"]["created"] == 2
    ledger = Ledger.open(ledger_url)
    try:
        assert [row["command"] for row in ledger.decisions()] == ["doubts resend", "undo", "import --again"]
    finally:
        ledger.close()


def test_a_rehearsal_works_on_a_copy_of_it(home, monkeypatch, capsys, ledger_url):
    """STATE-HOME-02, CLI-CMD-01, CLI-CMD-02"""
    for name in ("FHIR_BASE_URL", "FHIR_TOKEN"):
        monkeypatch.delenv(name)
    shutil.copy(small_world(), home / "service.duckdb")
    (home / "inbox" / "payments.csv").write_text(HEADER + "".join(ROWS))
    run(["--home", str(home), "import", "--json"])
    assert json.loads(capsys.readouterr().out)["totals"]["created"] == 1
    run(["--home", str(home), "rehearse", "--json", str(next((home / "batches").glob("*/source/*.csv")))])
    states = [row["state"] for row in json.loads(capsys.readouterr().out)["rows"]]
    assert states == ["unchanged", "refused", "refused", "refused", "rejected", "skipped", "rejected"]
    with closing(Ledger.open(ledger_url)) as ledger:
        assert [len(ledger.runs(batch["target"], batch["batch_id"])) for batch in ledger.batches()] == [1]


def test_records_that_share_a_note_are_found_by_patient_and_day(ledger_url):
    """STATE-HOME-02: only those of their own generation, with the version that a superseding record replaces."""
    day, next_day = Group("p1", "2026-03-01"), Group("p1", "2026-03-02")
    with closing(Ledger.open(ledger_url)) as ledger, ledger.lease("t") as lease:
        ledger.start_batch("t", "b")
        ledger.start_batch("t", "b2")
        of = (lease, "s", RESPONSE)
        keep_members(ledger, lease, "s", [("k1", 1, next_day), ("k2", 1, day), ("k3", 1, Group("p2", "2026-03-01"))])
        keep_members(ledger, lease, "s", [("k1", 1, day)])
        ledger.intend(*of, [Intent(key, 1, "b", line, "h", "f", "p1") for line, key in enumerate(("k1", "k2", "k3"))])
        ledger.settle("t", "s", RESPONSE, [Outcome("k1", 1, "created", "r1"), Outcome("k2", 1, "refused")])
        intend_change(ledger, *of, [(1, Intent("k1", 2, "b2", 7, "h2", "f", "p1"))])
        keep_members(ledger, lease, "s", [("k1", 2, next_day)])
        found = members_of(ledger, "t", "s", [day, next_day])
    assert sorted(found, key=lambda member: (member.key, member.batch_id)) == [
        Member(day, "k1", "b", "created", "r1"),
        Member(next_day, "k1", "b2", "sending", None),
        Member(day, "k2", "b", "refused", None),
    ]


@pytest.mark.long
@pytest.mark.parametrize("bare", [False, True], ids=["with additions", "bare"])
def test_responses_of_a_patient_and_day_share_a_note_over_files_a_lost_ledger_and_an_undo(
    home, asked, tmp_path, monkeypatch, postgres, ledger_url, bare
):
    """STATE-HOME-02, LEDGER-01, CLI-CMD-17, CLI-CMD-19"""
    with real_target(tmp_path / "service", monkeypatch, interface_only=bare) as service, postgres.database() as another:

        def there():
            return in_notes(commands.resources(service.client, "QuestionnaireResponse"))

        forms(home, "forms-1.csv", *MONDAY)
        first = asked("import")
        commands.totals_close(first)
        assert (first["totals"]["created"], there()) == (5, {"p1": [2, 1, 1], "p2": [1]})
        with psycopg.connect(plain(ledger_url)) as ledger:
            shared = ledger.execute("SELECT patient_id, day, count(*) FROM shared_note GROUP BY 1, 2").fetchall()
        assert sorted(shared) == [("p1", "2026-03-02", 2), ("p1", "2026-03-03", 1), ("p2", "2026-03-02", 1)]
        forms(home, "forms-2.csv", ("r6", "p1", "2026-03-02 10:00", ""), ("r7", "p2", "2026-03-02 10:00", ""))
        assert asked("import")["totals"]["created"] == 2
        assert there() == {"p1": [3, 1, 1], "p2": [2]}
        monkeypatch.setenv("CHARTFERRY_LEDGER", another)
        assert asked("verify", "--adopt")["left"] == {}
        forms(home, "forms-3.csv", ("r8", "p1", "2026-03-03 11:00", ""), ("r9", "p2", "2026-03-02 11:00", ""))
        assert asked("import")["totals"]["created"] == 2
        assert there() == {"p1": [3, 2, 1], "p2": [3]}
        asked("undo", first["batches"][0]["batch_id"])
        assert there() == {"p1": [1, 1], "p2": [2]}
        assert asked("verify")["differences"] == []


@pytest.fixture
def store(home, tmp_path, monkeypatch, postgres):
    """A service over a PostgreSQL store as the target, with files for it in the inbox."""
    forms(home, "forms.csv", *MONDAY, ("r6", "p1", "2026-03-02 10:00", "e-nowhere"), ("r7", "p1", "soon", ""))
    (home / "inbox" / "payments.csv").write_text(HEADER + "".join(ROWS))
    (home / "inbox" / "tasks.csv").write_text(f"{TASKS}t1,p1,call,requested,dr1\nt2,p2,call,requested,nobody\n")
    with postgres.database() as store, real_target(tmp_path / "service", monkeypatch, store=store):
        yield store


@pytest.mark.long
@pytest.mark.publishes("import_row", "reject")
def test_a_service_over_a_postgresql_store_does_with_every_row_what_was_rehearsed(home, asked, store, monkeypatch):
    """STATE-HOME-02, CLI-CMD-01: rehearsed on its reference data, then on a copy of its store; equal to the cent."""
    before = owed(store)
    report = asked("rehearse", "--reference", str(WORLD))
    assert owed(store) == before
    done = asked("import")
    assert report["totals"] == done["totals"]
    foretold = {(row["file"], row["line"]): row["state"] for row in report["rows"]}
    assert foretold == imported_rows(home)
    assert Counter(foretold.values()) == {"created": 7, "refused": 5, "rejected": 3, "skipped": 1}
    after = {each["patient"]: each["after_cents"] for each in report["balances"]}
    assert after == {"p1": 5025, "nobody": 0}
    assert owed(store) == before | {"p1": 5025}
    assert asked("verify")["differences"] == []
    (home / "inbox" / "payments-2.csv").write_text(f"{HEADER}k9,p1,0.25,2026-03-09,\n")
    monkeypatch.setenv("FHIR_SERVICE_STORE", store)
    [balance] = asked("rehearse")["balances"]
    assert (balance["patient"], balance["before_cents"], balance["after_cents"]) == ("p1", 5025, 5000)
    assert owed(store) == before | {"p1": 5025}


@pytest.mark.long
def test_a_postgresql_store_with_history_is_rehearsed_on_as_it_is(home, asked, store, monkeypatch):
    """CLI-CMD-01: the rehearsal knows earlier imports and today's balances, and changes nothing."""
    asked("import")
    before = owed(store)
    (home / "inbox" / "payments-2.csv").write_text(f"{HEADER}{''.join(ROWS)}k9,p1,0.25,2026-03-09,\n")
    monkeypatch.setenv("FHIR_SERVICE_STORE", store)
    report = asked("rehearse")
    assert owed(store) == before
    [balance] = [each for each in report["balances"] if each["patient"] == "p1"]
    assert (balance["before_cents"], balance["after_cents"]) == (5025, 5000)
    assert {row["state"] for row in report["rows"]} == {"unchanged", "refused", "rejected", "skipped", "created"}
    done = asked("import")
    assert report["totals"] == done["totals"]
    assert (done["totals"]["created"], owed(store)) == (1, before | {"p1": 5000})


def plain(url):
    """Return a URL of SQLAlchemy in the form that psycopg takes."""
    return url.replace("postgresql+psycopg:", "postgresql:")


def owed(store):
    """Return the cents that each patient owes in a service's store."""
    with psycopg.connect(plain(store)) as database:
        return dict(database.execute("SELECT patient, charged - paid FROM account WHERE charged <> paid").fetchall())


def imported_rows(home):
    """Return the published outcome of each record, by file and line."""
    imported = "SELECT file_name, line, state FROM import_row"
    rejected = "SELECT file_name, line, 'rejected' FROM reject WHERE stage <> 'load'"
    with duckdb.connect(str(home / "published" / "reports.duckdb"), read_only=True) as tables:
        found = tables.execute(f"{imported} UNION ALL {rejected}").fetchall()
    return {(file, line): state for file, line, state in found}


def test_a_loader_that_was_stopped_in_a_transaction_does_not_keep_the_lease(ledger_url, monkeypatch):
    """LEDGER-01: otherwise the next loader would wait for ever, without a message."""
    monkeypatch.setattr("pipelines.ledger.database.IDLE_MILLISECONDS", 200)
    stopped, other = Ledger.open(ledger_url), Ledger.open(ledger_url)
    with closing(stopped), closing(other), stopped.lease("t"), stopped.engine.connect() as connection:
        connection.execute(text("SELECT owner FROM lease FOR SHARE"))
        with other.engine.begin() as theirs:
            theirs.execute(text("SET LOCAL lock_timeout = '20s'"))
            theirs.execute(text("UPDATE lease SET owner = 'another'"))
        with pytest.raises(DBAPIError):
            connection.execute(text("SELECT 1"))


def test_a_server_that_cannot_be_reached_is_named_as_the_cause(home, chartferry, monkeypatch):
    """LEDGER-01"""
    payments(home, ("k1", "p1", "1.00"))
    monkeypatch.setenv("CHARTFERRY_LEDGER", "postgresql+psycopg://nobody@127.0.0.1:1/nothing")
    code, _, err = chartferry("import")
    assert (code, "its server does not answer" in err, "Traceback" in err) == (6, True, False)
    assert (home / "inbox" / "payments.csv").exists()


@pytest.mark.parametrize("address", ["u:s3cret@127.0.0.1:1/db", "127.0.0.1:1/db?user=u&password=s3cret"])
def test_a_ledger_that_does_not_answer_is_named_without_its_password(chartferry, monkeypatch, address):
    monkeypatch.setenv("CHARTFERRY_LEDGER", f"postgresql+psycopg://{address}")
    code, _, err = chartferry("status")
    assert (code, "127.0.0.1:1/db" in err, "s3cret" in err) == (6, True, False)


@pytest.mark.parametrize("hosts", ["u:s3cret@a:1,b:2/db", "u@a:s3cret/db"])
def test_an_unreadable_database_url_is_reported_without_its_password(chartferry, monkeypatch, hosts):
    """SCALE-03"""
    monkeypatch.setenv("CHARTFERRY_LEDGER", f"postgresql+psycopg://{hosts}")
    code, out, err = chartferry("import")
    assert (code, out, "cannot be read as the URL of a database" in err, "s3cret" in err) == (6, "", True, False)


@pytest.mark.long
def test_a_database_that_was_lost_is_made_again_from_the_copies_of_its_journal(
    home, target, asked, postgres, monkeypatch
):
    """LEDGER-20: `batches/journal` has the state of the ledger at the end of the last run."""
    payments(home, ("k1", "p1", "1.00"), ("k2", "p2", "2.00"))
    asked("import")
    with closing(Ledger.open(os.environ["CHARTFERRY_LEDGER"])) as ledger:
        before = rows_of(ledger)
    copies = sorted((home / "batches" / "journal").iterdir())
    assert copies
    assert all(path.name.endswith(".ndjson.gz") for path in copies)
    with postgres.database() as url:
        monkeypatch.setenv("CHARTFERRY_LEDGER", url)
        asked("verify")
        with closing(Ledger.open(url)) as ledger:
            assert rows_of(ledger) == before
        asked("import")
        assert asked("verify")["differences"] == []
    assert len(target.of("PaymentNotice")) == 2


def test_a_copy_that_is_damaged_is_named(home, asked, chartferry, postgres, monkeypatch):
    payments(home, ("k1", "p1", "1.00"), ("k2", "p2", "2.00"))
    asked("import")
    path = min((home / "batches" / "journal").iterdir())
    path.write_bytes(path.read_bytes()[:-9])
    with postgres.database() as url:
        monkeypatch.setenv("CHARTFERRY_LEDGER", url)
        code, out, err = chartferry("import")
    assert (code, out) == (6, "")
    assert f"{path} is damaged: restore it from a backup" in err


def test_machines_that_note_the_same_batch_at_once_all_go_on(ledger_url):
    """SCALE-03: one of them records it. Each run has its own number."""
    machines = 6
    with closing(Ledger.open(ledger_url)) as first:
        first.note_target("urn:t", "http://t")
    together = Barrier(machines)

    def begin(_: int) -> tuple[bool, int]:
        with closing(Ledger.open(ledger_url)) as ledger:
            together.wait()
            ledger.note_target("urn:new", "http://new")
            is_new = ledger.start_batch("urn:new", "payments-1", **ABOUT)
            return is_new, ledger.start_run(
                "urn:new", "payments-1", feed_hash="f", rules_version="r", software_version="s"
            )

    with ThreadPoolExecutor(machines) as threads:
        found = list(threads.map(begin, range(machines)))
    assert sorted(is_new for is_new, _ in found) == [False] * (machines - 1) + [True]
    assert sorted(number for _, number in found) == list(range(1, machines + 1))
    with closing(Ledger.open(ledger_url)) as ledger:
        assert len(ledger.batches("urn:new")) == 1


def test_machines_that_decide_on_the_same_batch_or_ask_the_same_query_at_once_all_go_on(ledger_url):
    """SCALE-03, CLI-CMD-06: two retries at once, or a feed's first query on two machines. Each decision is kept."""
    machines, together = 6, Barrier(6, timeout=20)
    with closing(Ledger.open(ledger_url)) as ledger:

        def decide(number: int) -> None:
            together.wait()
            ledger.note_decisions("urn:t", f"u{number}", "rejects retry", ["payments-1"], None)
            together.wait()
            ledger.note_mark("urn:t", "visits", "q", "payments-1", "number", str(number))

        with ThreadPoolExecutor(machines) as threads:
            list(threads.map(decide, range(machines)))
        assert sorted(each["user"] for each in ledger.decisions()) == [f"u{number}" for number in range(machines)]
        assert len({each["decision_id"] for each in ledger.decisions()}) == machines
        assert ledger.mark("urn:t", "visits", "q") in [("number", str(number)) for number in range(machines)]


def test_machines_that_see_the_id_of_a_known_target_first_at_once_all_go_on(ledger_url):
    """SCALE-03: one of them records it."""
    machines, together = 6, Barrier(6, timeout=20)
    with closing(Ledger.open(ledger_url)) as ledger:
        ledger.note_target("http://t", "http://t")

        def note(_: int) -> None:
            with ledger.transaction():
                together.wait()
                ledger.note_alias("urn:t", "http://t")

        with ThreadPoolExecutor(machines) as threads:
            list(threads.map(note, range(machines)))
        assert known_as(ledger, "urn:t") == "http://t"


@pytest.fixture
def rejected(ledger_url):
    """Make a ledger with two batches of a target, and a reject of the first. Return its id."""
    with closing(Ledger.open(ledger_url)) as ledger:
        for number in (1, 2):
            ledger.start_batch("urn:t", f"payments-{number}", **ABOUT)
        reject = Reject(2, 1, "k1", "rule", None, None, 100, [Reason("PAY-1", None, None, "wrong", False)])
        yield ledger, *ledger.reject(*OF_PAYMENTS, "payments-1", [reject])


def at_once(monkeypatch, place, first, second):
    """Do two things as two machines. The second begins when the first reaches a place in the code. Return both results.

    The first goes on when the second has ended, or after a second if that waits for it.
    """
    inner, there, done = resolve_name(place), Event(), Event()

    def paused(*arguments):
        if not there.is_set():
            there.set()
            done.wait(1)
        return inner(*arguments)

    def then():
        there.wait(20)
        try:
            return second()
        finally:
            done.set()

    with monkeypatch.context() as patch, ThreadPoolExecutor(2) as threads:
        patch.setattr(place, paused)
        both = [threads.submit(first), threads.submit(then)]
        return [each.result(30) for each in both]


def state_of(ledger, name):
    [(state,)] = ledger.read(select(t.reject.c.state).where(t.reject.c.reject_id == name))
    return state


def test_a_reject_is_not_discarded_while_a_record_is_put_on_its_way_for_it(rejected, monkeypatch):
    """SCALE-03, CLI-CMD-06: otherwise the record would be sent although its reject is discarded."""
    ledger, name = rejected
    _, said = at_once(
        monkeypatch,
        "pipelines.ledger.rejects.insert_new",
        lambda: resubmit(ledger, *OF_PAYMENTS, "payments-2", {2: [name]}),
        lambda: discard(ledger, [name], "u", "w"),
    )
    assert (said, state_of(ledger, name)) == ({name: "resubmitted"}, "resubmitted")
    assert ledger.decisions() == []


def test_a_reject_that_is_being_discarded_is_not_closed_first(rejected, monkeypatch):
    """SCALE-03, CLI-CMD-06: otherwise a discard would be recorded for a record that is at the target."""
    ledger, name = rejected
    with ledger.lease("urn:t") as lease:
        ledger.intend(lease, *OF_PAYMENTS[1:], [Intent("k1", 1, "payments-2", 2, "c", "f", None, None, 100, None)])
        ledger.settle(*OF_PAYMENTS, [Outcome("k1", 1, "created", "id-1", 201)])
    said, _ = at_once(
        monkeypatch,
        "pipelines.ledger.access.LedgerAccess.write",
        lambda: discard(ledger, [name], "u", "w"),
        lambda: close_answered(ledger, OF_PAYMENTS, "payments-2"),
    )
    assert (said, state_of(ledger, name)) == ({}, "discarded")


def test_a_reject_is_discarded_by_one_of_two(rejected, monkeypatch):
    """SCALE-03, CLI-CMD-19"""
    ledger, name = rejected
    both = [partial(discard, ledger, [name], user, "w") for user in "ab"]
    assert at_once(monkeypatch, "pipelines.ledger.access.LedgerAccess.write", *both) == [{}, {}]
    assert [each["user"] for each in ledger.decisions()] == ["a"]


@pytest.mark.long
def test_a_correction_that_is_still_wrong_is_a_reject_of_its_own_where_another_is_discarded(rejected, monkeypatch):
    """SCALE-03, CLI-CMD-05: otherwise no reject would be open, and the correction would be lost unseen."""
    ledger, name = rejected
    wrong = Reject(2, 1, "k1", "rule", None, None, 100, [Reason("PAY-1", None, None, "wrong", False)], [name])
    said, [own] = at_once(
        monkeypatch,
        "pipelines.ledger.access.LedgerAccess.write",
        lambda: discard(ledger, [name], "u", "w"),
        lambda: ledger.reject(*OF_PAYMENTS, "payments-2", [wrong]),
    )
    assert (said, own == name, state_of(ledger, name), state_of(ledger, own)) == ({}, False, "discarded", "open")


@pytest.mark.long
def test_a_reject_that_is_settled_stays_as_the_first_of_two_left_it(rejected, monkeypatch):
    """SCALE-03: a refused record is an open reject, and its discard comes after that."""
    ledger, name = rejected
    resubmit(ledger, *OF_PAYMENTS, "payments-2", {2: [name]})
    with ledger.lease("urn:t") as lease:
        intent = Intent("k1", 1, "payments-2", 2, "c", "f", None, None, 100, None)
        ledger.intend(lease, *OF_PAYMENTS[1:], [intent])
        ledger.settle(*OF_PAYMENTS, [Outcome("k1", 1, "refused", None, 422)])
    _, said = at_once(
        monkeypatch,
        "pipelines.ledger.reject_state.lines_at",
        lambda: settle_resubmitted(ledger, "urn:t"),
        lambda: discard(ledger, [name], "u", "w"),
    )
    assert (said, state_of(ledger, name)) == ({}, "discarded")
