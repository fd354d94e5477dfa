"""The decisions that a draft leaves to a person: header, encoding, which rows are payments; and `feeds new --ask`."""

import io
import re
import tomllib
from collections.abc import Sequence
from pathlib import Path

import pytest

from pipelines.cli import run
from pipelines.feeds.drafting.draft import draft
from pipelines.feeds.drafting.sample import sample_lines
from pipelines.feeds.files.catalog import FeedError, load_feed
from tests.support.archives import zipped
from tests.support.written import GERMAN, written

ROWS = "p1;1;yes\np2;0;no\np3;1;no\n"


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (ROWS, "header = 0"),
        ("Report;from;May\nId;Name;By\n" + "1;Ada;2.00\n" * 3, "header = 2"),
        ("thing;status\nsleep;yes\nfood;no\n", "header = 1"),
    ],
    ids=["none", "below words", "above texts alone"],
)
def test_a_guess_at_the_header_is_a_decision(content: str, line: str, tmp_path: Path) -> None:
    """FEED-FILE-08: what others would read as well is asked, not told."""
    (said,) = [found for found in draft(written(tmp_path, "x.csv", content)).splitlines() if found.startswith(line)]
    assert "# DECIDE: " in said


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (f"Receipt,Day{',' * 40}\n" + f"1,2024-05-01{',' * 40}\n" * 3, None),
        ("GAD1;GAD2;GAD3\n" + ROWS, None),
        (";;;\n;;;\n" + "Id;Sum;Day;By\n1;2.00;2024-05-01;x\n" * 2, "header = 3"),
        ("Report;;;\nId;Sum;Day;By\n" + "1;2.00;2024-05-01;x\n" * 3, "header = 2"),
    ],
    ids=["empty columns", "names with figures", "lines of delimiters", "a title among delimiters"],
)
def test_a_header_is_found_by_the_rows_below_it(content: str, line: str | None, tmp_path: Path) -> None:
    """FEED-FILE-08"""
    lines = draft(written(tmp_path, "x.csv", content)).splitlines()
    assert [found for found in lines if found.startswith("header")] == ([line] if line else [])


@pytest.mark.parametrize(
    ("encoding", "text", "guess"),
    [
        ("windows-1252", "Größe José", "windows-1252"),
        ("windows-1252", "the patient’s “copay”", "windows-1252"),
        ("windows-1251", "Иванов Пётр", "windows-1251"),
        ("mac_roman", "Größe Müller", "mac_roman"),
        ("shift_jis", "テスト山田", None),
        ("gb18030", "王小明", "gb18030"),
        ("iso-8859-7", "Παπαδόπουλος", None),
        ("big5", "測試", None),
    ],
)
def test_the_draft_shows_a_guessed_encoding_with_alternatives_and_no_word_of_a_row(
    encoding: str, text: str, guess: str | None, tmp_path: Path
) -> None:
    """FEED-FILE-08: it shows the letters that each encoding gives, not the words."""
    data = ("id;name;day\n" + f"1;{text};2024-05-01\n" * 3).encode(encoding)
    (said,) = [line for line in draft(written(tmp_path, "x.csv", data)).splitlines() if line.startswith("encoding")]
    assert "# DECIDE: no UTF-8; its letters are then " in said
    assert "Others: " in said
    assert text not in said
    assert guess is None or said.startswith(f'encoding = "{guess}"')


def test_a_line_of_other_bytes_makes_no_other_encoding_of_utf_8(tmp_path: Path) -> None:
    """FEED-FILE-08: its row alone is rejected, where all others would be by another encoding."""
    data = ("id;name;day\n" + "1;Größe;2024-05-01\n" * 9).encode() + "2;Größe;2024-05-01\n".encode("windows-1252")
    text = draft(written(tmp_path, "x.csv", data))
    assert "encoding" not in tomllib.loads(text)
    assert "# line 11 is not in UTF-8, as the others are: rows of such lines are rejected\n" in text


def test_a_byte_order_mark_and_a_header_below_other_lines_are_written_into_the_draft(tmp_path: Path) -> None:
    """FEED-FILE-08"""
    for encoding in ("utf-16", "utf-16-le", "utf-16-be"):
        text = draft(written(tmp_path, "x.csv", ("Till\n" + GERMAN).encode(encoding)))
        assert {'encoding = "utf-16"', "header = 3"} <= set(text.splitlines())


LEDGER = """id,claim,patient,type,amount,method,from date,payments
1,c1,p1,CHARGE,150.00,,2024-05-01,
2,c1,p1,PAYMENT,,CASH,2024-05-02,50.00
3,c2,p2,CHARGE,75.50,,2024-05-03,
4,c2,p2,PAYMENT,,COPAY,2024-05-04,25.00
5,c2,p2,TRANSFER,,,2024-05-05,
6,c3,p1,PAYMENT,,CASH,2024-05-06,25.00
"""


def test_a_draft_of_a_ledger_asks_which_rows_and_which_amounts_are_payments(tmp_path: Path) -> None:
    """LEDGER-23: charges of a ledger are no payments."""
    text = draft(written(tmp_path, "payments_ledger.csv", LEDGER))
    assert '[take]\n"type" = "..."  # DECIDE: ' in text
    assert re.search(
        r'^amount = "(amount|payments)"  # DECIDE: which column has the amount paid\? "(?!\1)(amount|payments)" has ',
        text,
        re.MULTILINE,
    )
    text = re.sub(r"^# (claim_id = .* when = )", r"\1", text, flags=re.MULTILINE)
    with pytest.raises(FeedError) as refused:
        load_feed(written(tmp_path, "ledger.toml", text))
    assert [line.partition(": ")[2].partition(":")[0] for line in refused.value.all] == [
        "take.type",
        "columns.claim_id.when",
    ]


TILL = Path(__file__).parents[3] / "docs" / "examples" / "card_terminal_2026-04.csv"


def asked(monkeypatch: pytest.MonkeyPatch, *answers: str) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO("".join(f"{line}\n" for line in answers).encode())))


def test_the_decisions_of_a_draft_are_asked_one_by_one_with_the_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """FEED-FILE-08."""
    answers = [
        "till-2",
        "America/Chicago",
        "",
        "SALE",
        "-",
        "",
        "-",
        '{ column = "Invoice", when = { "Type" = "SALE" } }',
    ]
    asked(monkeypatch, *answers)
    assert run(["feeds", "new", "--ask", str(TILL)]) == 0
    shown = capsys.readouterr()
    assert "DECIDE" not in shown.out.replace("Lines that say DECIDE", "")
    found = tomllib.loads(shown.out)
    assert (found["source"], found["timezone"], found["take"]) == ("till-2", "America/Chicago", {"Type": "SALE"})
    assert found["columns"]["claim_id"] == {"column": "Invoice", "when": {"Type": "SALE"}}
    assert load_feed(written(tmp_path, "till.toml", shown.out)).source == "till-2"
    assert 'It has "REFUND" (1), "SALE" (11), "VOID" (1)\n  "Type": "SALE" (11), "REFUND", "VOID"\n' in shown.err
    assert "1 of 8\n" in shown.err


def test_questions_without_an_answer_stay_marked_decide_in_the_draft(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """FEED-FILE-08: the answers end before the questions."""
    asked(monkeypatch, "till-2")
    assert run(["feeds", "new", "--ask", str(TILL)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert 'source = "till-2"' in lines
    assert any(line.startswith('timezone = "UTC"  # DECIDE: ') for line in lines)


def test_answers_name_the_questions_of_a_form_and_take_a_proposal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """FEED-FILE-08."""
    export = written(tmp_path, "mood.csv", "form id;patient;Q1;Q2;done\n1;p1;0;1;2024-05-01\n2;p2;1;2;2024-05-02\n")
    asked(monkeypatch, "", "", '{ constant = "PHQ9" }', "", "44250-9", "")
    assert run(["feeds", "new", "--ask", "--kind", "answers", str(export)]) == 0
    found = tomllib.loads(capsys.readouterr().out)
    assert found["columns"]["questionnaire"] == {"constant": "PHQ9"}
    assert found["questions"] == {"44250-9": "Q1"}


@pytest.mark.parametrize(
    ("cells", "line"),
    [
        (
            ("web urgent", "urgent", "web phone", "phone urgent", "web", "phone"),
            '{ column = "tags", split = " " }  # DECIDE: are labels',
        ),
        (("call back", "call back", "web", ""), '"tags"  # DECIDE: one label in a cell? If blanks part several: { col'),
        (("call back;web", "web", "", ""), '"tags"\n'),
        (("web", "phone", "web", ""), '"tags"\n'),
    ],
)
def test_labels_that_blanks_may_part_are_a_decision(cells: tuple[str, ...], line: str, tmp_path: Path) -> None:
    """FEED-FILE-08."""
    rows = "".join(f"i{number},call,open,d1,{cell}\n" for number, cell in enumerate(cells))
    text = draft(written(tmp_path, "items.csv", f"id,title,state,reporter,tags\n{rows}"), "tasks")
    assert f"\nlabels = {line}" in text


@pytest.mark.parametrize(
    ("name", "cells", "line"),
    [
        ("patient_ref", "p01 p02 p03", '\npatient_id = "patient_ref"  # DECIDE: is it this column?'),
        ("Patient class", "inpatient outpatient inpatient", None),
        ("Patient name", "Abt4 Brand5 Conti6", None),
        ("Patient Age", "31 32 33", None),
        ("Patient Zip", "12345 12346 12347", None),
        ("Patient Count", "101 102 103", None),
    ],
)
def test_a_draft_asks_about_a_column_with_patient_in_its_name_if_it_may_hold_ids(
    name: str, cells: str, line: str | None, tmp_path: Path
) -> None:
    """FEED-FILE-08: a task without its patient would be right for the target."""
    rows = "".join(f"i{number},call,open,d1,{cell}\n" for number, cell in enumerate(cells.split()))
    text = draft(written(tmp_path, "items.csv", f"id,title,state,reporter,{name}\n{rows}"), "tasks")
    assert line in text if line else "patient_id" not in text


def packed(folder: Path, items: str, comments: str, name: str = "items.csv", second: str = "comments.csv") -> Path:
    """An archive of two tables."""
    path = folder / "tracker.zip"
    path.write_bytes(zipped({name: items, second: comments}))
    return path


TRACKER = """id,patient_ref,title,state,reporter,opened,comment
i1,p001,call,open,d1,2026-03-01,5 of them
i2,p002,write,open,d2,2026-03-02,none yet
i3,p003,fax,open,d1,2026-03-03,
"""
COMMENTS = """no,item_id,author,body,created
1,i1,Ada Abt,"first, second",03/14/2026 10:00 AM
2,i1,Bo Brand,third,03/15/2026 10:00 AM
3,i2,Ada Abt,fourth,03/16/2026 10:00 AM
"""


@pytest.mark.parametrize(
    ("answer", "one_row_per", "columns"),
    [
        ("+", "comment", {"comment": "comments.body", "comment_author_id": "d9", "comment_time": "comments.created"}),
        ("", None, {}),
        ("no", None, {}),
        ("n", None, {}),
        ("yes", None, {}),
    ],
)
def test_a_second_table_of_comments_is_asked_for_and_taken_whole_or_not_at_all(
    answer: str, one_row_per: str | None, columns: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FEED-FILE-08: whose comments these are is asked only if they are taken."""
    packed(tmp_path, TRACKER, COMMENTS)
    shown: list[str] = []

    def ask(lines: Sequence[str]) -> str:
        shown.append("\n".join(lines))
        return answer if "do they belong together?" in shown[-1] else "d9" if "comment_author_id" in lines[1] else ""

    text = draft(tmp_path / "tracker.zip", "tasks", ask)
    found = tomllib.loads(text)
    assert "DECIDE" not in text.replace("Lines that say DECIDE", "")
    assert found.get("one_row_per") == one_row_per
    assert {name: value for name, value in found["columns"].items() if name.startswith("comment")} == columns
    assert found.get("join") == (
        {"comments": {"files": ["comments*.csv"], "on": {"id": "item_id"}, "one_row_per": "comments"}}
        if answer == "+"
        else None
    )
    assert found["dates"] == ["%m/%d/%Y %I:%M %p"]
    assert shown[-1].startswith(f"{len(shown)} of {len(shown)}\n")
    assert load_feed(written(tmp_path, "tracker.toml", text)).kind.name == "tasks"


def columns_taken(export: Path) -> dict[str, object]:
    """The columns of a draft of tasks with its join, all other lines as they are proposed."""
    text = draft(export, "tasks", lambda lines: "+" if "do they belong together?" in "\n".join(lines) else "")
    return dict(tomllib.loads(text)["columns"])


def test_a_join_of_comments_keeps_no_author_or_time_of_the_first_tables_comment(tmp_path: Path) -> None:
    """FEED-FILE-08: the second table's texts would be those of other persons. Who wrote them is asked."""
    head, *lines = TRACKER.splitlines()
    first = "\n".join([f"{head},comment author,comment time", *(f"{line},d7,2026-03-05" for line in lines)])
    alone = tomllib.loads(draft(written(tmp_path, "items.csv", first), "tasks"))["columns"]
    assert (alone["comment_author_id"], alone["comment_time"]) == ("comment author", "comment time")
    export = packed(tmp_path, first, "item_id,body\ni1,first\ni1,second\ni2,third\n")
    assert '\n# comment_author_id = "..."  # DECIDE: with [join.comments]; a comment needs its author' in draft(export)
    found = columns_taken(export)
    assert found["comment"] == "comments.body"
    assert (found.get("comment_author_id"), found.get("comment_time")) == ("...", None)


@pytest.mark.parametrize("ids", ["1 2 3", "CMT-1 CMT-2 CMT-3"])
def test_the_id_of_a_comment_is_neither_its_text_nor_its_author(ids: str, tmp_path: Path) -> None:
    """FEED-FILE-08."""
    rows = zip(ids.split(), ("i1", "i1", "i2"), ("rang", "wrote", "faxed"), strict=True)
    comments = "comment id,item_id,body\n" + "".join(",".join(row) + "\n" for row in rows)
    found = columns_taken(packed(tmp_path, TRACKER, comments))
    assert (found["comment"], found["comment_author_id"]) == ("comments.body", "...")


def test_columns_of_the_second_table_that_are_ambiguous_are_asked_about(tmp_path: Path) -> None:
    """FEED-FILE-08: as of the first table's."""
    comments = "item_id,body,comment,author,user\ni1,a b,rang,d1,d2\ni1,b c,wrote,d2,d1\ni2,c d,faxed,d1,d1\n"
    text = draft(packed(tmp_path, TRACKER, comments), "tasks")
    assert re.search(
        r'^# comment = "comments\.\w+"  # DECIDE: with \[join\.comments\]; or "comments\.\w+"\?', text, re.MULTILINE
    )


def test_a_key_without_a_name_joins_no_tables(tmp_path: Path) -> None:
    """FEED-FILE-08: a join is by names where the file has a header."""
    export = packed(tmp_path, ",title,state,reporter\ni1,call,open,d1\ni2,write,open,d2\n", COMMENTS)
    assert "#1" not in draft(export, "tasks")


def test_a_line_that_a_taken_join_throws_away_is_not_asked_about(tmp_path: Path) -> None:
    """FEED-FILE-08."""
    head, *lines = TRACKER.splitlines()
    first = "\n".join([f"{head},comment author", *(f"{line},d7" for line in lines)])
    shown: list[str] = []

    def ask(lines: Sequence[str]) -> str:
        shown.append("\n".join(lines))
        return "+" if "do they belong together?" in shown[-1] else ""

    draft(packed(tmp_path, first, COMMENTS), "tasks", ask)
    assert not [question for question in shown if "comment author" in question]
    assert shown[-1].startswith(f"{len(shown)} of {len(shown)}\n")


@pytest.mark.parametrize(
    ("first", "second", "pattern"),
    [
        ("track.csv", "track_comments.csv", "track_comments*.csv"),
        ("track_items.csv", "track.csv", "track.csv"),
        ("items.csv", "comments[x].csv", "comments[[]x]*.csv"),
    ],
)
def test_the_pattern_of_a_joined_file_takes_that_file_and_not_the_first(
    first: str, second: str, pattern: str, tmp_path: Path
) -> None:
    """FEED-FILE-08: two of an archive that it took would be refused."""
    text = draft(packed(tmp_path, TRACKER, COMMENTS, name=first, second=second), "tasks")
    assert f'\n# files = ["{pattern}"]\n' in text


def test_a_flag_of_json_is_shown_as_conditions_have_it(tmp_path: Path) -> None:
    """FEED-FILE-08: a condition on `True` would leave out every row."""
    rows = [
        f'{{"id": "R{day}", "patient": "p1", "day": "2026-01-0{day}", "amount": 1.50, "paid": {flag}}}\n'
        for day, flag in enumerate(("true", "true", "false", "true"), 1)
    ]
    path = written(tmp_path, "till.ndjson", "".join(rows))
    said = draft(path)
    assert '"paid" = "..."  # DECIDE: which rows are payments received? It has "false" (1), "true" (3)' in said
    (tmp_path / "till.toml").write_text(said.replace('"paid" = "..."', '"paid" = "true"'))
    shown = sample_lines(load_feed(tmp_path / "till.toml"), path, 9)
    assert "till.ndjson: of the first 4 rows 3 taken, 1 not taken" in shown
