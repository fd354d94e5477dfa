"""Exports of payments, each polluted in one way that real exports are, with its true content.

Here are the ways in which bytes, delimiters, quotes and the shape of a table are polluted. All is made from a seed.
"""

import random
from collections.abc import Iterator

from tests.support.polluted_cells import OF_CELLS
from tests.support.polluted_tables import NAMES, ROWS, Pollute, Polluted, Table, into, plain

OF_FILES: dict[str, Pollute] = {}
way = into(OF_FILES)


# --- Bytes ----------------------------------------------------------------------------------------


@way
def line_ends_of_another_system(table: Table) -> Polluted:
    return plain(table.text().replace("\n", table.chance.choice(("\r\n", "\r"))), table.truth())


@way
def a_byte_order_mark(table: Table) -> Polluted:
    return plain(table.text(), table.truth(), encoding="utf-8-sig")


@way
def utf_16(table: Table) -> Polluted:
    encoding = table.chance.choice(("utf-16", "utf-16-le", "utf-16-be"))
    return plain(table.text(), table.truth(), mends="encoding =", encoding=encoding)


@way
def letters_in_windows_1252(table: Table) -> Polluted:
    table.row[1] = f"Größe{table.place}"
    return plain(table.text(), table.truth(), encoding="windows-1252")


@way
def utf_8_where_the_feed_says_windows_1252(table: Table) -> Polluted:
    table.row[0] = f"Größe{table.place}"
    return plain(table.text(), table.truth(), 'encoding = "windows-1252"\n')


@way
def a_zero_byte(table: Table) -> Polluted:
    table.row[4] = "o\0k"
    return plain(table.text(), table.truth())


@way
def an_end_of_file_sign(table: Table) -> Polluted:
    return plain(table.text() + "\x1a", table.truth())


@way
def cut_off_within_the_last_amount(table: Table) -> Polluted:
    last = table.rows[-1]
    last[2] = f"{table.chance.randrange(10, 99)}.{table.chance.randrange(10, 99)}"
    short = last[2][: table.chance.choice((-1, -2, -3))]
    return plain("".join(table.lines()[:-1]) + f"{last[0]},{last[1]},{short}", table.truth())


@way
def no_line_break_at_the_end(table: Table) -> Polluted:
    return plain(table.text().rstrip("\n"), table.truth())


# --- Delimiters and quotes ------------------------------------------------------------------------


@way
def another_delimiter(table: Table) -> Polluted:
    return plain(table.text(table.chance.choice((";", "\t", "|", "^"))), table.truth(), mends="delimiter =")


@way
def parted_by_blanks(table: Table) -> Polluted:
    return plain(table.text(" "), table.truth(), mends='delimiter = " "')


@way
def all_cells_quoted(table: Table) -> Polluted:
    table.rows = [[f'"{cell}"' for cell in row] for row in table.rows]
    text = table.text()
    table.rows = [[cell.strip('"') for cell in row] for row in table.rows]
    return plain(text, table.truth())


@way
def single_quotes_around_commas(table: Table) -> Polluted:
    row = table.row
    lines = table.lines()
    lines[table.place + 1] = f"'{row[0]}','{row[1]}','{row[2]}','{row[3]}','a, b'\n"
    return plain("".join(lines), table.truth(), mends='quote = "\'"')


@way
def single_quotes_everywhere(table: Table) -> Polluted:
    quoted = "".join(",".join(f"'{cell}'" for cell in row) + "\n" for row in (NAMES, *table.rows))
    return plain(quoted, table.truth(), mends='quote = "\'"')


@way
def spaces_before_quotes(table: Table) -> Polluted:
    lines = table.lines()
    row = table.row
    lines[table.place + 1] = f'{row[0]}, {row[1]}, {row[2]}, {row[3]}, "a, b"\n'
    return plain("".join(lines), table.truth(), mends="skip_spaces = true")


@way
def a_quote_never_closed(table: Table) -> Polluted:
    table.row[4] = '"ok'
    return plain(table.text(), table.truth())


@way
def a_quote_closed_rows_later(table: Table) -> Polluted:
    table.row[4] = '"ok'
    table.rows[min(table.place + table.chance.randrange(1, 4), ROWS - 1)][4] = 'ok"'
    return plain(table.text(), table.truth())


@way
def an_inch_sign(table: Table) -> Polluted:
    table.row[4] = '5" tube'
    return plain(table.text(), table.truth())


@way
def a_quoted_text_cut_at_its_comma(table: Table) -> Polluted:
    row = table.row
    lines = table.lines()
    lines[table.place + 1] = f'{row[0]},{row[1]} "{row[2]},{row[3]}",{row[2]}\n'
    return plain("".join(lines), table.truth(lost=table.place))


@way
def backslashes_before_quotes(table: Table) -> Polluted:
    table.row[4] = '"so \\"called\\", yes"'
    return plain(table.text(), table.truth(), mends="escape =")


@way
def a_long_quoted_text(table: Table) -> Polluted:
    lines = [f"first, then, so, and, word {number}" for number in range(table.chance.randrange(2, 14))]
    table.row[4] = '"' + "\n".join(lines) + '"'
    more = len(lines) - 1
    truth = {
        key: paid._replace(lines=(paid.lines[0] + (more if place > table.place else 0),) * 2)
        for place, (key, paid) in enumerate(table.truth().items())
    }
    return plain(table.text(), truth)


@way
def a_quoted_text_with_a_row_in_it(table: Table) -> Polluted:
    table.row[4] = '"see\nx1,p9,5.00,2024-01-01,no\nend"'
    truth = {
        key: paid._replace(
            lines=(paid.lines[0] + 2 * (place > table.place), paid.lines[0] + 2 * (place >= table.place))
        )
        for place, (key, paid) in enumerate(table.truth().items())
    }
    return plain(table.text(), truth)


# --- Header, totals, shape ------------------------------------------------------------------------


@way
def lines_above_the_header(table: Table) -> Polluted:
    number = table.chance.randrange(1, 5)
    text = "".join(f"Report line {line}\n" for line in range(number)) + table.text()
    return plain(text, table.truth(1 + number), mends=f"header = {number + 1}")


@way
def lines_of_delimiters_above_the_header(table: Table) -> Polluted:
    number = table.chance.randrange(1, 4)
    return plain("Till,,,,\n" * number + table.text(), table.truth(1 + number), mends=f"header = {number + 1}")


@way
def no_header(table: Table) -> Polluted:
    return plain("".join(table.lines()[1:]), table.truth(0), mends="header = 0")


@way
def a_header_in_capitals(table: Table) -> Polluted:
    return plain(table.text(names=tuple(name.upper() for name in NAMES)), table.truth(), mends="Receipt")


@way
def the_header_again(table: Table) -> Polluted:
    lines = table.lines()
    lines.insert(table.place + 1, lines[0])
    truth = {
        key: paid._replace(lines=(paid.lines[0] + (place >= table.place),) * 2)
        for place, (key, paid) in enumerate(table.truth().items())
    }
    return plain("".join(lines), truth)


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
    return plain(text, truth)


@way
def totals_at_the_end(table: Table) -> Polluted:
    total = sum(float(row[2]) for row in table.rows)
    return plain(table.text() + f"Total,,{total:.2f},,\n", table.truth())


@way
def a_footer_of_one_cell(table: Table) -> Polluted:
    return plain(table.text() + f"\nPage 1 of 1\nprinted by x{table.place}\n", table.truth())


@way
def blank_rows(table: Table) -> Polluted:
    lines = table.lines()
    lines.insert(table.place + 1, table.chance.choice(("\n", ",,,,\n", "  ,\u00a0,,,\n")))
    truth = {
        key: paid._replace(lines=(paid.lines[0] + (place >= table.place),) * 2)
        for place, (key, paid) in enumerate(table.truth().items())
    }
    return plain("".join(lines), truth)


@way
def too_many_cells(table: Table) -> Polluted:
    table.row.insert(table.chance.randrange(1, 5), "x")
    key, patient = table.row[0], f"p{table.place}"
    cells = [cell for cell in table.row if cell != "x"]
    text = table.text()
    table.rows[table.place] = [key, patient, *cells[2:]]
    return plain(text, table.truth())


@way
def too_few_cells(table: Table) -> Polluted:
    text = table.lines()
    text[table.place + 1] = ",".join(table.row[: table.chance.randrange(1, 5)]) + "\n"
    return plain("".join(text), table.truth())


WAYS = OF_FILES | OF_CELLS


def corpus(seeds: int) -> Iterator[Polluted]:
    """Yield each kind of pollution with a number of seeds."""
    for name, pollute in WAYS.items():
        for seed in range(seeds):
            yield pollute(Table(random.Random(f"{name} {seed}")))._replace(kind=name)
