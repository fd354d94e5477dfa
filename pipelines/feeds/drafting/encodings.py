"""Guess the encoding of a text from what its bytes allow, and from the letters beyond ASCII that result."""

import codecs
import unicodedata
from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

from pipelines.feeds.reading.opening import BEGINNING, is_binary, unmarked_utf_16, what_it_is
from pipelines.home.batch import UnreadableFile

TRIED = (
    *("windows-1252", "windows-1250", "windows-1251", "windows-1253", "windows-1254", "iso-8859-2", "iso-8859-7"),
    *("cp437", "cp850", "mac_roman", "koi8-r", "shift_jis", "gb18030", "big5", "euc_kr"),
)
LETTERS = 8
OTHERS = 5
_BETWEEN = "€°–—’‘“”«»…\u00a0"


class DecodedText(NamedTuple):
    """A decoded text.

    letters: its letters beyond ASCII. others: other encodings that fit, with their letters. broken: the first line that
    is not in the encoding; 0 if all are.
    """

    encoding: str = "utf-8"
    text: str = ""
    letters: str = ""
    others: tuple[tuple[str, str], ...] = ()
    broken: int = 0


def decoded_beginning(name: str, start: bytes) -> DecodedText:
    """Return the beginning of a file as text: by its byte order mark, as UTF-8, or by the likeliest encoding.

    Raises Unreadable.
    """
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return DecodedText("utf-16", start.decode("utf-16", "replace"))
    if order := unmarked_utf_16(start[:BEGINNING]):
        return DecodedText("utf-16", start.decode(order, "replace"))
    if said := what_it_is(start):
        raise UnreadableFile(f"{name}: the file is {said}")
    if is_binary(start[:BEGINNING]):
        raise UnreadableFile(f"{name}: the file is binary; export it as CSV or NDJSON")
    try:
        return DecodedText("utf-8", codecs.getincrementaldecoder("utf-8")().decode(start).removeprefix("\ufeff"))
    except UnicodeDecodeError:
        return _mostly_utf_8(start) or _guessed(start)


def _mostly_utf_8(start: bytes) -> DecodedText | None:
    """Return the text if nearly all lines with letters beyond ASCII are UTF-8."""
    lines = [(number, line) for number, line in enumerate(start.splitlines(), 1) if not line.isascii()]
    broken = [number for number, line in lines if line.decode("utf-8", "ignore").encode() != line]
    if len(broken) > len(lines) * _FEW:
        return None
    return DecodedText("utf-8", start.decode("utf-8", "replace").removeprefix("\ufeff"), broken=broken[0])


_FEW = 0.2


def _guessed(start: bytes) -> DecodedText:
    """Return the text in the likeliest encoding, with the other encodings that give different letters."""
    texts = dict(_texts(start))
    if not texts:
        return DecodedText("latin-1", start.decode("latin-1"))
    ranked = sorted(texts, key=lambda encoding: _likeliness(texts[encoding]), reverse=True)
    best, *others = ranked
    given = {encoding: _letters(texts[encoding]) for encoding in ranked}
    differing = [other for other in others if given[other] != given[best]]
    return DecodedText(best, texts[best], given[best], tuple((other, given[other]) for other in differing[:OTHERS]))


def _texts(start: bytes) -> Iterator[tuple[str, str]]:
    for encoding in TRIED:
        try:
            text = codecs.getincrementaldecoder(encoding)().decode(start)
        except UnicodeDecodeError:
            continue
        if not any("\x80" <= sign <= "\x9f" for sign in text):
            yield encoding, text


def _likeliness(text: str) -> float:
    """Return a score from -1 to 1.3: how well the letters beyond ASCII fit their neighbours."""
    scores = Counter(_fit(text, at) for at, sign in enumerate(text) if not sign.isascii())
    number = scores.total()
    return sum(score * times for score, times in scores.items()) / number if number else 0.0


def _fit(text: str, at: int) -> float:
    sign, around = text[at], text[max(at - 1, 0) : at] + text[at + 1 : at + 2]
    if sign in _BETWEEN:
        return 1.3 if _is_where_written(sign, text[max(at - 1, 0) : at], text[at + 1 : at + 2]) else 0.5
    if not sign.isalpha():
        return -1.0
    beside = [other for other in around if other.isalpha()]
    if not beside:
        return 0.2
    same = sum(map(partial(_goes_with, sign), beside)) / len(beside)
    common = 0.3 if sign in _COMMON else 0.0
    wrong_case = sign.isupper() and bool(text[max(at - 1, 0) : at]) and text[at - 1].islower()
    return same + common - (0.6 if wrong_case else 0.0) - (0.3 if _script(sign) == "HALFWIDTH" else 0.0)


def _is_where_written(sign: str, before: str, after: str) -> bool:
    """True for an apostrophe behind a letter, and for quotes around a word."""
    if sign in "“«":
        return after.isalnum() and not before.isalnum()
    return before.isalpha() if sign == "’" else sign in "”»" and before.isalnum() and not after.isalnum()


def _goes_with(sign: str, other: str) -> float:
    """Score two neighbouring letters: high for one script, and lower for two accented Latin letters."""
    script = _script(sign)
    if _script(other) != script:
        return 0.0
    return 1.35 if script in _SYLLABLES else 1.0 if script != "LATIN" or other.isascii() else 0.5


_SYLLABLES = ("HIRAGANA", "KATAKANA")

_COMMON = "äöüßéèêàâçñáíóúåøæëïôîûùÄÖÜÉÅØÑÇ"


def _script(sign: str) -> str:
    return "LATIN" if sign.isascii() else unicodedata.name(sign, "").split(" ")[0]


def _letters(text: str) -> str:
    """Return some of the letters beyond ASCII, each once, so that no word of a row is shown."""
    return " ".join(sorted({sign for sign in text if not sign.isascii() and sign.isprintable()})[:LETTERS])
