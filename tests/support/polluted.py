"""Exports of payments, each polluted in one way that exports of the world are, with what is true of it.

The truth of an export is its records by key, each with the lines that it is on. A correct reader gives each of them as
it is, says its line, or refuses the file. All is made from a seed.
"""

import random
from collections.abc import Callable, Iterator
from datetime import date
from typing import NamedTuple

NAMES = ("Receipt", "Patient", "Amount", "Date", "Note")
ROWS = 12
FEED = """
kind = "payments"
files = ["till*"]
format = "csv"
[columns]
payment_id = "Receipt"
patient_id = "Patient"
amount = "Amount"
paid_on = "Date"
"""


class Paid(NamedTuple):
    """A payment as the export means it. cents: None where no reader can know. lines: those that it is on."""

    patient: str
    cents: int | None
    day: str
    lines: tuple[int, int]


class Polluted(NamedTuple):
    """A polluted export. keys: of the feed file, beside the plain ones. mends: a key that a refusal or reject names."""

    kind: str
    content: bytes
    truth: dict[str, Paid]
    keys: str = ""
    mends: str = ""


class Table:
    """A plain export, to be polluted: its lines, and which of them each record is on."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.rows = [
            [f"r{chance.randrange(10**6)}-{number}", f"p{number}", _amount(chance), _day(chance), "ok"]
            for number in range(ROWS)
        ]
        self.place = chance.randrange(1, ROWS - 1)

    @property
    def row(self) -> list[str]:
        return self.rows[self.place]

    def truth(self, before: int = 1, lost: int | None = None) -> dict[str, Paid]:
        """The records, each on one line behind `before` others. lost: the place of an amount that nobody can know."""
        found = {}
        for place, (key, patient, amount, day, *_) in enumerate(self.rows):
            cents = None if place == lost else round(float(amount) * 100)
            found[key] = Paid(patient, cents, day, (place + before + 1, place + before + 1))
        return found

    def text(self, sign: str = ",", names: tuple[str, ...] = NAMES) -> str:
        return "".join(f"{sign.join(cells)}\n" for cells in (names, *self.rows))

    def lines(self) -> list[str]:
        return self.text().splitlines(keepends=True)


def _amount(chance: random.Random) -> str:
    return f"{chance.randrange(100, 99_900) / 100:.2f}"


def _day(chance: random.Random) -> str:
    return f"2024-{chance.randrange(1, 13):02d}-{chance.randrange(1, 29):02d}"


Pollute = Callable[[Table], Polluted]
WAYS: dict[str, Pollute] = {}


def way(pollute: Pollute) -> Pollute:
    """Register a way to pollute an export under its function's name."""
    WAYS[pollute.__name__.replace("_", " ")] = pollute
    return pollute


def corpus(seeds: int) -> Iterator[Polluted]:
    """Each way with so many seeds."""
    for name, pollute in WAYS.items():
        for seed in range(seeds):
            yield pollute(Table(random.Random(f"{name} {seed}")))._replace(kind=name)


def _plain(text: str, truth: dict[str, Paid], keys: str = "", mends: str = "", encoding: str = "utf-8") -> Polluted:
    return Polluted("", text.encode(encoding), truth, keys, mends)


# --- Bytes ----------------------------------------------------------------------------------------


@way
def line_ends_of_another_system(table: Table) -> Polluted:
    return _plain(table.text().replace("\n", table.chance.choice(("\r\n", "\r"))), table.truth())


@way
def a_byte_order_mark(table: Table) -> Polluted:
    return _plain(table.text(), table.truth(), encoding="utf-8-sig")


@way
def utf_16(table: Table) -> Polluted:
    encoding = table.chance.choice(("utf-16", "utf-16-le", "utf-16-be"))
    return _plain(table.text(), table.truth(), mends="encoding =", encoding=encoding)


@way
def letters_in_windows_1252(table: Table) -> Polluted:
    table.row[1] = f"Größe{table.place}"
    return _plain(table.text(), table.truth(), encoding="windows-1252")


@way
def utf_8_where_the_feed_says_windows_1252(table: Table) -> Polluted:
    table.row[0] = f"Größe{table.place}"
    return _plain(table.text(), table.truth(), 'encoding = "windows-1252"\n')


@way
def a_zero_byte(table: Table) -> Polluted:
    table.row[4] = "o\0k"
    return _plain(table.text(), table.truth())


@way
def an_end_of_file_sign(table: Table) -> Polluted:
    return _plain(table.text() + "\x1a", table.truth())


@way
def cut_off_within_the_last_amount(table: Table) -> Polluted:
    last = table.rows[-1]
    last[2] = f"{table.chance.randrange(10, 99)}.{table.chance.randrange(10, 99)}"
    short = last[2][: table.chance.choice((-1, -2, -3))]
    return _plain("".join(table.lines()[:-1]) + f"{last[0]},{last[1]},{short}", table.truth())


@way
def no_line_break_at_the_end(table: Table) -> Polluted:
    return _plain(table.text().rstrip("\n"), table.truth())


# --- Delimiters and quotes ------------------------------------------------------------------------


@way
def another_delimiter(table: Table) -> Polluted:
    return _plain(table.text(table.chance.choice((";", "\t", "|", "^"))), table.truth(), mends="delimiter =")


@way
def parted_by_blanks(table: Table) -> Polluted:
    return _plain(table.text(" "), table.truth(), mends='delimiter = " "')


@way
def all_cells_quoted(table: Table) -> Polluted:
    table.rows = [[f'"{cell}"' for cell in row] for row in table.rows]
    text = table.text()
    table.rows = [[cell.strip('"') for cell in row] for row in table.rows]
    return _plain(text, table.truth())


@way
def single_quotes_around_commas(table: Table) -> Polluted:
    row = table.row
    lines = table.lines()
    lines[table.place + 1] = f"'{row[0]}','{row[1]}','{row[2]}','{row[3]}','a, b'\n"
    return _plain("".join(lines), table.truth(), mends='quote = "\'"')


@way
def single_quotes_everywhere(table: Table) -> Polluted:
    quoted = "".join(",".join(f"'{cell}'" for cell in row) + "\n" for row in (NAMES, *table.rows))
    return _plain(quoted, table.truth(), mends='quote = "\'"')


@way
def spaces_before_quotes(table: Table) -> Polluted:
    lines = table.lines()
    row = table.row
    lines[table.place + 1] = f'{row[0]}, {row[1]}, {row[2]}, {row[3]}, "a, b"\n'
    return _plain("".join(lines), table.truth(), mends="skip_spaces = true")


@way
def a_quote_never_closed(table: Table) -> Polluted:
    table.row[4] = '"ok'
    return _plain(table.text(), table.truth())


@way
def a_quote_closed_rows_later(table: Table) -> Polluted:
    table.row[4] = '"ok'
    table.rows[min(table.place + table.chance.randrange(1, 4), ROWS - 1)][4] = 'ok"'
    return _plain(table.text(), table.truth())


@way
def an_inch_sign(table: Table) -> Polluted:
    table.row[4] = '5" tube'
    return _plain(table.text(), table.truth())


@way
def a_quoted_text_cut_at_its_comma(table: Table) -> Polluted:
    row = table.row
    lines = table.lines()
    lines[table.place + 1] = f'{row[0]},{row[1]} "{row[2]},{row[3]}",{row[2]}\n'
    return _plain("".join(lines), table.truth(lost=table.place))


@way
def backslashes_before_quotes(table: Table) -> Polluted:
    table.row[4] = '"so \\"called\\", yes"'
    return _plain(table.text(), table.truth(), mends="escape =")


@way
def a_long_quoted_text(table: Table) -> Polluted:
    lines = [f"first, then, so, and, word {number}" for number in range(table.chance.randrange(2, 14))]
    table.row[4] = '"' + "\n".join(lines) + '"'
    more = len(lines) - 1
    truth = {
        key: paid._replace(lines=(paid.lines[0] + (more if place > table.place else 0),) * 2)
        for place, (key, paid) in enumerate(table.truth().items())
    }
    return _plain(table.text(), truth)


@way
def a_quoted_text_with_a_row_in_it(table: Table) -> Polluted:
    table.row[4] = '"see\nx1,p9,5.00,2024-01-01,no\nend"'
    truth = {
        key: paid._replace(
            lines=(paid.lines[0] + 2 * (place > table.place), paid.lines[0] + 2 * (place >= table.place))
        )
        for place, (key, paid) in enumerate(table.truth().items())
    }
    return _plain(table.text(), truth)


# --- Header, totals, shape ------------------------------------------------------------------------


@way
def lines_above_the_header(table: Table) -> Polluted:
    number = table.chance.randrange(1, 5)
    text = "".join(f"Report line {line}\n" for line in range(number)) + table.text()
    return _plain(text, table.truth(1 + number), mends=f"header = {number + 1}")


@way
def lines_of_delimiters_above_the_header(table: Table) -> Polluted:
    number = table.chance.randrange(1, 4)
    return _plain("Till,,,,\n" * number + table.text(), table.truth(1 + number), mends=f"header = {number + 1}")


@way
def no_header(table: Table) -> Polluted:
    return _plain("".join(table.lines()[1:]), table.truth(0), mends="header = 0")


@way
def a_header_in_capitals(table: Table) -> Polluted:
    return _plain(table.text(names=tuple(name.upper() for name in NAMES)), table.truth(), mends="Receipt")


@way
def the_header_again(table: Table) -> Polluted:
    lines = table.lines()
    lines.insert(table.place + 1, lines[0])
    truth = {
        key: paid._replace(lines=(paid.lines[0] + (place >= table.place),) * 2)
        for place, (key, paid) in enumerate(table.truth().items())
    }
    return _plain("".join(lines), truth)


@way
def a_second_table_in_another_order(table: Table) -> Polluted:
    below = [
        f"{day},{amount},{key},{note},{patient}\n" for key, patient, amount, day, note in table.rows[table.place :]
    ]
    text = "".join(table.lines()[: table.place + 1]) + "Date,Amount,Receipt,Note,Patient\n" + "".join(below)
    truth = {
        key: paid._replace(lines=(paid.lines[0] + (place >= table.place),) * 2)
        for place, (key, paid) in enumerate(table.truth().items())
    }
    return _plain(text, truth)


@way
def totals_at_the_end(table: Table) -> Polluted:
    total = sum(float(row[2]) for row in table.rows)
    return _plain(table.text() + f"Total,,{total:.2f},,\n", table.truth())


@way
def a_footer_of_one_cell(table: Table) -> Polluted:
    return _plain(table.text() + f"\nPage 1 of 1\nprinted by x{table.place}\n", table.truth())


@way
def blank_rows(table: Table) -> Polluted:
    lines = table.lines()
    lines.insert(table.place + 1, table.chance.choice(("\n", ",,,,\n", "  ,\u00a0,,,\n")))
    truth = {
        key: paid._replace(lines=(paid.lines[0] + (place >= table.place),) * 2)
        for place, (key, paid) in enumerate(table.truth().items())
    }
    return _plain("".join(lines), truth)


@way
def too_many_cells(table: Table) -> Polluted:
    table.row.insert(table.chance.randrange(1, 5), "x")
    key, patient = table.row[0], f"p{table.place}"
    cells = [cell for cell in table.row if cell != "x"]
    text = table.text()
    table.rows[table.place] = [key, patient, *cells[2:]]
    return _plain(text, table.truth())


@way
def too_few_cells(table: Table) -> Polluted:
    text = table.lines()
    text[table.place + 1] = ",".join(table.row[: table.chance.randrange(1, 5)]) + "\n"
    return _plain("".join(text), table.truth())


# --- Cells ----------------------------------------------------------------------------------------


def _with_amount(table: Table, *spellings: str) -> Polluted:
    spelling = table.chance.choice(spellings)
    cents = table.chance.randrange(123_400, 999_999)
    whole = f"{cents / 100:.2f}"
    table.row[2] = whole
    truth = table.truth()
    comma = f"{cents / 100:,.2f}"
    german = comma.translate(str.maketrans(",.", ".,"))
    table.row[2] = spelling.format(plain=whole, comma=comma, german=german)
    return _plain(table.text(), truth)


@way
def an_amount_with_thousands(table: Table) -> Polluted:
    return _with_amount(table, '"{comma}"', '"{german}"')


@way
def an_amount_with_a_currency(table: Table) -> Polluted:
    return _with_amount(table, "${plain}", "{plain} €", "USD {plain}")


@way
def an_amount_below_zero(table: Table) -> Polluted:
    found = _with_amount(table, "({plain})", "{plain}-", "-{plain}", "\u2212{plain}")
    key = table.row[0]
    paid = found.truth[key]
    return found._replace(truth={**found.truth, key: paid._replace(cents=-(paid.cents or 0))})


@way
def an_amount_of_three_decimals(table: Table) -> Polluted:
    table.row[2] = "1.500"
    return _plain(table.text(), table.truth(lost=table.place))


@way
def an_amount_with_an_exponent(table: Table) -> Polluted:
    table.row[2] = "1.25E+3"
    return _plain(table.text(), table.truth())


@way
def a_day_that_is_none(table: Table) -> Polluted:
    table.row[3] = table.chance.choice(("2024-02-30", "2023-02-29", "00.00.0000", "0000-00-00"))
    return _plain(table.text(), table.truth())


@way
def a_day_in_another_form(table: Table) -> Polluted:
    truth = table.truth()
    year, month, day = table.row[3].split("-")
    table.row[3] = table.chance.choice((f"{month}/{day}/{year}", f"{day}.{month}.{year}", f"{year}{month}{day}"))
    return _plain(table.text(), truth)


@way
def days_as_a_spreadsheet_counts_them(table: Table) -> Polluted:
    truth = table.truth()
    for row in table.rows:
        row[3] = str((date.fromisoformat(row[3]) - date(1899, 12, 30)).days)
    return _plain(table.text(), truth)


@way
def a_cell_of_unseen_signs(table: Table) -> Polluted:
    truth = table.truth()
    table.row[table.chance.choice((1, 2, 3))] = table.chance.choice(
        ("\u200b", "\u00a0", "\ufeff\u200b", " \t", "\u2800")
    )
    return _plain(table.text(), truth)


@way
def unseen_signs_around_a_key(table: Table) -> Polluted:
    truth = table.truth()
    table.row[0] = table.chance.choice(("\u00a0{}", "{}\u200b", " {} ", "\ufeff{}")).format(table.row[0])
    return _plain(table.text(), truth)


@way
def a_key_that_a_spreadsheet_made_a_number(table: Table) -> Polluted:
    table.row[0] = table.chance.choice(("7.0", "1.2E+14"))
    return _plain(table.text(), table.truth())


@way
def an_empty_cell(table: Table) -> Polluted:
    truth = table.truth()
    table.row[table.chance.choice((1, 2, 3))] = ""
    return _plain(table.text(), truth)


@way
def a_row_twice(table: Table) -> Polluted:
    return _plain(table.text() + ",".join(table.row) + "\n", table.truth())


@way
def a_key_twice_with_other_content(table: Table) -> Polluted:
    other = [*table.row[:2], "99999.00", *table.row[3:]]
    return _plain(table.text() + ",".join(other) + "\n", table.truth(lost=table.place))


@way
def a_column_twice(table: Table) -> Polluted:
    table.rows = [[*row[:4], "1.00"] for row in table.rows]
    return _plain(table.text(names=(*NAMES[:4], "Amount")), table.truth(), mends="more than once")
