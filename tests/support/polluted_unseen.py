"""More kinds of polluted exports, by an author who had not seen the code."""

import base64
import random
from collections.abc import Iterator
from dataclasses import replace
from datetime import date, timedelta

from tests.support.archives import zipped
from tests.support.polluted_tables import Paid, Polluted
from tests.support.polluted_unseen_cells import OF_CELLS
from tests.support.unseen_tables import COLUMNS, NOTES, Payment, Table, Way, with_cell

ROUNDS = 6


# The bytes


def one_latin_note(table: Table) -> bytes:
    """One program wrote UTF-8, another Latin-1 into a note of the same file."""
    number = table.one()
    text = table.text()
    key = table.rows[number].key
    lines = [line.encode() for line in text.splitlines(keepends=True)]
    return b"".join(line.replace(b"\n", b" caf\xe9\n") if key.encode() in line else line for line in lines)


def ebcdic(table: Table) -> bytes:
    """A mainframe's code page."""
    return table.text().encode("cp037")


def utf32(table: Table) -> bytes:
    """Four bytes a character, with a mark."""
    return table.text().encode("utf-32")


def ctrl_z(table: Table) -> bytes:
    """The sign for a file's end that DOS programs write."""
    return table.text().encode() + b"\x1a"


def form_feeds(table: Table) -> str:
    """A printed report: a form feed before each page."""
    lines, at = table.text().splitlines(keepends=True), 1 + table.one()
    return "".join([*lines[:at], "\x0c" + lines[at], *lines[at + 1 :]])


def terminal_colours(table: Table) -> str:
    """A coloured amount, as a terminal shows it."""
    return with_cell(table, 2, lambda cell: f"\x1b[31m{cell}\x1b[0m", known=True)


def marks_of_direction(table: Table) -> str:
    """An unseen mark of direction before each patient."""
    return table.text([[*cells[:1], "\u200e" + cells[1], *cells[2:]] for cells in table.lines()])


def soft_hyphen(table: Table) -> str:
    """A soft hyphen within an amount."""
    return with_cell(table, 2, lambda cell: cell.replace(".", "\u00ad."), known=True)


def line_separator_in_note(table: Table) -> str:
    """A line end of Unicode within a note, which no CSV reader may take for one."""
    return with_cell(table, 4, lambda cell: f"{cell}\u2028second line", known=True)


def unseen_sign_in_header(table: Table) -> str:
    """A joiner behind a column's name."""
    table.header[2] += "\u200b"
    return table.text()


def alike_letter_in_header(table: Table) -> str:
    """A Cyrillic letter in a column's name that looks like a Latin one."""
    table.header[2] = "\u0430mount"
    return table.text()


def zip_as_csv(table: Table) -> bytes:
    """An archive under the name of a CSV."""
    return zipped({"till.csv": table.text()})


def pdf_as_csv(table: Table) -> bytes:
    """A printed page under the name of a CSV."""
    return b"%PDF-1.4\n%\xe2\xe3\xcf\xd3\n1 0 obj\n<< /Length 44 >>\nstream\n" + table.text().encode() + b"endstream\n"


def base64_as_csv(table: Table) -> bytes:
    """An attachment that nobody decoded."""
    return base64.encodebytes(table.text().encode())


def quoted_printable(table: Table) -> str:
    """A mail's body that nobody decoded: long rows end in `=` and go on below."""
    lines, number = table.text().splitlines(), 1 + table.one()
    at = len(lines[number]) // 2
    lines[number : number + 1] = [lines[number][:at] + "=", lines[number][at:]]
    return "\n".join(lines) + "\n"


# Delimiters, quotes and lines


def delimiter_changes(table: Table) -> str:
    """Commas above, semicolons below, as two programs wrote them."""
    lines, at = table.text().splitlines(), 1 + table.one()
    return "\n".join(line if number <= at else line.replace(",", ";") for number, line in enumerate(lines)) + "\n"


def header_with_another_delimiter(table: Table) -> str:
    """A header with semicolons over rows with commas."""
    return table.text().replace(",", ";", 4)


def fullwidth_commas(table: Table) -> str:
    """The comma of Chinese and Japanese keyboards."""
    return table.text(delimiter="\uff0c")


def aligned_by_blanks(table: Table) -> str:
    """Columns aligned by blanks, as for a printer."""
    return "".join(
        "".join(cell.ljust(14) for cell in cells).rstrip() + "\n" for cells in [table.header, *table.lines()]
    )


def blank_before_quotes(table: Table) -> str:
    """A blank before each quote, and a comma within the quotes of a note."""
    lines = [[cells[0], *(f' "{cell}"' for cell in cells[1:4]), f' "{cells[4]}, {table.chance.choice(NOTES)}"']
             for cells in table.lines()]  # fmt: skip
    return table.text(lines)


def rows_in_quotes_twice(table: Table) -> str:
    """Each row a quoted cell of another CSV, under a plain header."""
    return ",".join(table.header) + "\n" + "".join(f'"{",".join(cells)}"\n' for cells in table.lines())


def decimal_commas_in_quotes(table: Table) -> str:
    """Amounts with a decimal comma, quoted."""
    return table.text([[*c[:2], f'"{c[2].replace(".", ",")}"', *c[3:]] for c in table.lines()])


def remark_behind_a_row(table: Table) -> str:
    """A remark typed behind a row."""
    return with_cell(table, 4, lambda cell: f"{cell},# checked", known=True)


def wrapped_lines(table: Table) -> str:
    """Lines wrapped by a mail program, without a sign."""
    lines, number = table.text().splitlines(), 1 + table.one()
    at = lines[number].rindex(",") + 4
    lines[number : number + 1] = [lines[number][:at], lines[number][at:] or "x"]
    return "\n".join(lines) + "\n"


def mail_quotes(table: Table) -> str:
    """A forwarded mail."""
    return "".join(f"> {line}\n" for line in table.text().splitlines())


def numbered_lines(table: Table) -> str:
    """Lines with their numbers, as a listing shows them."""
    return "".join(f"{number:5}\t{line}\n" for number, line in enumerate(table.text().splitlines(), 1))


def statements_of_sql(table: Table) -> str:
    """A dump of a database."""
    return "".join(
        f"INSERT INTO payments VALUES ({', '.join(repr(cell) for cell in cells)});\n" for cells in table.lines()
    )


def conflict_marks(table: Table) -> str:
    """A merge that nobody finished: two versions of one payment."""
    lines, number = table.text().splitlines(), table.one()
    other = replace(table.rows[number], cents=table.rows[number].cents + 1000)
    at = 1 + number
    lines[at : at + 1] = ["<<<<<<< ours", lines[at], "=======", ",".join(other.cells), ">>>>>>> theirs"]
    table.drop(number)
    return "\n".join(lines) + "\n"


def log_lines(table: Table) -> str:
    """Lines of a log among the rows."""
    lines, at = table.text().splitlines(), 1 + table.one()
    lines.insert(at, f"2026-03-09 09:00:01,{table.chance.randrange(900)} INFO export: {at} rows written")
    return "\n".join(lines) + "\n"


def glued_files(table: Table) -> str:
    """Two files in one, the first without a last line end: its last row and the second's header are one line."""
    at = table.one() + 1
    return table.text(table.lines()[:at])[:-1] + table.text(table.lines()[at:])


def overlapping_files(table: Table) -> str:
    """Two exports in one file, some rows in both."""
    at = table.one()
    return table.text(table.lines()[: at + 1]) + "".join(",".join(cells) + "\n" for cells in table.lines()[at:])


def row_within_a_row(table: Table) -> str:
    """Two programs wrote at once: a row begins within another."""
    lines, number = table.text().splitlines(), 1 + table.one()
    half = len(lines[number]) - 6
    lines[number : number + 2] = [lines[number][:half] + lines[number + 1], lines[number][half:]]
    return "\n".join(lines) + "\n"


# Headers, tables, and text around them


def amounts_swapped_lower_down(table: Table) -> str:
    """The second page has tips and amounts the other way round, and says so in its header."""
    at, tip = table.one() + 1, "1.50"
    lines = [[*cells[:3], tip, *cells[3:]] for cells in table.lines()]
    lower = [[*cells[:2], cells[3], cells[2], *cells[4:]] for cells in lines[at:]]
    table.header = ["receipt", "patient_id", "amount", "tip", "paid_on", "note"]
    again = ["receipt", "patient_id", "tip", "amount", "paid_on", "note"]
    return table.text([*lines[:at], again, *lower])


def adjustments_below(table: Table) -> str:
    """Another table below, of as many columns, under its own header."""
    below = [[f"A{number}", row.patient, row.amount, row.day.isoformat(), "write-off"]
             for number, row in enumerate(table.rows[:3], 71)]  # fmt: skip
    return table.text([*table.lines(), ["adjustment", "patient_id", "amount", "entered_on", "reason"], *below])


def voided_below(table: Table) -> str:
    """Voided receipts below a line that says so, without a header of their own."""
    below = [[f"R9{number}", row.patient, row.amount, row.day.isoformat(), "entered twice"]
             for number, row in enumerate(table.rows[:2], 71)]  # fmt: skip
    return table.text(table.lines()) + "\nVoided receipts\n" + "".join(",".join(cells) + "\n" for cells in below)


def side_by_side(table: Table) -> str:
    """Two tables side by side, of two tills."""
    half = len(table.rows) // 2
    lines = table.lines()
    pairs = [[*left, "", *right] for left, right in zip(lines[:half], lines[half:], strict=False)]
    if len(lines) % 2:
        pairs.append([*[""] * 5, "", *lines[-1]])
    table.header = [*COLUMNS, "", *COLUMNS]
    return table.text(pairs)


def transposed(table: Table) -> str:
    """Rows and columns exchanged."""
    return "".join(",".join(cells) + "\n" for cells in zip(table.header, *table.lines(), strict=True))


def second_language(table: Table) -> str:
    """The header once more in another language."""
    return table.text([["Beleg", "Patient", "Betrag", "Datum", "Notiz"], *table.lines()])


def names_of_rows(table: Table) -> str:
    """A number before each row that the header knows nothing of, as R writes it."""
    return table.text([[str(number), *cells] for number, cells in enumerate(table.lines(), 1)])


def names_with_units(table: Table) -> str:
    """A unit in a column's name."""
    table.header[2] = "amount (USD)"
    return table.text()


def patients_once_a_group(table: Table) -> str:
    """A report that prints the patient only where it changes: a row without one is of the patient above."""
    lines = table.lines()
    for number in range(1, len(lines), 3):
        lines[number][1] = ""
    return table.text(lines)


def carried_forward(table: Table) -> str:
    """Two pages: the sum so far at the end of the first and at the beginning of the second."""
    at = table.one() + 1
    so_far = sum(row.cents for row in table.rows[:at])
    total = f"{so_far // 100}.{so_far % 100:02d}"
    lines = table.lines()
    moved = [["Carried forward", "", total, "", ""], ["Brought forward", "", total, "", ""]]
    return table.text([*lines[:at], *moved, *lines[at:]])


def totals_of_patients(table: Table) -> str:
    """A total after each patient's payments, in the shape of a payment."""
    lines, number = table.lines(), table.one()
    both = sum(row.cents for row in table.rows[number - 1 : number + 1])
    row = table.rows[number]
    total = [f"{row.patient} total", row.patient, f"{both // 100}.{both % 100:02d}", row.day.isoformat(), ""]
    lines[number - 1][1] = row.patient
    table.rows[number - 1] = replace(table.rows[number - 1], patient=row.patient)
    return table.text([*lines[: number + 1], total, *lines[number + 1 :]])


def rows_switched_off(table: Table) -> str:
    """A row that somebody switched off by two strokes before it."""
    number, table_text = table.one(), table.text()
    key = table.rows[number].key
    mark = table.chance.choice(("//", "--", "REM ", ";"))
    table.drop(number)
    return table_text.replace(f"\n{key}", f"\n{mark}{key}")


def struck_through(table: Table) -> str:
    """A row struck through, by a sign over each letter."""
    lines, number = table.lines(), table.one()
    lines[number] = ["".join(f"{letter}\u0336" for letter in cell) for cell in lines[number]]
    table.drop(number)
    return table.text(lines)


def cut_in_the_patient(table: Table) -> str:
    """The patient is the last column, and the file is cut within the last one."""
    order = (0, 2, 3, 4, 1)
    table.header = [COLUMNS[place] for place in order]
    text = table.text([[cells[place] for place in order] for cells in table.lines()])
    table.drop(len(table.rows) - 1)
    return text[:-2]


WAYS: dict[str, Way] = {
    way.__name__: way
    for way in (
        one_latin_note, ebcdic, utf32, ctrl_z, form_feeds, terminal_colours, marks_of_direction, soft_hyphen,
        line_separator_in_note, unseen_sign_in_header, alike_letter_in_header, zip_as_csv, pdf_as_csv, base64_as_csv,
        quoted_printable, delimiter_changes, header_with_another_delimiter, fullwidth_commas, aligned_by_blanks,
        blank_before_quotes, rows_in_quotes_twice, decimal_commas_in_quotes, remark_behind_a_row, wrapped_lines,
        mail_quotes, numbered_lines, statements_of_sql, conflict_marks, log_lines, glued_files, overlapping_files,
        row_within_a_row, amounts_swapped_lower_down, adjustments_below, voided_below, side_by_side, transposed,
        second_language, names_of_rows, names_with_units, patients_once_a_group, carried_forward, totals_of_patients,
        rows_switched_off, struck_through, cut_in_the_patient,
    )
}  # fmt: skip
WAYS |= OF_CELLS


def unseen_files(rounds: int = ROUNDS) -> Iterator[tuple[str, Polluted]]:
    """Yield each kind of pollution several times: its name, and a file with its true records."""
    for name in WAYS:
        for number in range(rounds):
            yield name, polluted_by(name, number)


def polluted_by(name: str, number: int) -> Polluted:
    """Return one file with a kind of pollution."""
    chance = random.Random(f"{name} {number}")
    table = Table(list(_payments(chance)), chance)
    content = WAYS[name](table)
    data = content.encode() if isinstance(content, str) else content
    lines = data.decode("utf-8", "replace").split("\n")
    truth = {}
    for row in table.rows:
        on = next((at for at, line in enumerate(lines, 1) if row.key in line), 0)
        truth[row.key] = Paid(row.patient, row.cents, row.day.isoformat(), (on, on))
    return Polluted(f"{name}-{number}", data, truth)


def _payments(chance: random.Random) -> Iterator[Payment]:
    first, start = chance.randrange(500, 900), date(2026, 3, 2)
    for number in range(chance.randrange(8, 15)):
        yield Payment(
            f"R{first + number}",
            f"p{chance.randrange(1, 60):03d}",
            chance.randrange(1_000, 30_000, 5),
            start + timedelta(days=number),
            chance.choice(NOTES),
        )
