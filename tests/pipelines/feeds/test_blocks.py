"""Lines that are read together give what they give one by one. The law of the quick way."""

from pathlib import Path
from random import Random
from typing import Any

import pytest

from pipelines.feeds.files.catalog import Feed, load_feeds
from pipelines.feeds.reading import chunks, csv_file
from pipelines.feeds.reading.csv_file import plain_rows
from pipelines.feeds.reading.readers import reader_of
from pipelines.home.batch import UnreadableFile

HEADER = "payment_id,patient_id,amount,paid_on,claim_id\n"
PLAIN = ("P1,p1,5.00,2026-01-01,c0\n", "P2,p2,7.50,2026-01-02,\n", "P3,Größe,7.50,2026-01-02,c1\n")
ODD = (
    'P4,"p, 4",1.00,2026-01-01,\n',
    'P5,"p5\nP6,p6,2.00,2026-01-01,\n',
    'P7,"p7\nof two lines",2.00,2026-01-01,\n',
    'P8,ab"c,2.00,2026-01-01,d"e\n',
    'P9,"p9"x,2.00,2026-01-01,\n',
    "\n",
    ",,,,\n",
    " ,\t,,\x1a,\n",
    HEADER,
    "\ufeff" + HEADER,
    "payment_id,p1,5.00,2026-01-01,c0\n",
    "P10,p1,5.00\n",
    "P11,p1,5.00,2026-01-01,,,\n",
    "P12,p\0,5.00,2026-01-01,\n",
    "P13,p1,5.00,2026-01-01,\r\n",
    "P14,p\r1,5.00,2026-01-01,\n",
    "P15,p1,5.00,2026-01-01,",
    '"',
)


def read(path: Path, feed: Feed) -> Any:
    """What a reader makes of a file: its rows and bad rows, each with line and text, and its counts."""
    good: list[Any] = []
    bad: list[Any] = []
    try:
        with reader_of(path, path.name, feed) as reader:
            for chunk in reader.chunks():
                assert chunk.size >= sum(map(len, chunk.raw))
                good += zip(chunk.rows, chunk.line, chunk.lines, chunk.raw, strict=True)
                bad += chunk.bad
            return good, bad, reader.counted, reader.noticed, reader.answers
    except UnreadableFile as error:
        return str(error)


@pytest.mark.parametrize("files", [100, pytest.param(300, marks=pytest.mark.long)])
def test_lines_read_together_give_the_rows_that_they_give_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: int
) -> None:
    """FEED-FILE-02, LEDGER-25: files of generated lines, most of them plain."""
    chance, path, together = Random(19), tmp_path / "payments.csv", 0
    feed, quickly = load_feeds([]).match("payments.csv"), plain_rows
    assert feed is not None

    def counted(*given: Any) -> Any:
        nonlocal together
        together += (found := quickly(*given)) is not None
        return found

    monkeypatch.setattr(chunks, "CHUNK", 4)
    for _ in range(files):
        lines = [chance.choice(PLAIN if chance.random() < 0.9 else ODD) for _ in range(chance.randrange(1, 30))]
        path.write_text(chance.choice((HEADER, HEADER, "x,y\n")) + "".join(lines), newline="")
        monkeypatch.setattr(csv_file, "plain_rows", counted)
        found = read(path, feed)
        monkeypatch.setattr(csv_file, "plain_rows", lambda *_: None)
        assert found == read(path, feed), lines
    assert together > files
