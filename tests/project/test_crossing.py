"""Which combinations of parameters `make test` tries."""

import random
from collections import Counter
from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.crossing import _beside_the_first, _cases, _later, covering, every_second, on_one_ground_each


@pytest.mark.parametrize("sizes", [(1,), (7,), (2, 2), (300, 2), (2, 11, 3), (1, 5), (40, 40)])
def test_each_value_of_each_parameter_is_tried_and_few_combinations_are(sizes: tuple[int, ...]) -> None:
    cases = list(product(*map(range, sizes)))
    kept = covering(cases)
    assert kept <= set(cases)
    for place, size in enumerate(sizes):
        assert {case[place] for case in kept} == set(range(size))
    assert len(kept) == max(sizes), "no fewer could have all values of the longest"
    assert kept == covering(cases), "always the same"


def test_cases_that_are_no_full_product_of_parameters_are_covered_too() -> None:
    assert covering([(0, 0), (0, 1), (1, 1)]) >= {(0, 0), (1, 1)}


def test_few_seeds_are_tried_and_at_least_one() -> None:
    assert [number - len(_later(range(number))) for number in (1, 2, 32, 64, 120)] == [1, 1, 1, 2, 3]
    assert _later([46, 1, 46, 0, 1]) == {1, 0}


BOTH = {("duckdb",), ("postgresql",)}


@pytest.mark.parametrize("others", [2, 3, 7])
def test_each_case_of_a_file_runs_on_one_of_both_databases_and_all_of_them_on_both(others: int) -> None:
    tests = [(on, (str(case),)) for on in BOTH for case in range(others)]
    kept = on_one_ground_each(tests)
    assert sorted(case for _, case in kept) == sorted({case for _, case in tests})
    found = Counter(on for on, _ in kept)
    assert found.keys() == BOTH
    assert max(found.values()) - min(found.values()) <= 1


@pytest.mark.parametrize("seed", range(40))
def test_a_file_loses_what_it_runs_on_only_where_it_has_one_case(seed: int) -> None:
    dice = random.Random(seed)
    cases = range(dice.randint(2, 9))
    tests = [(on, (str(case),)) for case in cases for on in (BOTH if dice.random() < 0.3 else {dice.choice([*BOTH])})]
    tests += [(on, ("of both",)) for on in BOTH]
    assert {on for on, _ in on_one_ground_each(tests)} == BOTH


@pytest.mark.parametrize("one", ["duckdb", "with additions", "sqlite"])
def test_a_single_case_runs_on_the_ground_with_more_to_find(one: str) -> None:
    other = "bare" if one == "with additions" else "postgresql"
    assert on_one_ground_each([((one,), ("a",)), ((other,), ("a",))]) == {((other,), ("a",))}


def test_a_case_that_runs_on_one_ground_only_is_kept() -> None:
    cases: list[tuple[tuple[str, ...], tuple[str, ...]]] = [((), ("a",)), ((), ("b",)), (("bare",), ("c",))]
    assert on_one_ground_each(cases) == set(cases)


def test_two_tests_try_every_second_value_each_and_together_all() -> None:
    kept = [[each.values for each in every_second("abc", first) if not each.marks] for first in (0, 1)]
    assert kept == [[("a",), ("c",)], [("b",)]]


def test_values_of_one_joint_parameter_count_as_one() -> None:
    ids = [["400-page", "bare"], ["400-nothing", "bare"], ["400-page", "whole"], ["400-nothing", "whole"]]
    tests = [SimpleNamespace(callspec=SimpleNamespace(_idlist=each)) for each in ids]
    assert _cases(tests) == [(0, 0), (1, 0), (0, 1), (1, 1)]  # type: ignore[arg-type]


def test_of_similar_cases_the_first_runs_on_every_ground_of_its_file() -> None:
    ids = [["400", "duckdb"], ["400", "postgresql"], ["404", "duckdb"], ["404", "postgresql"]]
    tests: list[Any] = [SimpleNamespace(nodeid="t[x]", callspec=SimpleNamespace(_idlist=each)) for each in ids]
    assert list(_beside_the_first(tests)) == tests[2:]
