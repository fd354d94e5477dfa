"""The columns of a kind of record, and the conversion of a cell's text to a value: ids, amounts, times.

A converter takes a text and returns a value or a `ValueFault`. It never raises, and a fault repeats no value.
"""

import ast
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Any, Literal, NamedTuple

from fhir_service.interface.datatypes import ID_PATTERN
from fhir_service.interface.json_text import NOT_READABLE, is_readable
from fhir_service.interface.site import Site
from pipelines.feeds.terms.numbers import CENT, PLAIN, NumberFormat
from pipelines.feeds.terms.texts import composed_text, folded_text, has_unseen

Shape = Literal["key", "text", "code", "amount", "number", "time", "labels", "comments", "answers"]
MISSING = "the column is required and empty here"


@dataclass(frozen=True, slots=True)
class ValueFault:
    """The fault of a value that cannot be used: the requirement and a sentence."""

    rule: str
    message: str


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a built-in feed.

    * shape: a `Shape`, or the resource types of a reference (`("Patient",)`).
    * rule: the requirement that asks for the column.
    * element: the FHIRPath that it fills. tail: distinguishes it from other columns of the same element.
    * bare: True if an id without a type is accepted, as an id of the first type.
    * stand_in: the value that is checked instead of a missing required one, so that all other reasons are found.
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
"""A text in a form that keeps a spreadsheet from making it a number: `="007"`."""
MADE_A_NUMBER = re.compile(r"[0-9]+\.0|-0|[0-9](?:[.,][0-9]+)?[Ee]\+[0-9]+|[0-9][.,][0-9]+E[0-9]+")
"""A number written by a spreadsheet of any country (`1,2E+14`), or by a program (`1.2e+17`, `1.2E7`)."""
_WITH_A_COMMA = re.compile(r"[0-9]+,0")
_IN_CENTS = re.compile(r"(?:0|[1-9][0-9]{0,8})\.[0-9]{2}")
LONGEST_AMOUNT = 25  # characters: within the exact range of decimals
LONGEST_NUMBER = 100
LARGEST_CENTS = 10**15
"""The largest amount, in cents. Larger numbers are no payments, and are not counted."""


def key(text: str, known_as: Mapping[str, str] = {}, decimal: str = ".") -> object:
    """Return a key in its normal form, or a fault; None if it is empty.

    Runs of blanks become one space; blanks and invisible characters around the key are removed, since exports sometimes
    have them. known_as: by spelling, keys that were once accepted in a form that today's reading would not give.
    decimal: the decimal sign of the export.
    """
    if _PLAIN_KEY.fullmatch(text):
        return known_as.get(text) or _NO_ID.get(text, text)
    as_before = composed_text(text.strip(_UNSEEN))
    text = folded_text(as_before)
    if known := known_as.get(as_before) or known_as.get(text):
        return known
    if len(text) > 200 or has_unseen(text):
        return ValueFault(
            "FEED-FILE-09", "a key has at most 200 characters, and no tab, line break or invisible character inside"
        )
    if MADE_A_NUMBER.fullmatch(text) or (decimal == "," and _WITH_A_COMMA.fullmatch(text)):
        return ValueFault(
            "FEED-FILE-09",
            "this key was turned into a number (as 7.0, -0 or 1.2E+14 by a spreadsheet); export it as text",
        )
    if (bare := _without_quotes(text)) is not None:
        return key(bare, known_as, decimal)
    return _no_key(text) or _NO_ID.get(text, text) or None


def _without_quotes(text: str) -> str | None:
    """Return a quoted key without its quotes and the guard before them; None for any other key.

    Earlier versions read some values of Parquet as JSON, with bytes as Python writes them: UUIDs, bytes of a fixed
    width, and texts and bytes in columns of a `view` type.
    """
    if guarded := _GUARDED.fullmatch(text):
        return guarded[1]
    try:
        bare = json.loads(text) if text.startswith('"') else None
        return of_quoted_bytes(bare).rstrip(b"\0").decode() if bare and _BYTES.fullmatch(bare) else bare
    except (ValueError, SyntaxError):
        return None


def of_quoted_bytes(text: str) -> bytes:
    """Return the bytes that Python writes as `b'ab'`. Raises ValueError and SyntaxError for other texts."""
    return bytes(ast.literal_eval(text))


_BYTES = re.compile(r"""b(?:'[^']*'|"[^"]*")""")


def _no_key(text: str) -> ValueFault | None:
    """Return the fault of a text that is no key: its row is no record, or its value is unknown. None for a key."""
    if text.startswith("="):
        return ValueFault("FEED-FILE-09", "this key is a formula; export the values of the cells")
    if _SWITCHED_OFF.match(text) and text not in _NO_ID:
        return ValueFault(
            "FEED-FILE-09",
            "this key begins like a row that is switched off (//, --, ;, REM); [skip] in the feed file leaves such rows"
            " out",
        )
    if _OF_A_TOTAL.search(text.lower()):
        return ValueFault(
            "FEED-FILE-09", "this key looks like the label of a total; [skip] in the feed file leaves such rows out"
        )
    return None


_SWITCHED_OFF = re.compile(r"//|--|;|rem\s(?![0-9]+\Z)", re.IGNORECASE)
_OF_A_TOTAL = re.compile(r"\s(?:sub-?)?(?:totals?|summe|gesamt)\Z|\A(?:grand |sub-?)?(?:totals?|summe|gesamt)\s")


NO_FLAG = ValueFault("FEED-FILE-09", "true or false is not a key or an id; check that the feed reads the right column")
"""The fault of a key or a reference that is true or false, in JSON, a workbook or a text."""
_NO_ID: Mapping[str, ValueFault] = {
    **dict.fromkeys(("true", "false", "True", "False", "TRUE", "FALSE"), NO_FLAG),
    **{
        word: ValueFault(
            "FEED-FILE-09",
            "this word usually means an empty cell, and is not taken as a key or an id; if such cells are empty, say so"
            f' in the feed file: empty = ["{word}"]',
        )
        for word in (
            *("null", "Null", "NULL", "(null)", "(NULL)", "none", "None", "NONE", "nil", "undefined"),
            *("nan", "NaN", "NAN", "NA", "N/A", "n/a", "#N/A", "NaT", "<NA>", "<null>", "[null]", r"\N"),
            *("#REF!", "#NAME?", "#VALUE!", "#NULL!", "#DIV/0!", "(blank)", "(empty)", "-", "--", "---", "?", "."),
            *("#NUM!", "#ERROR!", "#SPILL!", "#CALC!", "#NV", "#WERT!", "#BEZUG!", "#ZAHL!"),
        )
    },
}
"""Faults of texts that have the form of a key or an id, but are not one."""


def plain_text(text: str) -> object:
    return text


def code(text: str) -> object:
    return text.strip() or None


def reference(text: str, types: tuple[str, ...], bare: bool = True) -> object:
    """Return `Patient/p1` for `Patient/p1`, and for `p1` if a bare id is accepted."""
    text = text.strip()
    if guarded := _GUARDED.fullmatch(text):
        text = guarded[1].strip()
    kind, slash, found = text.rpartition("/")
    if not slash:
        if not bare:
            return ValueFault(
                "FEED-FILE-09",
                f"the type must be written before the id: {' or '.join(f'{name}/<id>' for name in types)}",
            )
        kind = types[0]
    if kind not in types:
        return ValueFault("FEED-FILE-09", _wrong_type(kind, types))
    if fault := _NO_ID.get(found):
        return fault
    if not _ID.fullmatch(found):
        return ValueFault(
            "FEED-FILE-06",
            "not a FHIR id (1 to 64 letters, digits, '-' and '.'); a crosswalk in the feed file can translate it",
        )
    return f"{kind}/{found}"


def _wrong_type(kind: str, types: tuple[str, ...]) -> str:
    wanted = " or ".join(types)
    article = "an" if kind[:1] in "AEIOU" else "a"
    named = (
        f"names {article} {kind}"
        if kind.isalpha() and kind[0].isupper() and len(kind) < 40
        else "is not a reference to one"
    )
    return (
        f"this must be a {wanted}, but the value {named}; if it means a {wanted}, "
        "translate it by values or a crosswalk in the feed file"
    )


def amount(text: str, numbers: NumberFormat = PLAIN) -> object:
    """Return dollars as a plain decimal text, with two decimals if that is exact. Rules check what may be paid."""
    if numbers.decimal == "." and _IN_CENTS.fullmatch(text):
        return text
    plain = numbers.amount(text)
    if plain is None or len(plain) > LONGEST_AMOUNT:
        return ValueFault("FEED-FILE-09", _no_amount(numbers))
    if numbers.could_be_thousands(plain):
        return UNCLEAR
    value = Decimal(plain)
    if abs(value) >= LARGEST_CENTS // 100:
        return TOO_LARGE
    cents = value.quantize(CENT)
    return f"{cents if cents == value else value:f}"


def _no_amount(numbers: NumberFormat) -> str:
    if numbers == PLAIN:
        return "not a plain decimal amount such as 12.50 (no currency sign, thousands separator or exponent)"
    signs = f", with or without {' or '.join(numbers.currency)}" if numbers.currency else ", no currency sign"
    return f"not an amount in the form that the feed file gives ({numbers.example}{signs})"


UNCLEAR = ValueFault(
    "FEED-FILE-09",
    "an amount with three digits after its point or comma could be a thousand times as much (1.500 or 1,500); "
    "write two digits, or say in the feed file how thousands are written (thousands)",
)
"""The fault of an amount that can be read in two ways."""


TOO_LARGE = ValueFault(
    "FEED-FILE-09", "the amount is 10,000,000,000,000 or more; check that the feed reads the right column"
)


def number(text: str, numbers: NumberFormat = PLAIN) -> object:
    """Return a decimal as JSON writes it, with every digit."""
    plain = numbers.number(text)
    if plain is None or len(plain) > LONGEST_NUMBER:
        return ValueFault("FEED-FILE-09", "not a decimal number")
    value = Decimal(plain)
    return str(value) if is_readable(value) else ValueFault("FEED-FILE-09", NOT_READABLE)


def labels(found: object) -> object:
    """Return a list of texts; a single text is split at `;`."""
    if isinstance(found, str):
        found = found.split(";")
    if not isinstance(found, list) or not all(isinstance(label, str) for label in found):
        return ValueFault("FEED-TASK-04", "labels must be texts: separated by ';', or an array of texts in NDJSON")
    return list(dict.fromkeys(label.strip() for label in found if label.strip()))


def cents(text: str | None) -> int | None:
    """Return an amount in cents; None if it has more than two decimals, more digits than any payment, or no value."""
    if text is None:
        return None
    if _IN_CENTS.fullmatch(text):
        return int(text.replace(".", ""))
    try:
        value = Decimal(text).scaleb(2)
    except InvalidOperation:
        return None
    return int(value) if value == value.to_integral_value() and abs(value) < LARGEST_CENTS else None


Values = dict[str, Any]


class RecordFault(NamedTuple):
    """A fault of one record: the place in the body, the column of the feed, and the row of the record."""

    fault: ValueFault
    element: str
    column: str
    row: int | None = None


class BuiltRecord(NamedTuple):
    """A record as the interface takes it, with the values that the ledger keeps.

    * body: the FHIR resource, with numbers as Decimal.
    * lane: records of one lane are sent one after another.
    * at: microseconds since 1970 in UTC.
    * cents: the amount of a payment.
    * places: the origin of each item of the body, in the form of `RecordFault.column`.
    * rows: for a record of several rows, by item (or note), the row of each of its answers.
    """

    body: dict[str, Any]
    patient_id: str | None
    lane: str
    at: int | None = None
    cents: int | None = None
    faults: tuple[RecordFault, ...] = ()
    places: tuple[str, ...] = ()
    rows: tuple[Sequence[int], ...] = ()


class BuilderContext(NamedTuple):
    """The context of a builder.

    words: texts in a body as the interface has them, each with the target's text for it.
    """

    site: Site
    questionnaires: Any
    numbers: NumberFormat = PLAIN
    words: Mapping[str, str] = {}


@dataclass(frozen=True)
class RecordKind:
    """A kind of record: one module in `feeds/kinds`.

    * build: makes the body of a record from the mapped values of its rows (several only for a grouped kind).
    * whole: returns the values of a FHIR resource: `resource` itself, and `at` (microseconds) if that orders the
      sending.
    * sort: the column whose times order the sending.
    * grouped: True if rows that share a key form one record.
    * member: the element that each of these rows adds to.
    * put_together: makes the body of the first row's values and the members that the rows make, one each; None if rows
      do not make members one by one.
    * until_sent: the text of a member that a body has while it is checked, and that is replaced when it is sent.
    """

    name: str
    resource: str
    key: str
    columns: tuple[Column, ...]
    build: Callable[[str | None, Sequence[Values], BuilderContext], BuiltRecord]
    sort: str | None = None
    grouped: bool = False
    member: str | None = None
    whole: Callable[[dict[str, Any]], Values] = lambda resource: {"resource": resource}
    put_together: Callable[[str | None, Values, Sequence[dict[str, Any]], BuilderContext], BuiltRecord] | None = None
    until_sent: str = ""
    by_name: dict[str, Column] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.by_name.update({column.name: column for column in self.columns})


def id_of(reference: Any) -> str | None:
    """Return `p1` for `{"reference": "Patient/p1"}`; None if the reference has no such id."""
    found = reference.get("reference") if isinstance(reference, dict) else None
    return found.partition("/")[2] or None if isinstance(found, str) else None


def refer(target: str) -> dict[str, str]:
    return {"reference": target}
