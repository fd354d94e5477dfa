"""Cells that hold no value: keys of rows that are no records, and placeholder dates."""

import json
from collections.abc import Callable
from datetime import UTC
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from pipelines.feeds.files.catalog import load_feed
from pipelines.feeds.mapping.chunk import ChunkRows, RowForm
from pipelines.feeds.mapping.mapping import Mapper
from pipelines.feeds.terms.columns import ValueFault, key, reference
from pipelines.feeds.terms.times import NO_DAY, Conventions, time
from tests.support.validating import rows, validated


@pytest.mark.parametrize(
    "text",
    [
        *("=A2+1", '=HYPERLINK("https://x.example";"R1")', "//R501", "--R501", "; R501", "REM R501"),
        *("p001 total", "Total p001", "grand total p001", "Zwischensumme gesamt"),
        *("-", "?", "#REF!", "#ERROR!", "#NV", "(blank)", r"\N", "NaT"),
    ],
)
def test_keys_that_come_from_formulas_totals_and_disabled_rows_are_refused(text: str) -> None:
    """FEED-FILE-09"""
    assert isinstance(key(text), ValueFault)
    assert key(text, {text: text}) == text  # as it was taken before


@pytest.mark.parametrize("text", ["R-501", "a--b", "total-7", "Subtotal", "sum of 3", "remedy 7", "_", "#1001", "-7"])
def test_keys_that_only_resemble_formulas_and_totals_are_taken(text: str) -> None:
    """FEED-FILE-09"""
    assert key(text) == text


@pytest.mark.parametrize("text", ["-", "(blank)", "#NAME?"])
def test_words_for_nothing_are_no_references(text: str) -> None:
    """FEED-FILE-06, FEED-FILE-09."""
    assert isinstance(reference(text, ("Patient",)), ValueFault)


@pytest.mark.parametrize(
    "text", ["2569-03-02", "0026-03-02", "1900-01-01", "1899-12-30", "9999-12-31", "1970-01-01", "1970-01-01T00:00:00Z"]
)
def test_days_outside_the_years_of_records_are_no_dates(text: str) -> None:
    """FEED-FILE-09"""
    assert time(text, Conventions(UTC)) is NO_DAY


@pytest.mark.parametrize("zone", ["America/New_York", "Europe/Berlin", "Asia/Tokyo", "UTC"])
@pytest.mark.parametrize(
    "text",
    [
        *("1970-01-01T00:00", "1970-01-01 00:00", "01/01/1970 00:00", "1970-01-01T00:00:00-05:00"),
        *("1969-12-31", "1969-12-31T19:00", "12/31/1969 16:00", "9999-12-31T23:59:59", "0001-01-01T00:00:00"),
    ],
)
def test_a_placeholder_date_is_recognised_in_any_zone(text: str, zone: str) -> None:
    """FEED-FILE-09: by the day as it is written."""
    assert time(text, Conventions(ZoneInfo(zone), ("%m/%d/%Y %H:%M", "%Y-%m-%d %H:%M"))) is NO_DAY


def test_the_first_moment_of_1970_in_utc_is_a_placeholder_in_any_zone() -> None:
    """FEED-FILE-09"""
    assert time("1970-01-01T01:00", Conventions(ZoneInfo("Europe/Berlin"))) is NO_DAY
    assert time("1970-01-01T02:00", Conventions(ZoneInfo("Europe/Berlin"))) == "1970-01-01T01:00:00+00:00"


def test_a_date_format_that_gives_an_impossible_year_leaves_the_text_to_the_next_format() -> None:
    """FEED-FILE-09"""
    assert time("02.03.0026", Conventions(UTC, ("%d.%m.%Y", "%d.%m.00%y"))) == "2026-03-02"
    assert time("02.03.0026", Conventions(UTC, ("%d.%m.%Y", "%d/%m/%Y"))) is NO_DAY


@pytest.mark.parametrize("text", ["1900-01-02", "1970-01-02", "1970-01-01T08:00:00Z", "2199-12-31"])
def test_days_within_the_years_of_records_are_dates(text: str) -> None:
    """FEED-FILE-09"""
    assert str(time(text, Conventions(UTC))).startswith(text[:10])


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("1772442000", "2026-03-02T09:00:00+00:00"),
        ("1772442000.25", "2026-03-02T09:00:00.250000+00:00"),
        ("1772442000250", "2026-03-02T09:00:00.250000+00:00"),
        ("1772442000250125", "2026-03-02T09:00:00.250125+00:00"),
    ],
)
def test_seconds_since_1970_are_times_where_the_feed_says_so(text: str, moment: str) -> None:
    """FEED-FILE-09: and none where it does not."""
    assert time(text, Conventions(UTC, ("unix",))) == moment
    assert isinstance(time(text, Conventions(UTC)), ValueFault)
    assert isinstance(time(text[:9], Conventions(UTC, ("unix",))), ValueFault)


def said(text: str, **conventions: object) -> str:
    found = time(text, Conventions(UTC, **conventions))  # type: ignore[arg-type]
    return found.message if isinstance(found, ValueFault) else str(found)


@pytest.mark.parametrize("figures", ["9999999999", "9000000000000000", "567993600", "4133980800"])
def test_numbers_that_would_be_seconds_before_1990_or_after_2100_are_no_times(figures: str) -> None:
    """FEED-FILE-09: the sentence names the key that allows them."""
    told = said(figures, dates=("unix",))
    assert told.startswith("the day is before 1990 or after 2100, the years of times that are numbers")
    assert "years = [1970, 2199]" in told


def test_a_feed_names_the_years_of_its_times() -> None:
    """FEED-FILE-09"""
    assert said("567993600", dates=("unix",), years=(1970, 2199)) == "1988-01-01T00:00:00+00:00"
    assert said("631152000", dates=("unix",)) == "1990-01-01T00:00:00+00:00"
    assert (
        said("2019-12-31", years=(2020, 2030))
        == "the day is before 2020 or after 2030, the years that the feed file allows"
    )
    assert said("2020-01-01", years=(2020, 2030)) == "2020-01-01"
    assert said("9999-12-31", years=(1900, 9999)) == "9999-12-31"


def test_words_for_nothing_are_empty_cells_with_blanks_around_them_too() -> None:
    """FEED-FILE-09"""
    rows = ChunkRows([["NULL"], [" NULL "], ["NULLA"], ["NULL\u00a0"]], RowForm(["who"], ["NULL"]))
    assert list(rows.cells("who")) == [None, None, "NULLA", None]


FEED = """
kind = "tasks"
files = ["list*"]
{more}
[columns]
task_id = "id"
description = "what"
status = "status"
requester_id = "who"
due = "due"
"""
LIST = (
    "id,what,status,who,due\na,call,requested,d1,9999-12-31\nb, NULL ,requested,d1,2026-03-01\nc,write,requested,d1,\n"
)


def hashes(folder: Path, more: str, text: str = LIST) -> dict[str, tuple[str, str | None]]:
    """By key, the hash of a record's content, and that by which older versions know it."""
    found = validated(text, folder, "list.csv", FEED.replace("{more}", more))
    return {row["key"]: (row["content_hash"], row["text_hash"]) for row in rows(found, "accepted")}


def test_a_record_that_was_loaded_with_a_day_for_none_is_known_by_it(tmp_path: Path) -> None:
    """FEED-FILE-09, LEDGER-13: as versions read it that took any day, whose records a feed with other years has."""
    before = hashes(tmp_path, "years = [1900, 9999]")
    now = hashes(tmp_path, 'empty = ["9999-12-31"]')
    assert set(hashes(tmp_path, "")) == {"b", "c"}
    assert now["a"][1] == before["a"][0] != now["a"][0]
    assert [now[key] for key in "bc"] == [(before[key][0], None) for key in "bc"]


def test_a_record_that_was_loaded_with_blanks_around_a_text_for_nothing_is_known_by_it(tmp_path: Path) -> None:
    """FEED-FILE-09, LEDGER-13"""
    text = LIST.replace("9999-12-31", " NULL ").replace("b, NULL ", "b,rest")
    now = hashes(tmp_path, 'empty = ["NULL"]', text)
    assert set(now) == {"a", "b", "c"}
    assert now["a"][1] is None  # no version took such a day
    labelled = FEED.replace('due = "due"', 'labels = "due"')
    said = [
        row
        for more in ("", 'empty = ["NULL"]')
        for row in rows(validated(text, tmp_path, "list.csv", labelled.replace("{more}", more)), "accepted")
        if row["key"] == "a"
    ]
    assert said[1]["text_hash"] == said[0]["content_hash"] != said[1]["content_hash"]


def test_a_comment_that_was_loaded_with_a_day_for_none_is_known_by_it(tmp_path: Path) -> None:
    """FEED-FILE-09, LEDGER-13: in an array of objects as in a column."""
    feed = FEED.replace("list*", "*.ndjson").replace(
        'due = "due"', 'comments = { column = "notes", each = { text = "say", author_id = "who", time = "at" } }'
    )
    note = {"say": "called", "who": "d1", "at": "9999-12-31"}
    row = {"id": "a", "what": "call", "status": "requested", "who": "d1", "notes": [note]}

    def known(more: str) -> tuple[str, str | None]:
        found = validated(json.dumps(row) + "\n", tmp_path, "list.ndjson", feed.replace("{more}", more))
        [one] = rows(found, "accepted")
        return one["content_hash"], one["text_hash"]

    before, now = known("years = [1900, 9999]"), known('empty = ["9999-12-31"]')
    assert now[1] == before[0] != now[0]


def test_a_record_with_two_days_for_none_is_known_whichever_of_them_the_feed_named_before(tmp_path: Path) -> None:
    """FEED-FILE-09, LEDGER-13: the content that was loaded has the other day."""
    more, days = FEED.replace('due = "due"', 'due = "due"\nauthored = "made"'), ("9999-12-31", "2999-12-31")
    text = f"id,what,status,who,due,made\na,call,requested,d1,{days[0]},{days[1]}\n"

    def known(keys: str) -> tuple[str, str | None]:
        [row] = rows(validated(text, tmp_path, "list.csv", more.replace("{more}", keys)), "accepted")
        return row["content_hash"], row["text_hash"]

    before = [known(f'years = [1900, 9999]\nempty = ["{day}"]')[0] for day in days]
    before.append(known("years = [1900, 9999]")[0])
    content, formerly = known('empty = ["9999-12-31", "2999-12-31"]')
    assert set((formerly or "").split()) == set(before)
    assert content not in before


@pytest.mark.parametrize(("number", "readings"), [(3, 4), (4, 5), (8, 2)])
def test_the_number_of_former_readings_is_bounded_for_many_placeholder_dates(
    number: int, readings: int, tmp_path: Path
) -> None:
    """FEED-FILE-09, LEDGER-13: each takes time. Kept are those of a list that grew at its end."""
    more = FEED.replace('due = "due"', 'due = "due"\nauthored = "made"')
    days = [f"{year}-12-31" for year in range(9999, 9999 - number, -1)]
    text = f"id,what,status,who,due,made\na,call,requested,d1,{days[0]},{days[-1]}\n"

    def known(keys: str) -> tuple[str, str | None]:
        [row] = rows(validated(text, tmp_path, "list.csv", more.replace("{more}", keys)), "accepted")
        return row["content_hash"], row["text_hash"]

    before = {
        known(f"years = [1900, 9999]\nempty = {json.dumps(days[:named])}")[0]
        for named in range(number if number == readings - 1 else 1)
    }
    _, formerly = known(f"empty = {json.dumps(days)}")
    assert {*(formerly or "").split()} == before
    feed = load_feed(tmp_path / "feed.toml")
    assert len(Mapper(feed, ["id", "what", "status", "who", "due", "made"], "list.csv").formers) == readings


@pytest.mark.parametrize("tags", ["", "; ", "x"])
def test_a_record_that_was_loaded_with_a_day_for_none_and_labels_of_none_is_known_by_it(
    tags: str, tmp_path: Path
) -> None:
    """FEED-FILE-09, LEDGER-13: whether the version had a list of none or no element."""
    feed = FEED.replace('due = "due"', 'due = "due"\nlabels = "tags"')
    text = f"id,what,status,who,due,tags\na,call,requested,d1,9999-12-31,{tags}\n"

    def known(more: str) -> tuple[str, str | None]:
        [row] = rows(validated(text, tmp_path, "list.csv", feed.replace("{more}", more)), "accepted")
        return row["content_hash"], row["text_hash"]

    before, now = known("years = [1900, 9999]"), known('empty = ["9999-12-31"]')
    formerly = (now[1] or "").split()
    assert before[0] in formerly
    assert {*(before[1] or "").split()} <= {*formerly}
    assert now[0] not in formerly


def test_the_next_export_leaves_such_a_task_unchanged(
    home: Path, target: object, chartferry: Callable[..., tuple[int, str, str]]
) -> None:
    """LEDGER-13"""
    (home / "feeds").mkdir(exist_ok=True)
    feed, inbox = home / "feeds" / "list.toml", home / "inbox"
    counts = []
    for number, more in enumerate(("years = [1900, 9999]", "", 'empty = ["9999-12-31", "NULL"]')):
        feed.write_text(FEED.replace("{more}", more))
        more_rows = "".join(f"n{number}{at},rest,requested,d1,\n" for at in range(1))
        (inbox / f"list{number}.csv").write_text(LIST.replace(" NULL ", "rest") + more_rows)
        _, said, _ = chartferry("import", "--json")
        counted = next(each for each in json.loads(said)["batches"] if each["batch_id"].startswith("list"))["counts"]
        counts.append({name: counted.get(name, 0) for name in ("created", "unchanged", "rejected")})
    assert counts == [
        {"created": 4, "unchanged": 0, "rejected": 0},
        {"created": 1, "unchanged": 2, "rejected": 1},
        {"created": 1, "unchanged": 3, "rejected": 0},
    ]
