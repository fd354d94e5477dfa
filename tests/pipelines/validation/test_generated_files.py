"""Laws that hold for any file: hundreds of them drawn from seeds, validated alone, and read by another reader."""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pyarrow.parquet as pq
import pytest

from fhir_service.interface.resources.questionnaire import Questionnaire
from fhir_service.interface.site import Site
from pipelines.feeds.files.catalog import Catalog, load_feeds
from pipelines.feeds.reading import chunks as reading
from pipelines.home.batch import ReceivedFile, UnreadableFile
from pipelines.session.questionnaires import Snapshot
from pipelines.validation import grouping
from pipelines.validation.checking import check_records
from pipelines.validation.outcome import ValidationResult
from pipelines.validation.stage import validate
from tests.support.generated_cells import FORM, MARKER, TOML
from tests.support.generated_files import FileMaker, GeneratedFile
from tests.support.generated_rows import (
    KEYS,
    NOW,
    UNSEEN,
    in_body,
    is_taken,
    like,
    physical_lines,
    row_alone,
    rows_by_line,
    said,
    same_key,
)

SNAPSHOT = Snapshot.of([Questionnaire.model_validate(FORM)])


class Mapped(NamedTuple):
    """A row as it was read: its first line, its number of lines, and its key."""

    line: int
    lines: int
    key: str | None


@dataclass
class Campaign:
    """Validate files one after another, and check each result."""

    folder: Path
    catalog: Catalog
    mapped: list[Mapped] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def check(self, file: GeneratedFile) -> None:
        path, folder = self.folder / file.name, self.folder / f"run-{self.counts['files']}"
        path.write_bytes(file.data)
        feed = self.catalog.match(file.name)
        assert feed
        received = ReceivedFile("b", "0" * 64, path, file.name, len(file.data), NOW)
        self.counts["files"] += 1
        try:
            found = validate(received, feed, SNAPSHOT, Site(), folder)
        except UnreadableFile as error:
            self.counts["unreadable"] += 1
            self.tells_of_no_cell(file, str(error))
            assert not list(folder.iterdir())
            return
        outcome = Outcome(file, found, self.mapped)
        outcome.every_row_is_counted_once()
        outcome.payments_are_sent_by_time_then_line()
        outcome.every_line_is_of_one_row()
        outcome.rejects_are_as_they_came()
        outcome.accepted_rows_say_what_their_lines_say()
        if file.sound:
            outcome.sound_rows_are_accepted()
        self.counts.update(accepted=found.accepted, rejected=found.rejected, skipped=found.skipped)

    @staticmethod
    def tells_of_no_cell(file: GeneratedFile, sentence: str) -> None:
        """Check an unreadable file: one sentence without any cell, and no other reader can read it."""
        assert not file.sound or not file.records, sentence
        assert sentence.startswith(f"{file.name}: ")
        assert "\n" not in sentence
        assert MARKER not in sentence.casefold()


class Outcome:
    """The result of the validation of a file."""

    def __init__(self, file: GeneratedFile, found: ValidationResult, mapped: list[Mapped]) -> None:
        self.file, self.found, self.mapped = file, found, sorted(mapped)
        self.accepted, self.skipped, self.rejects = (
            pq.read_table(found.folder / f"{name}.parquet").to_pylist() for name in ("accepted", "skipped", "rejects")
        )
        self.lines = physical_lines(file.text)
        self.grouped = file.kind == "answers"
        self.marked = "_reject_id" in file.text

    def every_row_is_counted_once(self) -> None:
        """Counts close, to the row, the line and the cent."""
        found, accepted, skipped, rejects = self.found, self.accepted, self.skipped, self.rejects
        assert found.lines == len(self.lines)
        assert (found.accepted, found.skipped) == (len(accepted) + len(skipped), len(skipped))
        assert (found.rejected, found.records) == (len(rejects), found.accepted + found.rejected)
        every = [*accepted, *skipped, *rejects]
        assert found.lines == found.header + found.not_taken + sum(row["lines"] for row in every)
        assert len({row["line"] for row in every}) == len(every)
        assert all(1 <= row["line"] <= found.lines for row in every)
        cents = [sum(row["amount_cents"] or 0 for row in rows) for rows in (accepted, skipped, rejects)]
        assert found.amount_received == sum(cents)
        assert (found.amount_accepted, found.amount_skipped) == (cents[0] + cents[1], cents[1])
        assert [row["position"] for row in accepted] == list(range(len(accepted)))
        keys = {row["key"]: row["line"] for row in accepted}
        assert len(keys) == len(accepted)
        assert all(row["first_line"] == keys[row["key"]] for row in skipped)

    def payments_are_sent_by_time_then_line(self) -> None:
        order = [(row["source_at"] is None, row["source_at"], row["line"]) for row in self.accepted]
        assert order == sorted(order) or self.file.kind not in ("payments", "till")

    def every_line_is_of_one_row(self) -> None:
        """Each physical line is of the header, of one row, or empty; each row is of one record."""
        owned: Counter[int] = Counter(line for row in self.mapped for line in range(row.line, row.line + row.lines))
        assert set(owned.values()) <= {1}
        assert set(owned) <= set(range(self.found.header + 1, len(self.lines) + 1))
        for number in set(range(self.found.header + 1, len(self.lines) + 1)) - set(owned):
            assert self.is_no_row(self.lines[number - 1]), f"line {number} is nowhere: {self.lines[number - 1]!r}"
        in_rows, in_records = Counter[Any](), Counter[Any]()
        for row in self.mapped:
            in_rows[row.key if self.grouped and row.key else row.line] += row.lines
        for one in [*self.accepted, *self.skipped, *self.rejects]:
            in_records[one["key"] if self.grouped and one["key"] else one["line"]] += one["lines"]
        assert in_rows == in_records

    def is_no_row(self, line: str) -> bool:
        """True if a line has nothing on it, repeats the header, or is one that its feed does not take."""
        if self.file.form == "ndjson":
            return not line.strip()
        nothing = UNSEEN + '"\ufeff' + self.file.delimiter
        before = next((place for place, each in enumerate(self.lines) if each.strip(nothing)), 0)
        header = {each.strip("\ufeff\r\n") for each in self.lines[: before + self.found.header]}
        return not line.strip(nothing) or line.strip("\ufeff\r\n") in header or self.file.kind == "till"

    def rejects_are_as_they_came(self) -> None:
        """A reject has the text of its lines, and a reason that names a line of it."""
        for reject in self.rejects:
            own = [
                row
                for row in self.mapped
                if row.line == reject["line"] or (self.grouped and row.key and row.key == reject["key"])
            ]
            text = "".join("".join(self.lines[row.line - 1 : row.line - 1 + row.lines]) for row in own)
            text = text.encode("utf-8", "backslashreplace").decode()
            if not self.marked:
                assert reject["record"].lstrip("\ufeff") == text.lstrip("\ufeff")
            assert reject["reasons"]
            lines = {line for row in own for line in range(row.line, row.line + row.lines)}
            assert all(reason["rule_id"] and reason["message"] for reason in reject["reasons"])
            assert all(reason["line"] is None or reason["line"] in lines for reason in reject["reasons"])

    def accepted_rows_say_what_their_lines_say(self) -> None:
        if self.marked or self.file.spoiled:
            return
        for one in self.accepted:
            own = [row for row in self.mapped if (row.key == one["key"] if self.grouped else row.line == one["line"])]
            texts = ["".join(self.lines[row.line - 1 : row.line - 1 + row.lines]) for row in own]
            rows = [row_alone(self.file, text) for text in texts]
            assert {same_key(row[KEYS[self.file.kind]]) for row in rows} == {one["key"]}
            if any("resourceType" in row for row in rows):
                continue
            wanted = [said(self.file, row) for row in rows]
            bodies = in_body(self.file, one)
            assert all(any(like(body, row) for row in wanted) for body in bodies), (one["body"], wanted)
            assert all(any(like(body, row) for body in bodies) for row in wanted), (one["body"], wanted)

    def sound_rows_are_accepted(self) -> None:
        """Check that another reader finds these rows, and each sound key is accepted once or rejected as repeated."""
        rows = rows_by_line(self.file)
        assert len(rows) == len(self.file.records) + (self.file.kind == "till")
        records = dict(zip(rows, self.file.records, strict=False))
        taken = [line for line, one in records.items() if is_taken(one.cells)]
        assert set(taken) <= {row.line for row in self.mapped} <= set(records)
        of_key: dict[str, list[int]] = {}
        for line in taken:
            of_key.setdefault(same_key(rows[line].get(KEYS[self.file.kind], "")), []).append(line)
        accepted = {row["line"] for row in self.accepted}
        one_row = "were read as one row"
        swallowed = {row["line"] for row in self.rejects if one_row in row["reasons"][0]["message"]}
        for lines in of_key.values():
            some = [records[line] for line in lines]
            repeats = len({one.cells.get("question") for one in some}) < len(some)
            if all(one.sound for one in some) and not swallowed & set(lines) and not (self.grouped and repeats):
                alike = self.grouped or all(one.cells == some[0].cells for one in some)
                assert accepted & set(lines) == ({lines[0]} if alike else set()), (lines, self.rejects)


@pytest.fixture
def campaign(tmp_path, monkeypatch) -> Campaign:
    for name, toml in TOML.items():
        (tmp_path / f"{name}.toml").write_text(toml)
    made = Campaign(tmp_path, load_feeds([tmp_path]))

    def noting(mapped, *rest):
        rows = pq.read_table(mapped, columns=list(Mapped._fields)).to_pylist()
        made.mapped = [Mapped(**row) for row in rows]
        return check_records(mapped, *rest)

    monkeypatch.setattr("pipelines.validation.stage.check_records", noting)
    return made


@pytest.mark.parametrize(
    ("seed", "files"), [(1, 20), *(pytest.param(seed, 400, marks=pytest.mark.long) for seed in range(11, 17))]
)
def test_each_row_of_a_generated_file_is_counted_once_and_read_as_others_read_it(
    seed, files, campaign, monkeypatch, capfd, caplog
):
    """FEED-FILE-02, FEED-FILE-03, FEED-FILE-04, FEED-FILE-09, FEED-PAY-03, FEED-PAY-04, LEDGER-13, LEDGER-19."""
    maker, dice = FileMaker(seed), Random(seed)
    for number in range(files):
        monkeypatch.setattr(reading, "CHUNK", dice.choice([2, 7, 2_000]))
        monkeypatch.setattr(grouping, "ROWS", dice.choice([3, 2_000]))
        monkeypatch.setattr(grouping, "KEYS_AT_ONCE", dice.choice([1, 200_000]))
        file = maker.file()
        try:
            campaign.check(file)
        except BaseException as error:
            error.add_note(f"seed {seed}, file {number}, {file.name}: {file.data[:2_000]!r}")
            raise
    out, err = capfd.readouterr()
    assert (out, err, caplog.text) == ("", "", "")
    assert campaign.counts["accepted"] > files
    assert campaign.counts["rejected"] > files // 2
    assert 0 < campaign.counts["unreadable"] < files // 3
