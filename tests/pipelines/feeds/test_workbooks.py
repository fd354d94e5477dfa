"""Workbooks: cells are read as the sheet shows them, row numbers are lines, and unreadable parts get one sentence."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from pipelines.feeds.reading import packed, workbook_parts
from pipelines.feeds.reading.formats import shown_by
from pipelines.home.batch import UnreadableFile
from pipelines.validation.outcome import ValidationResult
from tests.support.validating import accepted, rejected, rows, validated
from tests.support.workbooks import FORMATS, MAIN, Cell, sheet, workbook

FEED = """
kind = "payments"
files = ["till*.xlsx"]
{more}
[columns]
payment_id = "Receipt"
patient_id = "Patient"
amount = "Amount"
paid_on = "Date"
"""
TASKS = """
kind = "tasks"
files = ["till*.xlsx"]
[columns]
task_id = "No"
description = { join = ["A", "B", "C", "D", "E", "F", "G", "H", "I"], with = "|" }
status = { constant = "requested" }
requester_id = { constant = "d1" }
"""
HEADER: list[Cell] = ["Receipt", "Patient", "Amount", "Date"]
PERCENT, DAY, MOMENT, ZEROS, MONEY, CLOCK, HOURS, MRN, EURO = range(1, 10)


def row(key: Cell, amount: Cell = 12.5, patient: Cell = "p1") -> list[Cell]:
    return [key, patient, amount, (46082, DAY)]


def read(content: bytes, folder: Path, more: str = "", toml: str = "") -> ValidationResult:
    return validated(content, folder, "till.xlsx", toml or FEED.replace("{more}", more))


def one_sheet(*cells: list[Cell], merged: tuple[str, ...] = (), first: int = 1) -> bytes:
    return workbook({"Payments": sheet(cells, first, merged)})


def test_rows_are_read_with_their_row_numbers(tmp_path: Path) -> None:
    """FEED-FILE-08: blank rows and a repeated header are no records."""
    found = read(one_sheet(HEADER, row("a"), [], row(7), HEADER, row("x", "?"), row("b")), tmp_path)
    assert accepted(found) == [(2, "a"), (4, "7"), (7, "b")]
    assert [(line, lines) for line, lines, _ in rejected(found)] == [(6, 1)]
    assert (found.lines, found.header, found.not_taken, found.amount_accepted) == (7, 1, 2, 3750)
    assert found.warnings == {"LEDGER-25": 1}
    assert str(rows(found, "accepted")[0]["source_at"]).startswith("2026-03-01 00:00:00")


def test_a_sheet_and_a_header_are_named_by_name_or_number(tmp_path: Path) -> None:
    """FEED-FILE-08"""
    cells: list[list[Cell]] = [["Riverside", None, "Payments of March"], [], ["of", "till 2"], HEADER, row("a")]
    content = workbook({"Read me": sheet([["hello"]]), "Payments": sheet(cells)})
    for number, more in enumerate(
        ('sheet = "Payments"\nheader = 4', "sheet = 2\nheader = 4", 'sheet = 2\nheader_has = "Receipt"')
    ):
        (folder := tmp_path / str(number)).mkdir()
        found = read(content, folder, more)
        assert accepted(found) == [(5, "a")]
        assert (found.lines, found.header) == (5, 4)


def test_a_workbook_without_a_header_goes_by_position(tmp_path: Path) -> None:
    """FEED-FILE-08"""
    toml = FEED.replace("{more}", "header = 0")
    for place, name in enumerate(("Receipt", "Patient", "Amount", "Date"), 1):
        toml = toml.replace(f'"{name}"', str(place))
    assert accepted(read(one_sheet(row("a"), row("b")), tmp_path, toml=toml)) == [(1, "a"), (2, "b")]


def test_cells_are_texts_as_the_sheet_shows_them(tmp_path: Path) -> None:
    """FEED-FILE-08: dates are ISO 8601, percents and filled zeros stay, a number keeps its decimals."""
    values: list[Cell] = [1, True, 0.125, (0.125, PERCENT), (46082.5, MOMENT), (46082, MOMENT)]
    values += [(46082, DAY), (123, ZEROS), (0.1 + 0.2, MONEY), (0.5, CLOCK)]
    more: list[Cell] = [2, (1.25, HOURS), (4711, MRN), 1e-7, 1234567890123, b'<c r="{at}" t="s"><v>1</v></c>']
    more += ["  007 ", b'<c r="{at}" t="str"><f>x</f><v>text</v></c>', b'<c r="{at}" t="b"><v>0</v></c>', "two\nlines"]
    header: list[Cell] = ["No", *"ABCDEFGHI"]
    found = read(one_sheet(header, values, more), tmp_path, toml=TASKS)
    assert [each["body"].partition('"description":"')[2].partition('"')[0] for each in rows(found, "accepted")] == [
        "TRUE|0.125|12.5%|2026-03-01T12:00:00|2026-03-01T00:00:00|2026-03-01|00123|0.3|12:00:00",
        "30:00:00|MRN-4711|0.0000001|1234567890123|inparts|  007 |text|FALSE|two\\nlines",
    ]


@pytest.mark.parametrize(
    ("code", "number", "shown"),
    [
        ("00000", "123", "00123"),
        ("000-00-0000", "12345678", "012-34-5678"),
        ('"MRN-"0', "4711", "MRN-4711"),
        ("0000", "123456", "123456"),
        ("00000", "1.5", None),
        ("0.0%;-0.0%", "0.125", "12.5%"),
        ('[$-409]d/m/yyyy\\ "at" h:mm', "46082", "2026-03-01T00:00:00"),
        ("yyyy/mm/dd hh:mm", "46082.5", None),
        ("[$\u20ac-407] #,##0.00", "12.5", "\u20ac12.5"),
        ("#,##0.00 \u20ac", "-3", "\u20ac-3"),
        ('_-* #,##0.00 "CHF"_-', "7.25", "CHF7.25"),
        ("[$CA$-1009]#,##0.00", "8", "CA$8"),
        ('"MRN"00000', "123", "MRN00123"),
        ('"MRN "0', "123", "MRN 123"),
        ('"MRN"General', "123", "MRN123"),
        ('"ID-"General', "123", "ID-123"),
        ('"CHF" 0', "12.5", "CHF12.5"),
        ("[$CHF] 0", "12", "CHF12"),
    ],
)
def test_a_format_shows_what_the_value_does_not_say(code: str, number: str, shown: str | None) -> None:
    show = shown_by(170, code)
    assert show
    assert show(number) == shown


@pytest.mark.parametrize(
    "code",
    [
        "General",
        "0",
        "0.00",
        "#,##0.00",
        "@",
        "yyyy-mm-dd",
        '_("$"* #,##0.00_)',
        "[$$-409]#,##0.00",
        "[$USD] 0.00",
        "h:mm",
    ],
)
def test_most_cell_formats_do_not_change_the_value(code: str) -> None:
    assert shown_by(170, code) is None


def test_built_in_formats_are_known() -> None:
    assert [format_id for format_id in range(50) if shown_by(format_id, None)] == [9, 10, 22]


def test_numbers_among_texts_with_leading_zeros_are_a_warning(tmp_path: Path) -> None:
    """WORKBOOK-ZEROS: only in columns that the feed names."""
    cells = [[*HEADER, "Memo"], [*row("007"), "01"], [*row(8), 5], [*row("a"), None]]
    found = read(one_sheet(*cells), tmp_path)
    assert [key for _, key in accepted(found)] == ["007", "8", "a"]
    ((line, rule, message),) = [(each["line"], each["rule_id"], each["message"]) for each in rows(found, "warnings")]
    assert (line, rule) == (3, "WORKBOOK-ZEROS")
    assert message.startswith("a number in Receipt, where other cells are texts that begin with 0")


def test_another_currency_than_dollars_rejects_its_row(tmp_path: Path) -> None:
    """FEED-FILE-09: only the format of the cell has the sign."""
    found = read(one_sheet(HEADER, row("a", (12.5, EURO)), row("b", (12.5, MONEY))), tmp_path)
    assert accepted(found) == [(3, "b")]
    assert [line for line, _, _ in rejected(found)] == [2]


def test_hidden_rows_are_a_warning(tmp_path: Path) -> None:
    """WORKBOOK-HIDDEN: hidden rows are read like the others."""
    content = workbook({"P": sheet([HEADER, row("a"), row("b"), row("c")], hidden=(1, 3, 4))})
    found = read(content, tmp_path)
    assert [key for _, key in accepted(found)] == ["a", "b", "c"]
    said = "the sheet hides 2 rows, the first on line 3: they are read like the others"
    assert [(each["line"], each["message"]) for each in rows(found, "warnings")] == [(3, said)]


ENDLESS = ["INF", "-inf", "Infinity", "1e999"]


@pytest.mark.parametrize(
    ("style", "written"),
    [(style, written) for style in (DAY, MOMENT, CLOCK, HOURS) for written in ("-inf", "-1e300", "-1e10")]
    + [(HOURS, written) for written in ("INF", "1e999", "1e300", "1e9")],
)
def test_an_invalid_date_refuses_the_file_and_names_the_cell(written: str, style: int, tmp_path: Path) -> None:
    """FEED-FILE-02: the reader of the sheet stops there, in whatever column it is."""
    none = f'<c r="{{at}}" s="{style}"><v>{written}</v></c>'.encode()
    said = f"the cell E3 has the format of a date or time, but its number, {written}, is not one; correct it in the"
    with pytest.raises(UnreadableFile, match=re.escape(said)):
        read(one_sheet([*HEADER, "Memo"], row("a"), [*row("b"), none]), tmp_path)


@pytest.mark.parametrize(
    ("style", "written"),
    [(style, written) for style in (0, ZEROS, MRN) for written in ("NaN", "nan", "-nan", *ENDLESS)]
    + [(style, written) for style in (DAY, MOMENT, CLOCK) for written in ("NaN", "INF", "1e999")],
)
def test_an_invalid_number_rejects_its_row_in_any_format(written: str, style: int, tmp_path: Path) -> None:
    """FEED-FILE-09: as a day it would be 1899-12-30. Columns that the feed does not name are not checked."""
    none = f'<c r="{{at}}" s="{style}"><v>{written}</v></c>'.encode()
    found = read(one_sheet([*HEADER, "Memo"], row(none), row("a", none), [*row("b"), none]), tmp_path)
    assert accepted(found) == [(4, "b")]
    assert [message for _, _, message in rejected(found)] == [
        f"the cell A2 has the error {written} instead of a value",
        f"the cell C3 has the error {written} instead of a value",
    ]


def test_cells_without_a_value_reject_their_row(tmp_path: Path) -> None:
    """FEED-FILE-09: an error, and a number that lost digits. Columns that the feed does not name are not checked."""
    error = b'<c r="{at}" t="e"><v>#N/A</v></c>'
    cells = [[*HEADER, "Memo"], row("a", error), row(12345678901234567), [*row("b"), error]]
    found = read(one_sheet(*cells), tmp_path)
    assert accepted(found) == [(4, "b")]
    assert [message for _, _, message in rejected(found)] == [
        "the cell C2 has the error #N/A instead of a value",
        "the number in the cell A3 has more than the 15 digits that a workbook keeps; enter it as text",
    ]


def encrypted() -> bytes:
    return b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600) + "EncryptedPackage".encode("utf-16-le") + bytes(600)


NO_VALUE = b'<c r="{at}"><f>SUM(C1:C9)</f><v></v></c>'
ENTITIES = '<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;">]><worksheet>&b;</worksheet>'
FAR = sheet([HEADER, row("a"), [b'<c r="XFD1048576"><v>1</v></c>']])
LONG = {"xl/sharedStrings.xml": f"<sst><si><t>{'x' * 3_000_000}</t></si></sst>"}
MANY_STYLES = f"<styleSheet><cellXfs>{'<xf/>' * 100_001}</cellXfs></styleSheet>"
LONG_FORMAT = f'<styleSheet><numFmts><numFmt numFmtId="170" formatCode="{"0" * 10_001}"/></numFmts></styleSheet>'
AGAIN = sheet([HEADER, row("a"), row("b"), row("c")])
"""A sheet, to be given other row numbers."""

ODD = {
    "a row twice": (
        workbook({"P": re.sub(r'r="([A-D]?)4"', r'r="\g<1>2"', AGAIN)}),
        "the sheet has row 2, or a cell in it, twice, and one of the two would be lost",
    ),
    "a row twice without names of cells": (
        workbook({"P": re.sub(r' r="[A-D][0-9]"', "", AGAIN).replace('<row r="3">', '<row r="2">')}),
        "the sheet has row 2, or a cell in it, twice",
    ),
    "cells of another row": (workbook({"P": re.sub(r'r="([A-D])3"', r'r="\g<1>2"', AGAIN)}), "the sheet has row 2, or"),
    "a cell twice": (workbook({"P": AGAIN.replace('r="B3"', 'r="A3"')}), "the sheet has row 3, or a cell in it"),
    "a merged header": (one_sheet(HEADER, row("a"), merged=("A1:B1",)), "cells of the header are merged (A1 to B1)"),
    "a header over two rows": (one_sheet(HEADER, row("a"), merged=("A1:A2",)), "of the header are merged (A1 to A2)"),
    "merged rows": (one_sheet(HEADER, row("a"), row("b"), merged=("B2:B3",)), "of the rows are merged (B2 to B3)"),
    "formulas without values": (one_sheet(HEADER, row("a", NO_VALUE)), "1 formula has no value, the first in C2"),
    "1904": (workbook({"P": sheet([HEADER, row("a")])}, is_1904=True), "set dates_since = 1904 in the feed file"),
    "two sheets": (
        workbook({"P": sheet([HEADER, row("a")]), "Q": sheet([HEADER])}),
        'the workbook has the sheets "P", "Q"; name one in the feed: sheet = "P"',
    ),
    "another table below": (
        one_sheet(HEADER, row("a"), [], ["Receipt", "Patient", "Refund", "Day"], row("b")),
        "another table begins on line 4; put each on a sheet of its own",
    ),
    "another table beside": (
        one_sheet([*HEADER, None, "Receipt", "Refund"], row("a")),
        "two tables are side by side, and both have the column Receipt",
    ),
    "a cell of 3 MB": (one_sheet(HEADER, row("x" * 3_000_000)), "the cell A2 has a text longer than 2 MiB; check that"),
    "endless merged cells": (
        one_sheet(HEADER, row("a"), merged=("A9:B9",) * 100_001),
        "the sheet has merged cells in more than 100,000 places; unmerge them",
    ),
    "endless formats": (
        workbook({"P": sheet([HEADER, row("a")])}, parts={"xl/styles.xml": MANY_STYLES}),
        "the workbook is damaged, or is not a usual .xlsx",
    ),
    "an endless format": (
        workbook({"P": sheet([HEADER, row("a")])}, parts={"xl/styles.xml": LONG_FORMAT}),
        "the workbook is damaged, or is not a usual .xlsx",
    ),
    "an endless tag": (
        workbook({"P": sheet([HEADER, row("a")])}, parts={"xl/sharedStrings.xml": f"<sst a='{'x' * (6 << 20)}'/>"}),
        "xl/sharedStrings.xml has a tag of more than 4 MiB; save the workbook as .xlsx once more",
    ),
    "a password": (encrypted(), "the workbook has a password; save it without one"),
    "an older workbook": (encrypted().replace(b"E\0n", b"O\0n"), "the workbook is damaged, or is not a usual .xlsx"),
    "a text": (b"Receipt,Patient\n", "the workbook is damaged, or is not a usual .xlsx; save it as .xlsx again"),
    "cut off": (one_sheet(HEADER, row("a"))[:-400], "the workbook is damaged, or is not a usual .xlsx"),
    "broken XML": (workbook({"P": "<worksheet><sheetData><row>"}), "the workbook is damaged, or is not a usual .xlsx"),
    "entities": (workbook({"P": ENTITIES}), "the workbook is damaged, or is not a usual .xlsx"),
    "an odd place": (workbook({"P": sheet([[b'<c r="ZZZ1"><v>1</v></c>']])}), "the workbook is damaged"),
    "no header": (one_sheet([]), "there is no header on line 1 or below it within 1,000 rows"),
    "another header": (one_sheet(["A", "B"], ["a", "b"]), "the header lacks Receipt, Patient, Amount, Date"),
    "a cell far away": (workbook({"P": FAR}), "the sheet has more than 6,000,000 cells"),
    "corrected rejects": (one_sheet(["_reject_id", "_reasons", *HEADER]), "save the file as CSV UTF-8"),
}


@pytest.mark.parametrize("case", ODD)
def test_an_odd_workbook_ends_with_one_sentence(case: str, tmp_path: Path) -> None:
    """FEED-FILE-02"""
    content, fragment = ODD[case]
    with pytest.raises(UnreadableFile) as error:
        read(content, tmp_path)
    assert str(error.value).startswith("till.xlsx: ")
    assert fragment in str(error.value)
    assert "\n" not in str(error.value)
    assert not list((tmp_path / "run-1").glob("*.parquet"))


@pytest.mark.parametrize(("bound", "most"), [("MOST_CELLS", 20), ("MOST_TEXT", 200)])
def test_a_workbook_with_more_shared_texts_than_cells_is_refused(
    bound: str, most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FEED-FILE-02: ten million texts would take a minute and 700 MB."""
    texts = {"xl/sharedStrings.xml": f"<sst>{'<si><t>a shared text</t></si>' * 21}</sst>"}
    content = workbook({"P": sheet([HEADER, row("a")])}, parts=texts)
    assert accepted(read(content, tmp_path)) == [(2, "a")]
    monkeypatch.setattr(workbook_parts, bound, most)
    with pytest.raises(UnreadableFile, match=r"till.xlsx: the workbook has more than .*; export the sheet as CSV"):
        read(content, tmp_path)


@pytest.mark.parametrize(
    ("more", "fragment"),
    [('sheet = "Q"', "has no sheet 'Q', which the feed names; it has \"Payments\""), ("sheet = 3", "has no sheet 3")],
)
def test_a_sheet_that_is_not_there_is_named(more: str, fragment: str, tmp_path: Path) -> None:
    with pytest.raises(UnreadableFile) as error:
        read(one_sheet(HEADER), tmp_path, more)
    assert fragment in str(error.value)


def test_a_header_that_is_not_found_by_its_cell_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnreadableFile, match='there is no header with the cell "Beleg" within'):
        read(one_sheet(HEADER), tmp_path, 'header_has = "Beleg"')


def test_dates_since_1904_are_taken_where_the_feed_says_so(tmp_path: Path) -> None:
    content = workbook({"P": sheet([HEADER, row("a")])}, is_1904=True)
    found = read(content, tmp_path, "dates_since = 1904")
    assert str(rows(found, "accepted")[0]["source_at"]).startswith("2030-03-02")


def test_a_workbook_that_counts_from_1904_does_so_in_every_cell(tmp_path: Path) -> None:
    """FEED-FILE-08: otherwise numbers shown with a time, and plain ones, would be read as four years earlier."""
    lines: list[list[Cell]] = [["a", "p1", 1, (46082, MOMENT)], ["b", "p1", 1, 46082], ["c", "p1", 1, 46082.5]]
    content = workbook({"P": sheet([HEADER, *lines])}, is_1904=True)
    found = read(content, tmp_path, 'dates_since = 1904\ndates = ["excel"]')
    assert [str(each["source_at"])[:16] for each in rows(found, "accepted")] == [
        "2030-03-02 00:00",
        "2030-03-02 00:00",
        "2030-03-02 12:00",
    ]


def test_a_workbook_that_counts_from_1900_where_its_feed_says_1904_is_refused(tmp_path: Path) -> None:
    """FEED-FILE-08: only if the feed reads plain numbers as days. Date cells are read correctly in any case."""
    content = one_sheet(HEADER, row("a"))
    with pytest.raises(UnreadableFile, match="count from 1900, but its feed file has dates_since = 1904; write a feed"):
        read(content, tmp_path, 'dates_since = 1904\ndates = ["excel"]')


def test_a_hidden_sheet_that_is_not_read_is_a_warning(tmp_path: Path) -> None:
    """WORKBOOK-SHEETS: not if the feed names its sheet."""
    sheets = {"P": sheet([HEADER, row("a")]), "Q": sheet([HEADER, row("b")])}
    content = workbook(sheets, hidden=("Q",))
    for number, (more, keys) in enumerate([("", ["a"]), ('sheet = "P"', ["a"]), ('sheet = "Q"', ["b"])]):
        (folder := tmp_path / str(number)).mkdir()
        found = read(content, folder, more)
        assert [key for _, key in accepted(found)] == keys
        assert found.warnings == ({} if more else {"WORKBOOK-SHEETS": 1})
    said = 'hidden sheets were not read: "Q"; to read one, name it in the feed file (sheet)'
    assert [each["message"] for each in rows(read(content, tmp_path), "warnings")] == [said]


def test_titles_above_the_header_and_totals_in_one_row_may_be_merged(tmp_path: Path) -> None:
    content = one_sheet(["Payments"], HEADER, row("a"), merged=("A1:D1", "A3:B3"))
    assert accepted(read(content, tmp_path, "header = 2")) == [(3, "a")]


def test_texts_that_many_cells_share_are_bounded(tmp_path, monkeypatch):
    """FEED-FILE-02: a long text that many cells share would be in memory once for each cell."""
    monkeypatch.setattr(workbook_parts, "MOST_TEXT", 10_000_000)
    shared = b'<c r="{at}" t="s"><v>0</v></c>'
    with pytest.raises(UnreadableFile, match="far larger than a sheet of its size"):
        read(workbook({"P": sheet([HEADER, *[[shared] * 4] * 9])}, parts=LONG), tmp_path)


EMPTY_TEXTS = ('<c r="{at}" t="str"><v></v></c>', '<c r="{at}" t="inlineStr"><is></is></c>')


@pytest.mark.parametrize("cell", EMPTY_TEXTS)
def test_a_far_cell_with_an_empty_text_is_as_far_as_any(cell: str, tmp_path: Path) -> None:
    """FEED-FILE-02: the reader of the sheet would ask for 500 GB, and end the program."""
    far = f'<row r="1048576">{cell.replace("{at}", "XFD1048576")}</row></sheetData>'
    with pytest.raises(UnreadableFile, match="far larger than a sheet of its size"):
        read(workbook({"P": sheet([HEADER, row("a")]).replace("</sheetData>", far)}), tmp_path)
    near = far.replace("1048576", "9").replace("XFD9", "Z9")
    found = read(workbook({"P": sheet([HEADER, row("a")]).replace("</sheetData>", near)}), tmp_path)
    assert (accepted(found), found.lines) == ([(2, "a")], 9)


@pytest.mark.parametrize("part", ["xl/sharedStrings.xml", "xl/SharedStrings.xml"])
def test_an_invalid_number_of_shared_texts_is_refused(part: str, tmp_path: Path) -> None:
    """FEED-FILE-02: the reader of the sheet would ask for 2 TB, and end the program."""
    texts = {part: f'<sst {MAIN} uniqueCount="99999999999"><si><t>a</t></si></sst>'}
    with pytest.raises(UnreadableFile, match="the workbook has more than"):
        read(workbook({"P": sheet([HEADER, row("a")])}, parts=texts), tmp_path)


def test_parts_that_begin_with_a_capital_are_found(tmp_path: Path) -> None:
    """FEED-FILE-08: otherwise texts and leading zeros would be lost."""
    shared: Cell = b'<c r="{at}" t="s"><v>0</v></c>'
    texts = {"xl/SharedStrings.xml": f"<sst {MAIN}><si><t>p7</t></si></sst>"}
    content = workbook({"P": sheet([HEADER, [(123, ZEROS), shared, 5, (46082, DAY)]])}, parts=texts)
    found = read(content.replace(b"xl/styles.xml", b"xl/Styles.xml"), tmp_path)
    assert accepted(found) == [(2, "00123")]
    assert rows(found, "accepted")[0]["patient_id"] == "p7"


def test_a_workbook_that_unpacks_to_far_more_than_its_size_is_refused(tmp_path, monkeypatch):
    """FEED-FILE-02"""
    monkeypatch.setattr(workbook_parts, "ALWAYS_TAKEN", 1 << 20)
    with pytest.raises(UnreadableFile, match="far larger than a sheet of its size"):
        read(workbook({"P": sheet([HEADER])}, parts={"xl/media/x.bin": bytes(3 << 20)}), tmp_path)
    assert packed.ALWAYS_TAKEN > 1 << 20


def test_formats_of_the_helper_are_those_of_the_tests() -> None:
    assert FORMATS[MRN] == '"MRN-"0'


@pytest.mark.parametrize("program", ["cli", pytest.param("definitions", marks=pytest.mark.long)])
def test_calamine_is_imported_where_a_workbook_is_read_and_nowhere_else(program: str) -> None:
    code = f"import sys, pipelines.{program}; print({{'pandas', 'python_calamine'}} & {{*sys.modules}})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_a_sheet_that_begins_lower_down_and_further_right_keeps_its_places(tmp_path: Path) -> None:
    """Positions of columns and numbers of lines are those of the sheet."""
    rows = [[None, *HEADER], [], [None, *row((7, MRN))], [None, *row("b", "x")]]
    found = read(workbook({"P": sheet(rows, first=3)}), tmp_path)
    assert accepted(found) == [(5, "MRN-7")]
    assert [line for line, _, _ in rejected(found)] == [6]


def test_a_truth_value_as_an_id_date_or_amount_is_rejected_with_its_line(tmp_path: Path) -> None:
    """FEED-FILE-09: in other columns it is the text TRUE or FALSE, as for a question with yes and no."""
    rows: list[list[Cell]] = [
        row(True),
        row("b", patient=False),
        row("c", amount=True),
        ["d", "p1", 1, True],
        row("e"),
    ]
    found = read(one_sheet(HEADER, *rows), tmp_path)
    assert accepted(found) == [(6, "e")]
    assert [line for line, _, _ in rejected(found)] == [2, 3, 4, 5]
    assert [message[:13] for _, _, message in rejected(found)][:2] == ["true or false"] * 2


def test_rows_below_a_second_title_in_a_sheet_are_rejected(tmp_path: Path) -> None:
    """LEDGER-25"""
    found = read(one_sheet(HEADER, row("a"), [], ["Refunds"], HEADER, row("b")), tmp_path)
    assert accepted(found) == [(2, "a")]
    assert sorted(line for line, _, _ in rejected(found)) == [4, 6]


@pytest.mark.parametrize(
    ("code", "shown"),
    [
        ('#,##0.00 "kr"', "kr12.5"),
        ('#,##0.00 "kr."', "kr12.5"),
        ("#,##0.00\\ [$K\u010d-405]", "K\u010d12.5"),
        ("[$z\u0142-415] 0.00", "z\u014212.5"),
        ("[$R-1C09] 0.00", "R12.5"),
        ("[$$-409]0.00", None),
        ("[$-409]0.00", None),
        ("[$USD] 0.00", None),
        ('"$"0.00', None),
    ],
)
def test_an_amount_in_a_currency_of_letters_is_shown_with_it(code: str, shown: str | None) -> None:
    """FEED-FILE-08, PAY-03: crowns must not be taken for dollars."""
    show = shown_by(164, code)
    assert (show("12.5") if show else None) == shown
