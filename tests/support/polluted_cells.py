"""Ways to pollute the cells of an export: amounts, days, keys, and cells that say nothing or something twice."""

from datetime import date

from tests.support.polluted_tables import NAMES, Pollute, Polluted, Table, into, plain

OF_CELLS: dict[str, Pollute] = {}
way = into(OF_CELLS)


def _with_amount(table: Table, *spellings: str) -> Polluted:
    spelling = table.chance.choice(spellings)
    cents = table.chance.randrange(123_400, 999_999)
    whole = f"{cents / 100:.2f}"
    table.row[2] = whole
    truth = table.truth()
    comma = f"{cents / 100:,.2f}"
    german = comma.translate(str.maketrans(",.", ".,"))
    table.row[2] = spelling.format(plain=whole, comma=comma, german=german)
    return plain(table.text(), truth)


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
    return plain(table.text(), table.truth(lost=table.place))


@way
def an_amount_with_an_exponent(table: Table) -> Polluted:
    table.row[2] = "1.25E+3"
    return plain(table.text(), table.truth())


@way
def a_day_that_is_none(table: Table) -> Polluted:
    table.row[3] = table.chance.choice(("2024-02-30", "2023-02-29", "00.00.0000", "0000-00-00"))
    return plain(table.text(), table.truth())


@way
def a_day_in_another_form(table: Table) -> Polluted:
    truth = table.truth()
    year, month, day = table.row[3].split("-")
    table.row[3] = table.chance.choice((f"{month}/{day}/{year}", f"{day}.{month}.{year}", f"{year}{month}{day}"))
    return plain(table.text(), truth)


@way
def days_as_a_spreadsheet_counts_them(table: Table) -> Polluted:
    truth = table.truth()
    for row in table.rows:
        row[3] = str((date.fromisoformat(row[3]) - date(1899, 12, 30)).days)
    return plain(table.text(), truth)


@way
def a_cell_of_unseen_signs(table: Table) -> Polluted:
    truth = table.truth()
    table.row[table.chance.choice((1, 2, 3))] = table.chance.choice(
        ("\u200b", "\u00a0", "\ufeff\u200b", " \t", "\u2800")
    )
    return plain(table.text(), truth)


@way
def unseen_signs_around_a_key(table: Table) -> Polluted:
    truth = table.truth()
    table.row[0] = table.chance.choice(("\u00a0{}", "{}\u200b", " {} ", "\ufeff{}")).format(table.row[0])
    return plain(table.text(), truth)


@way
def a_key_that_a_spreadsheet_made_a_number(table: Table) -> Polluted:
    table.row[0] = table.chance.choice(("7.0", "1.2E+14"))
    return plain(table.text(), table.truth())


@way
def an_empty_cell(table: Table) -> Polluted:
    truth = table.truth()
    table.row[table.chance.choice((1, 2, 3))] = ""
    return plain(table.text(), truth)


@way
def a_row_twice(table: Table) -> Polluted:
    return plain(table.text() + ",".join(table.row) + "\n", table.truth())


@way
def a_key_twice_with_other_content(table: Table) -> Polluted:
    other = [*table.row[:2], "99999.00", *table.row[3:]]
    return plain(table.text() + ",".join(other) + "\n", table.truth(lost=table.place))


@way
def a_column_twice(table: Table) -> Polluted:
    table.rows = [[*row[:4], "1.00"] for row in table.rows]
    return plain(table.text(names=(*NAMES[:4], "Amount")), table.truth(), mends="more than once")
