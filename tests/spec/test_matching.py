"""The comparison that all cases rest on finds every difference, and only differences."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from tests.spec.casebook import changed, filled, from_json, to_json
from tests.spec.matching import differences, is_now

WORDS = {"base_url": "http://service.example:8400"}
SAME: list[tuple[Any, Any]] = [
    ({"a": [1, "x", None, True]}, {"a": [Decimal(1), "x", None, True]}),
    (Decimal("12.50"), Decimal("12.5")),
    ("{digits}12.50", Decimal("12.50")),
    ("{base_url}/Task/{uuid}", "http://service.example:8400/Task/0f8fad5b-d9cb-469f-a165-70867728950e"),
    ("{url}", "http://service.example:8400/chart"),
    ("W/{any}", 'W/"3"'),
    ("{rest}note{rest}", "note n3 is closed"),
    ("a.b", "a.b"),
]
DIFFERENT: list[tuple[Any, Any]] = [
    ({"a": 1}, {"a": 1, "b": 2}),
    ({"a": 1, "b": 2}, {"a": 1}),
    ({"a": 1}, {"a": 2}),
    ({"a": 1}, [1]),
    ([1, 2], [1]),
    ([1, 2], [1, 3]),
    ([], {}),
    ([], None),
    (None, False),
    (1, True),
    (True, 1),
    (True, False),
    ("1", Decimal(1)),
    (Decimal("12.50"), "12.50"),
    ("{digits}12.50", Decimal("12.5")),
    ("{uuid}", "0F8FAD5B-D9CB-469F-A165-70867728950E"),
    ("{any}", ""),
    ("{url}", "/chart"),
    ("{base_url}/Task", "http://elsewhere.example/Task"),
    ("a.b", "axb"),
    ("a", "ab"),
    ("{rest}note", "note n3"),
]


@pytest.mark.parametrize(("expected", "actual"), SAME)
def test_a_body_as_expected_gives_no_difference(expected: Any, actual: Any) -> None:
    assert differences(expected, actual, WORDS) == []


@pytest.mark.parametrize(("expected", "actual"), DIFFERENT)
def test_a_body_that_deviates_gives_one_difference(expected: Any, actual: Any) -> None:
    assert len(differences(expected, actual, WORDS)) == 1


def test_now_is_a_utc_time_of_the_last_minutes() -> None:
    now = datetime.now(UTC)
    assert is_now(now.isoformat())
    assert not is_now((now - timedelta(hours=1)).isoformat())
    assert not is_now((now + timedelta(minutes=1)).isoformat())
    assert not is_now(now.isoformat().replace("+00:00", "Z"))
    assert differences("{now}", now.date().isoformat(), WORDS)


def test_numbers_keep_their_digits_on_the_way_through_json() -> None:
    text = '{"a":[10.500,1E+2,-0.00,70.10000000000000000010]}'
    assert to_json(from_json(text)) == text


def test_a_body_is_changed_by_paths_and_its_base_is_not() -> None:
    base = {"a": {"b": [{"c": 1}]}, "d": 2}
    assert changed(base, {"a.b[0].c": 3, "a.b[1]": 4, "e": 5}, ["d"]) == {"a": {"b": [{"c": 3}, 4]}, "e": 5}
    assert base == {"a": {"b": [{"c": 1}]}, "d": 2}


def test_words_are_filled_in_wherever_they_stand() -> None:
    assert filled({"a": ["{x}/{y}", 1]}, x="1") == {"a": ["1/{y}", 1]}
