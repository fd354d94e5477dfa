"""`feeds new` and `feeds check --sample`: drafts that say what to decide, rows shown as what they become."""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from pipelines.cli import run
from pipelines.feeds.drafting.draft import draft
from pipelines.feeds.drafting.instruments import instruments
from pipelines.feeds.drafting.sample import sample_lines
from pipelines.feeds.files.catalog import load_feed
from pipelines.feeds.mapping.header import path_heads
from pipelines.home.batch import UnreadableFile
from tests.support.commands import command
from tests.support.workbooks import Cell, sheet, workbook
from tests.support.written import GERMAN, written

GOLDEN = Path(__file__).parents[1] / "golden"


def test_a_draft_holds_what_can_be_seen_and_loads_as_a_feed(tmp_path: Path) -> None:
    """FEED-FILE-08."""
    text = draft(written(tmp_path, "kasse_05.csv", GERMAN.encode("cp1252")))
    found = tomllib.loads(text)
    assert found == {
        "name": "kasse",
        "source": "kasse",
        "kind": "payments",
        "files": ["kasse*.csv"],
        "encoding": "windows-1252",
        "delimiter": ";",
        "header": 2,
        "timezone": "UTC",
        "dates": ["%d.%m.%Y %H:%M"],
        "decimal": ",",
        "thousands": ".",
        "currency": ["€"],
        "columns": {"payment_id": "Beleg", "patient_id": "Patient", "amount": "Betrag", "paid_on": "Gebucht am"},
    }
    assert load_feed(written(tmp_path, "kasse.toml", text)).name == "kasse"
    assert 'Not used: "Text"' in text


@pytest.mark.parametrize(
    ("file", "name", "pattern"),
    [
        ("gad7_march.csv", "gad7", "gad7*.csv"),
        ("PHQ-9_2026-03.csv", "PHQ-9", "PHQ-9*.csv"),
        ("clinic gad-7 0310.csv", "clinic-gad-7", "clinic gad-7 *.csv"),
        ("gad7.csv", "gad7", "gad7*.csv"),
        ("till2026-03.csv", "till", "till*.csv"),
        ("Receipts March 2026.csv", "Receipts", "Receipts *.csv"),
    ],
)
def test_digits_of_an_instrument_stay_in_the_drafted_name(file: str, name: str, pattern: str, tmp_path: Path) -> None:
    """FEED-FILE-08: digits of a date do not."""
    found = tomllib.loads(draft(written(tmp_path, file, "Beleg;Betrag\nB-1;7,50\nB-2;8,50\n")))
    assert (found["name"], found["files"]) == (name, [pattern])


def test_no_value_of_a_row_is_in_a_draft(tmp_path: Path) -> None:
    """FEED-FILE-08."""
    without_header = "\n".join(GERMAN.splitlines()[2:]) + "\n"
    for name, text in (("a.csv", GERMAN), ("b.csv", without_header), ("c.csv", "Meier\nSchulz\n")):
        shown = draft(written(tmp_path, name, text))
        assert not re.search("Meier|Schulz|Braun|B-1|Größe|234", shown), shown
    assert tomllib.loads(draft(tmp_path / "b.csv"))["header"] == 0


def test_a_date_that_can_be_read_in_two_ways_is_to_be_decided(tmp_path: Path) -> None:
    """FEED-FILE-08."""
    text = draft(
        written(tmp_path, "payments.csv", "id,patient,amount,paid on\n1,a,1.00,05/02/2024\n2,b,1.00,06/02/2024\n")
    )
    assert 'dates = ["%m/%d/%Y"]  # DECIDE: the cells seen fit %d/%m/%Y too' in text


def test_a_draft_and_its_sample_name_a_title_between_payments(tmp_path: Path) -> None:
    """FEED-FILE-08, LEDGER-25: what is below it is rejected by an import too."""
    rows = [f"R{number},p{number},{number}.50,2024-05-0{number}\n" for number in range(1, 7)]
    text = "Receipt,Patient,Amount,Date\n" + "".join(rows[:3]) + "Bounced checks\n" + "".join(rows[3:])
    path = written(tmp_path, "till.csv", text)
    drafted = draft(path)
    assert "# one_table = true  # DECIDE: line 5: titles between rows; do they begin rows of another kind?" in drafted
    feed = load_feed(written(tmp_path, "till.toml", drafted))
    told = list(sample_lines(feed, path, 10))
    assert told[-1] == "till.csv: of the first 7 rows 3 taken, 4 rejected"
    assert "till.csv: line 6: rejected: line 5 is a title" in "\n".join(told)


def test_a_draft_asks_which_rows_are_payments_and_proposes_a_trailer_for_a_total(tmp_path: Path) -> None:
    """FEED-FILE-08."""
    rows = "".join(f"{n};p{n};{n}.50;2024-05-0{n};{'SALE' if n % 2 else 'VOID'}\n" for n in range(1, 6))
    export = "Receipt;Patient;Amount;Date;Type\n" + rows
    text = draft(written(tmp_path, "till.csv", export + "TOTAL;;15.00;;\n"))
    asked = "which rows are payments received? It has"
    assert f'[take]\n"Type" = "..."  # DECIDE: {asked} "SALE" (3), "VOID" (2)\n' in text
    assert '# [trailer]\n# when = { "Receipt" = { starts = "TOTAL" } }  # DECIDE: the last row' in text
    assert "trailer" not in draft(written(tmp_path, "till.csv", export))


def test_the_draft_names_the_column_of_a_trailer_by_position_if_it_has_no_name(tmp_path: Path) -> None:
    """FEED-FILE-08: no column is found by an empty name."""
    rows = [f"R{day},2026-01-0{day},1{day}.50,p{day}" for day in range(1, 6)]
    text = draft(written(tmp_path, "till.csv", "\n".join([",Date,Amount,Patient", *rows, "TOTAL,,62.50,", ""])))
    assert '# when = { "#1" = { starts = "TOTAL" } }  # DECIDE' in text
    assert "payment_id = 1\n" in text


@pytest.mark.parametrize("case", sorted(folder.name for folder in GOLDEN.iterdir() if (folder / "input").is_dir()))
def test_every_golden_export_has_a_draft_that_is_toml(case: str) -> None:
    """FEED-FILE-08."""
    for file in (GOLDEN / case / "input").iterdir():
        if file.suffix != ".toml":
            assert tomllib.loads(draft(file))["kind"] in ("payments", "answers", "tasks")


def test_a_file_that_is_no_text_has_no_draft(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """FEED-FILE-08."""
    path = written(tmp_path, "payments.xlsx", b"PK\x03\x04" + bytes(100))
    with pytest.raises(UnreadableFile):
        draft(path)
    assert run(["feeds", "new", str(path)]) == 4
    assert capsys.readouterr().err.startswith("chartferry: payments.xlsx: the workbook is damaged")


@pytest.mark.parametrize("text", ['{"id": "Meier", "sum": 1\n{"id": "Schulz", "sum": 2}\n', '\n{"id": "Meier", "su'])
def test_a_first_line_that_is_half_an_object_is_no_header(text: str, tmp_path: Path) -> None:
    """FEED-FILE-08: its values would be the names of columns."""
    with pytest.raises(UnreadableFile, match=r"^till\.ndjson: the first line is not a JSON object; correct it"):
        draft(written(tmp_path, "till.ndjson", text))


def test_an_object_with_an_odd_type_has_a_draft_too(tmp_path: Path) -> None:
    """FEED-FILE-08."""
    export = written(tmp_path, "till.ndjson", '{"resourceType": ["Task"]}\n{"resourceType": "Task"}\n')
    assert tomllib.loads(draft(export))["kind"] == "tasks"


def test_the_draft_is_printed_and_its_kind_can_be_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """FEED-FILE-08."""
    path = written(tmp_path, "mood.csv", "form;patient;Q1;Q2\n1;p1;0;1\n2;p2;1;2\n")
    assert run(["feeds", "new", "--kind", "answers", str(path)]) == 0
    shown = capsys.readouterr().out
    assert '# "..." = "Q1"  # DECIDE' in shown
    assert "# questionnaire = " in shown


def test_a_date_and_its_time_of_day_are_joined(tmp_path: Path) -> None:
    """FEED-FILE-08."""
    rows = "".join(f"{n},p1,{n}.50,0{n}/2{n}/2024,0{n}:15 PM\n" for n in range(1, 6))
    found = tomllib.loads(draft(written(tmp_path, "till.csv", "Receipt,Patient,Amount,DATE,TIME\n" + rows)))
    assert found["columns"]["paid_on"] == {"join": ["DATE", "TIME"]}
    assert found["dates"] == ["%m/%d/%Y %I:%M %p"]


def test_days_as_a_spreadsheet_counts_them_are_known_and_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """FEED-FILE-08, FEED-FILE-09."""
    rows = "".join(f"{n},p1,{n}.50,{45_292 + n}{'.75' if n == 2 else ''}\n" for n in range(1, 6))
    export = written(tmp_path, "till.csv", "Receipt,Patient,Amount,Posting date\n" + rows)
    text = draft(export)
    assert (
        'dates = ["excel"]  # DECIDE: numbers such as a spreadsheet counts days by, from 1900: are these days?' in text
    )
    feed = written(tmp_path, "till.toml", text)
    assert run(["feeds", "check", str(feed), "--sample", str(export), "--rows", "2"]) == 0
    shown = capsys.readouterr().out
    assert "  paid_on     2024-01-02\n" in shown
    assert "  paid_on     2024-01-03T18:00:00+00:00\n" in shown


def test_the_pattern_of_a_draft_takes_no_neighbours(tmp_path: Path) -> None:
    """FEED-FILE-08."""
    export = written(tmp_path, "till_2024-05.csv", GERMAN)
    assert 'files = ["till*.csv"]\n' in draft(export)
    written(tmp_path, "till_2024-06.csv", GERMAN)
    written(tmp_path, "till_staff.csv", "a,b\n")
    assert 'files = ["till_[0-9]*.csv"]\n' in draft(export)
    named = written(tmp_path, "till.csv", GERMAN)
    assert 'files = ["till.csv"]  # DECIDE: ' in draft(named)


def test_a_currency_other_than_dollars_is_asked(tmp_path: Path) -> None:
    """FEED-FILE-08."""
    rows = "".join(f"{n},p1,{n}.50,2024-05-0{n},{'EUR' if n > 2 else 'USD'}\n" for n in range(1, 6))
    text = draft(written(tmp_path, "till.csv", "Receipt,Patient,Amount,Date,Currency\n" + rows))
    assert 'amount = "Amount"  # DECIDE: not in dollars alone: "Currency" has EUR' in text


@pytest.mark.parametrize("name", ["Betrag EUR", "Amount (GBP)", "Paid €"])
def test_a_currency_in_the_name_of_the_amounts_is_asked(name: str, tmp_path: Path) -> None:
    """FEED-FILE-08: pounds would be taken for dollars."""
    text = draft(
        written(tmp_path, "x.csv", f"receipt;{name};day\nR1;5.00;2024-05-01\nR2;6.00;2024-05-02\n"), "payments"
    )
    (said,) = [line for line in text.splitlines() if line.startswith("amount = ")]
    assert "the chart counts dollars alone" in said


def test_a_column_is_drafted_as_key_although_totals_between_the_rows_lack_it(tmp_path: Path) -> None:
    """FEED-FILE-08: their cell is empty; the column of the amounts is no key."""
    rows = "".join(f"T{row};2024-05-0{row};p{row};{row % 3 + 1}5.5\n" + ";;;99\n" * (row == 5) for row in range(1, 9))
    text = draft(written(tmp_path, "register.csv", f"Trans #;Post Date;Patient ID;Payment\n{rows}"), "payments")
    key, amount = ([line for line in text.splitlines() if line.startswith(name)] for name in ("payment_id", "amount"))
    assert key == ['payment_id = "Trans #"  # DECIDE: not one in each row: 8 different ones in 9 rows']
    assert amount == ['amount = "Payment"']


def test_an_issue_trackers_paths_are_no_questions(tmp_path: Path) -> None:
    """FEED-FILE-08: a path of five words is no sentence that asks something."""
    note = '{"author": {"accountId": "dr-01"}, "body": "called", "created": "2024-05-02T08:00:00Z"}'
    rows = (
        f'{{"key": "C-{row}", "fields": {{"summary": "Refill {row}", "reporter": {{"accountId": "dr-01"}},'
        f' "assignee": {{"accountId": "dr-02"}}, "duedate": "2024-06-01", "comment": {{"comments": [{note}]}}}}}}\n'
        for row in range(9)
    )
    lines = draft(written(tmp_path, "issues.ndjson", "".join(rows))).splitlines()
    assert {'kind = "tasks"', 'task_id = "key"'} <= set(lines)


@pytest.mark.parametrize("around", ["attributes", "fields", "node", "data"])
def test_the_name_of_an_object_around_all_values_is_ignored_in_a_draft(around: str, tmp_path: Path) -> None:
    """FEED-FILE-08: it made answers of payments, and their amounts were lost."""
    rows = (
        f'{{"id": {row}, "{around}": {{"receipt": "R{row}", "patient": "p{row % 3}", "amount": "{row}.50",'
        f' "paid": "2024-05-0{row}"}}}}\n'
        for row in range(1, 9)
    )
    lines = draft(written(tmp_path, "x.ndjson", "".join(rows))).splitlines()
    assert {'kind = "payments"', f'amount = "{around}.amount"', f'paid_on = "{around}.paid"'} <= set(lines)


def test_an_object_whose_name_says_of_what_its_values_are_keeps_it(tmp_path: Path) -> None:
    """FEED-FILE-08: the code of an item is that of a question."""
    rows = (
        f'{{"response": {row // 4}, "patient": "p{row // 4}", "item": {{"code": "q{row % 4}"}},'
        f' "answer": {{"code": "a{row % 3}"}}}}\n'
        for row in range(40)
    )
    lines = draft(written(tmp_path, "x.ndjson", "".join(rows)), "answers")
    assert 'question = "item.code"' in lines
    assert 'answer_code = "answer.code"' in lines


def test_a_list_of_which_a_path_takes_the_first_value_is_asked(tmp_path: Path) -> None:
    """FEED-FILE-08: the second payment of an invoice was lost."""
    paid = '{{"amount": "{0}.50", "paid": "2024-05-0{0}"}}'
    rows = (
        f'{{"receipt": "R{row}", "patient": "p1", "payments": [{", ".join([paid.format(row)] * (1 + row // 8))}]}}\n'
        for row in range(1, 10)
    )
    lines = draft(written(tmp_path, "x.ndjson", "".join(rows))).splitlines()
    said = 'DECIDE: some objects have several of "payments": this takes the first, and the others are lost.'
    (amount,) = [line for line in lines if line.startswith("amount")]
    assert amount.startswith(f'amount = "payments[0].amount"  # {said}')


def test_the_patient_id_of_a_form_is_not_drafted_as_its_key_and_answers_match_in_any_case(tmp_path: Path) -> None:
    """FEED-FILE-08: the grid of an online form, with one answer that was typed."""
    asked = [question["text"] for question in instruments()["gad"]["questions"]]
    header = ",".join(["Timestamp", "Patient ID", *(f'"How often? [{text}]"' for text in asked)])
    rows = [f"2024-05-0{row} 09:00,p{row}," + ",".join(["Several days"] * len(asked)) for row in range(1, 9)]
    rows.append("2024-05-09 09:00,p9," + ",".join(["not at all"] * len(asked)))
    text = draft(written(tmp_path, "form.csv", "\n".join([header, *rows, ""])))
    lines = text.splitlines()
    assert any(line.startswith('patient_id = "Patient ID"') for line in lines)
    assert any(line.startswith("# response_id = ") and "join" in line for line in lines)
    assert text.count('by = "display"') == len(asked)


def test_one_later_day_of_the_month_decides_the_order_of_day_and_month(tmp_path: Path) -> None:
    """FEED-FILE-08: rows of a ledger are in the order of their days, so that the first may all be early in a month."""
    rows = "".join(f"t{n},p{n},{n}.50,03/{n // 10 + 1:02}/2026\n" for n in range(250))
    text = draft(written(tmp_path, "till.csv", f"Receipt,Patient,Amount,Paid\n{rows}"))
    assert '\ndates = ["%m/%d/%Y"]\n' in text


def test_hours_of_one_figure_among_others_are_a_format_of_their_own(tmp_path: Path) -> None:
    """FEED-FILE-08: times from ten o'clock on are as ISO 8601 has them, and all lack a time zone."""
    rows = "".join(f"t{n},p{n},{n}.50,2026-03-{n % 27 + 1:02},{8 + n % 9}:15\n" for n in range(30))
    text = draft(written(tmp_path, "till.csv", f"Receipt,Patient,Amount,DATE,TIME\n{rows}"))
    assert '\ndates = ["%Y-%m-%d %H:%M"]\n' in text
    assert '\ntimezone = "UTC"  # DECIDE' in text


def test_two_ways_to_write_days_that_clash_are_asked(tmp_path: Path) -> None:
    """FEED-FILE-08: 05/06 would be two days."""
    days = ["01/25/2024", "02/26/2024", "25/03/2024", "26/04/2024", "05/06/2024"]
    rows = "".join(f"{n},p1,{n}.50,{day}\n" for n, day in enumerate(days))
    text = draft(written(tmp_path, "till.csv", "Receipt,Patient,Amount,Date\n" + rows))
    assert "# DECIDE: some cells are %m/%d/%Y, some %d/%m/%Y: what fits both is read as the first" in text


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        ("id, patient, amount, date\n" + '1, "p, 1", 2.50, 2024-05-01\n' * 3, ["skip_spaces = true"]),
        ("id,patient,amount,date\n" + "'1','p, 1','2.50','2024-05-01'\n" * 3, ['quote = "\'"']),
        ("id patient amount date\n" + "1 p1 2.50 2024-05-01\n" * 3, ['delimiter = " "']),
        ("id,patient,amount,date\n" + '1,"p \\"x\\", 1",2.50,2024-05-01\n' * 3, ['escape = "\\\\"']),
    ],
    ids=["spaces after commas", "single quotes", "blanks", "escapes"],
)
def test_a_draft_finds_delimiter_quotes_escapes_and_lines_to_skip(
    content: str, lines: list[str], tmp_path: Path
) -> None:
    """FEED-FILE-08."""
    text = draft(written(tmp_path, "till.csv", content)).splitlines()
    assert [line for line in text if line.startswith(("skip", "quote", "delim", "escape"))] == lines


def test_the_draft_of_a_workbook_names_formulas_without_values_and_hidden_rows(tmp_path: Path) -> None:
    """FEED-FILE-08."""
    header: list[Cell] = ["Receipt", "Patient", "Amount", "Paid on"]
    formula = b'<c r="{at}"><f>1+1</f></c>'
    rows: list[list[Cell]] = [[f"R{place}", "p1", formula, "2026-03-01"] for place in range(5)]
    text = draft(written(tmp_path, "till.xlsx", workbook({"P": sheet([header, *rows], hidden=(3,))})))
    assert "# 5 formulas have no value, the first in C2; open the workbook in a spreadsheet program" in text
    assert "# the sheet hides 1 row, on line 3: it is read" in text
    with pytest.raises(UnreadableFile, match=r"cells of the header are merged \(A3 to B3\)"):
        draft(written(tmp_path, "b.xlsx", workbook({"P": sheet([["Till"], [], header, *rows], merged=("A3:B3",))})))


def test_euros_in_the_format_of_a_workbook_are_decided(tmp_path: Path) -> None:
    """FEED-FILE-08: so are those that a text file shows."""
    header: list[Cell] = ["Receipt", "Patient", "Amount", "Paid on"]
    rows: list[list[Cell]] = [[f"R{place}", "p1", (place + 0.5, 9), "2026-03-01"] for place in range(5)]
    text = draft(written(tmp_path, "till.xlsx", workbook({"P": sheet([header, *rows])})))
    said = 'currency = ["€"]  # DECIDE: the chart takes US dollars: what has € is taken for them'
    assert said in text
    assert said in draft(written(tmp_path, "kasse_05.csv", GERMAN.encode("cp1252")))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('{"data": [{"payment_id": "A"}, {"payment_id": "B"}]}', 'that holds a list "data" of 2 objects.'),
        (
            '{"resourceType": "Bundle", "entry": [{"a": 1}, {"a": 2}, {"a": 3}]}',
            'that holds a list "entry" of 3 objects.',
        ),
    ],
)
def test_records_inside_one_object_are_asked_about(content: str, said: str, tmp_path: Path) -> None:
    """FEED-FILE-08."""
    assert said in draft(written(tmp_path, "a.json", content), "payments")
    assert "list of" not in draft(written(tmp_path, "b.json", '{"resourceType": "Task", "note": [{}, {}]}'), "tasks")


def test_an_array_without_an_object_that_can_be_read_has_no_draft(tmp_path: Path) -> None:
    """FEED-FILE-08."""
    with pytest.raises(UnreadableFile, match=r"^a\.json: object 1: "):
        draft(written(tmp_path, "a.json", "[1, 2]"))


def test_days_as_a_spreadsheet_counts_them_are_no_amount_and_no_key(tmp_path: Path) -> None:
    """FEED-FILE-08."""
    lines = [f"R{place // 2},p1,{place}.50,{46082 + place}" for place in range(9)]
    found = tomllib.loads(draft(written(tmp_path, "till.csv", "\n".join(["receipt,patient_id,amount,date", *lines]))))
    assert found["columns"] | {"patient_id": ""} == {
        "payment_id": "receipt",
        "patient_id": "",
        "amount": "amount",
        "paid_on": "date",
    }
    assert found["dates"] == ["excel"]


@pytest.mark.parametrize(("head", "kind"), [("Debit,Credit", "answers"), ("amount_cents,x", "payments")])
def test_an_id_and_a_time_alone_are_no_sure_answers(head: str, kind: str, tmp_path: Path) -> None:
    """FEED-FILE-08"""
    rows = "".join(f"{place},2026-03-01,p{place},{place}00,5\n" for place in range(1, 9))
    text = draft(written(tmp_path, "bank.csv", f"id,Date,Patient,{head}\n{rows}"))
    assert tomllib.loads(text)["kind"] == kind
    assert ("# DECIDE: payments, answers or tasks" in text) is (kind == "answers")
    text = draft(written(tmp_path, "x.ndjson", '{"a": 1}\n'))
    assert 'kind = "tasks"  # DECIDE: payments, answers or tasks' in text


def test_names_with_dots_are_columns_too(tmp_path: Path) -> None:
    """FEED-FILE-08: programs that flatten objects write them."""
    names = '"receipt.no": "r%d", "patient.id": "p1", "amount": {"value": %d.50}, "paid.at": "2026-03-01", "a.": 1'
    export = written(tmp_path, "till.ndjson", "".join("{%s}\n" % (names % (n, n)) for n in range(1, 5)))
    text = draft(export)
    found = {"payment_id": "receipt.no", "patient_id": "patient.id", "amount": "amount.value", "paid_on": "paid.at"}
    assert tomllib.loads(text)["columns"] == found
    assert '"a."' not in text
    feed = load_feed(written(tmp_path, "till.toml", text))
    assert list(sample_lines(feed, export, 9))[-1] == "till.ndjson: of the first 4 rows 4 taken"
    assert path_heads(feed) >= {"receipt.no", "amount"}


@pytest.mark.parametrize(
    ("name", "no", "yes", "options", "rest"),
    [
        ("pain___{}", "0", "1", ("a", "b"), "] }  # DECIDE: boxes of one question: which?"),
        ("Pain? (choice={})", "Unchecked", "Checked", ("Sharp", "Dull"), '], by = "display" }  # DECIDE: boxes of'),
    ],
)
def test_the_checkbox_columns_of_one_question_are_drafted_as_one_line(
    name: str, no: str, yes: str, options: tuple[str, str], rest: str, tmp_path: Path
) -> None:
    """FEED-FILE-08: a box that nobody ticked in the rows seen too."""
    first, second = map(name.format, options)
    rows = "".join(f"{n},p{n},{yes if n % 2 else no},{no},\n" for n in range(1, 5))
    export = f"record_id,mrn,{first},{second},{name.format('empty')}\n{rows}"
    text = draft(written(tmp_path, "visit.csv", export), "answers")
    [line] = [line for line in text.splitlines() if line.startswith('# "..." = ')]
    parts = (f'{{ constant = "{option}", when = {{ "{name.format(option)}" = "{yes}" }} }}' for option in options)
    assert line.startswith(f'# "..." = {{ list = [{", ".join(parts)}{rest}')


def test_a_key_that_repeats_is_asked_where_each_row_is_a_response(tmp_path: Path) -> None:
    """FEED-FILE-08"""
    rows = "".join(f"{n // 2},p1,2026-03-0{n},{','.join('0123012')}\n" for n in range(1, 9))
    head = ",".join(["record_id,mrn,visit_date", *(f"gad7_{n}" for n in range(1, 8))])
    text = draft(written(tmp_path, "redcap.csv", f"{head}\n{rows}"))
    assert 'response_id = "record_id"  # DECIDE: not one in each row: 5 different ones in 8 rows. If no' in text


def test_the_only_time_is_proposed_and_an_invisible_sign_is_no_currency(tmp_path: Path) -> None:
    """FEED-FILE-08"""
    rows = "".join(f"{n},2{n}.03.2026,p1,{n}.50\0\n" for n in range(1, 9))
    text = draft(written(tmp_path, "till.csv", f"Receipt,When,Patient,Amount\n{rows}"), "payments")
    assert 'paid_on = "When"  # DECIDE: is it this column?' in text
    assert "currency" not in text


def test_a_long_text_of_the_first_row_hides_no_rows(tmp_path: Path) -> None:
    """FEED-FILE-08: run apart, since readers of CSV set the longest cell for the whole process."""
    export = written(tmp_path, "till.csv", f"id,patient,amount,date,note\n1,p1,2.50,2026-03-01,{'x' * 200_000}\n")
    told = subprocess.run(command("chartferry", "feeds", "new", export), capture_output=True, text=True, check=True)
    assert "no rows" not in told.stdout


def test_two_columns_of_one_name_are_decided(tmp_path: Path) -> None:
    """FEED-FILE-08."""
    lines = [f"R{place},p1,{place}.50,2026-03-01,{place}.25" for place in range(9)]
    text = draft(written(tmp_path, "till.csv", "\n".join(["receipt,patient,amount,paid_on,amount", *lines]) + "\n"))
    assert 'amount = 3  # DECIDE: which column has the amount paid? "#5" has amounts too' in text


@pytest.mark.parametrize(("name", "mapped"), [("#", "#"), ("#Receipt", "#Receipt"), ("#3", 1)])
def test_a_name_that_begins_with_a_number_sign_is_a_name(name: str, mapped: object, tmp_path: Path) -> None:
    """FEED-FILE-08: `#3` alone would be the third column, so that the draft goes by the column's position."""
    rows = "".join(f"{number},p0{number},7.50,2026-03-0{number}\n" for number in range(1, 9))
    found = tomllib.loads(draft(written(tmp_path, "till.csv", f"{name},Patient,Amount,Paid\n{rows}"), "payments"))
    assert found["columns"]["payment_id"] == mapped


def test_the_name_of_a_month_is_no_part_of_a_feeds_name(tmp_path: Path) -> None:
    """FEED-FILE-08: exports of other months are taken too."""
    written(tmp_path, "till_may_2024.csv", "a,b\n1,2\n")
    found = tomllib.loads(draft(written(tmp_path, "till_april_2024.csv", "Receipt;Amount\n1;1.50\n2;2.50\n")))
    assert (found["name"], found["files"]) == ("till", ["till*.csv"])
