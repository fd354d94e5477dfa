"""The lines of a draft that map columns: the source of each column of ours, and what a person must decide about it."""

import re
from collections.abc import Iterator, Mapping, Sequence

from pipelines.feeds.drafting.cells import most
from pipelines.feeds.drafting.column_choice import ColumnChoice
from pipelines.feeds.drafting.entries import FeedEntry, as_toml
from pipelines.feeds.drafting.instruments import LOINC, first_instrument, instruments, whole_instruments
from pipelines.feeds.drafting.row_kinds import copayments, telling
from pipelines.feeds.drafting.seen_column import SeenColumn
from pipelines.feeds.files.rules import ASKED
from pipelines.feeds.kinds.registry import KINDS
from pipelines.feeds.terms.columns import Column
from pipelines.feeds.terms.schema import position
from pipelines.feeds.terms.vocabulary import is_survey_fact, plain, rank

_HINTS = {
    "questionnaire": 'a column, or always the same: { constant = "its id, name or system|code" }',
    "status": 'a column, or { constant = "requested" }',
    "requester_id": 'a column, or always the same: { constant = "a practitioner\'s id" }',
}
_JOINED = 'If no single column identifies the record, join several: { join = ["...", "..."], with = "-" }'
_STATUSES = ("requested", "cancelled", "completed")
_DONE = re.compile(r"done|clos|complet|resolv|solved|finish|erledigt|fertig|abgeschlossen|fixed", re.IGNORECASE)
_CANCELLED = re.compile(
    r"cancel|reject|won't|wontfix|abandon|duplicate|storniert|verworfen|declin|archiv", re.IGNORECASE
)
_OPEN = re.compile(r"incomplete|not done|reopen|not complete", re.IGNORECASE)
_BELOW_ZERO = re.compile(r"[-\u2212(].*|.*-").fullmatch
_FOREIGN = re.compile(
    r"[€£¥]|\b(?:EUR|euro|GBP|CHF|CAD|AUD|NZD|JPY|SEK|NOK|DKK|PLN|CZK|INR|MXN|BRL|ZAR)\b", re.IGNORECASE
)
_CENTS = re.compile(r"[.,]\d\d?\D*$")


def column_lines(
    kind: str, choices: Mapping[str, ColumnChoice], columns: Sequence[SeenColumn], clocks: Mapping[str, SeenColumn]
) -> Iterator[FeedEntry]:
    """Yield a line for each column of ours that is mapped, required, or undecided. clocks: times of day, by column."""
    wide = is_wide(kind, choices)
    for column in KINDS[kind].columns:
        if column.shape == "comments" or (wide and (column.name == "question" or column.name.startswith("answer_"))):
            continue
        choice = choices.get(column.name)
        if choice is None:
            if column.name == "questionnaire" and (panel := _panel(columns)):
                yield panel
            elif column.required:
                which = f"which column? {_JOINED}" if column.name == KINDS[kind].key else "which column?"
                hint = _HINTS.get(column.name, which)
                yield _proposed(column.name, as_toml(ASKED), f"required; {hint}")
        elif column.name == "claim_id":
            yield from _claim(choice.seen, columns)
        elif column.name == "group_id" and choice.seen.codes and not any(map(str.isdigit, "".join(choice.seen.codes))):
            note = "names, no Group ids: with a crosswalk they can be taken"
            yield _proposed(column.name, source_of(choice.seen), "", note, choice.seen)
        elif column.name.startswith("comment"):
            yield _comment(column, choice.seen, choices)
        elif column.name in ("answer_text", "answer_number") and "answer_code" in choices:
            doubt = "a row has exactly one of answer_code, answer_text and answer_number: which column holds which?"
            yield _proposed(column.name, source_of(choice.seen), doubt, "", choice.seen)
        else:
            one_a_row = column.name == KINDS[kind].key and (wide or kind != "answers")
            yield _line(column, choice, columns, clocks.get(column.name), one_a_row=one_a_row)


def _proposed(name: str, value: str, doubt: str = "", note: str = "", *columns: SeenColumn) -> FeedEntry:
    """Return a line of `[columns]` as a comment, which a person may accept."""
    return FeedEntry(name, value, doubt, note, columns, is_active=False, section="columns")


def _panel(columns: Sequence[SeenColumn]) -> FeedEntry | None:
    """Return the line of the questionnaire of an instrument whose questions are all there; None if there is none."""
    if name := first_instrument([seen.label for seen in columns]):
        found = instruments()[name]
        code = as_toml(f"{LOINC}|{found['code']}")
        doubt = f"is it the {found['name']} that the target has under this code? If not: its id, name or system|code"
        return FeedEntry("questionnaire", f"{{ constant = {code} }}", doubt, section="columns")
    return None


def empty_lines(kind: str, choices: Mapping[str, ColumnChoice], spare: Sequence[SeenColumn]) -> Iterator[FeedEntry]:
    """Yield a proposal for each empty column with the name of a column of ours that has no other choice."""
    for seen in spare:
        found = (column for column in KINDS[kind].columns if column.name not in choices)
        named = (column for column in found if plain(seen.words) and rank(column.name, seen.words, kind) is not None)
        if seen.look == "nothing" and seen.rows and (column := next(named, None)):
            note = "empty in all rows seen; keep it if other files have values in it"
            yield _proposed(column.name, source_of(seen), "", note, seen)


def is_wide(kind: str, choices: Mapping[str, ColumnChoice]) -> bool:
    """True if answers have a column for each question."""
    return kind == "answers" and "question" not in choices


def source_of(seen: SeenColumn) -> str:
    """Return a column's name, or its position, as a feed file writes it."""
    return str(position(seen.name) or as_toml(seen.name))


def _line(
    column: Column, choice: ColumnChoice, columns: Sequence[SeenColumn], clock: SeenColumn | None, *, one_a_row: bool
) -> FeedEntry:
    source, seen = source_of(choice.seen), choice.seen
    value, doubts, note = source, [], ""
    if clock:
        value = f"{{ join = [{source}, {source_of(clock)}] }}"
    if not choice.is_known:
        doubts.append("is it this column?")
    if choice.rivals:
        doubts.append(_rivals(column, choice.rivals))
    doubts += _others_lost(seen)
    if isinstance(column.shape, tuple):
        doubts.append(reference_doubt(column.shape, seen, source))
    elif column.name == "status":
        value, doubt = _status(seen, source)
        doubts += doubt
    elif column.shape == "amount":
        doubts += _amount(seen, columns)
    elif column.shape == "labels":
        value, doubt = _labels(seen, columns, source)
        doubts += doubt
    elif one_a_row and not seen.is_key and seen.rows > 1:
        repeats = f". {_JOINED}" if seen.distinct < len(seen.cells) else ""
        doubts.append(f"not one in each row: {seen.distinct} different ones in {seen.rows} rows{repeats}")
    elif column.name == "answer_code" and 0 < sum(" " in cell for cell in seen.cells) < len(seen.cells):
        doubts.append(
            "does this column hold only codes of options? Map texts as answer_text and numbers as answer_number"
        )
    elif column.name == "answer_code":
        note = "code or system|code of an option"
    elif column.name == "question":
        note = "linkId or code of a question"
    used = (seen, *choice.rivals, *([clock] if clock else []))
    return FeedEntry(column.name, value, "; ".join(doubts), note, used, section="columns")


def _others_lost(seen: SeenColumn) -> Iterator[str]:
    """Yield the decision to ask for if a path takes only the first value of a list."""
    if seen.first_of:
        lost = f"some objects have several of {as_toml(seen.first_of)}: this takes the first, and the others are lost"
        yield f"{lost}. Export a row for each"


def _rivals(column: Column, rivals: Sequence[SeenColumn]) -> str:
    names = ", ".join(as_toml(rival.name) for rival in rivals)
    if column.shape == "amount":
        return f"which column has the amount paid? {names} has amounts too"
    return f"or {names}?"


def reference_doubt(types: Sequence[str], seen: SeenColumn, source: str) -> str:
    """Return the decision to ask for: does a column have ids of the chart? types: the resource types of the ids."""
    kinds = " or ".join(types)
    walk = f'{{ column = {source}, crosswalk = {{ file = "....csv", from = "...", to = "..." }} }}'
    if any(" " in cell or "@" in cell for cell in seen.cells):
        return f"names or addresses, no {kinds} ids; a crosswalk translates them: {walk}"
    return f"{kinds} ids of the chart? If not: {walk}"


def _status(seen: SeenColumn, source: str) -> tuple[str, list[str]]:
    """Return a task's status, with a guess of the meaning of the export's own words."""
    if set(seen.cells) <= set(_STATUSES):
        return source, []
    doubt = "what its texts mean: requested, cancelled or completed"
    codes = seen.codes or (tuple(sorted(set(seen.cells))) if seen.distinct == 1 else ())
    if not codes:
        return source, [f"{doubt}: values = {{ ... }}"]
    meant = ", ".join(f"{as_toml(code)} = {as_toml(_meaning(code))}" for code in codes)
    return f"{{ column = {source}, values = {{ {meant} }} }}", [f"{doubt}; others reject the row"]


def _meaning(code: str) -> str:
    if _OPEN.search(code):
        return "requested"
    return "cancelled" if _CANCELLED.search(code) else "completed" if _DONE.search(code) else "requested"


def _amount(seen: SeenColumn, columns: Sequence[SeenColumn]) -> Iterator[str]:
    below = sum(bool(_BELOW_ZERO(cell)) for cell in seen.cells)
    if most(seen.cells, _BELOW_ZERO):
        yield "below zero, as a ledger has payments: received? Then { column = ..., scale = -1 }"
    elif below * 4 > len(seen.cells):
        yield f"{below} of {len(seen.cells)} below zero: if those were received, {{ column = ..., scale = -1 }}"
    if not any(_CENTS.search(cell) for cell in seen.cells):
        yield "whole numbers: dollars? For cents: { column = ..., scale = 0.01 }"
    if foreign_name := _FOREIGN.search(seen.label):
        yield f"its name says {foreign_name[0]}: the chart counts dollars alone"
    for other in columns:
        money = {"currency", "waehrung", "währung"} & set(other.words)
        foreign = sorted(code for code in set(other.cells) if code.upper() not in ("USD", "US$", "$"))
        if money and foreign and other.distinct <= 5:
            yield f"not in dollars alone: {as_toml(other.name)} has {', '.join(foreign)}"


def _labels(seen: SeenColumn, columns: Sequence[SeenColumn], source: str) -> tuple[str, list[str]]:
    """Return the labels: several columns of one name, or several labels in a cell."""
    alike = [other for other in columns if other.label == seen.label]
    if len(alike) > 1:
        return f"{{ list = [{', '.join(map(source_of, alike))}] }}", []
    sign = next((sign for sign in (",", "|") if any(sign in cell for cell in seen.cells)), None)
    if any(";" in cell for cell in seen.cells):
        return source, []
    if sign is None and any(" " in cell for cell in seen.cells):
        value = f'{{ column = {source}, split = " " }}'
        if _are_parts(seen.cells, " "):
            return value, ["are labels parted by blanks?"]
        return source, [f"one label in a cell? If blanks part several: {value}"]
    if sign is None:
        return source, []
    value = f"{{ column = {source}, split = {as_toml(sign)} }}"
    return value, [] if _are_parts(seen.cells, sign) else [f"are labels parted by '{sign}'?"]


def _are_parts(cells: Sequence[str], sign: str) -> bool:
    """True if parts that a sign separates occur again in other combinations, as labels do and parts of texts do not."""
    company: dict[str, set[str]] = {}
    for cell in cells:
        for part in cell.split(sign):
            company.setdefault(part.strip(" []"), set()).add(cell)
    return len(company) * 2 <= len(cells) and all(len(found) > 1 for found in company.values())


def _claim(seen: SeenColumn, columns: Sequence[SeenColumn]) -> Iterator[FeedEntry]:
    """Yield proposals for a payment's claim, which makes the payment a copayment. Only a person may accept them."""
    source = source_of(seen)
    said = "a payment with a claim is a copayment and may take the balance below zero"
    ids = reference_doubt(("Claim",), seen, source)
    if found := copayments(columns):
        other, codes = found
        when = f"{{ {as_toml(other.name)} = {as_toml(codes if len(codes) > 1 else codes[0])} }}"
        value = f"{{ column = {source}, when = {when} }}"
        doubt = f"{said}: are only these rows copayments? {ids}"
        yield _proposed("claim_id", value, doubt, "", seen, other)
        return
    yield _proposed(
        "claim_id", source, f"{said}. Keep this line if all rows with a claim are copayments; {ids}", "", seen
    )
    which = next(iter(telling(columns, "payments")), None)
    when = f"{{ {as_toml(which.name if which else 'TYPE')} = {as_toml(ASKED)} }}"
    value = f"{{ column = {source}, when = {when} }}"
    told = f", as {as_toml(which.name)} may tell" if which else ""
    yield _proposed(
        "claim_id", value, f"use this line if only some rows are copayments{told}", "", *([which] if which else [])
    )


def _comment(column: Column, seen: SeenColumn, choices: Mapping[str, ColumnChoice]) -> FeedEntry:
    """Return the line of a comment column. Without a comment and its author together, it is only a proposal."""
    whole = "comment_author_id" in choices and "comment" in choices
    source = source_of(seen)
    doubt = reference_doubt(column.shape, seen, source) if isinstance(column.shape, tuple) else ""
    note = "" if whole else "a comment needs its author: comment_author_id"
    return FeedEntry(column.name, source, doubt, note, (seen,), is_active=whole, section="columns")


def question_lines(spare: Sequence[SeenColumn]) -> Iterator[FeedEntry]:
    """Yield a line for each column that may hold the answers to a question."""
    known = whole_instruments([seen.label for seen in spare])
    answers = [seen for seen in spare if seen.label in known]
    how, first, said = _options(answers), first_instrument([seen.label for seen in spare]), set()
    for seen in answers if how else ():
        instrument, question = known[seen.label]
        found = instruments()[instrument]
        note = doubt = ""
        if instrument not in said:
            note = f"all questions of a {found['name']} are there, in name or words"
        if instrument != first:
            told = f"of the {found['name']} too" if instrument in said else _ANOTHER
            note, doubt = "", told.format(name=found["name"], before=instrument)
        said.add(instrument)
        code, value = found["questions"][question - 1]["code"], f"{{ column = {source_of(seen)}, {how} }}"
        yield FeedEntry(as_toml(code), value, doubt, note, (seen,), is_active=instrument == first, section="questions")
    boxes = [seen for seen in spare if is_box(seen)]
    yield from box_lines(boxes)
    for seen in spare:
        if (how and seen in answers) or seen in boxes:
            continue
        yield FeedEntry(
            as_toml(ASKED), source_of(seen),
            "which question does this column answer? Write its linkId or code, or leave the line out",
            columns=(seen,), is_active=False, section="questions",
        )  # fmt: skip


_ANOTHER = (
    "of a {name}, which is a response of its own: a second feed file for a copy of the file, with these questions and"
    ' response_id = {{ column = ..., before = "{before}-" }}'
)


def _options(answers: Sequence[SeenColumn]) -> str:
    """Return the key by which an instrument's cells name its options; empty if a cell names none."""
    options = instruments()["frequency"]["options"]
    cells = {cell for seen in answers for cell in seen.cells}
    if cells and {cell.casefold() for cell in cells} <= {option["display"].casefold() for option in options}:
        return 'by = "display"'
    if cells and cells <= {option["value"] for option in options}:
        return 'values = "frequency"'
    return ""


def answer_maps(lines: Sequence[FeedEntry]) -> Iterator[FeedEntry]:
    """Yield the tables of values that the lines of questions refer to."""
    if any('values = "frequency"' in line.value for line in lines):
        for option in instruments()["frequency"]["options"]:
            yield FeedEntry(as_toml(option["value"]), as_toml(option["code"]), section="maps.frequency")


def may_be_question(seen: SeenColumn) -> bool:
    """True if a column may hold answers: no times, links, addresses or facts of the survey itself."""
    if is_box(seen):
        return True
    if seen.look in ("nothing", "time", "clock", "link") or seen.is_constant or is_survey_fact(seen.words):
        return False
    looks_like_a_key = seen.is_key and seen.rows >= _ENOUGH and not any(" " in cell for cell in seen.cells)
    return not looks_like_a_key and not any("@" in cell for cell in seen.cells)


_ENOUGH = 8


_NAMED = re.compile(r"(.+?)(?:___(\w+)| \(choice=(.+)\))")
_TICKED = {"0": "1", "1": "1", "Unchecked": "Checked", "Checked": "Checked"}
"""The text of a box that is ticked, by any text of a box."""


def is_box(seen: SeenColumn) -> bool:
    """True if a column is named as a box, and its cells are texts of boxes."""
    return bool(_NAMED.fullmatch(seen.label)) and bool(seen.cells) and set(seen.cells) <= set(_TICKED)


def box_lines(boxes: Sequence[SeenColumn]) -> Iterator[FeedEntry]:
    """Yield a line for each question with boxes."""
    of: dict[str, list[tuple[SeenColumn, str]]] = {}
    for seen in boxes:
        if found := _NAMED.fullmatch(seen.label):
            of.setdefault(found[1], []).append((seen, found[2] or found[3]))
    for options in of.values():
        shows = " (choice=" in options[0][0].label
        parts = ", ".join(
            f"{{ constant = {as_toml(option)}, when = {{ {as_toml(seen.name)} = {as_toml(_TICKED[seen.cells[0]])} }} }}"
            for seen, option in options
        )
        which = "boxes of one question: which? Write its linkId or code, or leave the line out"
        doubt = which if shows else f"{which}. Write for each constant the code of its option"
        value = f"{{ list = [{parts}]" + (', by = "display" }' if shows else " }")
        columns = tuple(seen for seen, _ in options)
        yield FeedEntry(as_toml(ASKED), value, doubt, columns=columns, is_active=False, section="questions")
