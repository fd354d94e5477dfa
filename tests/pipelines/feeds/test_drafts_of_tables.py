"""Drafts of exports of several tables, with titles, facts and words around their records."""

import tomllib
import zipfile
from pathlib import Path

import pytest

from pipelines.feeds.drafting.draft import draft
from pipelines.feeds.drafting.first_keys import stem_of
from tests.support.archives import zipped
from tests.support.written import written


def test_an_archive_of_two_tables_is_drafted_from_the_one_with_the_records(tmp_path: Path) -> None:
    """FEED-FILE-08: the other is proposed as a join; the pattern takes the archive, and the first file in it."""
    with zipfile.ZipFile(tmp_path / "tracker.zip", "w") as packed:
        packed.writestr("comments.csv", "item_id,author,body\n1,d1,first\n1,d2,second\n2,d1,third\n")
        packed.writestr("items.csv", "id,title,state\n1,call,open\n2,write,open\n")
    written(tmp_path, "items.csv", "unpacked beside it\n")
    text = draft(tmp_path / "tracker.zip")
    assert tomllib.loads(text)["files"] == ["tracker*.zip", "items*.csv"]
    assert '# DECIDE: "comments.csv" of the archive has values of "id" in "item_id": do they belong together?' in text
    assert '# [join.comments]\n# files = ["comments*.csv"]\n# on = { "id" = "item_id" }\n' in text
    columns = text.partition("[columns]")[2]
    assert (
        '# comment = "comments.body"  # with [join.comments]\n# comment_author_id = "comments.author"  # DEC' in columns
    )


def test_a_text_beside_items_is_a_comment_where_the_file_or_a_column_says_so(tmp_path: Path) -> None:
    """FEED-FILE-08: it goes by the name of a description elsewhere."""
    for name, number in (("comments.csv", "No"), ("more.csv", "Comment ID")):
        with zipfile.ZipFile(tmp_path / "tracker.zip", "w") as packed:
            packed.writestr(name, f"{number},Issue,Author,Text\n1,a1,d1,first\n2,a1,d2,second\n3,a2,d1,third\n")
            packed.writestr("items.csv", "Issue Key,Summary,Status\na1,call,open\na2,write,open\n")
        text = draft(tmp_path / "tracker.zip")
        assert '# one_row_per = "comment"  # DECIDE: ' in text
        assert '# comment = "comments.Text"  # with [join.comments]' in text


def test_a_claim_is_known_by_its_word_among_others(tmp_path: Path) -> None:
    """FEED-FILE-08: and proposed with the method that tells copayments apart; what is said of a claim is none."""
    rows = "".join(f"t{n},2026-03-0{n},p{n},{'Copay' if n % 2 else 'Card'},c{n},open,{n}.00\n" for n in range(1, 9))
    head = "Transaction ID,Posted,Patient,Method,Applied To Claim,Claim Status,Amount\n"
    text = draft(written(tmp_path, "till.csv", head + rows))
    assert '# claim_id = { column = "Applied To Claim", when = { "Method" = "Copay" } }  # DECIDE' in text
    assert '# Not used: "Method", "Claim Status"' in text


def test_a_copy_number_in_parentheses_is_no_part_of_a_files_name(tmp_path: Path) -> None:
    """FEED-FILE-08: browsers add it to a second download."""
    text = draft(written(tmp_path, "till (3).csv", "Receipt,Amount\n1,1.50\n2,2.50\n"))
    found = tomllib.loads(text)
    assert [stem_of(name) for name in ("till (3) (1).csv", "till(2).csv", "(1).csv")] == ["till", "till", "(1)"]
    assert (found["name"], found["files"]) == ("till", ["till*.csv"])


def test_brackets_in_a_file_name_are_escaped_in_the_drafted_pattern(tmp_path: Path) -> None:
    """FEED-FILE-08: a neighbour has a name that begins alike."""
    written(tmp_path, "till[x]y.csv", "Receipt,Amount\n1,1.50\n2,2.50\n")
    found = tomllib.loads(draft(written(tmp_path, "till[x].csv", "Receipt,Amount\n1,1.50\n2,2.50\n")))
    assert found["files"] == ["till[[]x].csv"]


def test_a_table_of_people_beside_payments_is_not_drafted_as_the_records(tmp_path: Path) -> None:
    """FEED-FILE-08: the payments are, though they name the people's keys."""
    lines = [f"r{number},p{number % 3},{number}.00,2026-03-0{number}\n" for number in range(1, 9)]
    with zipfile.ZipFile(tmp_path / "till.zip", "w") as packed:
        packed.writestr("payments.csv", "".join(["receipt,patient_id,amount,paid_on\n", *lines]))
        packed.writestr("people.csv", "id,name\n" + "".join(f"p{number},Name {number}\n" for number in range(4)))
    assert tomllib.loads(draft(tmp_path / "till.zip"))["kind"] == "payments"


def test_an_archive_of_two_tables_without_a_common_key_is_named_by_its_draft(tmp_path: Path) -> None:
    """FEED-FILE-08: only one of them is drafted from."""
    with zipfile.ZipFile(tmp_path / "tracker.zip", "w") as packed:
        packed.writestr("items.csv", "id,title,state\n1,call,open\n2,write,open\n")
        packed.writestr("items_seen.csv", "who,when\nada,2026-03-01\nben,2026-03-02\n")
    text = draft(tmp_path / "tracker.zip")
    assert '# DECIDE: drafted from "items.csv"; the archive also has "items_seen.csv".' in text
    assert tomllib.loads(text)["files"] == ["tracker*.zip", "items.csv"]


def test_another_table_of_the_same_columns_may_be_more_of_them_or_refunds(tmp_path: Path) -> None:
    """FEED-FILE-08"""
    till = "".join(["receipt,patient,amount,date\n", *(f"r{n},p{n},{n}.00,2026-03-0{n}\n" for n in range(1, 9))])
    text = draft(written(tmp_path, "till.zip", zipped({"sales.csv": till, "refunds.csv": till})))
    assert tomllib.loads(text)["files"] == ["till*.zip", "refunds*.csv"]
    said = '# DECIDE: drafted from "refunds.csv"; these have the same columns: "sales.csv". If'
    assert [line.startswith(said) for line in text.splitlines() if "drafted from" in line] == [True]


@pytest.mark.parametrize("beside", ["a_cover.pdf", "z_cover.pdf", "a_readme.txt"])
def test_a_file_that_is_no_table_hides_none(beside: str, tmp_path: Path) -> None:
    """FEED-FILE-08"""
    till = "".join(["receipt,patient,amount,date\n", *(f"r{n},p{n},{n}.00,2026-03-0{n}\n" for n in range(1, 9))])
    said = "Made by Till 3\n" if beside.endswith("txt") else b"%PDF-1.4\n\0"
    export = written(tmp_path, "till.zip", zipped({beside: said, "till.csv": till}))
    assert tomllib.loads(draft(export))["files"] == ["till*.zip", "till*.csv"]


def test_two_formats_by_which_all_cells_are_the_same_days_ask_nothing(tmp_path: Path) -> None:
    """FEED-FILE-08: in May, a short name of a month is a long one."""
    export = "Receipt,Patient,Amount,Date\n" + "".join(f'{n},p{n},1.50,"May {n}, 2024"\n' for n in range(1, 7))
    assert 'dates = ["%b %d, %Y"]\n' in draft(written(tmp_path, "till.csv", export))


def test_a_title_above_a_repeated_header_is_to_be_decided(tmp_path: Path) -> None:
    """LEDGER-25: what it says is not shown."""
    head = "receipt,patient,amount,date\n"
    export = head + "1,a,1.50,2024-01-01\n2,b,1.50,2024-01-02\nMeier refunds\n" + head + "3,c,1.50,2024-01-03\n"
    text = draft(written(tmp_path, "till.csv", export))
    assert '# "receipt" = "..."  # DECIDE: line 4: a title above a repeated header; does it begin other rows?' in text
    assert "Meier" not in text


def test_a_header_alone_and_a_json_array_under_another_name_have_drafts(tmp_path: Path) -> None:
    """FEED-FILE-08"""
    found = tomllib.loads(draft(written(tmp_path, "till.csv", "receipt,patient_id,amount,paid_on,note\n")))
    assert (found["kind"], found["columns"]["amount"], found["columns"]["paid_on"]) == ("payments", "amount", "paid_on")
    array = '[{"receipt": "a", "amount": 1.5}, {"receipt": "b", "amount": 2.5}]'
    assert tomllib.loads(draft(written(tmp_path, "rows.csv", array)))["format"] == "json"


def test_seconds_since_1970_are_drafted_as_times_and_asked(tmp_path: Path) -> None:
    """FEED-FILE-09"""
    rows = [f"{number},p{number},1.50,{1_772_442_000 + number * 7_000},true" for number in range(7)]
    text = draft(
        written(
            tmp_path, "till.csv", "\n".join(["receipt,patient,amount,created,paid", *rows, "8,p,1.50,1772442000,false"])
        )
    )
    assert 'dates = ["unix"]  # DECIDE: numbers such as programs count seconds by, since 1970' in text
    assert 'paid_on = "created"\n' in text
    assert '"paid" = "..."  # DECIDE: which rows are payments received? It has "false" (1), "true" (7)' in text


def test_of_two_questionnaires_in_one_row_one_is_drafted_and_the_other_is_asked_about(tmp_path: Path) -> None:
    """FEED-FILE-08"""
    names = [f"GAD7_{number}" for number in range(1, 8)] + [f"PHQ9_{number}" for number in range(1, 10)]
    rows = [
        ",".join([f"r{n}", f"p{n}", f"2026-03-0{n}", *(str((n + at) % 4) for at in range(16))]) for n in range(1, 9)
    ]
    text = draft(
        written(tmp_path, "screening.csv", "\n".join([",".join(["response id", "patient", "date", *names]), *rows]))
    )
    assert 'questionnaire = { constant = "http://loinc.org|69737-5" }' in text
    assert '\n"69725-0" = { column = "GAD7_1", values = "frequency" }  # all questions of a GAD7' in text
    assert (
        '# "44250-9" = { column = "PHQ9_1", values = "frequency" }  # DECIDE: of a PHQ9, which is a response of its own'
        in text
    )


def test_facts_of_a_report_above_its_table_are_no_header(tmp_path: Path) -> None:
    """FEED-FILE-08: they are texts side by side as names are."""
    rows = [f"{50_210 + n},2026-04-{n:02},p{n:03},Abt,Cash,20.00," for n in range(1, 9)]
    facts = ["Deposits of the practice,,,,,,", "Period,April,,Printed by,lb,Site,North", ",,,,,,"]
    text = draft(
        written(
            tmp_path, "deposits.csv", "\n".join([*facts, "Receipt,Date,Patient ID,Patient,Tender,Amount,Memo", *rows])
        )
    )
    assert "header = 4  # DECIDE" in text
    assert 'amount = "Amount"\n' in text


def test_words_for_nothing_and_a_foreign_amount_are_drafted_as_questions(tmp_path: Path) -> None:
    """FEED-FILE-09"""
    rows = ["1,a,$1.50,2024-01-01", "2,NULL,$1.50,2024-01-02", "3,c,$1.50,2024-01-03", "4,d,€1.50,2024-01-04"]
    text = draft(written(tmp_path, "till.csv", "\n".join(["receipt,patient,amount,date", *rows]) + "\n"))
    assert 'empty = ["NULL"]  # DECIDE: do these texts mean that the cell is empty?' in text
    assert 'currency = ["$"]\n' in text
    assert '# currency = ["$", "€"]  # DECIDE: some amounts are in €, and rejected' in text
