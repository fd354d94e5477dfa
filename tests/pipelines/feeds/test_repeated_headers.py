"""Rows that repeat the header are no records; rows whose quotes may have cut a text are rejected."""

import random
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from pipelines.feeds.drafting.sniffing import of_rows
from pipelines.feeds.reading.headings import Headings
from pipelines.feeds.terms.totals import total_word
from pipelines.validation.outcome import ValidationResult
from tests.support.archives import zipped
from tests.support.quotes import TASKS, payment
from tests.support.validating import PAYMENTS, accepted, keys, rejected, validated


@pytest.mark.parametrize("again", [PAYMENTS, "\ufeff" + PAYMENTS], ids=["as it is", "with a byte order mark"])
def test_a_row_that_repeats_the_header_is_counted_and_named(again: str, tmp_path: Path) -> None:
    """LEDGER-25"""
    found = validated(PAYMENTS + payment("a") + again + payment("b") + again, tmp_path)
    assert accepted(found) == [(2, "a"), (4, "b")]
    assert (found.rows, found.rejected, found.not_taken, found.lines) == (2, 0, 2, 5)
    assert found.warnings == {"LEDGER-25": 2}
    assert pq.read_table(found.folder / "warnings.parquet")["line"].to_pylist() == [3, 5]


def test_a_header_of_tasks_is_no_task(tmp_path: Path) -> None:
    """LEDGER-25: nothing else would refuse its texts."""
    found = validated(TASKS + "1,call,requested,d1,\n" + TASKS, tmp_path, "tasks.csv")
    assert (found.accepted, found.rejected, found.not_taken) == (1, 0, 1)


@pytest.mark.parametrize(
    "row", ['1,call "Ann, now",requested,d1\n', '1, "call, now",requested,d1\n', '1,ab"c,requested,d1,d"e\n']
)
def test_a_quoted_text_that_was_cut_into_fields_rejects_its_row(row: str, tmp_path: Path) -> None:
    """FEED-FILE-02: the number of fields comes out right, their contents do not."""
    found = validated(TASKS + row, tmp_path, "tasks.csv")
    ((line, _, message),) = rejected(found)
    assert line == 2
    assert message.startswith("wrong quoting: two fields have quotes inside")


@pytest.mark.parametrize(
    "row",
    ['1,a 5" pipe,requested,d1,\n', '1,"a 5"" pipe",requested,d1,"3"" nail"\n', '1,call "Ann" now,requested,d1,\n'],
)
def test_a_quote_that_cuts_nothing_is_text(row: str, tmp_path: Path) -> None:
    """FEED-FILE-02"""
    assert validated(TASKS + row, tmp_path, "tasks.csv").accepted == 1


FEED = """
kind = "payments"
files = ["till*"]
[columns]
payment_id = "payment_id"
patient_id = "patient_id"
amount = "amount"
paid_on = "paid_on"
"""
TITLE = "line 4 is a title with the header again below it"


@pytest.mark.parametrize("title", ["Refunds\n", "Refunds,,,,\n", "Refunds\n\n"], ids=["alone", "padded", "spaced"])
def test_rows_of_a_second_table_are_rejected(title: str, tmp_path: Path) -> None:
    """LEDGER-25: a title says that they may be other records."""
    below = title + PAYMENTS + payment("b") + PAYMENTS + payment("c")
    found = validated(PAYMENTS + payment("a") + "\n" + below, tmp_path)
    assert accepted(found) == [(2, "a")]
    told = sorted(rejected(found))
    assert told[0][0] == 4
    assert [message.startswith(TITLE) for _, _, message in told[1:]] == [True, True]


TITLES = (
    *("*** REFUNDS ***", "--- Refunds ---", "=== Refunds ===", "# Refunds", "Report of refunds", "Refunds,,,2024-05,"),
    *("Refunds\nPrinted 2024-05-01", "Refunds\n-----\nPage 2 of 3", "Page 2: Refunds", "Page 2 of 3,,,Refunds,"),
    *("Total refunds", "Refunds, May", '"Refunds" of May', "Printed refunds", "End of payments; refunds"),
    "Refunds,,,,\n" + 9 * "-----,,,,\n" + "Page 1,,,,",
)


@pytest.mark.parametrize("title", TITLES)
def test_a_title_is_known_by_its_words(title: str, tmp_path: Path) -> None:
    """LEDGER-25: whatever decorates it or stands below it."""
    found = validated(PAYMENTS + payment("a") + title + "\n" + PAYMENTS + payment("b"), tmp_path)
    assert accepted(found) == [(2, "a")]
    assert max(rejected(found))[2].startswith("line 3 is a title with the header again below it")


FEET = (
    *("Page 1 of 2", "Page 2 of 3", "Page 2 of 3,,,,2024-05-01", "- 2 -", "-----", "=====,,,,", "Seite 1 von 2"),
    *("Total: 1", "Total: 100.00", "Total,,100.00 USD,,", "*** End of report ***", "Printed 2024-05-01"),
    *("Report generated 2024-05-01", "Printed 1 May 2024 at 10:00 UTC by jsmith", "Continued on next page", ""),
    *("-----\nTotal: 1\nPage 1 of 2",),
)


@pytest.mark.parametrize("foot", [f"{foot}\n" for foot in FEET])
def test_rows_after_a_page_footer_belong_to_the_same_table(foot: str, tmp_path: Path) -> None:
    """LEDGER-25"""
    found = validated(PAYMENTS + payment("a") + foot + PAYMENTS + payment("b"), tmp_path)
    assert [key for _, key in accepted(found)] == ["a", "b"]


def test_a_title_that_the_feed_leaves_out_begins_no_other_table(tmp_path: Path) -> None:
    """LEDGER-25: by the key that the reason names."""
    text = PAYMENTS + payment("a") + "More\n" + PAYMENTS + payment("b")
    found = validated(text, tmp_path, "till.csv", FEED + '[skip]\npayment_id = "More"\n')
    assert [key for _, key in accepted(found)] == ["a", "b"]


OTHERS = {
    "adjustment,patient_id,amount,entered_on,reason\n": "line 3 names the columns differently from the header",
    "payment_id,patient_id,claim_id,paid_on,amount\n": "line 3 names the columns differently from the header",
    "adjustment,patient_id,amount,icd10,Address 2\n": "line 3 names the columns differently from the header",
    "check no,chart 2,NSF fee 2024,returned on,bank\n": "line 3 names the columns differently from the header",
    "payment_id,check,reason\n": "line 3 names the columns differently from the header",
    **{
        f"{title}\n": "line 3 is a title, so the rows below it may not be payments received"
        for title in (*("Voided receipts", "Refunds,,,,", "Bounced checks", "NSF", "*** Returned ***,,,,", "Downtown"),)
    },
}


@pytest.mark.parametrize("title", OTHERS)
def test_rows_below_other_columns_or_a_title_of_no_payments_are_rejected(title: str, tmp_path: Path) -> None:
    """LEDGER-25: the header does not come again."""
    found = validated(PAYMENTS + payment("a") + title + payment("b") + payment("c"), tmp_path)
    assert accepted(found) == [(2, "a")]
    below = [message for line, _, message in rejected(found) if line > 3]
    assert [message.startswith(OTHERS[title]) for message in below] == [True, True]


def by(folder: Path, text: str, keys: str) -> ValidationResult:
    """The rows of payments by a feed with further keys."""
    return validated(text, folder, "till.csv", f"{keys}\n{FEED}")


@pytest.mark.parametrize("title", [*OTHERS, "Refunds\n" + PAYMENTS])
def test_a_feed_says_that_its_files_are_one_table(title: str, tmp_path: Path) -> None:
    """LEDGER-25: by the key that the reason names."""
    text = PAYMENTS + payment("a") + title + payment("b") + payment("c")
    told = {message for line, _, message in rejected(validated(text, tmp_path)) if line > 4}
    assert told
    assert all("one_table = true" in message for message in told)
    assert {key for _, key in accepted(by(tmp_path, text, "one_table = true"))} == {"a", "b", "c"}


@pytest.mark.parametrize(
    "note",
    ["late charge", "void, late charge", ",,,,no refund due", "Refund of a charge by mistake", "Check voided."],
)
def test_rows_below_a_note_are_taken_and_the_note_is_named(note: str, tmp_path: Path) -> None:
    """TEXT-BETWEEN: it could be a title that is written as notes are."""
    found = validated(PAYMENTS + payment("a") + payment("b") + note + "\n" + payment("c"), tmp_path)
    assert [key for _, key in accepted(found)] == ["a", "b", "c"]
    assert found.warnings == {"TEXT-BETWEEN": 1}
    assert pq.read_table(found.folder / "warnings.parquet")["line"].to_pylist() == [4]


def test_a_text_below_which_no_rows_are_taken_is_not_named(tmp_path: Path) -> None:
    """TEXT-BETWEEN"""
    assert not validated(PAYMENTS + payment("a") + payment("b") + "Thank you\n", tmp_path).warnings


def test_titles_above_all_rows_of_a_file_without_a_header_are_those_of_the_file(tmp_path: Path) -> None:
    """LEDGER-25: only what stands between rows begins another table."""
    columns = "payment_id = 1\npatient_id = 2\namount = 3\npaid_on = 4\n"
    text = "Register of the day,,,,\nDowntown,,,,\n" + payment("a") + "Refunds,,,,\n" + payment("b")
    toml = f"header = 0\n{FEED.partition('[columns]')[0]}[columns]\n{columns}"
    found = validated(text, tmp_path, "till.csv", toml)
    assert accepted(found) == [(3, "a")]


def test_a_word_below_a_blank_line_is_a_title(tmp_path: Path) -> None:
    """LEDGER-25: the same word right below a row is a note to it."""
    found = validated(PAYMENTS + payment("a") + "\nbounced checks\n" + payment("b"), tmp_path)
    assert [key for _, key in accepted(found)] == ["a"]


@pytest.mark.parametrize(
    "row", ["b,p1,n/a,unknown,", "b,p1,,,", "Miller,p1,none,TBD,", "b,p1,Cash,Friday,two words", "12,p1,Cash,Friday,"]
)
def test_a_record_that_cannot_be_read_names_no_columns(row: str, tmp_path: Path) -> None:
    """LEDGER-25"""
    rows = [f"R{number},p1,1.00,2024-01-02,\n" for number in range(4)]
    found = validated(PAYMENTS + "".join(rows[:2]) + f"R9{row[1:]}\n" + "".join(rows[2:]), tmp_path)
    assert len(accepted(found)) == 4


@pytest.mark.parametrize("width", [8, 32])
def test_ids_of_letters_and_figures_name_no_columns(width: int) -> None:
    """LEDGER-25: some have more letters than figures, or no figures."""
    signs, header = random.Random(7), ["task_id", "description", "status", "requester_id"]

    def name() -> str:
        return f"{signs.getrandbits(4 * width):0{width}x}"

    people = [name() for _ in range(20)]
    rows = [[name(), "call back", "requested", signs.choice(people)] for _ in range(20_000)]
    assert not list(Headings(header).lines(rows, range(2, len(rows) + 2), lambda _: False))


@pytest.mark.parametrize("row", ["Ann Miller,p1,,,", "Void,R900,,,", "Deposit,,,2024-01-02,"])
def test_a_payment_without_its_amount_is_no_title(row: str, tmp_path: Path) -> None:
    """LEDGER-25: it has figures in another cell than the first."""
    head, wide = PAYMENTS.strip() + ",a,b,c\n", ",x,y,z"
    rows = [f"R{number},p1,1.00,2024-01-02,{wide}\n" for number in range(4)]
    found = validated(head + "".join(rows[:2]) + f"{row},,,\n" + "".join(rows[2:]), tmp_path)
    assert len(accepted(found)) == 4


@pytest.mark.parametrize("title", ["Bounced checks 2024", "Refunds (2),,,,", "Voided 1/2024"])
def test_rows_below_a_text_with_figures_are_taken_and_the_text_is_named(title: str, tmp_path: Path) -> None:
    """TEXT-BETWEEN: it may be a month as well as a title of other records."""
    found = validated(PAYMENTS + payment("a") + title + "\n" + payment("b"), tmp_path)
    assert [key for _, key in accepted(found)] == ["a", "b"]
    assert found.warnings["TEXT-BETWEEN"] == 1


@pytest.mark.parametrize("line", ["Page 2 of 3\n", "b,p1,1.00,2024-01-01,amount\n"])
def test_rows_below_other_titles_or_texts_are_of_the_same_table(line: str, tmp_path: Path) -> None:
    """LEDGER-25: a text that is the name of a column makes no header of its row."""
    found = validated(PAYMENTS + payment("a") + line + payment("c"), tmp_path)
    assert {"a", "c"} <= {key for _, key in accepted(found)}


def of_columns(folder: Path, columns: str, *rows: str) -> list[str]:
    """The keys that are taken of a file with further columns."""
    lines = (f"{key},p1,1.00,2024-01-02,{row}" for key, row in zip("abcd", rows, strict=False))
    text = "\n".join([f"payment_id,patient_id,amount,paid_on,{columns}", *lines, ""])
    return keys(validated(text, folder, "till.csv", FEED))


@pytest.mark.parametrize(
    ("columns", "row"),
    [("Urgent,Home visit", "Urgent,Home visit"), ("1,2,3,4", "1,2,4,3"), ("Type,How,Copay,Cash", "Copay,Cash,,")],
    ids=["ticked boxes", "numbered questions", "kinds with a column each"],
)
def test_a_row_with_values_names_no_columns(columns: str, row: str, tmp_path: Path) -> None:
    """LEDGER-25: whatever of its texts are names of columns."""
    empty = "," * columns.count(",")
    assert of_columns(tmp_path, columns, empty, row, empty, row) == ["a", "b", "c", "d"]


def test_a_ticked_box_without_values_beside_it_names_no_columns(tmp_path: Path) -> None:
    """LEDGER-25"""
    head = "task_id,description,status,requester_id,labels,Urgent,Home visit\n"
    text = head + "mend,call,requested,ann,,,\ncall,,,,,Urgent,Home visit\nmend it,call,requested,ann,,Urgent,\n"
    assert (4, "mend it") in accepted(validated(text, tmp_path, "tasks.csv"))


@pytest.mark.parametrize(
    "note",
    [
        "patient asked about a late charge",
        ",,,,no refund due",
        "All charges are final.",
        "the late charge of Ann",
        "Refund of the charge by mistake",
        "charge waived",
    ],
)
def test_a_note_between_payments_announces_nothing(note: str, tmp_path: Path) -> None:
    """LEDGER-25"""
    found = validated(PAYMENTS + payment("a") + note + "\n" + payment("b"), tmp_path)
    assert [key for _, key in accepted(found)] == ["a", "b"]


def test_no_line_that_may_be_a_record_is_to_be_left_out(tmp_path: Path) -> None:
    """LEDGER-25"""
    found = validated(PAYMENTS + "payment_id,patient_id,claim_id,paid_on,amount\n" + payment("a"), tmp_path)
    assert not [message for _, _, message in rejected(found) if "[skip]" in message]


def test_titles_of_tasks_say_nothing_of_payments(tmp_path: Path) -> None:
    """LEDGER-25, TEXT-BETWEEN: their rows are taken, and the title is named."""
    text = TASKS + "1,call,requested,d1,\nCancelled visits\n2,mend,requested,d1,\n"
    found = validated(text, tmp_path, "tasks.csv")
    assert accepted(found) == [(2, "1"), (4, "2")]
    assert found.warnings == {"TEXT-BETWEEN": 1}


def together(folder: Path, *files: str) -> ValidationResult:
    packed = zipped({f"till{number}.csv": text for number, text in enumerate(files)})
    return validated(packed, folder, "till.zip", FEED)


def test_each_file_of_an_archive_has_its_own_second_tables(tmp_path: Path) -> None:
    """LEDGER-25: as if it had come by itself."""
    two = PAYMENTS + payment("a") + "Refunds\n" + PAYMENTS + payment("b")
    found = together(tmp_path, two, PAYMENTS + payment("c"), two.replace("a,", "d,", 1).replace("b,p1", "e,p1"))
    assert {key for _, key in accepted(found)} >= {"c"}
    assert [line for line, _, _ in sorted(rejected(found))] == [3, 5, 10, 12]
    assert found.warnings["LEDGER-25"] == 2


def test_a_reason_names_a_line_by_its_file(tmp_path: Path) -> None:
    """LEDGER-25: lines run on through the files of an archive."""
    found = together(tmp_path, PAYMENTS + payment("a"), PAYMENTS + payment("b") + "Bounced checks\n" + payment("c"))
    assert max(rejected(found))[2].startswith("till1.csv, line 4: till1.csv, line 3 is a title")


def test_the_last_line_of_a_file_in_an_archive_is_no_title_of_the_next_file(tmp_path: Path) -> None:
    """LEDGER-25: no header comes below it in its file."""
    first = PAYMENTS + payment("a") + PAYMENTS + payment("b") + "Thank you\n"
    found = together(tmp_path, first, PAYMENTS + payment("c") + payment("d"))
    assert [key for _, key in accepted(found)] == ["a", "b", "c", "d"]
    assert [line for line, _, _ in rejected(found)] == [5]


def test_a_title_may_end_a_chunk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """LEDGER-25"""
    monkeypatch.setattr("pipelines.feeds.reading.chunks.CHUNK", 2)
    below = "Refunds\nPrinted 2024-05-01\n" + PAYMENTS + payment("b") + payment("c") + payment("d")
    for records in (["a"], ["a", "x"]):
        found = validated(PAYMENTS + "".join(map(payment, records)) + below, tmp_path)
        assert [key for _, key in accepted(found)] == records


def test_records_with_few_cells_are_no_titles(tmp_path: Path) -> None:
    """LEDGER-25: files of them were put one behind the other."""
    found = validated(TASKS + "1,call,,,\n2,call,,,\n" + TASKS + "3,call,,,\n", tmp_path, "tasks.csv")
    assert not [message for _, _, message in rejected(found) if "is a title" in message]


@pytest.mark.parametrize("title", ["*** REFUNDS ***", "Page 2: Refunds", "Refunds"])
def test_a_draft_leaves_no_title_out(title: str) -> None:
    """LEDGER-25: by the words of a foot, with which a title may begin; what is below would be taken."""
    header, record = PAYMENTS.strip().split(","), payment("a").strip().split(",")
    feet = [["Page 1 of 2"], ["*** End of report ***"]]
    export = of_rows(list(enumerate([header, record, [title], feet[0], header, record, *feet], 1)), "csv")
    assert export.titles == [3]
    assert not [texts for _, texts in export.extras if title.startswith(total_word(texts[0]))]
