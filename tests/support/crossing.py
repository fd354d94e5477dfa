"""What `make test` leaves to `make test-all`, which tries all seeds and all combinations of parameters.

Of tests that are marked `crossed` it tries each value of each parameter; of seeds, an eighth. Of what a whole file runs
on, such as both databases, a case has one in `make test`, and a test's next case the next; it has all of them where it
is marked `in_order`.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from zlib import crc32

import pytest

SEED = "seed"
"""The parameter that chooses how a test's law is tried."""
SEEDS_OF = 8
GROUNDS = ({"duckdb", "postgresql"}, {"sqlite", "postgresql"}, {"with additions", "bare"})
"""What a file's tests run on, by the ids of the parameter that says so."""
Case = tuple[int, ...]
"""Which value a test has of each parameter, as numbers."""


def leave_for_long(items: Sequence[pytest.Item]) -> None:
    """Mark as long what `make test` leaves out."""
    for tests in _by_function(items):
        if SEED in tests[0].callspec.params:
            later = _later([test.callspec.params[SEED] for test in tests])
            _leave(test for test in tests if test.callspec.params[SEED] in later)
        elif tests[0].get_closest_marker("crossed"):
            cases = _cases(tests)
            kept = covering(cases)
            _leave(test for test, case in zip(tests, cases, strict=True) if case not in kept)
    for tests in _by_function(item for item in items if not item.get_closest_marker("in_order")):
        of = [_on(test) for test in tests]
        stay = on_one_ground_each(tests[0].nodeid.partition("[")[0], of)
        _leave(test for test, on in zip(tests, of, strict=True) if on not in stay)


def _leave(tests: Iterable[pytest.Function]) -> None:
    for test in tests:
        test.add_marker(pytest.mark.long)


def _later(seeds: Iterable[object]) -> set[object]:
    """Return those of a test's seeds that are left out."""
    all_of_them = list(dict.fromkeys(seeds))
    return set(all_of_them[max(1, len(all_of_them) // SEEDS_OF) :])


Ids = tuple[str, ...]


def _on(test: pytest.Function) -> tuple[Ids, Ids]:
    """Return a test's ids of what it runs on, and its others."""
    ids = [str(each) for each in test.callspec._idlist]
    grounds = [any(each in ground for ground in GROUNDS) for each in ids]
    on = tuple(each for each, is_one in zip(ids, grounds, strict=True) if is_one)
    return on, tuple(each for each, is_one in zip(ids, grounds, strict=True) if not is_one)


def on_one_ground_each(name: str, cases: Sequence[tuple[Ids, Ids]]) -> set[tuple[Ids, Ids]]:
    """Return of each case one that is kept. Which is the first follows from the test's name, so that a file has all."""
    grounds = defaultdict[Ids, list[Ids]](list)
    for on, case in cases:
        grounds[case].append(on)
    first = crc32(name.encode())
    return {(of[(first + number) % len(of)], case) for number, (case, of) in enumerate(grounds.items())}


def covering(cases: Sequence[Case]) -> set[Case]:
    """Return few of these, always the same, among which is each value of each parameter.

    A value of the longest parameter meets one of each other's, which does not follow from its place in the row.
    """
    sizes = [len(set(values)) for values in zip(*cases, strict=True)]
    longest = sizes.index(max(sizes))

    def meets(case: Case) -> bool:
        return all(
            place == longest or value == crc32(f"{place} {case[longest]}".encode()) % size
            for place, (value, size) in enumerate(zip(case, sizes, strict=True))
        )

    kept = {case for case in cases if meets(case)}
    tried = {each for case in kept for each in enumerate(case)}
    for case in cases:
        if not tried.issuperset(enumerate(case)):
            kept.add(case)
            tried.update(enumerate(case))
    return kept


def _by_function(items: Iterable[pytest.Item]) -> Iterator[list[pytest.Function]]:
    """Yield the tests of each function that has parameters, without those that are long by themselves."""
    found = defaultdict[str, list[pytest.Function]](list)
    for item in items:
        if isinstance(item, pytest.Function) and hasattr(item, "callspec") and not item.get_closest_marker("long"):
            found[item.nodeid.partition("[")[0]].append(item)
    yield from found.values()


def _cases(tests: Sequence[pytest.Function]) -> list[Case]:
    """Return which values each test has. Names that get their values together are one parameter."""
    named = [[str(each) for each in test.callspec._idlist] for test in tests]
    numbers = [{name: number for number, name in enumerate(dict.fromkeys(names))} for names in zip(*named, strict=True)]
    return [tuple(of[name] for of, name in zip(numbers, names, strict=True)) for names in named]
