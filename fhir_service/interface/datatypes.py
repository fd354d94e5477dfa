"""The shapes that all resources share: JSON, times, references, codings, text, extensions.

A value of the wrong shape is a structural problem (400). What a well-formed value may be is a rule's matter.
"""

import json
import re
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from typing import Annotated, Any, Literal, NoReturn, Self

import orjson
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, model_validator
from pydantic_core import PydanticCustomError

ID_PATTERN = r"[A-Za-z0-9\-.]{1,64}"
NO_CONTROLS = r"^[^\x00-\x08\x0B\x0C\x0E-\x1F\x7F-\x9F]+$"
CONTROLS = re.compile(r"[\x00-\x08\x0B\x0C\x0E-\x1F\x7F-\x9F]")


_ID = re.compile(rf"{ID_PATTERN}\Z")


def is_id(text: str) -> bool:
    """True if a resource can have this id. No other text is looked for: PostgreSQL takes no NUL."""
    return _ID.match(text) is not None


class Malformed(ValueError):
    """A body that is no JSON as the interface takes it. The message names the fault, never a value."""


# --- JSON -----------------------------------------------------------------------------------------


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise Malformed("an object repeats a key")
    return found


def _refuse_constant(_: str) -> NoReturn:
    raise Malformed("NaN and infinities are not JSON")


def is_readable(number: Decimal) -> bool:
    """True for a number that a double can be, which is what other programs read it as."""
    return abs(number.adjusted()) <= LARGEST_EXPONENT


def _bounded(text: str) -> Decimal:
    if not is_readable(value := Decimal(text)):
        raise Malformed(NOT_READABLE)
    return value


NOT_READABLE = "the number is larger or smaller than other programs can read"


LARGEST_EXPONENT = 307
_LONG_NUMBER = re.compile(r"(?:\A|[\s:,\[])-?\d(?:[\d.]{300}|[\d.]*[eE][+-]?\d{3})")
"""Places of numbers that may exceed a double. Ids with an `e` between digits come after other characters."""
_NUMBERS: dict[str, Any] = {"parse_float": Decimal, "parse_int": Decimal, "parse_constant": _refuse_constant}
_BOUNDED = _NUMBERS | {"parse_float": _bounded, "parse_int": _bounded}
_QUICK = json.JSONDecoder(**_NUMBERS)
_CAREFUL = json.JSONDecoder(**_NUMBERS, object_pairs_hook=_object)
_SUSPICIOUS = json.JSONDecoder(**_BOUNDED, object_pairs_hook=_object)

DEEPEST = 100
"""Levels of nesting in a body: far more than any form has, far fewer than what walks over bodies can bear."""


def parse_json(raw: bytes | str) -> Any:
    """The value of a JSON text, every number a Decimal. Refuses duplicate keys, NaN, deep nesting and bad UTF-8."""
    return _parsed(raw, None)


def parse_bounded(raw: bytes | str) -> Any:
    """Parse a text whose numbers are stored as they are. Refuses those that exceed a double, too."""
    return _parsed(raw, _LONG_NUMBER)


def _parsed(raw: bytes | str, long_number: re.Pattern[str] | None) -> Any:
    try:
        text = raw if isinstance(raw, str) else raw.decode("utf-8")
        suspicious = long_number is not None and long_number.search(text) is not None
        found = None if suspicious else _quickly(text)
        value = (_SUSPICIOUS if suspicious else _CAREFUL).decode(text) if found is None else found
    except UnicodeDecodeError:
        raise Malformed("the text is not UTF-8") from None
    except json.JSONDecodeError as error:
        raise Malformed(f"the text is not JSON (line {error.lineno}, column {error.colno})") from None
    except RecursionError:
        raise Malformed("the text is nested too deeply") from None
    except InvalidOperation:
        raise Malformed("a number is beyond what can be computed with") from None
    if found is None and _too_deep(value):
        raise Malformed("the text is nested too deeply")
    return value


_WRITTEN_LEVELS = 254
"""Levels that orjson writes, and not one more."""


def _quickly(text: str) -> Any | None:
    """The value of a text that surely repeats no key and is not too deep; None where a careful look is needed.

    The value is written again, with as many levels around it as leave it those that it may have. A repeated key would
    miss its quotation marks then, of which there are as many as in the text, unless one was escaped by its number.
    Numbers are written as booleans, so that none needs a mark.
    """
    try:
        value = _QUICK.decode(text)
        wrapped = value
        for _ in range(_WRITTEN_LEVELS - DEEPEST):
            wrapped = [wrapped]
        marks = orjson.dumps(wrapped, default=bool).count(b'"')
    except (ValueError, TypeError, RecursionError, InvalidOperation):
        return None
    return value if marks == text.count('"') and "\\u0022" not in text else None


def _too_deep(value: Any) -> bool:
    level: list[Any] = [[value]]
    for _ in range(DEEPEST + 1):
        level = [
            part
            for parent in level
            for part in (parent.values() if type(parent) is dict else parent)
            if type(part) is dict or type(part) is list
        ]
        if not level:
            return False
    return True


def plain_number(number: Decimal) -> str:
    """A decimal as JSON writes it, digit for digit."""
    return str(number)


# --- Times ----------------------------------------------------------------------------------------

_DATE = re.compile(r"\d{4}-\d\d-\d\d\Z", re.ASCII)
_DATETIME = re.compile(
    r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d+))?(Z|[+-](?:0\d|1[0-3]):[0-5]\d|[+-]14:00)\Z", re.ASCII
)
# What only the look of the offset may change in.
_IN_UTC = re.compile(r"(\d{4}-\d\d-\d\dT(?:[01]\d|2[0-3]):\d\d:\d\d(?:\.(?!000000)\d{6})?)(?:Z|\+00:00)\Z", re.ASCII)


def parse_instant(text: str) -> datetime:
    """The instant of a datetime with an offset, in UTC, cut off at the microsecond. Raises ValueError."""
    match = _DATETIME.match(text)
    if not match:
        raise ValueError("not a datetime with an offset")
    seconds, fraction, offset = match.groups()
    fraction = f".{(fraction + '00000')[:6]}" if fraction else ""
    try:
        return datetime.fromisoformat(f"{seconds}{fraction}{offset}").astimezone(UTC)
    except OverflowError:
        raise ValueError("outside the calendar") from None


def parse_date(text: str) -> date:
    """A calendar date. Raises ValueError."""
    if not _DATE.match(text):
        raise ValueError("not a date")
    return date.fromisoformat(text)


@lru_cache(maxsize=64)
@lru_cache(maxsize=16)
def instant_text(instant: datetime) -> str:
    """An instant as responses show it: UTC with `+00:00`."""
    return instant.astimezone(UTC).isoformat()


@lru_cache(maxsize=4096)
def normal_time(text: str) -> str:
    """A date as it is; a datetime as the same instant in UTC. Raises ValueError for anything else."""
    if len(text) == 10:
        parse_date(text)
        return text
    if plain := _IN_UTC.match(text):
        datetime.fromisoformat(text)
        return f"{plain[1]}+00:00"
    return instant_text(parse_instant(text))


_DAY, _MICROSECOND = timedelta(days=1), timedelta(microseconds=1)


@lru_cache(maxsize=4096)
def period_of(text: str) -> tuple[datetime, datetime]:
    """The half-open span [start, end) that a stored date or datetime covers: a day, or one microsecond."""
    if len(text) < 10:
        return _calendar_period(text)
    start = datetime.fromisoformat(text)
    if len(text) > 10:
        return start, _later(start, _MICROSECOND)
    start = start.replace(tzinfo=UTC)
    return start, _later(start, _DAY)


def _calendar_period(text: str) -> tuple[datetime, datetime]:
    """The span of a year, a month or a day, in UTC."""
    parts = [int(part) for part in text.split("-")]
    year, month, day = (*parts, 1, 1)[:3]
    start = datetime(year, month, day, tzinfo=UTC)
    if len(parts) == 3:
        return start, _later(start, _DAY)
    following = (year + 1, 1) if len(parts) == 1 or month == 12 else (year, month + 1)
    return start, _end_of_time() if following[0] > 9999 else datetime(*following, 1, tzinfo=UTC)


def _later(start: datetime, span: timedelta) -> datetime:
    try:
        return start + span
    except OverflowError:
        return _end_of_time()


def _end_of_time() -> datetime:
    return datetime.max.replace(tzinfo=UTC)


_SEARCH_DATE = re.compile(r"\d{4}(?:-\d\d(?:-\d\d)?)?\Z", re.ASCII)
_SEARCH_MINUTE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d(?:Z|[+-]\d\d:\d\d)\Z", re.ASCII)


def search_period(text: str) -> tuple[datetime, datetime]:
    """The span [start, end) that a date of a query covers, at the precision in which it is written."""
    if _SEARCH_DATE.match(text):
        return _calendar_period(text)
    if _SEARCH_MINUTE.match(text):
        start = parse_instant(f"{text[:16]}:00{text[16:]}")
        return start, _later(start, timedelta(minutes=1))
    start = parse_instant(text)
    fraction = "." in text
    return start, _later(start, _MICROSECOND if fraction else timedelta(seconds=1))


# --- Types of elements ----------------------------------------------------------------------------

Text = Annotated[str, StringConstraints(strict=True, min_length=1, pattern=NO_CONTROLS)]
Code = Annotated[str, StringConstraints(strict=True, min_length=1, pattern=NO_CONTROLS)]
Uri = Annotated[str, StringConstraints(strict=True, pattern=r"^[^\s\x00-\x20\x7F-\x9F]+$")]
Id = Annotated[str, StringConstraints(strict=True, pattern=rf"^{ID_PATTERN}$")]
Time = Annotated[str, StringConstraints(strict=True), AfterValidator(normal_time)]
Number = Annotated[Decimal, Field(strict=True, allow_inf_nan=False)]


def _readable(number: Decimal) -> Decimal:
    if not is_readable(number):
        raise PydanticCustomError("not_readable", NOT_READABLE)
    return number


ReadableNumber = Annotated[Decimal, Field(strict=True, allow_inf_nan=False), AfterValidator(_readable)]


class Element(BaseModel):
    """An element of a body: nothing unknown in it, nothing converted, no value in an error."""

    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True, populate_by_name=False)


class _Reference(Element):
    display: Text | None = None


class PatientReference(_Reference):
    reference: Annotated[str, StringConstraints(pattern=rf"^Patient/{ID_PATTERN}$")]
    type: Literal["Patient"] | None = None


class PractitionerReference(_Reference):
    reference: Annotated[str, StringConstraints(pattern=rf"^Practitioner/{ID_PATTERN}$")]
    type: Literal["Practitioner"] | None = None


class GroupReference(_Reference):
    reference: Annotated[str, StringConstraints(pattern=rf"^Group/{ID_PATTERN}$")]
    type: Literal["Group"] | None = None


class EncounterReference(_Reference):
    reference: Annotated[str, StringConstraints(pattern=rf"^Encounter/{ID_PATTERN}$")]
    type: Literal["Encounter"] | None = None


class ClaimReference(_Reference):
    reference: Annotated[str, StringConstraints(pattern=rf"^Claim/{ID_PATTERN}$")]
    type: Literal["Claim"] | None = None


class AuthorReference(_Reference):
    reference: Annotated[str, StringConstraints(pattern=rf"^(?:Practitioner|Patient)/{ID_PATTERN}$")]
    type: Literal["Practitioner", "Patient"] | None = None

    @model_validator(mode="after")
    def type_agrees(self) -> Self:
        if self.type and not self.reference.startswith(self.type):
            raise PydanticCustomError("type_agrees", "type contradicts reference")
        return self


class Coding(Element):
    """A coding whose three parts are all required, as in answers and options."""

    system: Uri
    code: Code
    display: Text


class Identifier(Element):
    """A business identifier as a client of the conditional create sends it."""

    system: Uri
    value: Text


class Unused(Element):
    """An object that must be there and says nothing: members of a reference are taken and ignored."""

    reference: str | None = None
    type: str | None = None
    identifier: dict[str, Any] | None = None
    display: str | None = None


class Meta(BaseModel):
    """`meta`, accepted and ignored whatever it holds."""

    model_config = ConfigDict(extra="allow", hide_input_in_errors=True)


def id_of(reference: str) -> str:
    """`p1` of `Patient/p1`."""
    return reference.partition("/")[2]


def reference(target: str, display: str | None = None) -> dict[str, str]:
    """A reference as responses show it: with `type`."""
    shown = {"reference": target, "type": target.partition("/")[0]}
    return shown | {"display": display} if display else shown


def _raw_decimal(value: object) -> orjson.Fragment:
    if isinstance(value, Decimal):
        return orjson.Fragment(plain_number(value))
    raise TypeError


def dump_json(value: Any, pretty: bool = False) -> bytes:
    """JSON text of a body, decimals digit for digit. pretty: in lines, for people."""
    return orjson.dumps(value, default=_raw_decimal, option=orjson.OPT_INDENT_2 if pretty else None)
