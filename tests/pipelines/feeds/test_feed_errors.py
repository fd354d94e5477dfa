"""What is wrong in a feed file is told with file, key and line."""

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
            "columns.amount.scael: no such key; did you mean scale? (line 12)",
        ),
        (('"AMOUNT"', '{ column = "A", split = ";" }'), "columns.amount: split goes with a column of labels or of a"),
        (('"AMOUNT"', '{ list = ["A"] }'), "columns.amount: list goes with labels and questions (line 12)"),
        (('"AMOUNT"', '{ column = "A", by = "display" }'), "columns.amount: by goes with questions (line 12)"),
        (('"AMOUNT"', '{ column = "A", values = "x" }'), "columns.amount.values: there is no [maps.x] (line 12)"),
        (('"AMOUNT"', "0"), "columns.amount: a column's name, its position (1 is the first) or a table is expected"),
        (('"AMOUNT"', "true"), "columns.amount: a column's name, its position (1 is the first) or a table is"),
        (('["DATE", "DAY"]', '["DATE", 1.5]'), "columns.paid_on.first.1: a column's name, its position"),
        (("[take]", "[taek]"), "taek: no such key; did you mean take? (line 6)"),
        (('"P"', "[1]"), "take.Type of row.is.0: a text is expected (line 7)"),
        (
            ('"%d.%m.%Y"', '"%d.%m"'),
            (
                "dates: '%d.%m' is no format of a date (such as %d.%m.%Y %H:%M or %I:%M %p, excel or unix for numbers)"
                " (line 4)"
            ),
        ),
        (('"%d.%m.%Y"', '"%Q"'), "dates: '%Q' is no format of a date"),
        (("[take]", 'decimal = ";"\n[take]'), "decimal: Input should be '.' or ',' (line 6)"),
        (("[take]", 'thousands = "."\n[take]'), "the file: thousands: not the decimal sign"),
        (("[take]", 'currency = "1"\n[take]'), "currency: a sign or code is expected ($, USD, US$) (line 6)"),
        (("[take]", 'delimiter = "\\""\n[take]'), "the file: delimiter, quote and escape: three different characters"),
        (("[take]", "header = 0\n[take]"), "take.Type of row: without a header (header = 0) a column is its position"),
        (("[take]", "[questions]\na = 1\n[take]"), "the file: questions: goes with kind = 'answers' (line 6)"),
        (("[take]", '[trailer]\nrows = "N"\n[take]'), "trailer.when: required, and not there (line 6)"),
        (("[take]", 'encoding = "idna"\n[take]'), "encoding: no encoding that Python knows"),
        (("[take]", 'format = "csv"\nresources = true\n[take]'), None),
        (("[take]", "header = true\n[take]"), "header: a whole number is expected (line 6)"),
        (
            ("[take]", "sheet = 1.5\n[take]"),
            "sheet: a sheet's name, or its place (1 is the first), is expected (line 6)",
        ),
        (("[take]", "max_rejects = true\n[take]"), "max_rejects: a number is expected (line 6)"),
        (("[take]", 'header = "two"\n[take]'), "header: a whole number is expected (line 6)"),
        (("[take]", "empty = 5\n[take]"), "empty: a list is expected (line 6)"),
        (("[take]", "take = 5\n[maps.x]"), "take: a table is expected (line 6)"),
        (
            ('"AMOUNT"', '{ each = "notes", text = "body" }'),
            'columns.amount.each: a table of parts is expected, each by its path in the object: { text = "body" }',
        ),
        (
            (
                'column = "PATIENT" }',
                (
                    'column = "P", before = "M", crosswalk = '
                    '{ reference = "identifier", type = "Patient", system = "x" } }'
                ),
            ),
            "columns.patient_id.before: stands before the id that the target gives; before what is looked up: join",
        ),
        (
            ('"AMOUNT"', '{ column = "A", crosswalk = { file = "" } }'),
            "columns.amount.crosswalk.file: a text is expected",
        ),
        (('"till*.csv"', '["a*", "till*.csv", "a*"]'), "files: a* stands there more than once (line 3)"),
        (('"AMOUNT"', '{ column = "A", when = { B = { iss = "x" } } }'), "columns.amount.when.B.iss: no such key; did"),
        (
            ('{ column = "PATIENT" }', '{ column = "P", crosswalk = { file = "w.csv", form = "a", to = "b" } }'),
            "columns.patient_id.crosswalk.form: no such key; did you mean from? (line 11)",
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


def test_a_check_tells_of_every_mistake_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """FEED-FILE-08, CLI-CMD-14."""
    path = tmp_path / "till.toml"
    path.write_text(FEED.replace("dates", "datse").replace('kind = "payments"', 'kind = "money"'))
    assert run(["feeds", "check", str(path)]) == 4
    assert capsys.readouterr().err.splitlines() == [
        "chartferry: till.toml: kind: Input should be 'payments', 'answers' or 'tasks' (line 2)",
        "chartferry: till.toml: datse: no such key; did you mean dates? (line 4)",
    ]
    path.write_text(FEED.replace('amount = "AMOUNT"', "price = 3").replace("payment_id", "paymentid"))
    assert run(["feeds", "check", str(path)]) == 4
    said = [line.partition(": ")[2].partition(" (")[0] for line in capsys.readouterr().err.splitlines()]
    assert said == [
        "till.toml: columns.paymentid: payments have no such column",
        "till.toml: columns.price: payments have no such column",
        "till.toml: columns.payment_id: required for payments",
        "till.toml: columns.amount: required for payments",
    ]
