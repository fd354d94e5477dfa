"""A row of words where other rows have values begins another table only if those below are of one."""

from pathlib import Path

import pytest

from tests.pipelines.feeds.test_repeated_headers import by
from tests.support.quotes import payment
from tests.support.validating import PAYMENTS, accepted, rejected, validated
from tests.support.validating import rows as table

COLUMNS = PAYMENTS.strip().split(",")


def row(**cells: str) -> str:
    return ",".join(cells.get(name, "") for name in COLUMNS) + "\n"


def rows(*keys: str, **cells: str) -> str:
    given = {"patient_id": "p1", "amount": "12.50", "paid_on": "2025-01-02"} | cells
    return "".join(row(payment_id=key, **given) for key in keys)


BAD = row(payment_id="cash", patient_id="walk-in", amount="waived")
ABOVE = PAYMENTS + rows("R1", "R2")
NAMES = "names the columns differently from the header"


@pytest.mark.crossed
@pytest.mark.parametrize(
    "below",
    [
        rows("R3", "R4"),
        rows("R9", "R1000", amount="3"),
        rows("R3", amount='"1,012.50"'),
        rows("R3", amount="-3.00", paid_on="2024-12-31"),
        rows("R3", amount="n/a") + rows("R4"),
        BAD * 3 + rows("R3"),
        "",
    ],
    ids=["as above", "longer ids", "thousands", "below zero", "one without an amount", "several of words", "nothing"],
)
@pytest.mark.parametrize("size", [3, 2_000])
def test_a_record_of_words_is_rejected_alone(
    below: str, size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LEDGER-25, FEED-FILE-09: the rows below go on with the columns, also where they come in another chunk."""
    monkeypatch.setattr("pipelines.feeds.reading.chunks.CHUNK", size)
    found = validated(ABOVE + BAD + below, tmp_path)
    told = {line: message for line, _, message in rejected(found)}
    assert told[4].startswith("no key") or "amount" in told[4] or "Patient" in told[4]
    assert not [message for message in told.values() if NAMES in message]
    assert {key for _, key in accepted(found)} >= {"R1", "R2"}


def test_payments_below_a_row_of_words_are_taken_and_the_row_is_named(tmp_path: Path) -> None:
    """TEXT-BETWEEN: its words could be a header in a language that nobody here knows."""
    found = validated(ABOVE + BAD + rows("R3", "R4"), tmp_path)
    assert [key for _, key in accepted(found)] == ["R1", "R2", "R3", "R4"]
    assert found.warnings == {"TEXT-BETWEEN": 1}
    [(line, said)] = [(each["line"], each["message"]) for each in table(found, "warnings")]
    assert line == 4
    assert said.startswith("a text between rows is not a record; the 2 rows below it were taken")
    assert not validated(ABOVE + BAD, tmp_path).warnings


HEADERS = {
    "Polish": ("Pokwitowanie", "Karta", "Kwota", "Data"),
    "small letters": ("pokwitowanie", "karta", "kwota", "data"),
    "as long as all ids": ("ae", "Nr", "Suma", "Data"),
    "Chinese": ("\u6536\u636e", "\u75c5\u4eba", "\u91d1\u989d", "\u65e5\u671f"),
    "a sign": ("#", "Karta", "Kwota", "Data"),
    "a number": ("Nr 1", "Karta", "Kwota", "Data"),
    "a number in the first column": ("Pokwitowanie", "Karta", "K2", "Data"),
    "a word for nothing": ("Unknown", "Karta", "Kwota", "Data"),
    "one empty": ("Pokwitowanie", "", "Kwota", "Data"),
    "no key": ("", "Karta", "Kwota", "Data"),
}


@pytest.mark.crossed
@pytest.mark.parametrize("header", HEADERS)
@pytest.mark.parametrize("size", [2, 3, 2_000])
def test_words_in_all_columns_of_values_begin_another_table_of_payments(
    header: str, size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LEDGER-25: in a language that nobody here knows, and with ids of the forms above. The feed may say otherwise."""
    monkeypatch.setattr("pipelines.feeds.reading.chunks.CHUNK", size)
    text = ABOVE + row(**dict(zip(COLUMNS, HEADERS[header], strict=False))) + rows("R3", "R4")
    found = validated(text, tmp_path)
    assert [key for _, key in accepted(found)] == ["R1", "R2"]
    told = {line: message for line, _, message in rejected(found)}
    assert told.keys() == {4, 5, 6}
    assert all(message.startswith(f"line 4 {NAMES}") for message in told.values())
    assert all("one_table = true" in message and "[skip]" in message for message in told.values())
    assert [key for _, key in accepted(by(tmp_path, text, "one_table = true"))] == ["R1", "R2", "R3", "R4"]


OF_NAMES = {
    "no key": (("R1", "R2"), ("R3", "R4"), ("", "Karta", "Kwota", "Data"), True),
    "keys of letters": (("abcd", "efgh"), ("ijkl", "mnop"), ("Pokwitowanie", "Karta", "Kwota", "Data"), True),
    "no word for the patient": (("abcd", "efgh"), ("ijkl", "mnop"), ("Pokwitowanie", "", "Kwota", "Data"), True),
    "a key like the others": (("abcd", "efgh"), ("ijkl", "mnop"), ("nope", "miller", "free", "today"), False),
    "keys of any length": (("ab", "efgh"), ("ijk", "mnop"), ("Pokwitowanie", "Karta", "Kwota", "Data"), False),
    "no day": (("R1", "R2"), ("R3", "R4"), ("cash", "miller", "free", ""), False),
    "one payment without a value": (("R1", "R2"), ("R3", "R4"), ("", "Jane Doe", "no charge", "same day"), False),
    "the patient of others": (("R1", "R2"), ("R3", "R4"), ("", "miller", "Free", "Today"), False),
    "a key of words, the patient of others": (
        ("abcd", "efgh"),
        ("ijkl",),
        ("walk-in", "miller", "Free", "Today"),
        False,
    ),
    "two words alone": (("R1", "R2"), ("R3", "R4"), ("", "", "Kwota", "Data"), False),
}


@pytest.mark.crossed
@pytest.mark.parametrize("case", OF_NAMES)
@pytest.mark.parametrize("size", [2, 2_000])
def test_if_ids_are_words_a_row_without_amount_day_and_key_is_a_header(
    case: str, size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LEDGER-25: with values in fewer than three of its columns. A row that may be a record is rejected alone."""
    monkeypatch.setattr("pipelines.feeds.reading.chunks.CHUNK", size)
    above, below, words, is_header = OF_NAMES[case]
    among = row(**dict(zip(COLUMNS, words, strict=False)))
    text = PAYMENTS + rows(*above, patient_id="miller") + among + rows(*below, patient_id="miller")
    found = validated(text, tmp_path)
    assert [key for _, key in accepted(found)] == [*above, *([] if is_header else below)]
    told = {line: message for line, _, message in rejected(found)}
    assert told.keys() == ({4, 5, 6} if is_header else {4})
    assert all(message.startswith(f"line 4 {NAMES}") for message in told.values()) or not is_header
    assert found.warnings == ({} if is_header else {"TEXT-BETWEEN": 1})


def test_a_header_that_leaves_an_optional_column_empty_begins_another_table(tmp_path: Path) -> None:
    """LEDGER-25: and one more."""
    above, below = rows("R1", "R2", claim_id="c1"), rows("R3", "R4", claim_id="c1")
    for patient in ("Karta", ""):
        header = row(payment_id="Pokwitowanie", patient_id=patient, amount="Kwota", paid_on="Data")
        found = validated(PAYMENTS + above + header + below, tmp_path)
        assert [key for _, key in accepted(found)] == ["R1", "R2"]


CROSSED_OUT = {
    "all the same": ("refused", "refused", "Refused", "refused"),
    "void": ("R3", "Miller", "*VOID*", "none"),
    "no figures": ("cash", "walk-in", "waived", "today"),
    "x": ("x", "x", "x", "x"),
    "nothing": ("n/a", "n/a", "n/a", "n/a"),
    "mostly nothing": ("unknown", "Miller", "refused", "pending"),
    "the end of a page": ("continued", "on", "next", "page"),
}


@pytest.mark.parametrize("case", CROSSED_OUT)
def test_a_payment_that_is_crossed_out_is_no_header(case: str, tmp_path: Path) -> None:
    """LEDGER-25, TEXT-BETWEEN: it is rejected alone, and named where it has no value in any column."""
    bad = row(**dict(zip(COLUMNS, CROSSED_OUT[case], strict=False)))
    keys = [f"R{number}" for number in range(10, 60)]
    found = validated(PAYMENTS + rows(*keys) + bad + rows("R60", "R61"), tmp_path)
    assert [key for _, key in accepted(found)] == [*keys, "R60", "R61"]
    assert [line for line, _, _ in rejected(found)] == [52]
    assert found.warnings == ({} if case == "void" else {"TEXT-BETWEEN": 1})


OTHERS = {
    "ids of another kind": rows("A3", "A4"),
    "ids of another kind, one row": rows("ADJ-3"),
    "dates elsewhere": rows("R3", amount="2025-01-02", paid_on="12.50"),
    "a table of few rows, then payments": rows("A3", "A4") + rows(*[f"R{at}" for at in range(3, 40)]),
    "a table of few rows, then the header": rows("A3") + PAYMENTS + rows("R3", "R4"),
    "the first value is another": rows("", patient_id="") + rows("A3") + rows("R3"),
    "words for ids of people": rows("R3", "R4", patient_id="Miller"),
}


@pytest.mark.crossed
@pytest.mark.parametrize("below", OTHERS)
@pytest.mark.parametrize("size", [3, 2_000])
def test_rows_of_another_form_below_a_row_of_words_are_rejected_as_another_table(
    below: str, size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LEDGER-25"""
    monkeypatch.setattr("pipelines.feeds.reading.chunks.CHUNK", size)
    found = validated(ABOVE + BAD + OTHERS[below], tmp_path)
    assert [key for _, key in accepted(found)] == ["R1", "R2"]
    told = [message for line, _, message in rejected(found) if line > 4]
    assert told
    assert all(message.startswith(f"line 4 {NAMES}") for message in told)


@pytest.mark.crossed
@pytest.mark.parametrize("size", [2, 3, 2_000])
def test_a_row_of_words_below_a_blank_line_begins_another_table(
    size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LEDGER-25: unless blank lines are between other rows too, as where all rows stand apart."""
    monkeypatch.setattr("pipelines.feeds.reading.chunks.CHUNK", size)
    found = validated(ABOVE + "\n" + BAD + rows("R3"), tmp_path)
    assert [key for _, key in accepted(found)] == ["R1", "R2"]
    told = {line: message for line, _, message in rejected(found)}
    assert told[6].startswith(f"line 5 {NAMES}")


def test_a_row_of_words_among_rows_that_all_stand_apart_is_rejected_alone(tmp_path: Path) -> None:
    """LEDGER-25"""
    found = validated((ABOVE + BAD + rows("R3")).replace("\n", "\n\n"), tmp_path)
    assert [key for _, key in accepted(found)] == ["R1", "R2", "R3"]


def test_a_row_of_names_of_columns_begins_another_table_whatever_is_below(tmp_path: Path) -> None:
    """LEDGER-25: in any language that drafts know."""
    names = row(payment_id="Beleg", patient_id="Kartei", amount="Betrag", paid_on="Datum", claim_id="Notiz")
    found = validated(ABOVE + names + rows("R3"), tmp_path)
    assert [key for _, key in accepted(found)] == ["R1", "R2"]


def test_rows_below_a_row_of_words_are_taken_if_ids_have_no_common_form(tmp_path: Path) -> None:
    """LEDGER-25: such ids do not show if the rows are of another table."""
    keys = ["9f1c3", "1a2b33", "77f0e", "3c9d9e1", "88a", "5d5d5"]
    found = validated(PAYMENTS + rows(*keys[:4]) + BAD + rows(*keys[4:]), tmp_path)
    assert [key for _, key in accepted(found)] == keys


@pytest.mark.parametrize("note", ["late charge", "refund of a charge"])
@pytest.mark.parametrize("total", ["Subtotal,,1.00,,\n", "Subtotal,1.00\n"], ids=["whole", "short"])
def test_a_note_below_a_skipped_row_counts_as_directly_below_a_row(note: str, total: str, tmp_path: Path) -> None:
    """TEXT-BETWEEN: otherwise the note would be a title, as below a blank line."""
    text = PAYMENTS + payment("a") + total + f"{note},,,,\n" + payment("b")
    left_out = by(tmp_path, text, 'skip = { payment_id = "Subtotal" }')
    assert [key for _, key in accepted(left_out)] == ["a", "b"]
    apart = by(tmp_path, text.replace(note, f"\n{note}"), 'skip = { payment_id = "Subtotal" }')
    assert [key for _, key in accepted(apart)] == ["a"]


def test_a_note_below_a_repeated_header_counts_as_directly_below_a_row(tmp_path: Path) -> None:
    """TEXT-BETWEEN"""
    found = validated(PAYMENTS + payment("a") + PAYMENTS + "late charge,,,,\n" + payment("b"), tmp_path)
    assert [key for _, key in accepted(found)] == ["a", "b"]
