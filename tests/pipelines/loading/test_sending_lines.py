"""Rows on lines: no lane is on two lines at once, no row is lost, patients are looked up first, and lanes can stop."""

from collections import Counter
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.client.profiles import ROWS_A_BUNDLE
from pipelines.loading.row import AcceptedRow
from pipelines.loading.sending_lines import CHARACTERS_A_UNIT, CHARACTERS_AHEAD, ROWS_AHEAD, LaneLines, NotedPatients

LINES = 4
NOBODY = NotedPatients(None)

few = st.lists(st.sampled_from("abcdefg"), max_size=60).map(lambda found: found * 40)
many = st.lists(st.integers(0, 4000), min_size=40, max_size=60).map(
    lambda found: [str((at * n) % 4001) for at in found for n in range(80)]
)


def row(number: int, lane: str, patient: str | None = None, body: str = "{}") -> AcceptedRow:
    return AcceptedRow(number, 1, f"k{number}", lane, "hash", patient, None, None, body, "")


def filled(lines: LaneLines, rows: list[AcceptedRow]) -> LaneLines:
    for each in rows:
        lines.add(each)
    return lines


def keys(units: list[list[AcceptedRow]]) -> list[list[str]]:
    return [[each.key for each in unit] for unit in units]


@settings(max_examples=settings().max_examples * 3 // 5)
@given(few | many, st.sampled_from([1, ROWS_A_BUNDLE]), st.randoms(use_true_random=False))
def test_no_lane_is_sent_on_two_lines_at_once_in_whatever_order_bundles_end(
    found: list[str], most: int, chance: Random
) -> None:
    """QR-CREATE-16, LIMIT-04"""
    lines, rows = (
        LaneLines(2 * LINES, LINES, most, set(), NOBODY),
        [row(number, lane) for number, lane in enumerate(found)],
    )
    left, in_hand, order = iter(rows), list[list[AcceptedRow]](), dict[str, list[int]]()
    while True:
        while lines.want_rows and (one := next(left, None)):
            lines.add(one)
        in_hand += (taken := lines.take(chance.randint(1, 2 * LINES)))
        assert all(0 < len(unit) <= most for unit in taken)
        lanes = Counter(lane for unit in in_hand for lane in {one.lane for one in unit})
        assert len(in_hand) <= 2 * LINES
        assert set(lanes.values()) <= {1}
        for one in (one for unit in taken for one in unit):
            order.setdefault(one.lane, []).append(one.line)
        if not in_hand:
            break
        lines.end(in_hand.pop(chance.randrange(len(in_hand))))
    assert all(numbers == sorted(numbers) for numbers in order.values())
    assert sorted(number for numbers in order.values() for number in numbers) == [one.line for one in rows]


@given(st.integers(LINES, 60))
def test_a_few_lanes_are_spread_evenly_over_the_lines(lanes: int) -> None:
    """LIMIT-04: a line that had more than the others would be waited for at the end."""
    lines = filled(
        LaneLines(2 * LINES, LINES, 10_000, set(), NOBODY),
        [row(number, str(number % lanes)) for number in range(lanes * 60)],
    )
    had = [len(unit) for unit in lines.take(LINES)]
    assert max(had) - min(had) <= 60


def test_a_few_rows_are_sent_in_as_few_bundles_as_possible() -> None:
    """LIMIT-04"""
    lines = filled(LaneLines(2, 1, 100, set(), NOBODY), [row(number, str(number)) for number in range(160)])
    assert [len(unit) for unit in lines.take(2)] == [100, 60]


def test_a_line_that_has_ended_goes_on_while_another_is_waited_for() -> None:
    """LIMIT-04"""
    lines = filled(LaneLines(2, 2, 1, set(), NOBODY), [row(number, str(number)) for number in range(4)])
    first, second = lines.take(9)
    assert keys([first, second]) == [["k0"], ["k1"]]
    assert lines.take(9) == []
    lines.end(second)
    assert keys(lines.take(9)) == [["k3"]]


def test_rows_are_read_as_long_as_a_line_is_short_of_them_and_few_wait() -> None:
    """LIMIT-04: behind the rows of a long lane, others are found; not all of a file is held for them."""
    lines = filled(LaneLines(2, 2, 10, set(), NOBODY), [row(number, "long") for number in range(ROWS_AHEAD - 1)])
    wanted = [lines.want_rows]
    lines.add(row(ROWS_AHEAD, "long"))
    assert [*wanted, lines.want_rows] == [True, False]
    assert not filled(LaneLines(2, 2, 10, set(), NOBODY), [row(number, str(number)) for number in range(20)]).want_rows


def test_rows_that_wait_do_not_go_once_their_lane_has_stopped() -> None:
    """QR-CREATE-16: one that came before them is in doubt."""
    stopped = set[str]()
    lines = filled(LaneLines(2, 2, 10, stopped, NOBODY), [row(number, "ab"[number % 2]) for number in range(4)])
    stopped.add("a")
    assert keys(lines.take(9)) == [["k1", "k3"]]
    assert not lines.add(row(4, "a"))


def test_a_bundle_is_bounded_in_size() -> None:
    """LIMIT-04: a row that is larger is sent alone."""
    large = "x" * (CHARACTERS_A_UNIT // 2 + 1)
    lines = filled(LaneLines(1, 1, 10, set(), NOBODY), [row(number, "a", body=large) for number in range(3)])
    assert not lines.want_rows
    [first] = lines.take(9)
    lines.end(first)
    assert keys([first, *lines.take(9)]) == [["k0"], ["k1"]]


def test_the_waiting_bodies_are_bounded_however_many_lines_want_rows() -> None:
    """LIMIT-04"""
    lines, body = LaneLines(64, 64, 1, set(), NOBODY), "x" * CHARACTERS_A_UNIT
    read = 0
    while lines.want_rows:
        lines.add(row(read, str(read), body=body))
        read += 1
    assert read * len(body) == CHARACTERS_AHEAD


def test_rows_of_a_patient_wait_until_the_patient_is_noted() -> None:
    noted: set[str] = set()
    rows = [row(1, "a", "p1"), row(2, "b", "p1"), row(3, "c")]
    lines = filled(LaneLines(3, 3, 1, set(), patients := NotedPatients(noted)), rows)
    assert (keys(lines.take(9)), keys([patients.taken_to_look()])) == ([["k3"]], [["k1"]])
    patients.note("p1")
    assert (keys(lines.take(9)), noted) == ([["k1"], ["k2"]], {"p1"})


def test_rows_are_read_in_place_of_those_of_a_lane_that_stopped() -> None:
    """LEDGER-01, LIMIT-04: at once, whatever else is under way."""
    stopped: set[str] = set()
    lines = filled(LaneLines(2, 2, 1, stopped, NOBODY), [row(number, "long") for number in range(ROWS_AHEAD + 1)])
    [first] = lines.take(9)
    assert not lines.want_rows
    stopped.add("long")
    lines.end(first)
    assert (lines.want_rows, lines.are_empty) == (True, True)


def test_rows_of_a_stopped_lane_are_neither_kept_nor_sent() -> None:
    """LEDGER-01: so that reading goes on, however many lanes stop."""
    stopped: set[str] = set()
    lines = filled(LaneLines(1, 1, 1, stopped, NOBODY), [row(1, "a"), row(2, "a"), row(3, "a"), row(4, "b")])
    [first] = lines.take(9)
    stopped.add("a")
    lines.end(first)
    lines.add(row(5, "a"))
    assert keys(lines.take(9)) == [["k4"]]
