"""Responses put together by the ends of their rows, and files that are not sorted: the same as by the long way."""

from pathlib import Path
from random import Random
from typing import Any

import pytest

from pipelines.session.questionnaires import Snapshot
from pipelines.validation import bodies, grouping
from pipelines.validation.bodies import RowEnds
from pipelines.validation.outcome import ValidationResult
from tests.pipelines.validation.test_soundness import known  # noqa: F401 - a fixture
from tests.support.validating import rows, validated

HEADER = (
    "response_id,patient_id,questionnaire,authored,author,encounter_id,note_id,question,answer_code,answer_text,"
    "answer_number"
)
FILES = ("accepted", "rejects", "skipped")


class Export:
    """A file of responses, many of them sound, by seed. apart: as a part of one, how often a row stands elsewhere."""

    def __init__(self, seed: int, apart: float = 0.02) -> None:
        self.dice, self.again = Random(seed), 0.05 if apart else 0.0
        rows = [row for number in range(200) for row in self.response(number)]
        for place in range(len(rows)):
            if self.dice.random() < apart:
                other = self.dice.randrange(len(rows))
                rows[place], rows[other] = rows[other], rows[place]
        self.text = "".join(f"{row}\n" for row in [HEADER, *rows])

    def response(self, number: int) -> list[str]:
        dice = self.dice
        key = "" if dice.random() < 0.03 else f"r{dice.randrange(number + 1) if dice.random() < self.again else number}"
        head = [
            key,
            dice.choice(["p1", "p2", "Patient/p3", "Größe"] if dice.random() < 0.2 else ["p1", "p2"]),
            dice.choice(["ab"] * 8 + ["bz", "none", ""]),
            dice.choice(["", "2026-01-01", "2026-01-01T10:00:00Z", "soon" if dice.random() < 0.1 else ""]),
            dice.choice(["", "Patient/p1", "Practitioner/d1"]),
            dice.choice(["", "", "e1"]),
            dice.choice(["", "", f"n{number}"]),
        ]
        if dice.random() < 0.7:
            asked = dice.sample(["one", "some", "in"], dice.choice([1, 2, 3]))
        else:
            asked = dice.choices(["one", "some", "in", "text", "group", "nothing", "c"], k=dice.choice([1, 2, 3, 4]))
        rows = [self.row(head, each) for each in asked]
        return rows * 2 if dice.random() < 0.05 else rows

    def row(self, head: list[str], asked: str) -> str:
        dice = self.dice
        if dice.random() < 0.02:
            head = [*head[:1], "p9", *head[2:]]
        code = dice.choice(["a", "b", "http://loinc.org|a"] if dice.random() < 0.95 else ["z", "", "a b"])
        text = dice.choice(["", "", "fine", "täglich"]) if asked == "text" or dice.random() < 0.02 else ""
        cells = [*head, asked, "" if text else code, text, "7" if dice.random() < 0.01 else ""]
        return ",".join(cells)


def checked(text: str, lookup: Snapshot, folder: Path) -> tuple[ValidationResult, dict[str, Any]]:
    folder.mkdir()
    found = validated(text, folder, "answers.csv", snapshot=lookup)
    files = {name: rows(found, name) for name in FILES}
    found.folder = Path()
    return found, files


def watched(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Note for each file if the rows of its records are adjacent."""
    answers: list[bool] = []
    ask = grouping._stand_together

    def asked(mapped: Path) -> bool:
        answers.append(ask(mapped))
        return answers[-1]

    monkeypatch.setattr(grouping, "_stand_together", asked)
    return answers


def both_ways(
    text: str, lookup: Snapshot, folder: Path, monkeypatch: pytest.MonkeyPatch, slowly: tuple[object, str, Any]
) -> ValidationResult:
    """Check a file as it is, and once more with a function replaced: the same. slowly: module, name, replacement."""
    quickly = checked(text, lookup, folder / "quickly")
    monkeypatch.setattr(*slowly)
    assert checked(text, lookup, folder / "slowly") == quickly
    return quickly[0]


@pytest.mark.parametrize("seed", range(6))
def test_responses_are_the_same_without_a_look_at_rows_that_were_met(
    seed: int,
    known: Snapshot,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """FEED-FILE-09: accepted, rejected and skipped, with all reasons and texts."""
    used: list[int] = []
    ask = RowEnds.known

    def counted(ends: RowEnds, *given: Any) -> Any:
        found = ask(ends, *given)
        used.append(bool(found))
        return found

    monkeypatch.setattr(RowEnds, "known", counted)
    monkeypatch.setattr(RowEnds, "MOST", 4_000 if seed % 2 else 3)
    row_by_row = (bodies, "_ends_of", lambda *_: None)
    found = both_ways(Export(seed).text, known, tmp_path, monkeypatch, row_by_row)
    assert found.accepted > 10
    assert found.rejected > 3
    assert not seed % 2 or sum(used) > 10


@pytest.mark.parametrize("seed", range(4))
def test_a_file_is_sorted_only_if_rows_of_a_record_are_not_adjacent(
    seed: int,
    known: Snapshot,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """LEDGER-13: the rows of a response come together, in the order of the file."""
    for name, number in {"ROWS": 7, "BYTES_SORTED_AT_ONCE": 2_000, "LOOKED_AT": 2}.items():
        monkeypatch.setattr(grouping, name, number)
    asked, text = watched(monkeypatch), Export(seed, apart=0.0 if seed < 2 else 0.05).text
    both_ways(text, known, tmp_path, monkeypatch, (grouping, "_stand_together", lambda _: False))
    assert asked == [seed < 2]


@pytest.mark.parametrize(
    ("keys", "together"),
    [("aabb", True), ("abab", False), ("a--b", True), ("a-a", False), ("--", True), ("aaaa", False)],
)
def test_a_file_needs_no_sorting_if_the_rows_of_each_key_are_adjacent_and_few(
    keys: str,
    together: bool,
    known: Snapshot,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(grouping, "MOST_ROWS", 3)
    asked = watched(monkeypatch)
    rows = [f"{key.strip('-')},p1,ab,,,,,{'one' if at % 2 else 'some'},a,," for at, key in enumerate(keys)]
    _, files = checked("".join(f"{row}\n" for row in [HEADER, *rows]), known, tmp_path / "file")
    assert asked == [together]
    said = [reason["message"] for row in files["rejects"] for reason in row["reasons"]]
    assert said.count(grouping.SHARED) == (4 if keys == "aaaa" else 0)


def test_free_text_is_not_kept_in_the_cache_of_row_ends(
    known: Snapshot,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[RowEnds] = []
    make = RowEnds.__init__

    def kept(ends: RowEnds, *given: Any) -> None:
        made.append(ends)
        make(ends, *given)

    monkeypatch.setattr(RowEnds, "__init__", kept)
    rows = ["r1,p1,ab,,,,,one,a,,", "r1,p1,ab,,,,,text,,own words,"]
    found, _ = checked("".join(f"{row}\n" for row in [HEADER, *rows]), known, tmp_path / "file")
    assert found.accepted == 1
    assert [end for ends in made for _, end in ends._seen] == ['"one","a",null,null]']
