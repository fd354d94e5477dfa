"""Errors in a feed file are reported with file, key and line."""

from pathlib import Path

import pytest

from pipelines.cli import run
from pipelines.feeds.files.catalog import FeedError, load_feed
from pipelines.feeds.files.mistakes import line_of

FEED = """name = "till"
kind = "payments"
files = "till*.csv"
dates = ["%d.%m.%Y"]

[take]
"Type of row" = "P"

[columns]
payment_id = "ID"
patient_id = { column = "PATIENT" }
amount = "AMOUNT"

[columns.paid_on]
first = ["DATE", "DAY"]
"""


def load(folder: Path, text: str) -> None:
    (folder / "till.toml").write_text(text)
    load_feed(folder / "till.toml")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            ('"AMOUNT"', '{ column = "A", scael = 1 }'),
            "columns.amount.scael: unknown key; did you mean scale? (line 12)",
        ),
        (('"AMOUNT"', '{ column = "A", split = ";" }'), "columns.amount: split is only for columns.labels and [q"),
        (('"AMOUNT"', '{ list = ["A"] }'), "columns.amount: list is only for columns.labels and [questions]"),
        (
            ('"AMOUNT"', '{ column = "A", by = "display" }'),
            "columns.amount: by is only for [questions], not inside another value (line 12)",
        ),
        (
            ('"AMOUNT"', '{ column = "A", values = "x" }'),
            "columns.amount.values: this file has no table [maps.x] (line 12)",
        ),
        (('"AMOUNT"', "0"), "columns.amount: must be a column's name, its position (1 is the first) or a table"),
        (('"AMOUNT"', "true"), "columns.amount: must be a column's name, its position (1 is the first) or a"),
        (('["DATE", "DAY"]', '["DATE", 1.5]'), "columns.paid_on.first.1: must be a column's name, its"),
        (("[take]", "[taek]"), "taek: unknown key; did you mean take? (line 6)"),
        (('"P"', "[1]"), "take.Type of row.is.0: must be a text in quotes (line 7)"),
        (
            ('"%d.%m.%Y"', '"%d.%m"'),
            (
                "dates: '%d.%m' is not a format of dates; examples: %d.%m.%Y %H:%M, %m/%d/%Y %I:%M %p, excel, unix"
                " (line 4)"
            ),
        ),
        (('"%d.%m.%Y"', '"%Q"'), "dates: '%Q' is not a format of dates"),
        (("[take]", 'decimal = ";"\n[take]'), "decimal: must be '.' or ',' (line 6)"),
        (("[take]", 'thousands = "."\n[take]'), "the file: thousands: must differ from decimal"),
        (("[take]", 'currency = "1"\n[take]'), "currency: must be a currency sign or code"),
        (("[take]", 'delimiter = "\\""\n[take]'), "the file: delimiter, quote and escape: must be three different"),
        (("[take]", "header = 0\n[take]"), "take.Type of row: the file has no header (header = 0); name the column by"),
        (("[take]", "[questions]\na = 1\n[take]"), "the file: questions: only for kind = 'answers' (line 6)"),
        (("[take]", '[trailer]\nrows = "N"\n[take]'), "trailer.when: required, but missing (line 6)"),
        (("[take]", 'encoding = "idna"\n[take]'), "encoding: not an encoding that Python knows"),
        (("[take]", 'format = "csv"\nresources = true\n[take]'), None),
        (("[take]", "header = true\n[take]"), "header: must be a whole number, without quotes (line 6)"),
        (
            ("[take]", "sheet = 1.5\n[take]"),
            "sheet: must be a sheet's name or its position (1 is the first) (line 6)",
        ),
        (("[take]", "max_rejects = true\n[take]"), "max_rejects: must be a number (line 6)"),
        (("[take]", 'header = "two"\n[take]'), "header: must be a whole number, without quotes (line 6)"),
        (("[take]", "empty = 5\n[take]"), "empty: must be a list in brackets (line 6)"),
        (("[take]", "take = 5\n[maps.x]"), "take: must be a table: { ... } (line 6)"),
        (
            ('"AMOUNT"', '{ each = "notes", text = "body" }'),
            'columns.amount.each: must be a table with a path within the object for each part: { text = "body" }',
        ),
        (
            (
                'column = "PATIENT" }',
                (
                    'column = "P", before = "M", crosswalk = '
                    '{ reference = "identifier", type = "Patient", system = "x" } }'
                ),
            ),
            "columns.patient_id.before: goes in front of the id that the target returns; to change",
        ),
        (
            ('"AMOUNT"', '{ column = "A", crosswalk = { file = "" } }'),
            "columns.amount.crosswalk.file: must not be empty",
        ),
        (('"till*.csv"', '["a*", "till*.csv", "a*"]'), "files: a* is listed more than once (line 3)"),
        (('"AMOUNT"', '{ column = "A", when = { B = { iss = "x" } } }'), "columns.amount.when.B.iss: unknown key; did"),
        (
            ('{ column = "PATIENT" }', '{ column = "P", crosswalk = { file = "w.csv", form = "a", to = "b" } }'),
            "columns.patient_id.crosswalk.form: unknown key; did you mean from? (line 11)",
        ),
        (
            ('{ column = "PATIENT" }', '{ column = "P", crosswalk = { file = "none.csv", from = "a", to = "b" } }'),
            "crosswalk none.csv: cannot be read: No such file or directory (line 11)",
        ),
    ],
)
def test_an_error_names_file_key_and_line(change: tuple[str, str], message: str | None, tmp_path: Path) -> None:
    """FEED-FILE-08."""
    assert change[0] in FEED
    text = FEED.replace(*change)
    if message is None:
        load(tmp_path, text)
        return
    with pytest.raises(FeedError) as error:
        load(tmp_path, text)
    assert str(error.value).startswith(f"till.toml: {message}")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (("kind",), 2),
        (("take", "Type of row"), 7),
        (("columns", "patient_id", "column"), 11),
        (("columns", "paid_on", "first", 1), 15),
        (("columns", "claim_id"), 9),
        (("nowhere",), None),
    ],
)
def test_a_key_is_found_on_its_line(path: tuple[object, ...], line: int | None) -> None:
    """FEED-FILE-08."""
    assert line_of(FEED, path) == line


def test_an_entry_of_an_array_of_tables_is_found_by_its_number() -> None:
    """FEED-FILE-08."""
    text = "[[comments]]\ntext = 1\n\n[[comments]]\ntext = 2\n'odd key'.x = 3\n"
    assert [line_of(text, ("comments", number, "text")) for number in (0, 1)] == [2, 5]
    assert line_of(text, ("comments", 1, "odd key", "x")) == 6


def test_feeds_check_reports_every_mistake_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """FEED-FILE-08, CLI-CMD-14."""
    path = tmp_path / "till.toml"
    path.write_text(FEED.replace("dates", "datse").replace('kind = "payments"', 'kind = "money"'))
    assert run(["feeds", "check", str(path)]) == 4
    assert capsys.readouterr().err.splitlines() == [
        "chartferry: till.toml: kind: must be 'payments', 'answers' or 'tasks' (line 2)",
        "chartferry: till.toml: datse: unknown key; did you mean dates? (line 4)",
    ]
    path.write_text(FEED.replace('amount = "AMOUNT"', "price = 3").replace("payment_id", "paymentid"))
    assert run(["feeds", "check", str(path)]) == 4
    lines = capsys.readouterr().err.splitlines()
    said = [line.partition(": ")[2].partition(" (")[0].partition("; ")[0] for line in lines]
    assert said == [
        "till.toml: columns.paymentid: payments have no such column",
        "till.toml: columns.price: payments have no such column",
        "till.toml: columns.payment_id: required for payments",
        "till.toml: columns.amount: required for payments",
    ]
