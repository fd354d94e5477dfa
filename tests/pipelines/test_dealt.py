"""How rows are dealt to lines of bundles: no lane is under way on two lines, none is late, and no row is lost."""

from collections import Counter
from concurrent.futures import Future
from random import Random
from types import SimpleNamespace
from typing import Any, cast

from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.client.profiles import ROWS_A_BUNDLE
from pipelines.loading.answered import Result
from pipelines.loading.book import Book
from pipelines.loading.bundles import LINES, UnderWay, dealt, rounds
from pipelines.loading.row import Row
from pipelines.loading.sending import Sent

few = st.lists(st.sampled_from("abcdefg"), max_size=60).map(lambda found: found * 40)
many = st.lists(st.integers(0, 4000), min_size=40, max_size=60).map(
    lambda found: [str((at * n) % 4001) for at in found for n in range(80)]
)


def row(number: int, lane: str) -> Row:
    return Row(number, 1, f"k{number}", f"patient/{lane}", "", None, None, None, "{}", "")


@settings(max_examples=60)
@given(few | many, st.randoms(use_true_random=False))
def test_no_lane_is_under_way_on_two_lines_in_whatever_order_lines_end(found: list[str], chance: Random) -> None:
    """QR-CREATE-16, LIMIT-04: a bundle ends no sooner than its line begins the next one."""
    rows = [row(number, lane) for number, lane in enumerate(found)]
    under_way: dict[int, set[str]] = {}
    order: dict[str, list[int]] = {}
    for together in rounds(dealt(rows)):
        for line, bundle in chance.sample(together, len(together)):
            assert len(bundle) <= ROWS_A_BUNDLE
            under_way.pop(line, None)
            lanes = {one.lane for one in bundle}
            assert all(lanes.isdisjoint(others) for others in under_way.values())
            under_way[line] = lanes
            for one in bundle:
                order.setdefault(one.lane, []).append(one.line)
    assert all(numbers == sorted(numbers) for numbers in order.values())
    assert sorted(number for numbers in order.values() for number in numbers) == [one.line for one in rows]


@given(st.integers(LINES, 60))
def test_few_lanes_are_spread_evenly(lanes: int) -> None:
    """LIMIT-04: a line that had more than the others would be waited for at the end."""
    rows = [row(number, str(number % lanes)) for number in range(lanes * 60)]
    had: Counter[int] = Counter()
    for line, bundle in dealt(rows):
        had[line] += len(bundle)
    assert max(had.values()) - min(had.values()) <= 60


@given(few | many)
def test_a_round_has_each_line_once_and_no_bundle_changes_places(found: list[str]) -> None:
    """LEDGER-01, LIMIT-04: what is intended in one commit can be under way together."""
    dealing = list(dealt(row(number, lane) for number, lane in enumerate(found)))
    together = list(rounds(dealing))
    assert [bundle for some in together for bundle in some] == dealing
    assert all(len({line for line, _ in some}) == len(some) for some in together)


class Waited(Future[Sent]):
    """A future that nobody waits for alone."""

    def result(self, timeout: float | None = None) -> Sent:
        assert self.done(), "a line is waited for while another could go on"
        return super().result(timeout)


def test_a_line_that_has_ended_goes_on_while_another_is_waited_for() -> None:
    """LIMIT-04"""
    slow, sent = Waited(), list[str]()

    def send(bundle: list[Row]) -> Future[Sent]:
        sent.append(bundle[0].key)
        if bundle[0].key == "k0":
            return slow
        if bundle[0].key == "k3":
            slow.set_result(Sent({0: Result("created")}))
        done = Waited()
        done.set_result(Sent({0: Result("created")}))
        return done

    written: list[str] = []
    book = SimpleNamespace(stopped=set(), loaded=SimpleNamespace(unusable=None), hold_back=list)
    book.write_down = lambda _, results: written.extend(one.key for one, _ in results)
    bundles: list[list[tuple[int, list[Row]]]] = [
        [(line, [row(at + line, str(line))]) for line in (0, 1)] for at in (0, 2, 4)
    ]
    UnderWay(cast("Book", cast("Any", book)), send).carry(bundles)
    assert sent == ["k0", "k1", "k3", "k2", "k4", "k5"]
    assert sorted(written) == [f"k{number}" for number in range(6)]
