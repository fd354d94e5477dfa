"""`feeds check --sample`: the first rows of an export, shown as what they become."""

import json
from pathlib import Path

import pytest

from pipelines.cli import run
from tests.support.exports import feed_file
from tests.support.written import written

GOLDEN = Path(__file__).parents[1] / "golden"


def test_the_first_rows_of_a_sample_are_shown_as_what_they_become(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """FEED-FILE-08."""
    folder = GOLDEN / "no_header" / "input"
    assert (
        run(["feeds", "check", str(folder / "bank.toml"), "--sample", str(folder / "bank_1.txt"), "--rows", "6"]) == 0
    )
    shown = capsys.readouterr().out
    assert "bank_1.txt: line 1: taken\n  payment_id  17-1\n  patient_id  Patient/p1\n  amount      1250.00\n" in shown
    assert "bank_1.txt: line 3: not taken\n" in shown
    assert "bank_1.txt: line 6: rejected: 5 fields where the first row has 7\n" in shown
    assert "  problem in #5: not a date or time" in shown


def test_a_sample_shows_refunds_and_answers(capsys: pytest.CaptureFixture[str]) -> None:
    """FEED-FILE-08, FEED-FILE-09."""
    folder = GOLDEN / "windows_1252_decimal_comma" / "input"
    assert run(["feeds", "check", str(folder / "kasse.toml"), "--sample", str(folder / "Kassenbuch_05.csv")]) == 0
    shown = capsys.readouterr().out
    assert "problem in Betrag: the amount is below zero, as of a refund" in shown
    assert "ends with a row where Beleg starts with Summe, with rows from Patient and amount from Betrag" in shown
    folder = GOLDEN / "wide_answers" / "input"
    assert (
        run(["feeds", "check", str(folder / "mood.toml"), "--sample", str(folder / "mood_1.csv"), "--rows", "1"]) == 0
    )
    assert "g.2 / display / Stress" in capsys.readouterr().out


def test_a_sample_shows_that_a_feed_of_whole_resources_takes_no_other_rows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """FEED-FILE-05, FEED-FILE-09."""
    feed = written(tmp_path, "till.toml", 'kind = "payments"\nfiles = "till*"\nresources = true\n')
    export = written(tmp_path, "till.ndjson", '{"payment_id": "1"}\n{"resourceType": "PaymentNotice"}\n')
    assert run(["feeds", "check", str(feed), "--sample", str(export)]) == 0
    shown = capsys.readouterr().out
    assert "till.ndjson: line 1: rejected: not a FHIR resource; this feed takes only PaymentNotice\n" in shown
    assert "till.ndjson: of the first 2 rows 1 rejected, 1 taken\n" in shown


@pytest.mark.parametrize("row", ["Sum;2", "Sum;;;;;;2 rows"])
def test_a_trailer_of_fewer_or_more_fields_is_one_in_a_sample_as_in_an_import(
    row: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """FEED-FILE-08, LEDGER-14."""
    says = 'files = ["till*"]\nkind = "payments"\ndelimiter = ";"\n[trailer]\nwhen = { payment_id = "Sum" }\n'
    feed = feed_file(tmp_path, "till", says, "payment_id,patient_id,amount,paid_on")
    rows = f"payment_id;patient_id;amount;paid_on\n1;p1;5;2026-01-01\n2;p1;5\n{row}\n"
    assert run(["feeds", "check", str(feed), "--sample", str(written(tmp_path, "till.csv", rows))]) == 0
    shown = capsys.readouterr().out
    assert "till.csv: line 4: trailer\n" in shown
    assert "till.csv: of the first 3 rows 1 taken, 1 rejected, 1 trailer\n" in shown


def test_a_sample_that_no_feed_takes_or_that_cannot_be_read_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """FEED-FILE-10."""
    home = ["--home", str(tmp_path / "home"), "feeds", "check", "--sample"]
    assert run([*home, str(written(tmp_path, "other.csv", "a\n1\n"))]) == 4
    assert "other.csv: no feed takes a file of this name" in capsys.readouterr().err
    assert run([*home, str(written(tmp_path, "payments.csv", "a\n1\n"))]) == 4
    assert "payments.csv: the header lacks payment_id" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "http://loinc.org|69737-5",
            "problem in questionnaire (constant): no active questionnaire has this name or code",
        ),
        ("GAD7", "problem in questionnaire (constant): no active questionnaire has this id, name or code, so options"),
    ],
)
def test_a_questionnaire_that_is_not_there_is_one_problem_and_not_one_for_each_question(
    name: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """FEED-ANS-03, FEED-ANS-07."""
    other: dict[str, object] = {"resourceType": "Questionnaire", "id": "o", "name": "Other", "status": "active"}
    code = [{"system": "http://loinc.org", "code": "1-8"}]
    other |= {"code": code, "item": [{"linkId": "1", "code": code, "text": "Why?", "type": "text"}]}
    (tmp_path / "home" / "reference").mkdir(parents=True)
    written(tmp_path / "home" / "reference", "q.ndjson", json.dumps(other) + "\n")
    questions = "".join(f'q{n} = {{ column = "Q{n}", by = "display" }}\n' for n in (1, 2))
    columns = f'response_id = "id"\npatient_id = "who"\nquestionnaire = {{ constant = "{name}" }}\n'
    head = 'kind = "answers"\nfiles = "gad*"\n'
    feed = written(tmp_path, "gad.toml", f"{head}[columns]\n{columns}[questions]\n{questions}")
    export = written(tmp_path, "gad.csv", "id,who,Q1,Q2\n1,p1,Not at all,Several days\n")
    assert run(["--home", str(tmp_path / "home"), "feeds", "check", str(feed), "--sample", str(export)]) == 0
    shown = [line.strip() for line in capsys.readouterr().out.splitlines() if "problem in" in line]
    assert len(shown) == 1
    assert shown[0].startswith(said)


def test_a_sample_shows_what_becomes_of_keys_that_come_more_than_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """FEED-FILE-08, LEDGER-13: as an import takes them; a column that is no key was shown as taken in every row."""
    feed = written(
        tmp_path,
        "till.toml",
        'kind = "payments"\nfiles = "till*"\n[columns]\npayment_id = "id"\npatient_id = "who"\namount = "sum"\n'
        'paid_on = "on"\n',
    )
    rows = ("a,p1,1.00", "a,p1,1.00", "b,p1,1.00", "b,p1,2.00", "c,p1,x", "c,p1,1.00")
    export = written(tmp_path, "till.csv", "id,who,sum,on\n" + "".join(f"{row},2026-03-01\n" for row in rows))
    assert run(["feeds", "check", str(feed), "--sample", str(export), "--rows", "6"]) == 0
    shown = capsys.readouterr().out
    said = [line.removeprefix("till.csv: ") for line in shown.splitlines() if line.startswith("till.csv: line")]
    assert said == [
        "line 2: taken",
        "line 3: skipped: as line 2",
        *(f"line {line}: rejected" for line in range(4, 8)),
    ]
    again = "problem in id: the key stands more than once, first on line {}, with different content"
    assert [shown.count(again.format(line)) for line in (4, 6)] == [2, 2]
    assert "of the first 6 rows 1 taken, 1 skipped, 4 rejected" in shown
