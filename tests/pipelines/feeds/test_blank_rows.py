"""Rows that say nothing: they are counted as lines not taken, and nobody has to correct them."""

from pathlib import Path
from random import Random
from typing import Any

import pytest

from pipelines.feeds.files.catalog import Feed, load_feeds
from pipelines.feeds.reading import lines
from pipelines.feeds.reading.readers import reader_of
from pipelines.home.batch import UnreadableFile
from tests.support.validating import PAYMENTS as HEADER
from tests.support.validating import validated


@pytest.mark.parametrize("blank", ["", "   ", ",,,,", " , ,\t,,", ",,,,,,,", '"","","","",""', "\u00a0", "\x1a", "\f"])
def test_a_row_that_says_nothing_is_a_blank_line(blank: str, tmp_path: Path) -> None:
    """FEED-FILE-02: as spreadsheets write empty rows, and as old systems end a file."""
    found = validated(f"{blank}\n{HEADER}{blank}\nk1,p1,1.00,2026-01-01,\n{blank}\n{blank}", tmp_path)
    last = 1 if blank else 0
    assert (found.lines, found.header, found.not_taken) == (5 + last, 1, 3 + last)
    assert (found.rows, found.accepted, found.rejected) == (1, 1, 0)


def test_a_file_of_rows_that_say_nothing_is_empty(tmp_path: Path) -> None:
    """FEED-FILE-02: with a header it has no records."""
    found = validated(HEADER + ",,,,\n" * 3, tmp_path)
    assert (found.lines, found.not_taken, found.records) == (4, 3, 0)


def test_an_empty_row_between_those_of_a_trailer_is_no_row(tmp_path: Path) -> None:
    """FEED-FILE-02: neither counted by the trailer nor taken for what follows it."""
    toml = """kind = "payments"
files = ["*"]
[trailer]
when = { payment_id = "SUM" }
rows = "patient_id"
[columns]
payment_id = "payment_id"
patient_id = "patient_id"
amount = "amount"
paid_on = "paid_on"
"""
    content = f"{HEADER}k1,p1,1.00,2026-01-01,\n,,,,\nk2,p1,1.00,2026-01-01,\nSUM,2,,,\n,,,,\n,,,,\n"
    found = validated(content, tmp_path, toml=toml)
    assert (found.stop, found.accepted, found.not_taken) == (None, 2, 4)


@pytest.mark.parametrize("name", ["payments.csv", "payments.ndjson"])
def test_line_breaks_are_skipped_together(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of 250 MB of them was read for five minutes, a line at a time."""
    calls, take = 0, lines.Lines.take

    def counted(taken: lines.Lines) -> tuple[int, int, str]:
        nonlocal calls
        calls += 1
        return take(taken)

    monkeypatch.setattr(lines.Lines, "take", counted)
    ndjson = '{"payment_id": "k1", "patient_id": "p1", "amount": "1.00", "paid_on": "2026-01-01"}\n'
    row = ndjson if name.endswith("ndjson") else f"{HEADER}k1,p1,1.00,2026-01-01,\n"
    breaks = "\n" * 100_000
    found = validated(f"{breaks}{row}{breaks}", tmp_path, name)
    assert (found.lines, found.not_taken, found.accepted) == (200_000 + row.count("\n"), 200_000, 1)
    assert calls < 100


def read(path: Path, feed: Feed) -> Any:
    """Return what a reader yields for a file: its rows and bad rows, each with line and text, and its counts."""
    rows: list[Any] = []
    try:
        with reader_of(path, path.name, feed) as reader:
            for chunk in reader.chunks():
                assert chunk.size >= sum(len(row.raw) for row in chunk.rows)
                rows += chunk.rows
            return rows, reader.counted, reader.noticed, reader.answers
    except UnreadableFile as error:
        return str(error)


@pytest.mark.parametrize("files", [50, pytest.param(150, marks=pytest.mark.long)])
@pytest.mark.parametrize("ahead", [1, 2, 5, 64])
def test_line_breaks_skipped_together_are_those_skipped_one_by_one(
    ahead: int, files: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever breaks they are, and wherever a block ends."""
    dice, feed = Random(ahead), next(feed for feed in load_feeds().feeds if feed.name == "payments")
    rows = [
        "\n",
        "\r\n",
        "\r",
        "\n\n",
        "\r\r\n",
        ",,,\n",
        "k1,p1,1.00,2026-01-01,\n",
        'k2,"a\n\nb",1.00,2026-01-01,\r\n',
    ]
    monkeypatch.setattr(lines, "AHEAD", ahead)
    for number in range(files):
        path = tmp_path / f"{number}.csv"
        content = "".join([*dice.choices(rows, k=dice.randrange(4)), HEADER, *dice.choices(rows, k=dice.randrange(20))])
        path.write_bytes(content.encode())
        together = read(path, feed)
        with monkeypatch.context() as patched:
            patched.setattr(lines.Lines, "skip_breaks", lambda _: 0)
            assert together == read(path, feed), content
