"""Test if the cells of a column fit a column of ours. The content decides before names do."""

import re
from collections.abc import Callable, Mapping

from pipelines.feeds.drafting.cells import most
from pipelines.feeds.drafting.seen_column import FEW, SeenColumn
from pipelines.feeds.terms.columns import Column
from pipelines.feeds.terms.vocabulary import ID_WORDS, NEVER, TIME_WORDS

_NO_BLANK = re.compile(r"\S+").fullmatch
_MOMENTS = TIME_WORDS - {"tag"}
_MONEY = re.compile(r".*\d[.,]\d\d\D*").fullmatch


def fits(column: Column, seen: SeenColumn) -> bool:
    """True if a column of an export can be this column of ours."""
    if not seen.rows:
        return (
            column.shape not in ("amount", "number") or not set(seen.words) & TIME_WORDS
        )  # without rows, only the names are known
    if not seen.cells:
        return False
    if column.name in _BY_NAME:
        return _BY_NAME[column.name](seen)
    shape = "reference" if isinstance(column.shape, tuple) else column.shape
    return shape in _BY_SHAPE and _BY_SHAPE[shape](seen)


def _key(seen: SeenColumn) -> bool:
    """True for numbers and words, not for texts, money or days. A key has no blanks, or its name says that it is a
    key.
    """
    named = bool(set(seen.words) & ID_WORDS)
    if seen.look == "number" and most(seen.cells, _MONEY):
        return False
    if not named and set(seen.words) & _MOMENTS:
        return False
    return seen.look in ("number", "text") and (named or most(seen.cells, _NO_BLANK)) and not set(seen.words) & NEVER


def _reference(seen: SeenColumn) -> bool:
    return seen.look in ("number", "text")


def _person(seen: SeenColumn) -> bool:
    """True for names, logins, addresses and ids; false for counts."""
    named = bool(set(seen.words) & ID_WORDS)
    return seen.look == "text" or (seen.look == "number" and named)


def _amount(seen: SeenColumn) -> bool:
    """True for numbers, unless name and values show that they are days or moments."""
    is_time = seen.days or seen.is_unix
    return seen.look == "number" and not (is_time and set(seen.words) & TIME_WORDS)


def _text(seen: SeenColumn) -> bool:
    return seen.look == "text" and not seen.is_constant


def _is_id_of_comment(seen: SeenColumn) -> bool:
    """True for `Comment ID`, which is neither the comment nor its author."""
    words = set(seen.words)
    return bool(words & ID_WORDS) and words - ID_WORDS <= {"comment", "comments", "note", "notes"}


def _status(seen: SeenColumn) -> bool:
    return seen.look == "text" and seen.distinct <= FEW


def _response(seen: SeenColumn) -> bool:
    """True for a key that is named or used like one. `Response` alone is an answer; a constant is the id of a form."""
    named = set(seen.words) & (ID_WORDS - ({"code"} if seen.is_coded else set()))
    return _key(seen) and bool(named or seen.is_key) and not seen.is_constant


_BY_NAME: Mapping[str, Callable[[SeenColumn], bool]] = {
    "patient_id": lambda seen: _reference(seen) and not set(seen.words) & NEVER,  # no names: those have a column
    "response_id": _response,
    "requester_id": _person,
    "owner_id": _person,
    "comment": lambda seen: _text(seen) and not _is_id_of_comment(seen),
    "comment_author_id": lambda seen: (
        _person(seen) and not (seen.is_key and seen.look == "number") and not _is_id_of_comment(seen)
    ),
    "author": lambda seen: _person(seen) and not seen.is_coded,
    "status": _status,
    "questionnaire": _status,
    "question": lambda seen: seen.is_coded and seen.look in ("text", "number"),
    "answer_code": lambda seen: seen.is_coded and seen.look in ("text", "number"),
    "encounter_id": lambda seen: _reference(seen) and not seen.is_coded,
    "claim_id": lambda seen: _key(seen) and not seen.is_constant,
}
_BY_SHAPE: Mapping[str, Callable[[SeenColumn], bool]] = {
    "key": _key,
    "reference": _reference,
    "time": lambda seen: seen.is_time or seen.is_unix or (seen.days and bool(set(seen.words) & TIME_WORDS)),
    "amount": _amount,
    "number": _amount,
    "text": _text,
    "labels": lambda seen: seen.look == "text",
    "code": lambda seen: seen.look in ("text", "number") and seen.distinct <= FEW,
}
