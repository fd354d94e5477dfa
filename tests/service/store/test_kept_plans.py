"""PostgreSQL plans the statements of batches and look-ups once, so that no table is read whole, however it grows."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import psycopg
import pytest
from sqlalchemy import Connection

from tests.conftest import Running, running
from tests.support.bodies import entry, payment, send, task
from tests.support.postgres import Postgres


@pytest.fixture
def one(postgres: Postgres, tmp_path: Path) -> Iterator[Running]:
    with postgres.database() as url, running(tmp_path, store=url) as found:
        yield found


def driven(connection: Connection) -> psycopg.Connection[Any]:
    """The driver's connection below one of SQLAlchemy."""
    raw: Any = connection.connection.driver_connection
    return cast("psycopg.Connection[Any]", raw)


def plans(raw: psycopg.Connection[Any]) -> dict[str, str]:
    """Return the plan of each prepared statement of a session. Asserts that each is independent of its values."""
    listed = raw.execute(
        "SELECT name, statement, custom_plans, cardinality(parameter_types) FROM pg_prepared_statements"
    )
    found = {}
    for name, statement, custom, number in listed.fetchall():
        if statement.startswith(("SELECT name", "BEGIN", "COMMIT")):
            continue
        assert not custom, statement
        values = f"({', '.join(['NULL'] * number)})" if number else ""
        lines = raw.execute(f"EXPLAIN EXECUTE {name}{values}", prepare=False).fetchall()
        found[statement] = "\n".join(line for (line,) in lines)
    return found


def test_no_statement_of_a_batch_or_of_a_look_up_reads_a_whole_table(
    one: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where it was planned when the table was empty."""
    dialect, seen = one.service.store.dialect, dict[str, str]()
    store = "store"
    commit = getattr(dialect, store)

    def stored(connection: Connection, write: Any) -> None:
        seen.update(plans(driven(connection)))
        commit(connection, write)

    monkeypatch.setattr(dialect, store, stored)
    path = one.client.post("/Task", json=task(0)).headers["location"].removeprefix(one.url)
    for turn in range(3):
        tasks = [entry(task(turn * 10 + n), f"identifier=urn:test|{turn * 10 + n}") for n in range(1, 6)]
        assert {each["status"][:3] for each in send(one.client, tasks)} == {"201"}
        assert one.client.post("/PaymentNotice", json=payment(100)).status_code == 201
        paid = [entry(payment(100, patient)) for patient in ("p1", "p2")]
        assert send(one.client, paid)[0]["status"].startswith("201")
        assert one.client.put(path, json=task(0, description=f"changed {turn}")).status_code == 200
    one.service.store.look_up(lambda connection: seen.update(plans(driven(connection))))
    changed = {statement for statement in seen if "UPDATE" in statement}
    looked_up = {statement for statement in seen if "FROM token" in statement}
    assert (len(changed) >= 3, len(looked_up)) == (True, 2), "by batches, and by look-ups"
    assert {statement: plan for statement, plan in seen.items() if "Seq Scan" in plan} == {}


def test_a_session_keeps_the_statements_of_every_mixture_of_a_few_creates(one: Running) -> None:
    """There are some 250. The driver alone would forget all but 100, and have the others planned again."""
    with one.service.store.engine.connect() as connection:
        raw = driven(connection)
        for number in range(300):
            raw.execute(f"SELECT {number}".encode(), prepare=True)
        [(kept,)] = raw.execute("SELECT count(*) FROM pg_prepared_statements", prepare=False).fetchall()
    assert kept >= 300
