"""The normal form of texts for comparison: keys, names of columns, and values in a feed file."""

import re
import unicodedata

DELIMITERS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}
"""The usual delimiters of fields, with their names."""
BLANKS = re.compile(r"[ \u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+")
"""Unicode's blanks and separators, one or more in a row, without control characters such as tabs."""
UNSEEN = ("Cc", "Cf", "Co", "Cs", "Cn")
"""The categories of characters that are invisible, or that are not displayed everywhere."""
IGNORED = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
"""Further letters, marks and variants that are invisible."""


def composed_text(text: str) -> str:
    """Return the text in one form (NFC): one system writes ä as a letter, another as an a with a mark for the dots.

    A text with more marks on a letter than any language uses is returned unchanged.
    """
    if text.isascii() or (len(text) > MOST_MARKS and _overmarked(text)):
        return text
    return unicodedata.normalize("NFC", text)


def _overmarked(text: str) -> bool:
    """True if more marks follow each other than any language uses."""
    marks = 0
    for sign in text:
        marks = marks + 1 if unicodedata.combining(sign) else 0
        if marks > MOST_MARKS:
            return True
    return False


MOST_MARKS = 30
"""The most marks of one letter. Normalizing sorts marks in quadratic time: two megabytes of them would take hours."""


def folded_text(text: str) -> str:
    """Return the text with one space for each run of blanks, and without blanks and format characters around it."""
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


def visible_text(text: str) -> str:
    """Return the text without its invisible characters."""
    return text if text.isascii() and text.isprintable() else "".join(sign for sign in text if not _unseen(sign))


def shows_nothing(text: str) -> bool:
    """True if a text has only blanks, controls and formats. Private and unassigned characters may be visible."""
    return all(sign.isspace() or unicodedata.category(sign) in _FORMATS or IGNORED.match(sign) for sign in text)


_FORMATS = ("Cc", "Cf")


def has_unseen(text: str) -> bool:
    """True if a text has invisible characters: formats, controls, half characters, private or unassigned ones."""
    return not text.isprintable() if text.isascii() else any(map(_unseen, text))


def _unseen(sign: str) -> bool:
    return unicodedata.category(sign) in UNSEEN or IGNORED.match(sign) is not None
