"""Keys that look the same are one record, and one that was sent in another spelling keeps it."""

import json
import sqlite3
import sys
import unicodedata
import uuid
from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import update

from pipelines.feeds.terms.columns import ValueFault, key
from pipelines.ledger.ledger import Ledger
from pipelines.ledger.rows import Reason, Reject
from pipelines.ledger.tables import records
from pipelines.session.key_spellings import NOT_PLAIN, unplain_keys
from tests.support.exports import payments
from tests.support.ledgers import OF, TARGET, intent, lose_ledger, start

BLANKS = [
    sign for sign in map(chr, range(sys.maxunicode + 1)) if sign.isspace() and unicodedata.category(sign)[0] == "Z"
]
UNSEEN = [0x09, 0x0A, 0x07, 0x85, 0xAD, 0x200B, 0x200C, 0x200D, 0x200E, 0x202E, 0x2066, 0x2060, 0xFEFF, 0x034F, 0x180B]
UNSEEN += [0x180E, 0xFE0F, 0xE0100, 0x3164, 0x2800, 0xE000, 0xD800, 0x0378]


@pytest.mark.parametrize("blank", [*BLANKS, "  ", " \u00a0 "], ids=ascii)
def test_any_blanks_within_a_key_are_one_space(blank: str) -> None:
    """LEDGER-22"""
    assert key(f"AB{blank}17") == "AB 17"
    assert key(f"{blank}AB{blank}17{blank}") == "AB 17"


@pytest.mark.parametrize("sign", UNSEEN, ids=hex)
def test_an_invisible_character_within_a_key_is_refused(sign: int) -> None:
    """LEDGER-22"""
    assert isinstance(key(f"AB{chr(sign)}17"), ValueFault)


@pytest.mark.parametrize("text", ["\u00e9 17", "e\u0301 17", "\u75c5 17", "\u03a9~2", "a-b_c.d/e#1"], ids=ascii)
def test_a_key_of_visible_characters_is_accepted(text: str) -> None:
    """LEDGER-22: in its composed form."""
    assert key(text) == unicodedata.normalize("NFC", text)


@given(st.text(st.sampled_from(["A", "1", "\u00e9", "e", "\u0301", *BLANKS, *map(chr, UNSEEN)]), max_size=12))
def test_reading_a_key_twice_changes_nothing(text: str) -> None:
    """LEDGER-22: it is composed, and has neither invisible characters nor blanks other than single spaces."""
    found = key(text)
    if isinstance(found, str):
        assert key(found) == found
        assert unicodedata.is_normalized("NFC", found)
        assert found == " ".join(found.split())
        assert not {unicodedata.category(sign) for sign in found} & {"Cc", "Cf", "Co", "Cs", "Cn"}


# -- with a ledger that has a key in another spelling


BLANKED = ("AB\u00a017", "AB\u200d 17", "AB  17", "AB 17\u200d")
GUARDED = ('="R1"', '=" R1"', '="R1\u200d"')
QUOTED = ('"R1"', "\"b'R1'\"", '"R1\u200d"')
SENT = {("AB 17", first, again): None for first in BLANKED for again in (first, "AB 17", "AB\u202f17")}
SENT |= {("R1", first, again): None for first in GUARDED for again in (first, '="R1"', "R1", " R1 ")}
SENT |= {("R1", first, again): None for first in QUOTED for again in ("R1", " R1 ", '"""R1"""')}
SENT |= {(plain, f'"{first}"', plain): None for plain, first in {r"R\1": r"R\\1", "6f1e-0a": "6f1e-0a"}.items()}
UUID = "6f1e0000-0000-4000-8000-00000000000a"
SENT[f"act-{UUID}/2", f'act-"{UUID}"/2', f"act-{UUID}/2"] = None
BYTES = {
    ("R1", json.dumps(str(b"R1\0\0")), "R1"): None,
    ("act-R1/2", f"act-{json.dumps(str(b'R1'))}/2", "act-R1/2"): None,
    ("ff01", json.dumps(str(b"\xff\1")), "ff01"): None,
    (UUID, json.dumps(str(uuid.UUID(UUID).bytes)), UUID): None,
}
SENT |= BYTES
"""A key as it is plain, as it was first sent, and as a file has it now.

With blanks, a guard against spreadsheets, or in the quotes that Parquet's UUIDs, views and bytes of a fixed width had,
also where a feed puts something before them or joins them with another text."""
FEW = {
    *(("AB 17", first, "AB 17") for first in BLANKED),
    *(("AB 17", BLANKED[0], BLANKED[0]), ("AB 17", BLANKED[1], "AB\u202f17")),
    *(("R1", GUARDED[0], again) for again in (GUARDED[0], "R1", " R1 ")),
    *(("R1", first, '="R1"') for first in GUARDED[1:]),
    *(("R1", first, "R1") for first in QUOTED),
    (f"act-{UUID}/2", f'act-"{UUID}"/2', f"act-{UUID}/2"),
    *BYTES,
}
"""Those of `make test`: each of the first spellings, and each of a file."""


def in_files(cases):
    """Divide these by files: no two of a file are of one key."""
    files = list[list[tuple[str, str, str]]]()
    for case in cases:
        fits = next((each for each in files if case[0] not in {plain for plain, *_ in each}), None)
        if fits is None:
            files.append(fits := [])
        fits.append(case)
    return files


@pytest.mark.alike
@pytest.mark.by_hand
@pytest.mark.parametrize(
    "cases",
    [*in_files(each for each in SENT if each in FEW)]
    + [pytest.param(each, marks=pytest.mark.long) for each in in_files(each for each in SENT if each not in FEW)],
    ids=lambda cases: ascii(cases[0]),
)
def test_keys_that_are_known_in_another_spelling_are_those_records(home, target, asked, cases):
    """LEDGER-22: each keeps the identifier that was first sent, and nothing is sent a second time."""
    payments(home, *((plain, "p1", "1.00") for plain, _, _ in cases))
    asked("import")
    spell(home, {plain: first for plain, first, _ in cases})
    payments(home, *((again, "p1", "1.00") for *_, again in cases), ("k2", "p1", "2.00"), name="payments-2.csv")
    totals = asked("import")["totals"]
    assert (totals["unchanged"], totals["created"]) == (len(cases), 1)
    assert len(target.of("PaymentNotice")) == len(cases) + 1
    with closing(Ledger.open(home / "ledger.db")) as ledger:
        assert {row["key"] for row in ledger.tables()["record"].to_pylist()} == {
            *(first for _, first, _ in cases),
            "k2",
        }


@pytest.mark.by_hand
def test_a_word_for_nothing_that_was_sent_with_a_guard_is_known_by_that_spelling_alone(home, target, asked):
    """LEDGER-22, FEED-FILE-09: any row could have the word."""
    payments(home, ("R1", "p1", "1.00"))
    asked("import")
    spell(home, {"R1": '="NULL"'})
    payments(home, ('="NULL"', "p1", "1.00"), ("NULL", "p1", "1.00"), ("NULL ", "p1", "2.00"), name="payments-2.csv")
    totals = asked("import")["totals"]
    assert (totals["unchanged"], totals["created"], totals["rejected"]) == (1, 0, 2)
    assert len(target.of("PaymentNotice")) == 1


REFUSED = (
    "REM p1",
    "-- 5",
    "Grand total",
    "=1+2",
    "//5",
    ";5",
    "#REF!",
    "-",
    "?",
    ".",
    "7.0",
    "1.2E+14",
    "1.2e+17",
    "1.2E7",
    "NaT",
    "true",
)


@pytest.mark.by_hand
def test_keys_that_were_sent_and_are_refused_today_are_known(home, target, asked):
    """LEDGER-22, FEED-FILE-09: a person would mend the key of a reject, and its payment would be sent once more."""
    payments(home, *((f"R{number}", "p1", "1.00") for number in range(len(REFUSED))))
    asked("import")
    spell(home, {f"R{number}": text for number, text in enumerate(REFUSED)})
    payments(home, *((text, "p1", "1.00") for text in REFUSED), ("REM p2", "p1", "1.00"), name="payments-2.csv")
    totals = asked("import")["totals"]
    assert (totals["unchanged"], totals["created"], totals["rejected"]) == (len(REFUSED), 0, 1)
    assert len(target.of("PaymentNotice")) == len(REFUSED)


WORDS = ("rem", "REM", "Total", "sub-totals", "summe", "Gesamt", "grand ")


@given(
    st.lists(st.sampled_from([*"aRn7.,0=#-/; +eEt\u00a0\u200b", *WORDS])).map("".join)
    | st.sampled_from((*REFUSED, "1,2E+14", "7,0"))
)
def test_the_database_finds_every_key_that_would_be_read_otherwise_today(text: str) -> None:
    """LEDGER-22: the ledger is asked for these keys alone."""
    with closing(sqlite3.connect(":memory:")) as database:
        (is_not_plain,) = database.execute(f"SELECT {NOT_PLAIN['sqlite'].format(key='?1')}", (text,)).fetchone()
    assert is_not_plain or key(text) == key(text, decimal=",") == text


@pytest.mark.alike
@pytest.mark.by_hand
@pytest.mark.parametrize(("one", "other"), [("AB 17", "AB\u00a017"), ("R1", '="R1"')], ids=ascii)
def test_two_spellings_that_are_two_records_already_stay_two_records(home, target, asked, one, other):
    """LEDGER-22"""
    payments(home, (one, "p1", "1.00"), ("k2", "p1", "2.00"))
    asked("import")
    spell(home, {"k2": other})
    payments(home, (one, "p1", "1.00"), (other, "p1", "2.00"), name="payments-2.csv")
    assert asked("import")["totals"]["unchanged"] == 2
    assert len(target.of("PaymentNotice")) == 2


def test_three_spellings_in_one_file_are_one_payment(home, target, asked):
    """LEDGER-22: an invisible sign within is refused with its line."""
    payments(home, ("AB 17", "p1", "1.00"), ("AB\u00a017", "p1", "1.00"), ("AB\u200d 17", "p1", "1.00"))
    totals = asked("import")["totals"]
    assert (totals["created"], totals["skipped"], totals["rejected"]) == (1, 1, 1)
    assert len(target.of("PaymentNotice")) == 1


@pytest.mark.alike
@pytest.mark.parametrize(
    ("plain", "first"),
    [("AB 17", "AB\u00a017"), ("AB 17", "AB\u200d 17"), ("R1", '="R1"'), ("R1", '"R1"'), (f"a{UUID}", f'a"{UUID}"')],
    ids=ascii,
)
def test_with_a_lost_ledger_a_record_is_found_by_the_spelling_it_was_sent_with(home, target, asked, plain, first):
    """LEDGER-22, CLI-CMD-18"""
    payments(home, (plain, "p1", "1.00"), ("k2", "p1", "2.00"))
    asked("import")
    for body in target.of("PaymentNotice"):
        if body["identifier"][0]["value"] == plain:
            body["identifier"][0]["value"] = first
    target.identified = {name.replace(plain, first): found for name, found in target.identified.items()}
    lose_ledger(home)
    for outcomes in (home / "batches").glob("*/run-*/outcomes*"):
        outcomes.unlink()
    assert asked("verify", "--adopt")["exit_code"] == 0
    asked("import")
    assert len(target.of("PaymentNotice")) == 2
    assert asked("verify")["differences"] == []


def test_only_keys_that_may_equal_another_spelling_are_read_from_the_ledger(ledger: Ledger) -> None:
    """LEDGER-22, STATE-HOME-02: of records and of rejects."""
    plain, others = (
        ("a1", "a=1", "a_1/b-2.5", "E1,5", "MRN 10 + 1", "remark 1"),
        ("-1", "1 Total", "1,0", "1.0", "1.2E+14", "1.2E7", '="1"', "REM 1", "a  1", 'a"1"', "a1 ", "a\u00a01", "c"),
    )
    keys = (*plain, *others)
    start(ledger, "payments-a")
    with ledger.lease(TARGET) as lease:
        ledger.intend(lease, *OF, [intent(each, line) for line, each in enumerate(keys)])
        ledger.intend(lease, "other", "Task", [intent("d  d")])
    assert unplain_keys(ledger, TARGET, *OF) == [*others]
    about = [Reason("PAY-9", None, None, "above the balance", False)]
    ledger.reject(TARGET, *OF, "payments-a", [Reject(9, 1, "r\u200dr", "rule", None, None, None, about)])
    assert unplain_keys(ledger, TARGET, *OF) == [*others, "r\u200dr"]
    assert unplain_keys(ledger, "elsewhere", *OF) == []


def spell(home, keys):
    """The ledger has these keys as they were read before there was one form of them."""
    with closing(Ledger.open(home / "ledger.db")) as ledger, ledger.transaction() as connection:
        for before, after in keys.items():
            connection.execute(update(records).where(records.c.key == before).values(key=after))
