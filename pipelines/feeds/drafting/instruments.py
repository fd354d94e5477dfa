"""Instruments that are recognized by their columns' names or words: PHQ-9, GAD-7 and PRAPARE."""

import re
import tomllib
from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

LOINC = "http://loinc.org"
_SCREENING = re.compile(r"prapare[\W_]?(?:q|item)?[\W_]?0?(\d{1,2})", re.IGNORECASE)
_ITEM = re.compile(r"(phq|gad)[\W_]?(?:[279](?=[\W_]|q|i))?[\W_]?(?:q|item|i|phq|gad)?[\W_]?0?([1-9])\Z", re.IGNORECASE)


@cache
def instruments() -> dict[str, Any]:
    """Return the instruments, each with its questions, and the options that these share."""
    return tomllib.loads(Path(__file__).with_name("instruments.toml").read_text(encoding="utf-8"))


def known_items(names: Sequence[str]) -> dict[str, tuple[str, int]]:
    """Return the columns that are questions of an instrument, by name: the instrument and the question's number.

    A single column of an instrument is ignored: `PHQ9` may be the ninth question, or the sum of nine.
    """
    found = {name: at for name in names if (at := _item(name.strip()))}
    counted = Counter(instrument for instrument, _ in found.values())
    known = {name: at for name, at in found.items() if at[1] <= len(instruments()[at[0]]["questions"])}
    twice = Counter(known.values())
    return {name: at for name, at in known.items() if counted[at[0]] > 1 and twice[at] == 1}


def whole_instruments(names: Sequence[str]) -> dict[str, tuple[str, int]]:
    """Return the columns of instruments whose questions are all there, in the form of `known_items`."""
    known = known_items(names)
    counted = Counter(instrument for instrument, _ in known.values())
    whole = {name for name, number in counted.items() if number == len(instruments()[name]["questions"])}
    return {name: at for name, at in known.items() if at[0] in whole}


def first_instrument(names: Sequence[str]) -> str | None:
    """Return the instrument that comes first among those whose questions are all there; None if there is none."""
    return next((instrument for instrument, _ in whole_instruments(names).values()), None)


def screening_questions(names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return the columns that are PRAPARE questions, by name: `prapare_7`, `PRAPARE_housing`, or the question's words.

    If several columns fit one question, such as a column for each choice, none of them is returned.
    """
    found = {name: question for name in names if (question := _screening_question(name))}
    twice = Counter(question["code"] for question in found.values())
    return {name: question for name, question in found.items() if twice[question["code"]] == 1}


def _screening_question(name: str) -> dict[str, Any] | None:
    """Return the question that a name fits. Of several, the one with the longest words; None if that is not unique."""
    asked, words = instruments()["prapare"]["screening"], _plain(name)
    if match := _SCREENING.fullmatch(name.strip()):
        return asked[int(match[1]) - 1] if 1 <= int(match[1]) <= len(asked) else None
    if words.startswith("prapare "):
        fits = [max((len(word) for word in each["words"] if f" {word} " in f"{words} "), default=0) for each in asked]
    else:
        texts = [_plain(each["text"]) for each in asked]
        fits = [len(text) * (words == text or _is_cut_or_longer(words, text)) for text in texts]
    most = max(fits)
    return asked[fits.index(most)] if most and fits.count(most) == 1 else None


def _item(name: str) -> tuple[str, int] | None:
    """Return the question of a name such as `phq9_3`, or of words that end like the question's."""
    if match := _ITEM.search(name):
        return match[1].lower(), int(match[2])
    words = _plain(name)
    return next((at for text, at in _by_words() if words.endswith(text) or _is_cut_or_longer(words, text)), None)


def _is_cut_or_longer(words: str, text: str) -> bool:
    """True if words are a question's without its end, or with more after it: tools shorten and lengthen questions."""
    if words.startswith(f"{text} "):
        return True
    return text.startswith(f"{words} ") and words.count(" ") >= _TELLING


_TELLING = 5


@cache
def _by_words() -> list[tuple[str, tuple[str, int]]]:
    asked = {name: found["questions"] for name, found in instruments().items() if "questions" in found}
    return [
        (_plain(question["text"]), (name, number))
        for name, questions in asked.items()
        for number, question in enumerate(questions, 1)
    ]


def _plain(text: str) -> str:
    return " ".join(re.findall(r"[a-z]+", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", text).lower()))
