"""Files of fixed width: fields at declared places, and lines that cannot be told rejected with their line."""

import re
import subprocess
import sys

import pytest

from pipelines.feeds.files.catalog import FeedError, load_feed
from pipelines.feeds.reading.fixed import BY_BYTES, SEVERAL
from pipelines.feeds.reading.readers import reader_of
from pipelines.home.batch import UnreadableFile
from tests.support.archives import zipped
from tests.support.giving_back import one
from tests.support.peaks import peak_of
from tests.support.validating import accepted, rejected, rows, validated

FEED = """
kind = "payments"
files = ["till*"]
format = "fixed"
{more}
[fields]
receipt = [1, 6]
patient = [7, 12]
amount = [13, 20]
day = [21, 30]
[columns]
payment_id = "receipt"
patient_id = "patient"
amount = "amount"
paid_on = "day"
"""
SHORT = (
    "the line has 27 characters, but its fields end at 30, so it may be cut off; if the export leaves out blanks at the"
    " end, set short_lines = true in the feed file"
)


def line(key, patient="p1", amount="12.50", day="2026-03-01"):
    return f"{key:<6}{patient:<6}{amount:>8}{day}\n"


def read(content, folder, more="", name="till.txt"):
    return validated(content, folder, name, FEED.replace("{more}", more))


def test_fields_are_cut_at_their_places_behind_the_header(tmp_path):
    """FEED-FILE-01"""
    found = read("PAYMENTS OF MARCH\n\n" + line("é1") + "\n" + line("b", "pä") + "x", tmp_path, "header = 2")
    assert accepted(found) == [(3, "é1")]
    assert [(at, lines) for at, lines, _ in rejected(found)] == [(5, 1), (6, 1)]
    assert (found.header, found.lines, found.not_taken, found.amount_received) == (2, 6, 1, 2500)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            line("a")[:27] + "\n",
            SHORT,
        ),
        (
            "a\tp1" + line("")[4:],
            "the line has a tab, which moves the fields after it; export the file with spaces instead",
        ),
    ],
)
def test_a_fixed_width_line_whose_fields_cannot_be_located_is_rejected(text, said, tmp_path):
    """FEED-FILE-02"""
    assert rejected(read(line("b") + text, tmp_path)) == [(2, 1, said)]


NAMED = FEED.replace("{more}", "").replace("[columns]", "name = [31, 40]\ncents = [41, 50]\n[columns]")
NAMED = NAMED.replace('amount = "amount"', 'amount = { column = "cents", scale = 0.01 }')


def named(key, name, by="utf-8", end="07XX\n"):
    """A line with a column that no field names at its end; the name is filled up to 10 bytes of an encoding."""
    return f"{line(key).strip()}{name}{' ' * (10 - len(name.encode(by)))}0000001250{end}"


def test_a_line_whose_places_count_bytes_is_rejected(tmp_path):
    """FEED-FILE-02: read by characters, its amount would take a figure of the column behind it."""
    read = [named(key, name) for key, name in (("a", "Miller"), ("b", "Müller"), ("c", "Ünö"))]
    found = validated("".join(read), tmp_path, "till.txt", NAMED)
    assert (accepted(found), found.amount_received) == ([(1, "a")], 1250)
    assert [(at, said) for at, _, said in rejected(found)] == [(2, BY_BYTES.message), (3, BY_BYTES.message)]


@pytest.mark.parametrize("names", [("Miller", "Müller", "Ünö"), ("Müller", "Möller"), ("Ünö", "Müller", "Möller")])
def test_lines_filled_up_by_characters_are_taken(names, tmp_path):
    content = "".join(named(str(at), name, "latin-1") for at, name in enumerate(names))
    assert len(accepted(validated(content, tmp_path, "till.txt", NAMED))) == len(names)


@pytest.mark.parametrize("between", ["", "\x85", "\v"])
def test_a_file_whose_rows_have_no_line_breaks_is_refused(between, tmp_path):
    """FEED-FILE-02: all but the first would be lost."""
    with pytest.raises(UnreadableFile, match="the file is one line, as long as several rows"):
        read(between.join(line(key).strip() for key in "abc"), tmp_path)


def test_a_line_with_several_rows_is_rejected(tmp_path):
    """FEED-FILE-02"""
    found = read(line("a") + line("b").strip() + line("c") + line("d") + line("e"), tmp_path)
    assert accepted(found) == [(1, "a"), (3, "d"), (4, "e")]
    assert rejected(found) == [(2, 1, SEVERAL.message)]


def test_short_lines_are_taken_where_the_feed_says_so(tmp_path):
    found = read("a     p1       12.50\n", tmp_path, "short_lines = true")
    assert [reason["message"] for reason in rows(found, "rejects")[0]["reasons"]] == [
        "the column is required and empty here"
    ]


def test_a_trailer_may_have_places_of_its_own(tmp_path):
    """FEED-FILE-08"""
    feed = FEED.replace("{more}", "").replace(
        "[columns]", 'count = [2, 6]\n[trailer]\nwhen = { receipt = { starts = "T" } }\nrows = "count"\n[columns]'
    )
    found = validated(line("a") + "T00001" + " " * 24 + "\n", tmp_path, "till.txt", feed)
    assert (accepted(found), found.stop) == ([(1, "a")], None)
    (tmp_path / "wrong").mkdir()
    found = validated(line("a") + "T00002" + " " * 24 + "\n", tmp_path / "wrong", "till.txt", feed)
    assert found.stop
    assert "2" in found.stop


def test_a_file_in_a_zip_and_another_encoding_are_read(tmp_path):
    content = zipped({"till.txt": line("ü").encode("cp1252")})
    assert accepted(read(content, tmp_path, 'encoding = "cp1252"', "till.zip")) == [(1, "ü")]


def test_rejects_come_back_as_a_csv_with_the_names_of_the_fields(home, practice):
    """CLI-CMD-04, CLI-CMD-05"""
    (home / "feeds").mkdir()
    (home / "feeds" / "till.toml").write_text(FEED.replace("{more}", ""))
    assert practice.take(line("a") + line("b", amount="x"), "till.txt")[0] == 3
    exported = one(practice.export())
    header, row = exported.splitlines()
    assert header == "\ufeff_reject_id,_reasons,receipt,patient,amount,day"
    assert row.endswith(",b,p1,x,2026-03-01")
    assert practice.take(exported.replace(",x,", ",5.00,"), "corrected.csv")[0] == 0
    assert practice.rejects() == {"b": ("closed", 1)}


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (("day = [21, 30]", "day = [21, 20]"), "fields: day ends before it begins"),
        (('format = "fixed"', ""), 'fields: required with format = "fixed"'),
        (('amount = "amount"', 'amount = "sum"'), "columns.amount: sum is not one of [fields]"),
    ],
)
def test_impossible_fields_of_fixed_width_are_named(changed, said, tmp_path):
    (tmp_path / "till.toml").write_text(FEED.replace("{more}", "").replace(*changed))
    with pytest.raises(FeedError, match=re.escape(said)):
        load_feed(tmp_path / "till.toml")


@pytest.mark.long
def test_five_times_as_many_lines_take_less_than_twice_the_memory(tmp_path, monkeypatch):
    """counted by the objects in use."""
    monkeypatch.setattr("pipelines.feeds.reading.chunks.CHUNK", 500)
    (tmp_path / "till.toml").write_text(FEED.replace("{more}", ""))
    feed, peaks = load_feed(tmp_path / "till.toml"), []
    for number in (2_000, 10_000):
        (tmp_path / "till.txt").write_text("".join(line(str(n)) for n in range(number)))
        with reader_of(tmp_path / "till.txt", "till.txt", feed) as reader:
            found: list[int] = []
            peaks.append(peak_of(lambda: found.extend(len(chunk.rows) for chunk in reader.chunks())))  # noqa: B023
        assert sum(found) == number
    assert peaks[1] < 2 * peaks[0]


@pytest.mark.long
@pytest.mark.parametrize("many", [100_000, 200_000])
def test_the_memory_of_the_process_does_not_grow_with_the_lines(many, tmp_path):
    needed = []
    for number in (many // 10, many):
        script = (
            "import sys\nfrom pathlib import Path\nfrom pipelines.feeds.files.catalog import load_feed\n"
            "from tests.pipelines.validation.test_memory import most_memory\n"
            "from pipelines.feeds.reading.readers import reader_of\n"
            "feed = load_feed(Path(sys.argv[1]))\n"
            "with reader_of(Path(sys.argv[2]), 'till.txt', feed) as reader:\n"
            "    assert sum(len(chunk.rows) for chunk in reader.chunks()) == int(sys.argv[3])\n"
            "print(most_memory() >> 10)\n"
        )
        (tmp_path / "till.toml").write_text(FEED.replace("{more}", ""))
        (tmp_path / "till.txt").write_text("".join(line(str(n)) for n in range(number)))
        asked = [sys.executable, "-c", script, tmp_path / "till.toml", tmp_path / "till.txt", str(number)]
        needed.append(int(subprocess.run(asked, capture_output=True, text=True, check=True).stdout))
    assert needed[1] < needed[0] + many // 10
