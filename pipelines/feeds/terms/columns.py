"""The columns that a kind of record has, and how the text of a cell becomes a value: ids, amounts, times.

A converter takes a text and gives a value or a `Fault`; it never raises and repeats no value.
"""

import ast
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Literal

from fhir_service.interface.datatypes import ID_PATTERN
from fhir_service.interface.json_text import NOT_READABLE, is_readable
from pipelines.feeds.terms.numbers import CENT, PLAIN, Numbers
from pipelines.feeds.terms.texts import composed, folded, has_unseen

Shape = Literal["key", "text", "code", "amount", "number", "time", "labels", "comments", "answers"]
MISSING = "the column is required and empty here"


@dataclass(frozen=True, slots=True)
class Fault:
    """A value that cannot be used: the requirement and a sentence."""

    rule: str
    message: str


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a built-in feed.

    shape: a `Shape`, or the resource types of a reference (`("Patient",)`). rule: the requirement that asks for it.
    element: the FHIRPath that it fills; tail tells it from others that fill the same. bare: whether an id without a
    type is taken for the first of the types. stand_in: what a required value is checked as when it is missing, so that
    the other reasons are found too.
    """

    name: str
    shape: Shape | tuple[str, ...]
    rule: str
    element: str
    required: bool = False
    stand_in: str | None = None
    tail: str = ""
    bare: bool = True


_ID = re.compile(ID_PATTERN)
_UNSEEN = " \t\n\r\v\f\u00a0\u00ad\u200b\u200e\u200f\u2028\u2029\u202f\u2060\u3000\ufeff"
_PLAIN_KEY = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,199}")
_GUARDED = re.compile(r'="([^"]*)"')
"""A text that is kept from becoming a number in a spreadsheet: `="007"`."""
MADE_A_NUMBER = re.compile(r"[0-9]+\.0|-0|[0-9](?:[.,][0-9]+)?[Ee]\+[0-9]+|[0-9][.,][0-9]+E[0-9]+")
"""By a spreadsheet of any country (`1,2E+14`), or by a program (`1.2e+17`, `1.2E7`)."""
_WITH_A_COMMA = re.compile(r"[0-9]+,0")
_IN_CENTS = re.compile(r"(?:0|[1-9][0-9]{0,8})\.[0-9]{2}")
LONGEST_AMOUNT = 25  # characters: within what decimals compute exactly
LONGEST_NUMBER = 100
LARGEST_CENTS = 10**15
"""The largest amount, in cents: more is no payment, and is not counted."""


def key(text: str, known_as: Mapping[str, str] = {}, decimal: str = ".") -> object:
    """In one form, with one space for any blanks, and none or unseen signs around it, which exports have at times.

    known_as: by their spellings, keys that were taken before in a form that would be another, or none, today.
    decimal: the sign by which the export writes decimals.
    """
    if _PLAIN_KEY.fullmatch(text):
        return known_as.get(text) or _NO_ID.get(text, text)
    as_before = composed(text.strip(_UNSEEN))
    text = folded(as_before)
    if known := known_as.get(as_before) or known_as.get(text):
        return known
    if len(text) > 200 or has_unseen(text):
        return Fault("FEED-FILE-09", "a key has at most 200 characters, and no tab, line break or unseen sign within")
    if MADE_A_NUMBER.fullmatch(text) or (decimal == "," and _WITH_A_COMMA.fullmatch(text)):
        return Fault(
            "FEED-FILE-09", "a spreadsheet has made a number of this key (7.0, -0, 1.2E+14); export it as text"
        )
    if (bare := _without_quotes(text)) is not None:
        return key(bare, known_as, decimal)
    return _no_key(text) or _NO_ID.get(text, text) or None


def _without_quotes(text: str) -> str | None:
    """Return a key that is in quotes without them, and without a guard before them; None of any other.

    Parquet's UUIDs, its bytes of a fixed width, and its texts and bytes of columns of the kind `view`, were read as
    JSON, bytes as Python has them.
    """
    if guarded := _GUARDED.fullmatch(text):
        return guarded[1]
    try:
        bare = json.loads(text) if text.startswith('"') else None
        return of_quoted_bytes(bare).rstrip(b"\0").decode() if bare and _BYTES.fullmatch(bare) else bare
    except (ValueError, SyntaxError):
        return None


def of_quoted_bytes(text: str) -> bytes:
    """Return the bytes that Python writes so: `b'ab'`. Raises ValueError and SyntaxError for what is none."""
    return bytes(ast.literal_eval(text))


_BYTES = re.compile(r"""b(?:'[^']*'|"[^"]*")""")


def _no_key(text: str) -> Fault | None:
    """The fault of a text by which a row is seen to be no record, or whose value is not known."""
    if text.startswith("="):
        return Fault("FEED-FILE-09", "a formula where a key is expected; export the values of the cells")
    if _SWITCHED_OFF.match(text) and text not in _NO_ID:
        return Fault("FEED-FILE-09", "the key begins with a sign by which rows are switched off (//, --, ;, REM)")
    if _OF_A_TOTAL.search(text.lower()):
        return Fault("FEED-FILE-09", "the key reads as that of a total; [skip] in the feed file leaves such rows out")
    return None


_SWITCHED_OFF = re.compile(r"//|--|;|rem\s(?![0-9]+\Z)", re.IGNORECASE)
_OF_A_TOTAL = re.compile(r"\s(?:sub-?)?(?:totals?|summe|gesamt)\Z|\A(?:grand |sub-?)?(?:totals?|summe|gesamt)\s")


NO_FLAG = Fault("FEED-FILE-09", "true or false where a key or an id is expected, which is another text or a number")
"""The fault of a key or a reference that is a truth value, of JSON, a workbook or a text."""
_NO_ID: Mapping[str, Fault] = {
    **dict.fromkeys(("true", "false", "True", "False", "TRUE", "FALSE"), NO_FLAG),
    **{
        word: Fault(
            "FEED-FILE-09",
            "a word for nothing where a key or an id is expected; if it stands for an empty cell, name it in the feed"
            f' file: empty = ["{word}"]',
        )
        for word in (
            *("null", "Null", "NULL", "(null)", "(NULL)", "none", "None", "NONE", "nil", "undefined"),
            *("nan", "NaN", "NAN", "NA", "N/A", "n/a", "#N/A", "NaT", "<NA>", "<null>", "[null]", r"\N"),
            *("#REF!", "#NAME?", "#VALUE!", "#NULL!", "#DIV/0!", "(blank)", "(empty)", "-", "--", "---", "?", "."),
            *("#NUM!", "#ERROR!", "#SPILL!", "#CALC!", "#NV", "#WERT!", "#BEZUG!", "#ZAHL!"),
        )
    },
}
"""Faults of texts that are no keys and no ids, though they could be."""


def plain_text(text: str) -> object:
    return text


def code(text: str) -> object:
    return text.strip() or None


def reference(text: str, types: tuple[str, ...], bare: bool = True) -> object:
    """`Patient/p1` of `Patient/p1`, and of `p1` where a bare id is taken."""
    text = text.strip()
    if guarded := _GUARDED.fullmatch(text):
        text = guarded[1].strip()
    kind, slash, found = text.rpartition("/")
    if not slash:
        if not bare:
            return Fault(
                "FEED-FILE-09",
                f"a reference with its type is expected: {' or '.join(f'{name}/<id>' for name in types)}",
            )
        kind = types[0]
    if kind not in types:
        return Fault("FEED-FILE-09", _wrong_type(kind, types))
    if fault := _NO_ID.get(found):
        return fault
    if not _ID.fullmatch(found):
        return Fault("FEED-FILE-06", "no FHIR id (1 to 64 letters, digits, '-' and '.'); a crosswalk can translate it")
    return f"{kind}/{found}"


def _wrong_type(kind: str, types: tuple[str, ...]) -> str:
    wanted = " or ".join(types)
    article = "an" if kind[:1] in "AEIOU" else "a"
    named = (
        f"names {article} {kind}" if kind.isalpha() and kind[0].isupper() and len(kind) < 40 else "is no such reference"
    )
    return (
        f"a {wanted} is expected and the value {named}; where a {wanted} stands behind it, "
        "map it with values or a crosswalk in the feed file"
    )


def amount(text: str, numbers: Numbers = PLAIN) -> object:
    """Dollars as a plain decimal text, with two decimals where that is exact. What may be paid is a rule's matter."""
    if numbers.decimal == "." and _IN_CENTS.fullmatch(text):
        return text
    plain = numbers.amount(text)
    if plain is None or len(plain) > LONGEST_AMOUNT:
        return Fault("FEED-FILE-09", _no_amount(numbers))
    if numbers.could_be_thousands(plain):
        return UNCLEAR
    value = Decimal(plain)
    if abs(value) >= LARGEST_CENTS // 100:
        return TOO_LARGE
    cents = value.quantize(CENT)
    return f"{cents if cents == value else value:f}"


def _no_amount(numbers: Numbers) -> str:
    if numbers == PLAIN:
        return "no plain decimal amount (12.50); no currency sign, thousands or exponent is taken"
    signs = f", with {' or '.join(numbers.currency)} or without" if numbers.currency else "; no currency sign is taken"
    return f"no amount as the feed file says they are written ({numbers.example}{signs})"


UNCLEAR = Fault(
    "FEED-FILE-09",
    "an amount with three digits behind its sign could be a thousand times as much (1.500 or 1,500); "
    "write two, or say in the feed file how thousands are written",
)
"""The fault of an amount that can be read in two ways."""


TOO_LARGE = Fault("FEED-FILE-09", "an amount of 10,000,000,000,000 or more; the column may hold something else")


def number(text: str, numbers: Numbers = PLAIN) -> object:
    """A decimal as JSON writes it, digit for digit."""
    plain = numbers.number(text)
    if plain is None or len(plain) > LONGEST_NUMBER:
        return Fault("FEED-FILE-09", "no decimal number")
    value = Decimal(plain)
    return str(value) if is_readable(value) else Fault("FEED-FILE-09", NOT_READABLE)


def labels(found: object) -> object:
    """A list of texts; a single text is split at `;`."""
    if isinstance(found, str):
        found = found.split(";")
    if not isinstance(found, list) or not all(isinstance(label, str) for label in found):
        return Fault("FEED-TASK-04", "labels are texts: separated by ';', or in NDJSON an array of texts")
    return list(dict.fromkeys(label.strip() for label in found if label.strip()))


def cents(text: str | None) -> int | None:
    """An amount in cents; None when it has none, or more decimals than two, or more digits than any payment."""
    if text is None:
        return None
    if _IN_CENTS.fullmatch(text):
        return int(text.replace(".", ""))
    try:
        value = Decimal(text).scaleb(2)
    except InvalidOperation:
        return None
    return int(value) if value == value.to_integral_value() and abs(value) < LARGEST_CENTS else None
