"""Corrected rejects as a spreadsheet saves them: with a delimiter and an encoding of its own."""

import csv
import io
import json
from pathlib import Path

import pytest

from pipelines.feeds.files.catalog import load_feeds
from pipelines.feeds.reading.packed import first_content
from pipelines.feeds.reading.reject_marks import as_saved

FEED = """kind = "payments"
files = ["till*.txt"]
format = "csv"
encoding = "windows-1252"
delimiter = "|"
quote = ""
header = 3
decimal = ","
[columns]
payment_id = "Beleg"
patient_id = "Patient"
amount = "Betrag €"
paid_on = "Tag"
"""
ROWS = "1|p1|x|2026-01-02|für Müller, bar\n2|p1|y|2026-01-02|Rest; Rückgabe\n"
EXPORT = "Praxis Müller\n\nBeleg|Patient|Betrag €|Tag|Text\n" + ROWS


@pytest.fixture
def exported(chartferry, tmp_path):
    """The files that `rejects export` writes now, each as rows of cells."""

    def call(delimiter, encoding):
        files = json.loads(chartferry("rejects", "export", "--out", tmp_path / "out", "--json")[1])["files"]
        texts = [Path(each["file"]).read_bytes().decode(encoding) for each in files]
        return [list(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)) for text in texts]

    return call


@pytest.fixture
def rejected(home, asked, exported):
    """The exported rejects of a till's export, as rows of cells."""
    (home / "feeds").mkdir()
    (home / "feeds" / "till.toml").write_text(FEED, encoding="utf-8")
    (home / "inbox" / "till.txt").write_bytes(EXPORT.encode("cp1252"))
    assert asked("import")["totals"]["rejected"] == 2
    [rows] = exported("|", "cp1252")
    return rows


def saved(rows, delimiter, encoding):
    text = io.StringIO(newline="")
    csv.writer(text, delimiter=delimiter).writerows(rows)
    return text.getvalue().encode(encoding)


@pytest.mark.alike
@pytest.mark.parametrize(
    ("delimiter", "encoding"), [(";", "cp1252"), (",", "utf-8-sig"), ("\t", "utf-16"), ("|", "utf-8-sig")]
)
def test_corrections_close_their_rejects_however_a_spreadsheet_saves_them(
    home, target, asked, rejected, exported, delimiter, encoding
):
    """CLI-CMD-04, CLI-CMD-05: what is wrong still comes back as it was saved."""
    header, first, second = rejected
    first[header.index("Betrag €")] = "12,50"
    (home / "inbox" / "corrected.csv").write_bytes(saved([header, first, second], delimiter, encoding))
    found = asked("import")
    assert (found["exit_code"], found["totals"]["created"], found["totals"]["rejected"]) == (3, 1, 1)
    assert target.of("PaymentNotice")[0]["amount"]["value"] == 12.5
    [[again, left]] = exported(delimiter, encoding)
    assert (again, left[0], left[2:]) == (header, second[0], second[2:])
    left[again.index("Betrag €")] = "3,00"
    (home / "inbox" / "corrected-2.csv").write_bytes(saved([again, left], delimiter, encoding))
    assert asked("import")["exit_code"] == 0
    assert exported(delimiter, encoding) == []


@pytest.mark.parametrize(
    ("text", "delimiter"),
    [
        ("_reject_id;_reasons;a\n", ";"),
        ('"_reject_id"\t"_reasons"\t"a"\n', "\t"),
        ("a;b;_reject_id\n", ";"),
        ("_reject_id,_reasons,a;b\n", ","),
        ("_reject_id\n", ","),
        ("a;b\n", ","),
    ],
)
def test_the_delimiter_beside_the_mark_is_the_files(tmp_path, text, delimiter):
    """CLI-CMD-05: of a file that answers rejects, and of no other."""
    feed = load_feeds().named("payments")
    assert feed
    (tmp_path / "file.csv").write_text(text)
    assert as_saved(first_content(tmp_path / "file.csv"), feed.file).delimiter == delimiter
