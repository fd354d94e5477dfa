"""Choose the likely column of an export for each column of ours, with the doubts about the choice."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from pipelines.feeds.drafting.cells import most
from pipelines.feeds.drafting.seen_column import FEW, SeenColumn
from pipelines.feeds.drafting.sniffing import Export
from pipelines.feeds.kinds.registry import KINDS
from pipelines.feeds.terms.columns import Column
from pipelines.feeds.terms.vocabulary import ID_WORDS, KIND_WORDS, NEVER, TIME_WORDS, hints, plain, rank

SIGNS: Mapping[str, tuple[str, ...]] = {
    "payments": ("amount", "paid_on", "payment_id", "claim_id"),
    "answers": ("response_id", "question", "answer_code", "authored", "questionnaire"),
    "tasks": ("task_id", "description", "status", "requester_id", "owner_id", "due"),
}
WEAK: Mapping[str, tuple[str, ...]] = {
    "payment_id": ("reference", "ref", "kunden referenz", "session", "buchung"),
    "authored": ("",),
    "task_id": ("reference",),
    "response_id": ("token",),
    "amount": ("sum", "value", "net", "total"),
}
"""Names that may mean a column of ours, or something else."""
FIRST = ("amount", "paid_on", "description", "status", "question", "questionnaire")
LATE = ("answer_text", "answer_number", "author", "note_id")


class ColumnChoice(NamedTuple):
    """A chosen column.

    rivals: other columns that may be the right one. is_known: True if its name is a known name of our column.
    """

    seen: SeenColumn
    rivals: tuple[SeenColumn, ...] = ()
    is_known: bool = True


class KindGuess(NamedTuple):
    """The kind of the records. is_sure: True if no other kind is nearly as likely."""

    kind: str
    is_sure: bool


def kind_of_export(columns: Sequence[SeenColumn], export: Export) -> KindGuess:
    """Return the kind, from the resources in the file, else from its name and columns."""
    held = [found.get("resourceType") for found in export.objects]  # the resourceType may be anything
    for name, kind in KINDS.items():
        if kind.resource in held:
            return KindGuess(name, True)
    scores = {name: _score(name, columns, export) for name in KINDS}
    best, second = sorted(scores, key=lambda name: scores[name], reverse=True)[:2]
    return KindGuess(best, _tells(best, columns, export) and scores[best] - scores[second] >= _CLEAR)


def _tells(kind: str, columns: Sequence[SeenColumn], export: Export) -> bool:
    """True unless the columns are such as exports of any kind have: an id and a time."""
    asks = kind == "answers" and any(map(_asks, columns))
    says = kind == "tasks" and candidates(KINDS[kind].by_name["description"], columns, kind)
    words = any(KIND_WORDS[kind] & set(seen.words) for seen in columns)
    return bool(asks or says or words or _is_named(kind, export))


def _is_named(kind: str, export: Export) -> bool:
    return kind.rstrip("s") in export.file_name.lower()


_CLEAR = 1.0
_QUESTION = re.compile(r"\?$|^q\d|^(?:phq|gad|frage|item|question|audit)\W?\d", re.IGNORECASE)


def _score(kind: str, columns: Sequence[SeenColumn], export: Export) -> float:
    by_name = KINDS[kind].by_name
    found = [bool(candidates(by_name[target], columns, kind)) for target in SIGNS[kind]]
    words = sum(bool(KIND_WORDS[kind] & set(seen.words)) for seen in columns)
    asked = sum(map(_asks, columns)) if kind == "answers" else 0
    named = _is_named(kind, export)
    return sum(found) + min(words, 4) / 2 + min(asked, 4) + named - (kind == "payments" and not found[0]) * 2


def _asks(seen: SeenColumn) -> bool:
    """True if a column's name is a question, or a sentence (not a path in an object) with a few answers."""
    is_path = "." in seen.label and " " not in seen.label
    is_sentence = len(seen.words) >= _SENTENCE and not is_path
    return bool(_QUESTION.search(seen.label)) or (is_sentence and seen.distinct <= _ANSWERS)


_SENTENCE = 5
_ANSWERS = 7


def candidates(column: Column, columns: Sequence[SeenColumn], kind: str) -> list[SeenColumn]:
    """Return the columns of an export whose name and cells fit this column, the likeliest first."""
    ranked = [
        (_is_worded(column, seen), found, "key" not in seen.words, place, seen)
        for place, seen in enumerate(columns)
        if (found := rank(column.name, seen.words, kind)) is not None and fits(column, seen)
    ]
    return [seen for *_, seen in sorted(ranked, key=lambda found: found[:4])]


def _is_worded(column: Column, seen: SeenColumn) -> bool:
    """True if some cell of a patient column contains a blank: it is a name, not an id."""
    return column.name == "patient_id" and any(" " in cell for cell in seen.cells)


def column_choices(kind: str, columns: Sequence[SeenColumn]) -> dict[str, ColumnChoice]:
    """Return the choices. Each column of the export is used once."""
    found: dict[str, ColumnChoice] = {}
    is_long = kind == "answers" and _is_long(columns)
    for column in _in_turn(kind):
        left = [seen for seen in columns if all(seen is not choice.seen for choice in found.values())]
        if column.name in ("question", "answer_code", "answer_text", "answer_number") and not is_long:
            continue
        if choice := _choice(column, left, kind, grouped=is_long):
            found[column.name] = choice
    return found


def _is_long(columns: Sequence[SeenColumn]) -> bool:
    """True if each row has one answer, so that questions and ids of responses repeat."""
    by_name = KINDS["answers"].by_name
    asked = candidates(by_name["question"], columns, "answers")
    keys = candidates(by_name["response_id"], columns, "answers")
    answered = any(candidates(by_name[name], columns, "answers") for name in ("answer_code", "answer_number"))
    return bool(asked) and (answered or not keys or not keys[0].is_key)


def _in_turn(kind: str) -> Iterator[Column]:
    columns, key = KINDS[kind].columns, KINDS[kind].key
    yield KINDS[kind].by_name[key]
    yield from (column for column in columns if column.name in FIRST)
    yield from (column for column in columns if column.name not in (key, *FIRST, *LATE))
    yield from (column for column in columns if column.name in LATE)


def _choice(column: Column, left: Sequence[SeenColumn], kind: str, *, grouped: bool) -> ColumnChoice | None:
    if column.shape == "key" and column.name == KINDS[kind].key:
        return _key(column, left, kind, grouped=grouped)
    known = candidates(column, left, kind)
    if known:
        weak = column.name == "paid_on" and (rank(column.name, known[0].words, kind) or 0) >= _TITLES["paid_on"]
        alike = column.shape == "labels" or column.name.startswith("comment")  # trackers repeat these
        others = [
            seen
            for seen in known[1:]
            if not (alike and seen.label == known[0].label) and (weak or _is_near(column.name, seen, kind))
        ]
        more = _other_amounts(known[0], left) if column.shape == "amount" else []
        is_known = plain(known[0].words) not in WEAK.get(column.name, ()) or (kind, column.name) == (
            "answers",
            "authored",
        )
        rivals = tuple(dict.fromkeys([*others, *more]))
        return ColumnChoice(known[0], rivals, is_known)
    if column.name == "claim_id":
        near = [
            seen for seen in left if "claim" in seen.words and fits(column, seen) and not set(seen.words) & _OF_CLAIM
        ]
        return ColumnChoice(near[0], is_known=False) if len(near) == 1 else None
    if column.name == "patient_id" and not column.required:
        near = [seen for seen in left if _names_patient(seen) and fits(column, seen) and _are_ids(seen)]
        return ColumnChoice(near[0], tuple(near[1:]), is_known=False) if near else None
    if column.required or column.name == "authored":
        near = [seen for seen in left if fits(column, seen) and hints(column.name, seen.words, kind)]
        if not near and column.name in ("authored", "paid_on"):
            near = [seen for seen in left if seen.is_time and seen.is_filled and not set(seen.words) & (NEVER | _LATER)]
        return ColumnChoice(near[0], tuple(near[1:]), is_known=False) if near else None
    return None


def _names_patient(seen: SeenColumn) -> bool:
    """True for `patient_ref`, and not for `Patient Age` or `Patient Zip`, which are numbers too."""
    words = set(seen.words)
    return bool(words & _OF_PATIENT) and words <= _OF_PATIENT | ID_WORDS | _BESIDE_PATIENT


def _are_ids(seen: SeenColumn) -> bool:
    """True if all cells have digits and no blanks, so that they are neither names nor texts for kinds of patients."""
    return all(" " not in cell and any(map(str.isdigit, cell)) for cell in seen.cells)


_OF_CLAIM = NEVER | set("status type state line category method amount balance total date count".split())
"""Words of facts about a claim that do not name the claim."""
_OF_PATIENT = frozenset("patient patienten mrn kartei".split())
_BESIDE_PATIENT = frozenset(
    "ref reference chart account acct record medical file external source old legacy akte".split()
)
_LATER = frozenset("due start accepted activity".split())
"""Words of times other than the time when the record was made."""


def _is_near(target: str, seen: SeenColumn, kind: str) -> bool:
    """True if a name is near enough to our column's to be a rival. A title, for example, comes before a description."""
    if target == "patient_id" and any(" " in cell for cell in seen.cells):
        return False
    limit = _TITLES.get(target)
    return limit is None or (rank(target, seen.words, kind) or 0) < limit


_TITLES = {
    "description": 6,
    "patient_id": 4,
    "paid_on": 15,
    **dict.fromkeys(("authored", "status", "questionnaire", "response_id", "requester_id", "owner_id"), 0),
}
"""The number of names of a column of ours that are rivals; columns with later names give way."""


def _key(column: Column, left: Sequence[SeenColumn], kind: str, *, grouped: bool) -> ColumnChoice | None:
    """Return the key: different in every row or, if several rows make a record, repeated in some."""
    known = [seen for seen in candidates(column, left, kind) if not (grouped and seen.is_key)]
    if not grouped:
        known = [seen for seen in known if seen.is_key] or [seen for seen in known if seen.is_nearly_key] or known
        if not known:
            near = [seen for seen in left if fits(column, seen) and seen.is_key]
            near = [seen for seen in near if rank("patient_id", seen.words, kind) is None]
            if own := _only_id(near, kind):
                return ColumnChoice(own)
            return ColumnChoice(near[0], tuple(near[1:]), is_known=False) if near else None
    if not known:
        return None
    best, *others = known
    weak = WEAK.get(column.name, ())
    is_bare = set(best.words) <= {"number", "no", "nr"} and any(seen.is_key for seen in left if seen is not best)
    is_known = plain(best.words) not in weak and not (is_bare and kind == "answers")
    rivals = [seen for seen in others if seen.is_key and plain(seen.words) not in weak] if kind == "payments" else []
    return ColumnChoice(best, tuple(rivals), is_known)


def _only_id(keys: Sequence[SeenColumn], kind: str) -> SeenColumn | None:
    """Return the only one of these columns that is called an id, and is no patient's or claim's; None for payments."""
    ids = [seen for seen in keys if set(seen.words) & ID_WORDS]
    if kind == "payments" or len(ids) != 1 or any(rank(name, ids[0].words, kind) is not None for name in _OF_OTHERS):
        return None
    return None if set(ids[0].words) & {"patient", "client", "mrn", "chart", "person", "code"} else ids[0]


_OF_OTHERS = ("patient_id", "claim_id", "requester_id", "owner_id", "group_id")


def _other_amounts(best: SeenColumn, left: Sequence[SeenColumn]) -> list[SeenColumn]:
    """Return other columns that could be the amount paid: a ledger has separate columns for charges and payments."""
    return [
        seen
        for seen in left
        if seen is not best
        and seen.look == "number"
        and not seen.is_constant
        and (not _has_cents(best) or _has_cents(seen))
        and set(seen.words) & _PAID
        and not set(seen.words) & _PART
    ]


def _has_cents(seen: SeenColumn) -> bool:
    """True if amounts have decimals. Beside such a column, whole numbers are codes or counts."""
    return any(_DECIMALS.search(cell) for cell in seen.cells)


_DECIMALS = re.compile(r"[.,]\d\d(?!\d)")
_PAID = set("amount paid payment payments betrag zahlung gross net collected".split())
_PART = set("refunded converted fee fees tax tip discount balance saldo original disputed".split())


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


def _could_be_key(seen: SeenColumn) -> bool:
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
    return _could_be_key(seen) and bool(named or seen.is_key) and not seen.is_constant


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
    "claim_id": lambda seen: _could_be_key(seen) and not seen.is_constant,
}
_BY_SHAPE: Mapping[str, Callable[[SeenColumn], bool]] = {
    "key": _could_be_key,
    "reference": _reference,
    "time": lambda seen: seen.is_time or seen.is_unix or (seen.days and bool(set(seen.words) & TIME_WORDS)),
    "amount": _amount,
    "number": _amount,
    "text": _text,
    "labels": lambda seen: seen.look == "text",
    "code": lambda seen: seen.look in ("text", "number") and seen.distinct <= FEW,
}
