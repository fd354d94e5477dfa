"""How rows are dealt to lines of bundles: a lane keeps to its line and its order, and no row is lost."""

from hypothesis import given
from hypothesis import strategies as st

from pipelines.loading.bundles import LINES, ROWS_A_BUNDLE, dealt, rounds
from pipelines.loading.sending import Row

lanes = st.lists(st.sampled_from("abcdefg"), max_size=60).map(lambda found: found * 40)


def row(number: int, lane: str) -> Row:
    return Row(number, 1, f"k{number}", f"patient/{lane}", "", None, None, None, "{}", "")


@given(lanes)
def test_a_lane_keeps_to_its_line_and_its_order(found: list[str]) -> None:
    """QR-CREATE-16, LIMIT-04: one line has one request under way, so that a lane never has two."""
    rows = [row(number, lane) for number, lane in enumerate(found)]
    dealing = list(dealt(rows))
    assert {len(bundle) <= ROWS_A_BUNDLE and line < LINES for line, bundle in dealing} <= {True}
    lines = {one.lane: line for line, bundle in dealing for one in bundle}
    assert all(lines[one.lane] == line for line, bundle in dealing for one in bundle)
    for lane in lines:
        sent = [one.line for _, bundle in dealing for one in bundle if one.lane == lane]
        assert sent == [one.line for one in rows if one.lane == lane]
    assert sorted(one.line for _, bundle in dealing for one in bundle) == [one.line for one in rows]


@given(lanes)
def test_a_round_has_each_line_once_and_no_bundle_changes_places(found: list[str]) -> None:
    """LEDGER-01, LIMIT-04: what is intended in one commit can be under way together."""
    dealing = list(dealt(row(number, lane) for number, lane in enumerate(found)))
    together = list(rounds(dealing))
    assert [bundle for some in together for bundle in some] == dealing
    assert all(len({line for line, _ in some}) == len(some) for some in together)
