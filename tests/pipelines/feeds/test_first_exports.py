"""From an unknown export to a right import, by its draft and the decisions that the draft asks for alone."""

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipelines.feeds.drafting.draft import draft
from pipelines.feeds.drafting.questionnaire import draft_questionnaire
from tests.support.archives import zipped
from tests.support.workbooks import Cell, sheet, workbook

DAYS = [f"2026-03-{number:02}" for number in range(1, 29)]
SCALE = ("LA6568-5", "LA6569-3", "LA6570-1", "LA6571-9")
Imported = Callable[[str, bytes, dict[str, str]], dict[str, Any]]


@pytest.fixture
def imported(home: Path, asked: Callable[..., dict[str, Any]], tmp_path: Path) -> Imported:
    """Imports an export by its draft, in which lines (as patterns) were replaced by the decisions."""

    def run(name: str, content: bytes, decisions: dict[str, str]) -> dict[str, Any]:
        (tmp_path / name).write_bytes(content)
        text = draft(tmp_path / name)
        for pattern, decided in decisions.items():
            text, number = re.subn(pattern, decided, text, flags=re.MULTILINE)
            assert number == 1, pattern
        (home / "feeds").mkdir(exist_ok=True)
        (home / "feeds" / "first.toml").write_text(text)
        (home / "inbox" / name).write_bytes(content)
        return asked("import")

    return run


def test_an_unknown_export_of_payments_is_imported_by_its_draft_and_one_decision(
    imported: Imported, target: Any
) -> None:
    """FEED-FILE-08: the rows of one method are copayments, and all amounts are there to the cent."""
    methods = ("COPAY", "CASH", "CHECK", "CARD")
    rows = [(f"R{n}", f"03/{n % 28 + 1:02}/2026", methods[n % 3], f"p{n % 9}", f"C{n % 5}", 50 + n) for n in range(60)]
    lines = "".join(f"{key},{day},{how},{who},{claim},{amount}.50,mb\n" for key, day, how, who, claim, amount in rows)
    content = "Receipt,Posted,Method,Chart No,Claim No,Amount,Clerk\n" + lines
    decisions = {r"^# (claim_id = .* when = .*COPAY.*)  # DECIDE.*$": r"\1"}
    counts = imported("payments_march.csv", content.encode(), decisions)["totals"]
    assert (counts["created"], counts["rejected"], counts["copayments"]) == (60, 0, 20)
    found = target.of("PaymentNotice")
    assert sum(round(body["amount"]["value"] * 100) for body in found) == sum(100 * row[-1] + 50 for row in rows)


def test_an_unknown_survey_is_imported_by_its_draft(imported: Imported, target: Any, tmp_path: Path) -> None:
    """FEED-FILE-08: each number becomes the answer that the questionnaire, drafted from the same file, has for it."""
    rows = [[(n + question) % 4 for question in range(7)] for n in range(30)]
    lines = "".join(f"S{n},{DAYS[n % 28]},p{n},{','.join(map(str, row))}\n" for n, row in enumerate(rows))
    content = f"Response ID,Submitted,Patient,{','.join(f'GAD{n}' for n in range(1, 8))}\n{lines}"
    (tmp_path / "gad7_march.csv").write_text(content)
    questionnaire = draft_questionnaire(tmp_path / "gad7_march.csv", "urn:test").body
    target.stored["gad7"] = {**questionnaire, "id": "gad7", "status": "active"}
    counts = imported("gad7_march.csv", content.encode(), {})["totals"]
    assert (counts["created"], counts["rejected"]) == (30, 0)
    said = {
        body["subject"]["reference"]: [item["answer"][0]["valueCoding"]["code"] for item in body["item"]]
        for body in target.of("QuestionnaireResponse")
    }
    assert said == {f"Patient/p{n}": [SCALE[answer] for answer in row] for n, row in enumerate(rows)}


def test_a_workbook_with_its_header_on_line_4_and_totals_at_the_end(imported: Imported, target: Any) -> None:
    """FEED-FILE-08: the total proves the rows, and is none."""
    rows: list[list[Cell]] = [[f"W{n}", DAYS[n % 28], f"p{n}", 10.25 + n] for n in range(40)]
    total = sum(10.25 + n for n in range(40))
    above: list[list[Cell]] = [
        ["Riverside Family Practice"],
        ["Receipts, March 2026"],
        [],
        ["Receipt", "Date", "Patient", "Amount"],
    ]
    content = workbook({"March": sheet([*above, *rows, ["Total", None, None, total]])})
    decisions = {
        r"^# \[trailer\]$": "[trailer]",
        r"^# (when = .*?)  # DECIDE.*$": r"\1",
        r"^# rows = .*$": 'amount = "Amount"',
    }
    counts = imported("receipts_march.xlsx", content, decisions)["totals"]
    assert (counts["created"], counts["rejected"]) == (40, 0)
    assert sum(round(body["amount"]["value"] * 100) for body in target.of("PaymentNotice")) == round(total * 100)


@pytest.mark.long
def test_an_unknown_tracker_of_two_files_is_imported_by_its_draft_and_decisions(
    imported: Imported, target: Any
) -> None:
    """FEED-FILE-08: each comment is at its task."""
    items = "".join(
        f"OPS-{n},call patient {n},{'Open' if n % 2 else 'Closed'},u{n % 3},{DAYS[n % 28]}\n" for n in range(30)
    )
    comments = "".join(f"{n},OPS-{n % 20},u{n % 3},{DAYS[n % 28]},rang {n} times\n" for n in range(40))
    files = {
        "items_march.csv": "issuekey,summary,status,reporter,created\n" + items,
        "comments_march.csv": "id,issuekey,author,created,body\n" + comments,
    }
    decisions = {
        r"^# (one_row_per = \"comment\")  #.*$": r"\1",
        r"^# (comment = .*)$": r"\1",
        r"^# (comment_author_id = \"comments.author\").*$": r"\1",
        r"^# (comment_time = .*)$": r"\1",
        r"^# \[join\.comments\]$": "[join.comments]",
        r"^# (files = \[\"comments.*)$": r"\1",
        r"^# (on = .*)$": r"\1",
        r"^# (one_row_per = \"comments\").*$": r"\1",
    }
    counts = imported("tracker_march.zip", zipped(files), decisions)["totals"]
    assert (counts["created"], counts["rejected"]) == (30, 0)
    tasks = target.of("Task")
    assert Counter(body["status"] for body in tasks) == {"requested": 15, "completed": 15}
    said = {body["description"]: sorted(note["text"] for note in body.get("note", [])) for body in tasks}
    expected = {
        f"call patient {n}": sorted(f"rang {each} times" for each in (n, n + 20)) if n < 20 else [] for n in range(30)
    }
    assert said == expected
