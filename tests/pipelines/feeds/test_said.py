"""Rows that could be misread are reported, and the message names the key of the feed file that helps."""

from collections.abc import Callable
from pathlib import Path

import pytest

from pipelines.cli import run
from pipelines.home.batch import UnreadableFile
from pipelines.validation.outcome import ValidationResult
from tests.support import validating

REFERENCE = Path(__file__).parents[3] / "data" / "samples" / "reference"
HEAD = "task_id,description,status,requester_id,labels,comment\n"
FEED = """
kind = "tasks"
files = "till*"
[columns]
task_id = "task_id"
description = "description"
status = "status"
requester_id = "requester_id"
"""
Reasons = list[tuple[int, int, str]]
Read = Callable[..., tuple[list[str], Reasons]]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """The keys that are accepted, and lines and reasons of the rejects, of an export by a feed file."""

    def read_it(feed: str, export: str, encoding: str = "utf-8") -> tuple[list[str], Reasons]:
        found = _validated(tmp_path, feed, export.encode(encoding))
        return validating.keys(found), validating.rejected(found)

    return read_it


def _validated(folder: Path, feed: str, export: bytes) -> ValidationResult:
    return validating.validated(export, folder, "till.csv", feed, processes=1)


def task(key: str, text: str = "call") -> str:
    return f"{key},{text},requested,d1,,\n"


SWALLOWING = HEAD + task("a", '"see\nb,call,requested,d1,,\nend"') + task("c")
CUT = HEAD + 'a,say "x,requested,d1,y",\n'


@pytest.mark.parametrize(("export", "lines"), [(SWALLOWING, (2, 3)), (CUT, (2, 1))], ids=["a row within", "cut"])
def test_doubtful_quotes_are_taken_when_the_feed_says_so(export: str, lines: tuple[int, int], read: Read) -> None:
    """FEED-FILE-02: one key settles a file."""
    keys, rejects = read(FEED, export)
    assert "a" not in keys
    assert [(line, number) for line, number, _ in rejects] == [lines]
    assert 'quotes = "as they are"' in rejects[0][2]
    keys, rejects = read('quotes = "as they are"\n' + FEED, export)
    assert (keys[0], rejects) == ("a", [])


def test_a_long_quoted_text_is_no_row_in_doubt(read: Read) -> None:
    """FEED-FILE-02: sentences have as many commas as a row, and a blank behind each."""
    prose = '"first, then, so, and, a, b\nlast, and, what, is, left, c"'
    keys, rejects = read(FEED, HEAD + task("a", prose) + task("b"))
    assert (keys, rejects) == (["a", "b"], [])


@pytest.mark.parametrize("sign", ["\u200b", "\u00a0 ", "\u2800", "\t", "\ufeff"])
def test_a_cell_of_unseen_signs_is_empty(sign: str, read: Read) -> None:
    """FEED-FILE-03."""
    keys, rejects = read(FEED, HEAD + task("a", sign) + task("b"))
    assert keys == ["b"]
    assert rejects == [(2, 1, "the column is required and empty here")]


def test_a_cell_with_a_sign_that_may_be_shown_is_not_empty(read: Read) -> None:
    """FEED-FILE-03: a sign that is not assigned yet may be tomorrow's."""
    assert read(FEED, HEAD + task("a", "\U0001fae9") + task("b"))[0] == ["a", "b"]


def test_utf_8_that_a_feed_reads_as_another_encoding_is_rejected(read: Read) -> None:
    """FEED-FILE-02: the letters would be two each, and nobody would see it."""
    feed = 'encoding = "windows-1252"\n' + FEED
    keys, rejects = read(feed, HEAD + task("a", "Größe") + task("b"))
    assert (keys, [line for line, *_ in rejects]) == (["b"], [2])
    assert rejects[0][2] == (
        'the row is UTF-8 and was read as windows-1252; set encoding = "utf-8" in the feed file, '
        "or export all rows in one encoding"
    )
    assert read(feed, HEAD + task("a", "Größe"), "windows-1252")[0] == ["a"]


@pytest.mark.parametrize(
    ("row", "key"),
    [
        ("a,'call, then go',requested,d1,,\n", 'quote = "\'"'),
        ('a, "call, then go", requested, d1, , \n', "skip_spaces = true"),
        ('a,"so \\"said\\", yes",requested,d1,,\n', 'escape = "\\\\"'),
    ],
    ids=["quote", "skip_spaces", "escape"],
)
def test_the_reason_for_a_broken_row_names_the_setting_by_which_it_is_whole(row: str, key: str, read: Read) -> None:
    """FEED-FILE-02."""
    keys, ((line, _, message),) = read(FEED, HEAD + row + task("b"))
    assert (keys, line) == (["b"], 2)
    assert message.endswith(f"; the row is whole with {key} in the feed file")


def quoted(sign: str) -> str:
    """An export with quotes around each cell."""
    rows = ("task_id", "description", "status", "requester_id"), ("a", "b", "requested", "d1")
    return "".join(sign.join(f'"{cell}"' for cell in row) + "\n" for row in rows)


@pytest.mark.parametrize(
    ("export", "keys"),
    [
        ("Report\n,,,,,\n" + HEAD + task("a"), "header = 3"),
        ((HEAD + task("a")).replace(",", ";"), 'delimiter = ";"'),
        ((HEAD + task("a")).replace(",", " "), 'delimiter = " "'),
        ("Report\n" + (HEAD + task("a")).replace(",", ";"), 'delimiter = ";" and header = 2'),
        ("'task_id','description','status','requester_id'\n'a','b','requested','d1'\n", 'quote = "\'"'),
        (quoted(", "), "skip_spaces = true"),
        (quoted(";"), 'delimiter = ";"'),
        (quoted("; "), 'delimiter = ";" and skip_spaces = true'),
        ("Report\n" + quoted("|"), 'delimiter = "|" and header = 2'),
    ],
)
def test_a_header_that_lacks_columns_names_the_keys_that_mend_it(export: str, keys: str, read: Read) -> None:
    """FEED-FILE-02, FEED-FILE-08: and the export is read with them."""
    with pytest.raises(UnreadableFile) as refused:
        read(FEED, export)
    assert f"set {keys} in the feed file" in str(refused.value)
    assert read(keys.replace(" and ", "\n") + FEED, export)[0] == ["a"]


def test_a_comment_without_its_author_names_the_column_that_the_feed_lacks(tmp_path: Path) -> None:
    """FEED-TASK-05."""
    export = HEAD + "a,call,requested,d1,,hello\n"
    found = _validated(tmp_path, FEED + 'comment = "comment"\n', export.encode())
    (row,) = validating.rows(found, "rejects")
    assert [reason["column"] for reason in row["reasons"]] == ["comment_author_id, which the feed does not map"]


def test_a_sample_of_answers_is_checked_by_the_questionnaires_of_the_home(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """FEED-FILE-08, FEED-ANS-07: without a target."""
    (tmp_path / "form.toml").write_text(
        'kind = "answers"\nfiles = "form*"\n[columns]\nresponse_id = "id"\npatient_id = "patient"\n'
        'questionnaire = { constant = "q-phq9-2024" }\n[questions]\n"/44250-9" = "Q1"\n"/44255-8" = "Q2"\n'
    )
    (tmp_path / "form.csv").write_text("id,patient,Q1,Q2\n1,p001,LA6568-5,LA6569-3\n2,p002,LA6568-5,never\n")
    command = ["--home", str(tmp_path / "home"), "feeds", "check", str(tmp_path / "form.toml"), "--sample"]
    assert run([*command, str(tmp_path / "form.csv")]) == 0
    assert "line 3: taken\n" in capsys.readouterr().out
    (tmp_path / "home").mkdir(exist_ok=True)
    (tmp_path / "home" / "reference").symlink_to(REFERENCE)
    assert run([*command, str(tmp_path / "form.csv")]) == 0
    shown = capsys.readouterr().out
    assert "line 2: taken\n" in shown
    assert "line 3: rejected\n" in shown
    assert "  problem in Q2: " in shown


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        ("a,call,done,d1,2026-03-01", "problem in status: "),
        ("b,call,requested,d1,2026-02-30", "problem in due: not a date or time of the calendar"),
        (f"c,call,requested,{'d' * 65},", "problem in who: "),
        ("d,call,requested,,", "problem in who: the column is required and empty here"),
    ],
    ids=["a status", "a date", "a length", "a person"],
)
def test_a_sample_of_tasks_shows_problems_that_need_no_target(
    cells: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """FEED-FILE-08, FEED-FILE-09"""
    columns = {"task_id": "id", "description": "what", "status": "status", "requester_id": "who", "due": "due"}
    mapped = "".join(f'{ours} = "{theirs}"\n' for ours, theirs in columns.items())
    (tmp_path / "list.toml").write_text(f'kind = "tasks"\nfiles = "list*"\n[columns]\n{mapped}')
    (tmp_path / "list.csv").write_text(f"{','.join(columns.values())}\n{cells}\nz,call,requested,d1,\n")
    run(
        ["--home", str(tmp_path), "feeds", "check", str(tmp_path / "list.toml"), "--sample", str(tmp_path / "list.csv")]
    )
    shown = capsys.readouterr().out
    assert "line 2: rejected\n" in shown
    assert f"  {said}" in shown
    assert "line 3: taken\n" in shown


@pytest.mark.parametrize(
    ("amount", "said"),
    [("0", "problem in amount: "), ("-5", "problem in amount: "), ("1.005", "problem in amount: ")],
    ids=["nothing", "a refund", "half a cent"],
)
def test_a_sample_of_payments_shows_problems_that_need_no_target(
    amount: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """FEED-FILE-08, FEED-PAY-03"""
    (tmp_path / "payments.csv").write_text(
        f"payment_id,patient_id,amount,paid_on,claim_id\na,p1,{amount},2026-03-01,\n"
    )
    run(["--home", str(tmp_path), "feeds", "check", "--sample", str(tmp_path / "payments.csv")])
    shown = capsys.readouterr().out
    assert "line 2: rejected\n" in shown
    assert f"  {said}" in shown
