"""The order in which rows go one by one: lanes, patients that are looked at first, lanes that stop."""

from pipelines.loading.row import Row
from pipelines.loading.turns import Turns


def row(key: str, lane: str, patient: str | None = None) -> Row:
    return Row(1, 1, key, lane, "hash", patient, None, None, "{}", "")


def keys(rows: list[Row]) -> list[str]:
    return [each.key for each in rows]


def test_of_a_lane_one_row_goes_at_a_time() -> None:
    turns = Turns(set(), set())
    first, second, other = row("a1", "a"), row("a2", "a"), row("b1", "b")
    turns.add([first, second, other])
    assert (keys(turns.take(9)), turns.count) == (["a1", "b1"], 3)
    turns.end(other)
    assert turns.take(9) == []
    turns.end(first)
    assert (keys(turns.take(9)), turns.count) == (["a2"], 1)
    turns.end(second)
    assert turns.count == 0


def test_rows_of_a_patient_wait_until_the_patient_is_noted() -> None:
    noted: set[str] = set()
    turns = Turns(set(), noted)
    turns.add([row("a1", "a", "p1"), row("b1", "b", "p1"), row("c1", "c")])
    assert (keys(turns.take(9)), keys(list(turns.to_look))) == (["c1"], ["a1"])
    turns.note("p1")
    assert (keys(turns.take(9)), noted) == (["a1", "b1"], {"p1"})


def test_a_stopped_lane_is_left_with_all_its_rows() -> None:
    """LEDGER-01: so that rows are read on, however many lanes stop."""
    stopped: set[str] = set()
    turns = Turns(stopped, set())
    first = row("a1", "a")
    turns.add([first, row("a2", "a"), row("a3", "a"), row("b1", "b")])
    stopped.add("a")
    assert keys(turns.take(1)) == ["a1"]
    turns.end(first)
    turns.add([row("a4", "a")])
    assert (keys(turns.take(9)), turns.count) == (["b1"], 1)
