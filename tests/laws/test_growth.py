"""The work that outside input causes grows as its length does: steps are counted at n and at 4n."""

import importlib
import pkgutil
import re
from collections.abc import Iterator
from itertools import chain, product
from pathlib import Path
from zlib import crc32

import pytest

import fhir_service
import pipelines
from pipelines.feeds.terms import texts
from pipelines.feeds.terms.columns import ValueFault, amount
from pipelines.feeds.terms.numbers import NumberFormat
from tests.support.steps import Steps, TooManySteps

SIZE = 10
NUMBERS = {
    "plain": NumberFormat(),
    "german": NumberFormat(",", ".", ("€", "EUR")),
    "swiss": NumberFormat(".", "'", ("CHF",)),
    "french": NumberFormat(",", " ", ("€", " EUR")),
}
BEGINNINGS = ("", "1", "(", "-", "a", '"', "[", "2024-01-01", "/", "http://", '{"_reject_id":"')
PARTS = (" ", "1", "a", "A", "/", ".", ",", "~", "'", '"', "\\", "[", "]", "-", "(", "\u00a0", "1 ", "/A", "]\t", '""')
ENDS = ("", "x\x00", "1!")

PROGRAMS = ("__main__", ".celery_worker")
"""Modules that are run, and no more: the second is refused where no broker is named."""


def patterns() -> Iterator[tuple[str, re.Pattern[str]]]:
    """Every pattern that a module of the import or the service keeps, and those that are made of a feed's numbers."""
    seen = set()
    modules = (pkgutil.walk_packages(each.__path__, f"{each.__name__}.") for each in (pipelines, fhir_service))
    for module in chain.from_iterable(modules):
        if module.name.endswith(PROGRAMS):
            continue
        for name, found in vars(importlib.import_module(module.name)).items():
            if isinstance(found, re.Pattern) and isinstance(found.pattern, str) and found.pattern not in seen:
                seen.add(found.pattern)
                yield f"{module.name}.{name}", found
    for name, numbers in NUMBERS.items():
        yield f"amounts, {name}", numbers._amount
        yield f"numbers, {name}", numbers._number


TEXTS = list(product(BEGINNINGS, PARTS, ENDS))
GROUPS = 96
"""Of texts, for each pattern others; `make test` takes one group."""


@pytest.mark.parametrize("texts", [0, *(pytest.param(each, marks=pytest.mark.long) for each in range(1, GROUPS))])
def test_the_steps_of_a_pattern_grow_with_its_text(texts: int) -> None:
    """LIMIT-14: four times the text is four times the steps, give or take those at its ends."""
    faster, tried = {}, dict(patterns())
    assert len(tried) > 100
    for name, pattern in tried.items():
        chosen = [each for number, each in enumerate(TEXTS) if (crc32(name.encode()) + number) % GROUPS == texts]
        assert len(chosen) > 4
        for beginning, part, end in chosen:
            try:
                first = Steps(pattern, beginning + part * SIZE + end)
                first.match()
                Steps(pattern, beginning + part * 4 * SIZE + end, 5 * first.taken + 100).match()
            except TooManySteps:
                faster[name] = beginning, part, end
    assert faster == {}


def test_steps_that_grow_faster_are_found() -> None:
    """LIMIT-14: what counts the steps sees two repeats that share their blanks."""
    for pattern in (r"a\s*\s*b", r"(a|a)*b", r"\d+\d*x"):
        for text in ("a" + " " * 40, "a" * 40, "1" * 40):
            try:
                Steps(re.compile(pattern), text, 300).match()
            except TooManySteps:
                break
        else:
            pytest.fail(pattern)


@pytest.mark.parametrize("numbers", NUMBERS.values(), ids=NUMBERS)
def test_a_cell_with_many_blanks_inside_is_no_amount(numbers: NumberFormat) -> None:
    """LIMIT-14, FEED-FILE-09: such a cell is refused, however many they are."""
    for blank in (" ", "\u00a0", "\t"):
        assert isinstance(amount(f"1{blank * 100_000}x", numbers), ValueFault)


def test_a_letter_with_thousands_of_combining_marks_is_not_normalised(monkeypatch: pytest.MonkeyPatch) -> None:
    """LIMIT-14: it is left as it is; a text of any length is composed otherwise."""
    assert texts.composed_text("a\u0308" * 1000) == "\u00e4" * 1000
    with monkeypatch.context() as patched:
        patched.delattr("unicodedata.normalize")
        assert texts.composed_text(text := "a" + "\u0300\u0327" * 1000) == text


def test_no_pattern_takes_blanks_that_it_may_have_to_give_back_before_a_separator() -> None:
    """LIMIT-14: `\\s*,` looks at n blanks n times where no separator follows; a search begins at each of them."""
    sources = [path for each in (pipelines, fhir_service) for path in Path(each.__path__[0]).rglob("*.py")]
    found = [path.name for path in sources if re.search(r're\.(split|sub|findall|search)\(r"\\s[*+]', path.read_text())]
    assert found == []


def test_no_set_is_reduced_by_going_through_all_that_is_kept() -> None:
    """`few - kept.keys()` takes each key of `kept` in turn, and `few.difference(kept)` each of the few."""
    sources = [path for each in (pipelines, fhir_service) for path in Path(each.__path__[0]).rglob("*.py")]
    assert [path.name for path in sources if re.search(r" - [\w.\[\]]+\.keys\(\)", path.read_text())] == []
