"""Rejects of exports that are no plain text files: given back as rows that can be corrected and put in again."""

import json

import pyarrow as pa
import pytest

from tests.pipelines.feeds.test_arrays_and_parquet import FEED as ARRAYS
from tests.pipelines.feeds.test_arrays_and_parquet import packed
from tests.pipelines.feeds.test_arrays_and_parquet import payment as record
from tests.pipelines.feeds.test_workbooks import FEED as WORKBOOKS
from tests.pipelines.feeds.test_workbooks import HEADER, row
from tests.support.archives import zipped
from tests.support.giving_back import one
from tests.support.quotes import payment
from tests.support.validating import PAYMENTS
from tests.support.workbooks import Cell, sheet, workbook


def test_rejects_of_a_zip_come_back_with_file_and_line_and_close_once_corrected(practice):
    """CLI-CMD-04, CLI-CMD-05"""
    files = {"payments-1.csv": PAYMENTS + payment("a"), "payments-2.csv": PAYMENTS + payment("b", "x") + payment("c")}
    code, _ = practice.take(zipped(files), "payments.zip")
    assert code == 3
    exported = one(practice.export())
    assert exported.splitlines()[0] == f"_reject_id,_reasons,{PAYMENTS.strip()}"
    assert "payments-2.csv, line 2: not a plain decimal amount" in exported
    assert practice.take(exported.replace(",x,", ",5.00,"), "corrected.csv")[0] == 0
    assert practice.rejects() == {"b": ("closed", 1)}
    assert [key[-1] for key in practice.created()] == ["a", "b", "c"]


def test_rejects_of_a_workbook_come_back_as_a_csv_that_a_spreadsheet_opens(practice):
    """CLI-CMD-04, CLI-CMD-05"""
    (practice.home / "feeds").mkdir()
    (practice.home / "feeds" / "till.toml").write_text(WORKBOOKS.replace("{more}", "header = 3\ndecimal = ','"))
    cells: list[list[Cell]] = [["Till 2"], [], HEADER, row("a"), row("b", "x, y"), row("c", 7.25)]
    code, _ = practice.take(workbook({"Payments": sheet(cells)}), "till.xlsx")
    assert code == 3
    exported = one(practice.export())
    header, line = exported.splitlines()
    assert header == "\ufeff_reject_id,_reasons,Receipt,Patient,Amount,Date"
    assert line.endswith(',b,p1,"x, y",2026-03-01')
    assert practice.take(exported.replace("x, y", "5,00"), "corrected.csv")[0] == 0
    assert practice.rejects() == {"b": ("closed", 1)}
    assert [key[-1] for key in practice.created()] == ["a", "b", "c"]
    assert [body["amount"]["value"] for body in practice.target.of("PaymentNotice")] == [12.5, 7.25, 5]


def test_rejects_without_a_key_of_two_files_of_one_name_are_apart(practice):
    """CLI-CMD-04, CLI-CMD-05: also of rows that say the same on the same line."""
    first = PAYMENTS + payment("a") + payment("") + payment("", "7.00")
    second = PAYMENTS + payment("b") + payment("") + payment("", "8.00")
    for text in (first, second):
        assert practice.take(text, "payments.csv")[0] == 3
    query = "SELECT line, state FROM reject WHERE batch_id = '{}' ORDER BY line"
    [(one_name, of_one), (other_name, of_other)] = sorted(practice.export().items())
    if b"7.00" not in of_one:
        one_name, of_one, other_name, of_other = other_name, of_other, one_name, of_one
    opened, closed = ([(line, state) for line in (3, 4)] for state in ("open", "closed"))
    one, other = (name.partition(".")[0] for name in (one_name, other_name))
    mended = of_one.replace(b",,p1,", b",c,p1,", 1).replace(b",,p1,", b",d,p1,")
    assert practice.take(mended, "payments.csv")[0] == 0
    for again in ("", first, second, "retry"):
        if again:
            practice.run("rejects", "retry") if again == "retry" else practice.take(again, "payments.csv")
        assert practice.rows(query.format(one)) == closed
        assert practice.rows(query.format(other)) == opened
    assert list(practice.export()) == [other_name]
    mended = of_other.replace(b",,p1,", b",e,p1,", 1).replace(b",,p1,", b",f,p1,")
    assert practice.take(mended, "payments.csv")[0] == 0
    assert practice.rows(query.format(other)) == closed
    assert sorted(key[-1] for key in practice.created()) == [*"abcdef"]


@pytest.mark.parametrize("name", ["till.json", "till.parquet"])
def test_rejects_of_an_array_and_of_parquet_come_back_as_lines(name, practice):
    """CLI-CMD-04, CLI-CMD-05"""
    (practice.home / "feeds").mkdir()
    (practice.home / "feeds" / "till.toml").write_text(ARRAYS.replace("{more}", ""))
    rows = [record("a"), record("b", "x")]
    content = json.dumps(rows, indent=2).encode() if name.endswith("json") else packed(pa.Table.from_pylist(rows))
    assert practice.take(content, name)[0] == 3
    ((exported, text),) = practice.export().items()
    assert exported.endswith(".ndjson" if name.endswith("json") else ".csv")
    assert practice.take(text.replace(b'"x"', b'"5.00"').replace(b",x,", b",5.00,"), "corrected")[0] == 0
    assert practice.rejects() == {"b": ("closed", 1)}
    assert [key[-1] for key in practice.created()] == ["a", "b"]
