"""Dates with day and month the other way round than the feed says: nothing of such a file is taken."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from fhir_service.interface.site import Site
from pipelines.feeds.files.catalog import load_feed
from pipelines.feeds.reading.chunks import CHUNK
from pipelines.home.batch import ReceivedFile, UnreadableFile
from pipelines.session.questionnaires import Snapshot
from pipelines.validation.outcome import ValidationResult
from pipelines.validation.stage import validate

FEED = """
kind = "tasks"
files = "*.csv"
dates = DATES
take.id = { not = "off" }
[columns]
task_id = "id"
requester_id = "by"
status = { constant = "requested" }
description = "what"
due = "until"
"""
HEADER = "id,by,what,until\n"
MONTH_FIRST = '["%m/%d/%Y"]'


def rows(*dates: str, key: str = "t{}") -> str:
    return "".join(f"{key.format(place)},dr-1,Call,{date}\n" for place, date in enumerate(dates))


def validated(folder: Path, text: str, dates: str = MONTH_FIRST) -> ValidationResult:
    (folder / "worklist.toml").write_text(FEED.replace("DATES", dates))
    file = folder / "worklist.csv"
    file.write_text(HEADER + text)
    received = ReceivedFile("b", "0" * 64, file, file.name, 0, datetime(2026, 6, 1, tzinfo=UTC))
    return validate(received, load_feed(folder / "worklist.toml"), Snapshot(), Site(), folder / "run")


@pytest.mark.parametrize(
    ("dates", "forms"),
    [
        (["25/03/2026", "26/03/2026", "03/04/2026"], MONTH_FIRST),
        (["25/03/2026"] + ["03/04/2026"] * CHUNK + ["25/03/2026"], MONTH_FIRST),
        (["03/25/2026 10:00"] * 2 + ["03/04/2026 10:00"], '["%d/%m/%Y %H:%M"]'),
        (["25/03/2026"] * 2 + ["03/04/2026"] + ["46082", "1 May 2026"] * 20, '["%m/%d/%Y", "excel", "%d %b %Y"]'),
        (["03/25/2026"] * 18 + ["25/03/2026"] * 2 + ["03/04/2026"], MONTH_FIRST),
    ],
)
def test_a_file_whose_dates_are_turned_is_refused(dates: list[str], forms: str, tmp_path: Path) -> None:
    """FEED-FILE-09: the 3rd of April is not taken for the 4th of March."""
    with pytest.raises(UnreadableFile) as error:
        validated(tmp_path, rows(*dates), forms)
    either = sum(date.startswith("03/04") for date in dates)
    assert str(error.value).startswith("worklist.csv: in until, 2 dates fit ")
    assert f", and {either:,} more may therefore be read as wrong days" in str(error.value)


@pytest.mark.parametrize(
    ("dates", "forms", "rejected"),
    [
        (["03/04/2026", "03/03/2026", "2026-03-25", ""], MONTH_FIRST, 0),
        (["25/03/2026", "26/03/2026", "03/03/2026", "13/13/2026"], MONTH_FIRST, 3),
        (["25/03/2026", "03/04/2026"], MONTH_FIRST, 1),
        (["03/25/2026"] * 19 + ["25/03/2026"] * 2 + ["03/04/2026"], MONTH_FIRST, 2),
        (
            ["03/08/2026 02:30", "03/08/2026 02:45", "03/09/2026 10:00"],
            '["%m/%d/%Y %H:%M"]\ntimezone = "America/New_York"',
            2,
        ),
        (["03/25/2026", "25/03/2026", "03/04/2026"], '["%m/%d/%Y", "%d/%m/%Y"]', 0),
        (["25/03/2026", "2026-03-04"], '["%d %b %Y"]', 1),
    ],
)
def test_a_typing_error_is_a_reject(dates: list[str], forms: str, rejected: int, tmp_path: Path) -> None:
    """FEED-FILE-09: where no other date is in doubt, the others tell of the feed's order, or the feed names both."""
    assert validated(tmp_path, rows(*dates), forms).rejected == rejected


def test_rows_that_the_feed_does_not_take_have_no_say_about_the_order_of_day_and_month(tmp_path: Path) -> None:
    found = validated(tmp_path, rows("03/04/2026") + rows("25/03/2026", key="off"))
    assert (found.accepted, found.rejected) == (1, 0)
