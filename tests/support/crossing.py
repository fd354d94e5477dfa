"""Choose the cases that `make test` runs. `make test-all` runs all seeds and all combinations of parameters.

A test marked `crossed` runs with each value of each parameter, though not with each combination; one marked `alike`
with its first case; of seeds, one in 32 runs. Where a whole file runs on several grounds, such as both databases, a
case runs on one of them and the next case on the other, so that the file uses both. A test marked `on_both` runs on
all.
"""

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any
from zlib import crc32

import pytest

SEED = "seed"
"""The parameter that holds the seed of a test."""
SEEDS_OF = 32
GROUNDS = ("postgresql", "bare", "bucket", "duckdb", "sqlite", "with additions", "folder")
"""The grounds that a file's tests run on, by the ids of their parameter.

A file with a single case uses the first possible ground: the database with several writers, the target that could store
a record twice, the store behind a network.
"""
Case = tuple[int, ...]
"""The position of a test's value in each of its parameters."""


def every_second(values: Iterable[object], first: int = 0) -> list[Any]:
    """Return these values, every second one marked for `make test-all` only. first: the first without the mark."""
    marks = (() if place % 2 == first else pytest.mark.long for place in itertools.count())
    return [pytest.param(value, marks=mark) for value, mark in zip(values, marks, strict=False)]


def leave_for_long(items: Sequence[pytest.Item]) -> None:
    """Mark the tests that `make test` leaves out as `long`."""
    for tests in _by_function(items):
        if tests[0].get_closest_marker("alike"):
            _leave(_beside_the_first(tests))
        elif SEED in tests[0].callspec.params:
            later = _later([test.callspec.params[SEED] for test in tests])
            _leave(test for test in tests if test.callspec.params[SEED] in later)
        elif tests[0].get_closest_marker("crossed"):
            cases = _cases(tests)
            kept = covering(cases)
            _leave(test for test, case in zip(tests, cases, strict=True) if case not in kept)
    for tests in _by_file(item for item in items if not item.get_closest_marker("on_both")):
        of = [_on(test) for test in tests]
        stay = on_one_ground_each(of)
        _leave(test for test, on in zip(tests, of, strict=True) if on not in stay)


def _leave(tests: Iterable[pytest.Function]) -> None:
    for test in tests:
        test.add_marker(pytest.mark.long)


def _later(seeds: Iterable[object]) -> set[object]:
    """Return the seeds of a test that are left out."""
    all_of_them = list(dict.fromkeys(seeds))
    return set(all_of_them[max(1, len(all_of_them) // SEEDS_OF) :])


Ids = tuple[str, ...]


def _beside_the_first(tests: Sequence[pytest.Function]) -> Iterator[pytest.Function]:
    """Yield the tests to leave out: all cases of a function but its first, which stays on all of its grounds."""
    _, first = _on(tests[0])
    yield from (test for test in tests if _on(test)[1] != first)


def _on(test: pytest.Function) -> tuple[Ids, Ids]:
    """Return the ids of a test's grounds, and its case: its function and all other ids."""
    ids = [str(each) for each in test.callspec._idlist]
    on = tuple(each for each in ids if each in GROUNDS)
    return on, (test.nodeid.partition("[")[0], *(each for each in ids if each not in GROUNDS))


def on_one_ground_each(tests: Sequence[tuple[Ids, Ids]]) -> set[tuple[Ids, Ids]]:
    """Return one test for each case of a file, on the ground that the fewest tests of the file use so far."""
    grounds = defaultdict[Ids, list[Ids]](list)
    for on, case in tests:
        grounds[case].append(on)
    kept = {(of[0], case) for case, of in grounds.items() if len(of) == 1}
    are_on = Counter(on for on, _ in kept)
    for case, of in grounds.items():
        if len(of) > 1:
            ground = min(of, key=lambda on: (are_on[on], [GROUNDS.index(each) for each in on]))
            are_on[ground] += 1
            kept.add((ground, case))
    return kept


def covering(cases: Sequence[Case]) -> set[Case]:
    """Return a few of these cases, always the same ones, that contain each value of each parameter.

    There is one case for each value of the longest parameter, and more only for values that are then missing. Which
    values are combined does not depend on their order.
    """
    mixed = sorted(cases, key=lambda case: crc32(repr(case).encode()))
    sizes = [len(set(values)) for values in zip(*cases, strict=True)]
    longest = sizes.index(max(sizes))
    kept, tried = set[Case](), set[tuple[int, int]]()
    of_each = [[case for case in mixed if case[longest] == value] for value in sorted({c[longest] for c in cases})]
    for of in (*of_each, *([case] for case in mixed)):
        case = max(of, key=lambda case: len(set(enumerate(case)) - tried))
        if not tried.issuperset(enumerate(case)):
            kept.add(case)
            tried.update(enumerate(case))
    return kept


def _by_function(items: Iterable[pytest.Item]) -> Iterator[list[pytest.Function]]:
    """Return the tests of each function with parameters, without those marked `long`."""
    return _by(items, "[")


def _by_file(items: Iterable[pytest.Item]) -> Iterator[list[pytest.Function]]:
    """Return the tests with parameters of each file, without those marked `long`."""
    return _by(items, "::")


def _by(items: Iterable[pytest.Item], end: str) -> Iterator[list[pytest.Function]]:
    found = defaultdict[str, list[pytest.Function]](list)
    for item in items:
        if isinstance(item, pytest.Function) and hasattr(item, "callspec") and not item.get_closest_marker("long"):
            found[item.nodeid.partition(end)[0]].append(item)
    yield from found.values()


def _cases(tests: Sequence[pytest.Function]) -> list[Case]:
    """Return the values of each test. Names that get their values together count as one parameter."""
    named = [[str(each) for each in test.callspec._idlist] for test in tests]
    numbers = [{name: number for number, name in enumerate(dict.fromkeys(names))} for names in zip(*named, strict=True)]
    return [tuple(of[name] for of, name in zip(numbers, names, strict=True)) for names in named]
