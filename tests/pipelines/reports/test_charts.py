"""Charts of the page: bars as long as their values, labels that tell them apart, a drawing for telephones."""

import pytest

from pipelines.reports.charts import NARROW, Series, columns, rows


def test_bars_are_as_long_as_their_values() -> None:
    stacked = columns(["a", "b"], [Series("x", [1, 2]), Series("y", [3, 0])], str)
    assert [round(bar.height / stacked.bars[0].height, 6) for bar in stacked.bars] == [1, 3, 2]
    assert stacked.bars[1].y + stacked.bars[1].height == pytest.approx(stacked.bars[0].y)
    beside = columns(["a"], [Series("x", [2]), Series("y", [4])], str, stacked=False)
    assert beside.bars[0].y + beside.bars[0].height == pytest.approx(beside.bars[1].y + beside.bars[1].height)
    assert beside.bars[1].x == pytest.approx(beside.bars[0].x + beside.bars[0].width)
    shares = rows(["a", "b"], [Series("x", [1, 300]), Series("y", [3, 100])], str, shares=True)
    lengths = [bar.width for bar in shares.bars]
    assert lengths[0] + lengths[1] == pytest.approx(lengths[2] + lengths[3])
    assert lengths[1] == pytest.approx(lengths[2])


def test_long_labels_keep_the_part_that_distinguishes_them() -> None:
    names = [f"a-feed-with-a-name-that-goes-on-and-on-{number:012x}" for number in (1, 2)]
    shown = [word.text for word in rows(names, [Series("x", [1, 1])], str).words if "…" in word.text]
    assert shown == ["a-feed-with-a-name-tha…00000000001", "a-feed-with-a-name-tha…00000000002"]


def test_a_chart_for_a_telephone_is_drawn_for_it_and_not_scaled_down() -> None:
    names = ["a-file-with-a-long-name-2026-03.csv", "b"]
    for made in (
        rows(names, [Series("x", [1, 2])], str, size=NARROW),
        columns(names, [Series("x", [1, 2])], str, size=NARROW),
    ):
        assert made.width <= 340
        assert all(bar.x >= 0 and bar.x + bar.width <= made.width for bar in made.bars)
    lying = rows(names, [Series("x", [1, 2])], str, size=NARROW)
    over = {word.text: word for word in lying.words}
    for name, bar in zip(names, lying.bars, strict=True):
        assert (over[name].end, over[name].y < bar.y) == ("start", True)


@pytest.mark.parametrize("top", [0, 0.003, 1, 7, 99, 100, 101, 123_456_789.12])
def test_every_bar_ends_within_the_scale(top: float) -> None:
    chart = columns(["a"], [Series("x", [top])], str)
    assert all(bar.y >= 0 and bar.height <= chart.height for bar in chart.bars)
    assert 2 <= len(chart.grid) <= 8
