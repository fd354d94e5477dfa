"""Number formats of a workbook: find the cells that show something else than their value, and what they show."""

import re
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from decimal import Decimal
from functools import partial
from unicodedata import category

from pipelines.feeds.terms.times import DAY_0

Shown = Callable[[str], str | None]
"""Returns the text that a number is shown as; None if its value says the same."""

PERCENT_IDS, MOMENT_IDS = (9, 10), (22,)
DURATION_ID = 46
TIME_IDS = (*range(14, 23), *range(27, 37), *range(45, 48), *range(50, 59))
_DURATION = re.compile(r"\[[hms]+\]", re.IGNORECASE)
_PARTS = re.compile(r'"([^"]*)"|\\(.)|\[([^\[\]]*)\]|_.|\*.|(.)', re.DOTALL)
_DIGITS = 15
DOLLARS = ("$", "USD", "US$")
_CURRENCY = re.compile(r"[A-Z]{3}|[A-Z]{0,3}\$|kr|zł|Kč|Ft|lei|лв|руб|Rs|SFr")
"""Codes and signs of several letters beside a number. In brackets (`[$Kč-405]`), any text is a currency."""
_LONGEST = 40


def plain_number(text: str) -> Decimal:
    """Return a number of a workbook, with the fifteen digits that it keeps. Raises ValueError."""
    return Decimal(f"{float(text):.{_DIGITS}g}")


def shown_by(format_id: int, code: str | None, day_0: datetime = DAY_0) -> Shown | None:
    """Return the function that shows numbers of a format; None if the value counts."""

    def moment(text: str) -> str | None:
        return _moment(text, day_0)

    if code is None:
        return _percent if format_id in PERCENT_IDS else moment if format_id in MOMENT_IDS else None
    code = code.partition(";")[0].replace("General", "0")
    parts = list(_parts(code))
    signs = "".join(sign for sign, is_literal in parts if not is_literal).lower()
    is_filled = set(signs) <= set("0#- /()") and (signs.count("0") > 1 or 0 < len(signs) < len(parts))
    if (currency := _currency(code)) and currency not in DOLLARS:
        texts = "".join(sign for sign, is_literal in parts if is_literal)
        return partial(_with_currency, currency, parts if is_filled and currency in texts else [])
    if "%" in signs:
        return _percent
    if set("yd") & set(signs):
        return moment if set("hs") & set(signs) else None
    return (lambda text: _filled(text, parts)) if is_filled else None


def is_duration(format_id: int, code: str | None) -> bool:
    """True if a format may be one of durations, such as `[h]:mm`."""
    return format_id == DURATION_ID if code is None else bool(_DURATION.search(code))


def is_of_time(format_id: int, code: str | None) -> bool:
    """True if a format may be one of dates, times or durations."""
    if code is None:
        return format_id in TIME_IDS
    signs = "".join(sign for sign, is_literal in _parts(code.partition(";")[0]) if not is_literal)
    return not set("ymdhs").isdisjoint(signs.lower()) or is_duration(format_id, code)


def _parts(code: str) -> Iterator[tuple[str, bool]]:
    """Yield the characters of a format's code, each with True if it is literal."""
    for quoted, escaped, _, sign in _PARTS.findall(code):
        for each in quoted or escaped:
            yield each, True
        if sign:
            yield sign, False


def _currency(code: str) -> str:
    """Return the currency that a format puts beside a number: a sign, or a code such as `CHF`; empty for none."""
    for quoted, escaped, bracketed, sign in _PARTS.findall(code):
        is_bracketed = bracketed.startswith("$")
        named = bracketed[1:].partition("-")[0] if is_bracketed else quoted or escaped or sign
        named = named.strip().rstrip(".")
        if (is_bracketed and named) or _CURRENCY.fullmatch(named) or (len(named) == 1 and category(named) == "Sc"):
            return str(named)
    return ""


def _with_currency(currency: str, parts: list[tuple[str, bool]], text: str) -> str:
    """Return a number with its currency. In a format of whole numbers, the currency may be the letters of a key.

    parts: the characters of such a format, else empty.
    """
    return (_filled(text, parts) if parts else None) or f"{currency}{plain_number(text):f}"


def _percent(text: str) -> str | None:
    return f"{(plain_number(text) * 100).normalize():f}%"


def _moment(text: str, day_0: datetime) -> str | None:
    """Return a moment at midnight, whose value has no time of day; None for any other number."""
    days = float(text) + (day_0 - DAY_0).days
    if not days.is_integer() or not 60 < days < 2_958_466:
        return None
    return (DAY_0 + timedelta(days=days)).isoformat()


def _filled(text: str, parts: list[tuple[str, bool]]) -> str | None:
    """Return a whole number in the places of a format such as `00000` or `000-00-0000`; None if it does not fit."""
    number = plain_number(text)
    if number < 0 or number != number.to_integral_value() or len(parts) > _LONGEST:
        return None
    digits = list(f"{number:f}".partition(".")[0])
    places = sum(sign in "0#" and not is_literal for sign, is_literal in parts)
    out = []
    for sign, is_literal in reversed(parts):
        if is_literal or sign not in "0#":
            out.append(sign)
            continue
        places -= 1
        taken = digits[-1:] if places else digits
        out.append("".join(taken) or ("0" if sign == "0" else ""))
        del digits[len(digits) - len(taken) :]
    return "".join(reversed(out))
