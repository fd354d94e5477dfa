"""The tools of the benchmarks: a slow line that loses nothing, the rate of each tenth of a load, equal tables."""

import json
import socket
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from bench.import_one import Moments
from bench.latency import lateness, later
from bench.locks import ENDED, WITHIN, Held
from bench.reports import make_reference
from bench.views import TABLES, compared


def echo(server: socket.socket) -> None:
    connection, _ = server.accept()
    with connection:
        while part := connection.recv(1 << 16):
            connection.sendall(part)


def test_a_slow_line_delivers_all_bytes_after_its_delay() -> None:
    said = bytes(range(256)) * 2_000
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=echo, args=(server,), daemon=True).start()
        with later(server.getsockname()[1], 0.2) as port, socket.create_connection(("127.0.0.1", port)) as client:
            began = time.monotonic()
            client.sendall(said)
            client.shutdown(socket.SHUT_WR)
            heard = b"".join(iter(lambda: client.recv(1 << 16), b""))
    assert heard == said
    assert time.monotonic() - began >= 0.2


def test_a_slow_line_is_never_early() -> None:
    assert lateness(0.05, times=40)[0] >= 0


def test_the_rate_of_a_load_is_computed_for_each_tenth() -> None:
    moments = Moments()
    moments.load = [(0.0, 0)] + [(1.0 + 0.1 * part, 10_000 * (part + 1)) for part in range(9)] + [(3.8, 100_000)]
    assert moments.tenths() == pytest.approx([10_000, *[100_000] * 8, 5_000])


def test_a_short_load_has_no_rates() -> None:
    moments = Moments()
    assert moments.tenths() == []
    moments.load = [(0.0, 0), (1.0, 500)]
    assert moments.tenths() == []


def test_views_and_sql_by_hand_make_equal_tables() -> None:
    """VIEW-01: the benchmark ends with an error if they differ."""
    assert [row["what"] for row in compared(500, 1)] == list(TABLES)


def test_each_report_has_results_of_its_own_where_they_are_asked_for(tmp_path: Path) -> None:
    make_reference(tmp_path / "made", 1_200, results=True)
    reports, results = (
        [json.loads(line) for line in (tmp_path / "made" / f"{name}.ndjson").read_text().splitlines()]
        for name in ("diagnostic_report", "observation")
    )
    named = [each["reference"] for report in reports for each in report.get("result", ())]
    assert len(set(named)) == len(named) > 1_200
    assert {f"Observation/{result['id']}" for result in results} == set(named)


def test_rows_are_locked_from_the_last_exchange_of_a_transaction_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """What one statement alone does is no batch, and connections do not mix."""
    seconds = [0.0]
    monkeypatch.setattr("bench.locks.time", SimpleNamespace(monotonic=lambda: seconds[0]))
    held = Held()
    for at, connection, said in (
        (0, 1, b"BEGIN"),
        (1, 2, b"SELECT 1"),
        (2, 2, b"a row" + ENDED),
        (3, 1, b"rows" + WITHIN),
        (10, 1, b"INSERT "),
        (11, 1, b"COMMIT"),
        (14, 1, b"done"),
        (15, 1, ENDED),
    ):
        seconds[0] = at
        held.watch(connection, not said.endswith((WITHIN, ENDED, b"done")), said)
    assert (held.locked, held.open) == ([5], [15])
