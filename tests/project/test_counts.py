"""Sentences with counts: `1 row`, and not `1 rows`."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from decimal import Decimal
from itertools import pairwise

import pytest

from pipelines.home.counted import counted, word_for
from tests.project.test_structure import modules

NOUNS = """alerts amounts batches cells columns documents entries fields files formulas lines members minutes options
patients payments people processes questions records rejects reports resources responses rows tasks texts values
verdicts"""
PLURAL = re.compile(
    rf",?( more| open| other| different)? ({'|'.join(NOUNS.split())})\b|( of (its|these|the) \w+)? (are|were|have) "
)
NO_NUMBERS = """source self.base_url where name holder feed.resource feed.name found['name'] file.kind last kind share
noun allowed both item.linkId looked_at""".split()
ABOVE_ONE = {
    "feeds.drafting.mapping_lines": "seen.rows",
    "feeds.drafting.sample": "shown.total()",
    "feeds.reading.csv_file": "len(cells)",
    "feeds.reading.packed": "len(members)",
    "importing.current_problems": "records",
    "importing.expectations": "len(before) len(batches)",
    "ledger.access": "len(rows)",
    "reports.attention": "each.records len(of_feed)",
    "validation.inspection": "number",
    "validation.withheld_files": "validated.copayments",
}
"""Numbers that are above 1 by what is asked before them, or whose sentence no user sees, by module."""


def plurals(module: ast.Module) -> Iterator[str]:
    """Yield the values in texts of a module that a plural follows, whatever number they are."""
    for node in ast.walk(module):
        if isinstance(node, ast.JoinedStr):
            for value, after in pairwise(node.values):
                behind = after.value if isinstance(after, ast.Constant) else ""
                if isinstance(value, ast.FormattedValue) and PLURAL.match(str(behind)):
                    yield ast.unparse(value.value)


def test_no_sentence_has_a_plural_behind_a_number_that_may_be_one():
    found = defaultdict[str, set[str]](set)
    for name, module in modules().items():
        if name.startswith("pipelines."):
            found[name.removeprefix("pipelines.")] |= {each for each in plurals(module) if not each.isupper()}
    left = {name: said.difference(NO_NUMBERS, ABOVE_ONE.get(name, "").split()) for name, said in found.items()}
    assert {name: said for name, said in left.items() if said} == {}, "say it by pipelines.home.counted"


@pytest.mark.parametrize(("number", "said"), [(0, "0 rows"), (1, "1 row"), (2, "2 rows"), (1200, "1,200 rows")])
def test_a_count_is_written_with_its_noun_in_the_right_number(number, said):
    assert counted(number, "row") == said


def test_words_fit_their_number_also_where_it_is_a_decimal():
    assert [counted(number, "entry is", "entries are") for number in (1, 3)] == ["1 entry is", "3 entries are"]
    assert [word_for(Decimal(number), "row") for number in ("1.0", "1.5")] == ["row", "rows"]
