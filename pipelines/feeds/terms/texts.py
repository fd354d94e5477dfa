"""Texts as they are compared: keys, names of columns, and what a feed file says of values."""

import re
import unicodedata

BLANKS = re.compile(r"[ \u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+")
"""The blanks and separators of Unicode, one or more in a row. Controls, such as tabs, are none."""
UNSEEN = ("Cc", "Cf", "Co", "Cs", "Cn")
"""Categories of what has no look of its own, or none that everybody sees."""
IGNORED = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
"""Letters, marks and variants that show nothing either."""


def composed(text: str) -> str:
    """The text in one form (NFC): one system writes ä as a letter, another as a with dots behind it.

    A text with more marks on a letter than any language writes stays as it is.
    """
    if text.isascii() or (len(text) > MOST_MARKS and _overmarked(text)):
        return text
    return unicodedata.normalize("NFC", text)


def _overmarked(text: str) -> bool:
    """True if more marks follow one another than any language writes."""
    marks = 0
    for sign in text:
        marks = marks + 1 if unicodedata.combining(sign) else 0
        if marks > MOST_MARKS:
            return True
    return False


MOST_MARKS = 30
"""Marks of one letter. Normalizing sorts them in quadratic time: two megabytes of them would take hours."""


def folded(text: str) -> str:
    """Return the text with one space for all blanks in a row, and without blanks and formats around it."""
    text = BLANKS.sub(" ", text).strip(" ")
    if text.isascii():
        return text
    first, last = 0, len(text)
    while first < last and _around(text[first]):
        first += 1
    while first < last and _around(text[last - 1]):
        last -= 1
    return text[first:last]


def _around(sign: str) -> bool:
    return sign == " " or unicodedata.category(sign) == "Cf"


def seen(text: str) -> str:
    """Return the text without its unseen signs."""
    return text if text.isascii() and text.isprintable() else "".join(sign for sign in text if not _unseen(sign))


def shows_nothing(text: str) -> bool:
    """True if a text has blanks, controls and formats alone. What is private or not assigned may have a look."""
    return all(sign.isspace() or unicodedata.category(sign) in _FORMATS or IGNORED.match(sign) for sign in text)


_FORMATS = ("Cc", "Cf")


def has_unseen(text: str) -> bool:
    """True if a text has signs that show nothing: formats, controls, half characters, private or unassigned ones."""
    return not text.isprintable() if text.isascii() else any(map(_unseen, text))


def _unseen(sign: str) -> bool:
    return unicodedata.category(sign) in UNSEEN or IGNORED.match(sign) is not None
