"""Ways to pollute one cell of an export, by an author who had not seen the code."""

from collections.abc import Callable
from datetime import date

from tests.support.unseen_tables import Table, Way, with_cell


def _cells(column: int, known: bool, *changes: Callable[[str], str]) -> Way:
    def way(table: Table) -> str:
        return with_cell(table, column, table.chance.choice(changes), known=known)

    return way


OF_CELLS: dict[str, Way] = {
    "amount_with_code": _cells(2, True, lambda a: f"{a} USD", lambda a: f"{a}USD"),
    "amount_with_footnote": _cells(2, True, lambda a: f"{a}*", lambda a: f"{a} 1)", lambda a: f"{a}\u00b9"),
    "amount_in_other_digits": _cells(2, True, lambda a: a.translate({48 + n: 0x0660 + n for n in range(10)}),
                                     lambda a: a.translate({48 + n: 0x0966 + n for n in range(10)})),
    "amount_with_underscore": _cells(2, True, lambda a: a[0] + "_" + a[1:]),
    "amount_of_a_program": _cells(2, False, lambda a: "NaN", lambda a: "Infinity", lambda a: "-inf", lambda a: "0x28",
                                  lambda a: "TRUE", lambda a: "1e3"),
    "amount_with_two_marks": _cells(2, False, lambda a: f"1.{a}", lambda a: f'"1,{a},00"'),
    "amount_with_apostrophe": _cells(2, False, lambda a: f"1'2{a}", lambda a: f"1\u20192{a}"),
    "amount_without_cents": _cells(2, False, lambda a: f"{a[:-3]}.-", lambda a: f"{a[:-3]}.--",
                                  lambda a: f"{a[:-3]}.x"),
    "amount_in_words": _cells(2, False, lambda a: "forty", lambda a: "see note", lambda a: "n/c"),
    "amount_too_wide": _cells(2, False, lambda a: "#######", lambda a: "#REF!", lambda a: "#VALUE!"),
    "amount_as_formula": _cells(2, False, lambda a: f"={a}+0", lambda a: "=C2", lambda a: f"@{a}"),
    "amount_with_guard": _cells(2, True, lambda a: f"'{a}", lambda a: f"+{a}"),
    "amount_with_tags": _cells(2, True, lambda a: f"<b>{a}</b>", lambda a: f"{a}<br>"),
    "day_buddhist": _cells(3, True, lambda d: f"{int(d[:4]) + 543}{d[4:]}"),
    "day_of_another_century": _cells(3, True, lambda d: f"00{d[2:]}", lambda d: f"20{d}", lambda d: f"2{d[:3]}{d[4:]}"),
    "day_by_week": _cells(3, True, lambda d: "{}-W{:02}-{}".format(*date.fromisoformat(d).isocalendar()),
                          lambda d: f"{d[:4]}-{date.fromisoformat(d).timetuple().tm_yday:03}"),
    "day_compact": _cells(3, True, lambda d: d.replace("-", ""), lambda d: d.replace("-", "/"), lambda d: d[2:]),
    "day_without_zeros": _cells(3, True, lambda d: "-".join(str(int(part)) for part in d.split("-"))),
    "day_at_24": _cells(3, False, lambda d: f"{d}T24:00:00", lambda d: f"{d}T23:59:60", lambda d: f"{d} 25:10"),
    "day_with_zone": _cells(3, True, lambda d: f"{d} 09:15 EST", lambda d: f"{d} 09:15 PM CET"),
    "day_of_nothing": _cells(3, False, lambda d: "1900-01-00", lambda d: "0001-01-01", lambda d: "1899-12-30",
                             lambda d: "9999-12-31", lambda d: "1970-01-01"),
    "patient_of_nothing": _cells(1, False, lambda p: "-", lambda p: "nan", lambda p: "None", lambda p: "undefined",
                                 lambda p: "NaT", lambda p: "(blank)", lambda p: "[null]", lambda p: "\\N",
                                 lambda p: "--"),
    "key_of_nothing": _cells(0, False, lambda k: "-", lambda k: "nan", lambda k: "None", lambda k: "undefined",
                             lambda k: "#REF!", lambda k: "#N/A", lambda k: "(blank)", lambda k: "\\N", lambda k: "?"),
    "patients_two": _cells(1, False, lambda p: f"{p}/p099", lambda p: f"{p};p099", lambda p: f"{p} p099"),
    "patient_with_name": _cells(1, True, lambda p: f"{p} (N. Duval)", lambda p: f"{p} - Duval"),
    "patient_as_link": _cells(1, True, lambda p: f"https://ehr.example/Patient/{p}", lambda p: f"[{p}](https://x.example)"),
    "key_as_link": _cells(0, True, lambda k: f'"=HYPERLINK(""https://x.example"";""{k}"")"'),
    "key_as_formula": _cells(0, False, lambda k: "=A2+1", lambda k: '"=CONCATENATE(""R"";501)"'),
}  # fmt: skip
