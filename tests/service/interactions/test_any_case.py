"""Text in any case: names and descriptions are matched by Unicode's full case folding."""

from typing import Any

import pytest
from sqlalchemy import Text, literal, select

from fhir_service.store.expressions import contains, starts
from tests.conftest import BOTH, Running
from tests.support.bodies import task

STORES = BOTH


def holds(service: Running, comparison: Any, pairs: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """The pairs of stored and wanted text that do not match."""
    columns = [comparison(literal(stored, Text()), wanted) for stored, wanted in pairs]
    with service.service.store.read() as connection:
        found = [
            value
            for at in range(0, len(columns), 50)
            for value in connection.execute(select(*columns[at : at + 50])).one()
        ]
    return [pair for pair, matches in zip(pairs, found, strict=True) if not matches]


FOLDED = [
    letter
    for letter in map(chr, range(0xA0, 0x10000))
    if letter.casefold() != letter.lower() and not 0x13A0 <= ord(letter) < 0x13FE
]


@pytest.mark.alike
@pytest.mark.parametrize("comparison", [contains, starts])
def test_every_letter_matches_its_folding(service: Running, comparison: Any) -> None:
    """QNR-SEARCH-05: final sigma, sharp s, ligatures; in the stored text as in the wanted one."""
    pairs = [(f"a{letter}b", f"A{letter.casefold()}B") for letter in FOLDED]
    pairs += [(wanted, stored) for stored, wanted in pairs]
    assert len(pairs) > 200
    assert holds(service, comparison, pairs) == []


def test_a_letter_is_matched_in_part(service: Running) -> None:
    """TASK-SEARCH-02: what is wanted may begin or end within the folding of a letter."""
    pairs = [
        (f"a{letter}b", part) for letter in FOLDED for part in (f"a{letter.casefold()[0]}", f"{letter.casefold()[-1]}b")
    ]
    pairs += [(letter, part) for letter in FOLDED for part in letter.casefold()]
    pairs += [("Straße", ""), ("", "")]
    assert holds(service, contains, pairs) == []


def test_words_match_in_any_case(service: Running) -> None:
    """QNR-SEARCH-05."""
    words = ["Straße", "STRASSE", "Λόγος", "ΛΌΓΟΣ", "ﬁne", "Größe 漢字 %_/", "İstanbul", "ΣΊΣΥΦΟΣ", "Ёлка"]
    forms = [
        (word, form) for word in words for form in (word, word.upper(), word.lower(), word.casefold(), word.title())
    ]
    pairs = [(stored, wanted) for stored, wanted in forms if stored.casefold() == wanted.casefold()]
    assert len(pairs) > 30
    assert holds(service, contains, pairs) == []
    assert len(holds(service, contains, [("Strase", "Straße"), ("abc", "a_c"), ("abc", "a%"), ("logos", "Λόγος")])) == 4


def test_a_search_finds_what_is_written_in_another_case(fresh_service: Running) -> None:
    """TASK-SEARCH-02"""
    made = fresh_service.client.post("/Task", json=task(1, description="Λόγος an der Hauptstraße"))
    for wanted in ("HAUPTSTRASSE", "ΛΌΓΟΣ", "λόγος AN"):
        found = fresh_service.client.get("/Task", params={"description": wanted}).json()
        assert [entry["resource"]["id"] for entry in found["entry"]] == [made.headers["location"].rpartition("/")[2]]
