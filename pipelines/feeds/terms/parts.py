"""The base of all parts of a feed file, and checks of values that go beyond their shape."""

import re
from datetime import UTC, datetime
from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict


class Part(BaseModel):
    """A part of a feed file, without unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=False, hide_input_in_errors=True)


def is_position(given: object) -> bool:
    """True if a value can name a column by its number: an integer from 1."""
    return isinstance(given, int) and not isinstance(given, bool) and given > 0


def known_encoding(name: str) -> str:
    """Return the name of an encoding that a feed may use for its text. Raises ValueError for any other."""
    try:
        "".encode(name)
        odd = name.lower().replace("-", "_") in ("idna", "punycode", "undefined", "unicode_escape", "utf_7")
    except (LookupError, ValueError):
        odd = True
    if odd or "escape" in name:
        raise ValueError("not an encoding that Python knows; examples: utf-8, utf-16, windows-1252")
    return name


def is_date_format(form: str) -> bool:
    """True if `strptime` can read a whole date by this format: year, month and day; and with `%I` also `%p`."""
    is_whole = all(re.search(f"%[{letters}]", form) for letters in ("Yyxc", "mbBjxc", "djxc"))
    if not is_whole or ("%I" in form and "%p" not in form) or not _EVERYWHERE.issuperset(re.findall("%(.)", form)):
        return False
    try:
        datetime.strptime(datetime(2001, 2, 3, 4, 5, 6, tzinfo=UTC).strftime(form), form)  # noqa: DTZ007 - only tried
    except (ValueError, re.error):
        return False
    return True


_EVERYWHERE = frozenset("aAbBcdfGHIjmMpSuUVwWxXyYzZ%")
"""The directives that every Python platform reads. Some read more: `%T`, `%e`."""

Encoding = Annotated[str, AfterValidator(known_encoding)]
AsList = BeforeValidator(lambda given: [given] if isinstance(given, str) else given)
"""Allows `"$"` for `["$"]`."""
Texts = Annotated[tuple[str, ...], AsList]
