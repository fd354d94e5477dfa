"""A feed file drafted from an export: what can be seen is filled in, what must be decided is said beside it.

Names of columns and formats go into the draft, no value of a row does.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pipelines.feeds.drafting.looking import look_at
from pipelines.feeds.drafting.sniffing import Export, date_formats, is_iso, most, numbers_of
from pipelines.feeds.files.catalog import plain_name
from pipelines.feeds.files.rules import ASKED
from pipelines.feeds.kinds.registry import KINDS
from pipelines.feeds.terms.columns import Column
from pipelines.feeds.terms.numbers import PLAIN, Numbers

WORDS: Mapping[str, str] = {
    "payment_id": "payment receipt transaction id number nr no beleg belegnummer quittung reference ref",
    "patient_id": "patient patientid mrn chart kartei account member person client subject id nr",
    "amount": "amount paid payment payments sum total betrag zahlung value usd",
    "paid_on": "paid on date posted booked datum gebucht at time day created",
    "claim_id": "claim claimid invoice case fall",
    "response_id": "response responseid submission bogen id form record nr",
    "questionnaire": "questionnaire survey form instrument fragebogen screening",
    "authored": "authored completed submitted date datum at on created time",
    "author": "author respondent by",
    "encounter_id": "encounter visit encounterid besuch",
    "note_id": "note noteid",
    "question": "question linkid link item frage code",
    "answer_code": "answer code option choice antwort",
    "answer_text": "answer text string comment antwort",
    "answer_number": "answer number score value decimal",
    "task_id": "task id taskid ticket todo number nr aufgabe",
    "description": "description subject title what text summary aufgabe",
    "status": "status state done stand",
    "requester_id": "requester requested by from creator created author von",
    "owner_id": "owner assigned assignee to responsible",
    "group_id": "group team",
    "due": "due deadline until by bis date end",
    "labels": "labels label tags tag category",
    "comment": "comment note notes remark notiz",
    "comment_author_id": "comment author by",
    "comment_time": "comment time at date",
}
SIGNS: Mapping[str, tuple[str, ...]] = {
    "payments": ("amount", "paid_on", "payment_id", "claim_id"),
    "answers": ("response_id", "question", "answer_code", "answer_text", "questionnaire"),
    "tasks": ("task_id", "description", "status", "requester_id", "due"),
}


class Seen(NamedTuple):
    """A column of the export: how the feed file names it, and what its cells look like.

    dates: formats, those as good together. texts: how many different ones, where they are words and few.
    """

    name: str
    label: str
    iso: bool
    dates: tuple[tuple[str, ...], ...]
    numbers: Numbers | None
    distinct: bool
    filled: bool
    texts: int


def draft(path: Path, kind: str | None = None) -> str:
    """The text of a feed file. kind: of the records, else guessed. Raises Unreadable when the file is no text."""
    export = look_at(path)
    columns = _columns(export)
    kind = kind or _kind(path.name, columns, export)
    resources = bool(export.objects) and all("resourceType" in found for found in export.objects)
    chosen = {} if resources else _chosen(KINDS[kind].columns, columns)
    lines = [*_head(path, kind, export), *_forms(export, kind, chosen)]
    lines += ["resources = true", ""] if resources else ["", *_mapping(kind, chosen, columns, export)]
    return "\n".join(lines) + "\n"


# --- What is there --------------------------------------------------------------------------------


def _columns(export: Export) -> list[Seen]:
    if export.is_objects:
        cells: dict[str, list[str]] = {}
        for row in export.objects:
            for name, text in _flat(row):
                cells.setdefault(name, []).append(text)
        return [_seen(name, name, texts, len(export.objects)) for name, texts in cells.items()]
    found: list[Seen] = []
    for place, name in enumerate(export.names):
        unique = name and export.names.count(name) == 1
        label = name if unique else f"#{place + 1}"
        found.append(_seen(label, name or label, export.column(place), len(export.rows)))
    return found


def _seen(name: str, label: str, cells: Sequence[str], rows: int) -> Seen:
    iso = most(cells, is_iso)
    dates = () if iso else tuple(date_formats(cells[:_LOOKED_AT]))
    numbers = None if iso or dates else numbers_of(cells)
    number = len(set(cells))
    texts = number if 1 < number <= _FEW and number < len(cells) and not (iso or dates or numbers) else 0
    return Seen(name, label, iso, dates, numbers, number == len(cells) > 1, len(cells) == rows > 0, texts)


_LOOKED_AT = 100


def _flat(found: object, path: str = "") -> Iterator[tuple[str, str]]:
    """Single values of an object by their paths, as far as a path can be written."""
    if isinstance(found, dict):
        for name, part in found.items():
            if not re.search(r"[.\[\]]", name):
                yield from _flat(part, f"{path}.{name}" if path else name)
    elif isinstance(found, list):
        if path and found and isinstance(found[0], dict):
            yield from _flat(found[0], f"{path}[0]")
        elif path and found:
            yield path, str(found[0])
    elif found is not None and path:
        yield path, str(found)


def _kind(file_name: str, columns: Sequence[Seen], export: Export) -> str:
    """By the resources that the file holds, else by its name and what its columns are called."""
    held = [found.get("resourceType") for found in export.objects]  # anything may stand there
    for name, kind in KINDS.items():
        if kind.resource in held:
            return name
    scores: dict[str, float] = {}
    for name, targets in SIGNS.items():
        best = (
            max(
                (_likeness(target, seen) * _shape_fits(KINDS[name].by_name[target], seen) for seen in columns),
                default=0.0,
            )
            for target in targets
        )
        scores[name] = sum(best) / len(targets) + (name.rstrip("s") in file_name.lower())
    return max(scores, key=lambda name: scores[name])


# --- Which column is which ------------------------------------------------------------------------


def _chosen(targets: Sequence[Column], columns: Sequence[Seen]) -> dict[str, Seen]:
    """The likeliest column for each of ours, each used once; what is required chooses first."""
    scored = [
        (_likeness(target.name, seen) * _shape_fits(target, seen), target.required, target.name, seen)
        for target in targets
        for seen in columns
        if target.name in WORDS
    ]
    chosen: dict[str, Seen] = {}
    for score, _, name, seen in sorted(scored, key=lambda found: (found[0], found[1]), reverse=True):
        if score >= _LIKELY and name not in chosen and seen not in chosen.values():
            chosen[name] = seen
    return chosen


_LIKELY = 0.2


def _likeness(target: str, seen: Seen) -> float:
    """From 0 to 1: how much a column's name speaks of one of ours."""
    words = _words(seen.label)
    if "".join(words) == target.replace("_", ""):
        return 1.0
    known = WORDS[target].split()
    hits = [1 / (1 + known.index(word) / 8) for word in words if word in known]
    return 0.9 * sum(hits) / (len(words) + 0.5) if hits else 0.0


def _words(label: str) -> list[str]:
    """`patient`, `id` of `PatientID`, `patient_id`, `Patient-Id`."""
    parted = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", label)
    return [part for word in re.findall(r"[a-zäöüß]+", parted.lower()) for part in _parts(word)]


def _parts(word: str) -> list[str]:
    """`from`, `date` of `fromdate`."""
    cuts = [word[:at] for at in range(2, len(word) - 1) if word[:at] in _VOCABULARY and word[at:] in _VOCABULARY]
    return [word] if word in _VOCABULARY or not cuts else [cuts[0], word[len(cuts[0]) :]]


_VOCABULARY = {word for words in WORDS.values() for word in words.split()}


def _shape_fits(target: Column, seen: Seen) -> float:
    """Return the weight, 0 for no fit, by which the cells seen fit the shape of a column."""
    if target.shape == "time":
        return 1.0 if seen.iso or seen.dates else 0.0
    if target.shape == "amount":
        return 1.2 if seen.numbers and not seen.distinct else 1.0 if seen.numbers else 0.0
    if seen.iso or seen.dates:
        return 0.0
    if target.shape == "key":
        return 1.3 if seen.distinct and seen.filled else 0.6
    return 1.0


# --- The text -------------------------------------------------------------------------------------


def _head(path: Path, kind: str, export: Export) -> Iterator[str]:
    first, *rest = plain_name(path.name).split(".")
    stem = re.sub(r"[\d_\-]+$", "", first) or first
    name = re.sub(r"[^A-Za-z0-9_\-]+", "-", stem).strip("-_")[:40] or "feed"
    yield "# Drafted from one export. Lines that say DECIDE want a person."
    yield "# Then: chartferry feeds check THIS_FILE --sample EXPORT"
    yield f"name = {_text(name)}"
    yield f"source = {_text(name)}  # DECIDE: the system that made the keys; one name for all its exports"
    yield f"kind = {_text(kind)}  # DECIDE: payments, answers or tasks"
    patterns = [".".join([stem + "*", *rest])]
    if path.name.endswith(".zip"):
        inner = Path(export.file_name)
        patterns = [f"{stem}*.zip", re.sub(r"[\d_\-]+$", "", inner.stem) + "*" + inner.suffix]
    yield f"files = [{', '.join(map(_text, patterns))}]"
    if export.form != "csv" or not export.file_name.lower().endswith(".csv"):
        yield f"format = {_text(export.form)}"
    if export.encoding != "utf-8":
        others = (
            "" if export.encoding == "utf-16" else "  # DECIDE: by its bytes it may be another (Big5, Shift JIS, ...)"
        )
        yield f"encoding = {_text(export.encoding)}{others}"
    yield from export.keys
    if not export.is_objects:
        if export.delimiter != ",":
            yield f"delimiter = {_text(export.delimiter)}"
        if export.header != 1 or export.wordless:
            yield f"header = {export.header}{_header_doubt(export)}"


def _header_doubt(export: Export) -> str:
    """Return what a person has to decide of the header, where it is a guess."""
    if not export.header:
        return "  # DECIDE: no header, columns by position? Where a line names them, say which"
    return "  # DECIDE: this line has few names; is the header another one?" if export.wordless else ""


def _forms(export: Export, kind: str, chosen: Mapping[str, Seen]) -> Iterator[str]:
    """Dates and numbers, as far as the chosen columns show them."""
    times = [seen for name, seen in chosen.items() if _column(kind, name).shape == "time"]
    if times:
        yield 'timezone = "UTC"  # DECIDE: of times without an offset (America/New_York, ...)'
    forms = list(dict.fromkeys(alike[0] for seen in times for alike in seen.dates))
    if forms:
        others = sorted({form for seen in times for alike in seen.dates for form in alike} - set(forms))
        doubt = f"  # DECIDE: the sample fits {', '.join(others)} too" if others else ""
        yield f"dates = [{', '.join(map(_text, forms))}]{doubt}"
    amount = chosen.get("amount")
    numbers = amount.numbers if amount and amount.numbers else PLAIN
    if numbers.decimal != ".":
        yield f"decimal = {_text(numbers.decimal)}"
    if numbers.thousands:
        yield f"thousands = {_text(numbers.thousands)}"
    if numbers.currency:
        yield f"currency = [{', '.join(map(_text, numbers.currency))}]"
    if not export.names and not export.objects:
        yield "# the file has no rows to look at"


def _mapping(kind: str, chosen: Mapping[str, Seen], columns: Sequence[Seen], export: Export) -> Iterator[str]:
    spare = [seen for seen in columns if seen not in chosen.values()]
    rivals = _rivals(kind, chosen, spare)
    yield from _choice(spare, bool(rivals))
    yield from _trailer(export, chosen.get(KINDS[kind].key))
    yield "[columns]"
    wide = kind == "answers" and "question" not in chosen
    for column in KINDS[kind].columns:
        if column.shape == "comments" or (wide and (column.name == "question" or column.name.startswith("answer_"))):
            continue
        if column.name == "claim_id" and column.name in chosen:
            yield from _claim(column, chosen["claim_id"], spare, export)
        else:
            yield from _line(column, chosen.get(column.name), export, rivals if column.name == "amount" else ())
    if wide:
        yield "\n[questions]  # a column per question: its linkId or code = the column"
        yield from (f'# "..." = {_text(seen.name)}  # DECIDE' for seen in spare)
    elif spare:
        yield "\n# Not used: " + ", ".join(_text(seen.name) for seen in spare)


def _claim(column: Column, seen: Seen, spare: Sequence[Seen], export: Export) -> Iterator[str]:
    """The claim of a payment, not taken until somebody has decided: it makes of the payment a copayment."""
    telling, source = _telling(spare), _source(seen, export)
    yield "# DECIDE: a payment with a claim is a copayment and is not held against the balance. If all of these are:"
    yield from (f"# {line}" for line in _line(column, seen, export))
    yield f"# If some are{f', as {_text(telling.name)} may tell' if telling else ''}:"
    yield f'# claim_id = {{ column = {source}, when = {{ {_text(telling.name) if telling else "TYPE"} = "..." }} }}'


def _telling(spare: Sequence[Seen]) -> Seen | None:
    """A column that tells kinds of rows apart."""
    return next((seen for seen in spare if seen.texts and set(_words(seen.label)) & _TELLING), None)


def _source(seen: Seen, export: Export) -> str:
    """Return a column's name as a feed file writes it."""
    return _text(seen.name) if export.is_objects or not seen.name.startswith("#") else seen.name[1:]


def _rivals(kind: str, chosen: Mapping[str, Seen], spare: Sequence[Seen]) -> list[Seen]:
    """Other columns that could be what was paid: a ledger has charges and payments in columns of their own."""
    if kind != "payments" or "amount" not in chosen:
        return []
    return [seen for seen in spare if seen.numbers and set(_words(seen.label)) & _PAID]


_PAID = set("amount paid payment payments betrag zahlung".split())


def _choice(spare: Sequence[Seen], certainly: bool) -> Iterator[str]:
    """Propose to take some of the rows, by a column that tells kinds of rows apart, where there is one.

    certainly: the feed is refused until somebody has said which rows are taken.
    """
    telling = _telling(spare)
    if telling and certainly:
        yield "[take]"
        yield (
            f"{_text(telling.name)} = {_text(ASKED)}  # DECIDE: which rows are payments received? Charges and"
            f" transfers are none; {telling.texts} different texts"
        )
        yield ""
        return
    which = f" {_text(telling.name)} has {telling.texts} different texts;" if telling else ""
    yield f"# DECIDE: are all rows wanted?{which} otherwise say which are:"
    yield "# [take]"
    yield f'# {_text(telling.name) if telling else "TYPE"} = "..."'
    yield ""


_TELLING = set("type typ kind art status state method transaction category class direction vorgang".split())
_FEW = 12


def _trailer(export: Export, key: Seen | None) -> Iterator[str]:
    if export.trailer:
        yield "# DECIDE: the last row is unlike the others. If it is a total, say how it is told and what it counts:"
        yield "# [trailer]"
        yield f'# when = {{ {_text(key.name if key else "...")} = "..." }}'
        yield '# rows = "..."  # the column with the number of rows; amount = "..." where it has the sum'
        yield ""


def _line(column: Column, seen: Seen | None, export: Export, rivals: Sequence[Seen] = ()) -> Iterator[str]:
    if seen is None:
        if column.required:
            yield f'# {column.name} = "..."  # DECIDE: required; {_HINTS.get(column.name, "which column?")}'
        return
    source = _source(seen, export)
    note = _NOTES.get(column.name, "")
    if isinstance(column.shape, tuple):
        walk = f'{{ column = {source}, crosswalk = {{ file = "....csv", from = "...", to = "..." }} }}'
        note = f"DECIDE: {' or '.join(column.shape)} ids of the chart? If not: {walk}"
    if rivals:
        note = f"DECIDE: what was paid? {', '.join(_text(rival.name) for rival in rivals)} has amounts too"
    yield f"{column.name} = {source}" + (f"  # {note}" if note else "")


_HINTS = {
    "questionnaire": 'a column, or always the same: { constant = "its id, name or system|code" }',
    "status": 'a column, or { constant = "requested" }',
    "requester_id": 'a column, or always the same: { constant = "a practitioner\'s id" }',
}
_NOTES = {
    "status": "DECIDE: what its texts mean, if not requested, cancelled, completed: values = { ... }",
    "amount": "DECIDE: dollars? For cents: { column = ..., scale = 0.01 }",
    "answer_code": "code or system|code of an option",
    "question": "linkId or code of a question",
}


def _column(kind: str, name: str) -> Column:
    return KINDS[kind].by_name[name]


def _text(text: Any) -> str:
    """A text as TOML writes it."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
