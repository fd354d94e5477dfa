"""Draft a Questionnaire from the columns of an export, or from a codebook, with notes on the guesses.

Questions of a PHQ-9, GAD-7 or PRAPARE are recognized by their names. Answers become options if they are few and repeat.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipelines.feeds.drafting.cells import is_iso, most, number_formats
from pipelines.feeds.drafting.export_beginning import look_at
from pipelines.feeds.drafting.instruments import LOINC, instruments, known_items, screening_questions
from pipelines.feeds.drafting.sniffing import Export
from pipelines.feeds.terms.vocabulary import is_survey_fact_alone, words_of
from pipelines.home.batch import UnreadableFile

MOST_OPTIONS = 12
_CODE = re.compile(r"(?<![\d-])(\d{3,5}-\d)(?![\d-])")
_ABOUT = re.compile(
    r"(?:^|[\W_])(id|key|uuid|mrn|patient|subject|record|name|date|time|timestamp|start|end|submitted|email|author|"
    r"encounter|language|ip|total|score|sum)(?:$|[\W_])",
    re.IGNORECASE,
)
_SCORE = re.compile(r"SC\d+")
"""The name that Qualtrics gives a score."""
_BOOK = {
    "name": ("variable / field name", "variable", "field name", "field_name", "item", "linkid", "name"),
    "text": ("field label", "field_label", "label", "question", "text", "description"),
    "type": ("field type", "field_type", "type"),
    "choices": ("choices, calculations, or slider labels", "choices", "options", "values", "answers"),
}
_WORDS = {"text": "text", "notes": "text", "number": "decimal", "integer": "decimal", "decimal": "decimal"}
_ONE, _SEVERAL = {"radio", "dropdown", "choice", "yesno", "truefalse", "select_one"}, {"checkbox", "select_multiple"}


@dataclass
class DraftedQuestionnaire:
    """A Questionnaire, and notes on what a person must decide."""

    body: dict[str, Any]
    notes: list[str] = field(default_factory=list)


def draft_questionnaire(path: Path, internal: str) -> DraftedQuestionnaire:
    """Draft from an export or a codebook. Raises Unreadable.

    internal: the coding system for codes without another system.
    """
    export = look_at(path)
    _take_names(export)
    if export.is_objects or not export.names:
        raise UnreadableFile(f"{path.name}: a table with a header is expected, of answers or of a codebook")
    name = re.sub(r"\W+", "", path.name.partition(".")[0].title()) or "Questionnaire"
    drafted = DraftedQuestionnaire(
        {"resourceType": "Questionnaire", "id": _id(path.name.partition(".")[0]), "name": name}
    )
    book = _places(export)
    items = list(_of_book(export, book, internal, drafted) if book else _of_columns(export, internal, drafted))
    if not items:
        raise UnreadableFile(f"{path.name}: no column of it looks like a question")
    panel = _panel(items)
    own = {"system": LOINC, "code": panel} if panel else {"system": internal, "code": drafted.body["id"]}
    if not panel:
        drafted.notes.append(f"code: {own['code']} is made up; has the questionnaire a LOINC code?")
    drafted.notes.append(f"name: {name}, by the file; exports name the questionnaire by it")
    drafted.body |= {"status": "active", "code": [own], "item": items}
    return drafted


def _take_names(export: Export) -> None:
    """Take the first row as the header if columns are named by position and its cells are different words."""
    first = [cell.strip() for cell in export.rows[0]] if export.rows and not export.is_objects else []
    by_position = all(re.fullmatch(r"#?\d*", name) for name in export.names)
    if by_position and first and len({*first}) == len(first) and all(re.search("[^\\W\\d_]", cell) for cell in first):
        export.names, export.rows = first, export.rows[1:]


# --- Columns of answers ---------------------------------------------------------------------------


def _of_columns(export: Export, internal: str, drafted: DraftedQuestionnaire) -> Iterator[dict[str, Any]]:
    known, screening = known_items(export.names), screening_questions(export.names)
    for place, name in enumerate(export.names):
        cells = [cell for cell in export.column(place) if cell.strip()]
        if name in known:
            yield _known_item(*known[name], name, cells, drafted)
        elif name in screening:
            item = _item(name, name, _kind_of(cells), _options_of(cells, internal), internal, drafted)
            yield _of_screening(item, screening[name], drafted)
        elif _is_no_question(name) or most(cells, is_iso):
            drafted.notes.append(f"{name or f'column {place + 1}'}: no question, by its name or its dates; is it one?")
        else:
            yield _item(name, name, _kind_of(cells), _options_of(cells, internal), internal, drafted)


def _is_no_question(name: str) -> bool:
    """True for the name of a fact that a survey tool notes about a response, such as its id, state or score."""
    about = _ABOUT.search(re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name)) or _SCORE.fullmatch(name.strip())
    return bool(not name.strip() or about or is_survey_fact_alone(words_of(name)))


def _known_item(
    instrument: str, number: int, name: str, cells: Sequence[str], drafted: DraftedQuestionnaire
) -> dict[str, Any]:
    question = instruments()[instrument]["questions"][number - 1]
    frequency = instruments()["frequency"]
    values = {option["value"] for option in frequency["options"]}
    if cells and set(cells) <= values:
        pairs = ", ".join(f'"{option["value"]}" = "{option["code"]}"' for option in frequency["options"])
        drafted.notes.append(f"{name}: its numbers are options: values = {{ {pairs} }} in the feed")
    options = [_option(frequency["system"], option["code"], option["display"]) for option in frequency["options"]]
    coding = {"system": LOINC, "code": question["code"]}
    return _choice(name, question["text"], coding, options, repeats=False)


def _of_screening(item: dict[str, Any], question: dict[str, Any], drafted: DraftedQuestionnaire) -> dict[str, Any]:
    """Give an item the code and the words of a screening's question; its options are those of the export."""
    drafted.notes.append(f"{item['linkId']}: by its name question {question['code']} of a PRAPARE; is it?")
    return {**item, "code": [{"system": LOINC, "code": question["code"]}], "text": question["text"]}


def _panel(items: Sequence[dict[str, Any]]) -> str | None:
    """Return the LOINC code of the instrument whose questions are exactly the items; None if there is none."""
    codes = [item["code"][0]["code"] for item in items]
    for name, part in (("phq", "questions"), ("gad", "questions"), ("prapare", "screening")):
        instrument = instruments()[name]
        if sorted(codes) == sorted(question["code"] for question in instrument[part]):
            return str(instrument["code"])
    return None


def _kind_of(cells: Sequence[str]) -> str:
    few = 1 < len(set(cells)) <= MOST_OPTIONS and len(cells) >= 3 * len(set(cells))
    if few:
        return "choice"
    return "decimal" if cells and number_formats(cells) else "text"


def _options_of(cells: Sequence[str], internal: str) -> list[dict[str, Any]]:
    return [_option(internal, text.strip(), text.strip()) for text in sorted(set(cells))]


# --- A codebook -----------------------------------------------------------------------------------


def _places(export: Export) -> dict[str, int]:
    """Return the places of a codebook's columns: names, texts and choices; empty if the file is no codebook."""
    lower = [name.strip().lower() for name in export.names]
    found = {part: next((lower.index(word) for word in words if word in lower), -1) for part, words in _BOOK.items()}
    is_book = min(found["name"], found["text"], found["choices"]) >= 0
    return found if is_book else {}


def _of_book(
    export: Export, book: dict[str, int], internal: str, drafted: DraftedQuestionnaire
) -> Iterator[dict[str, Any]]:
    known = known_items([row[book["name"]] for row in export.rows])
    screening = screening_questions([row[book["name"]].strip() for row in export.rows])
    for row in export.rows:
        name, text, choices = (row[book[part]].strip() for part in ("name", "text", "choices"))
        said = row[book["type"]].strip().lower() if book["type"] >= 0 else ""
        if name in known:
            yield _known_item(*known[name], name, [], drafted)
        elif name and said not in ("descriptive", "calc", "file", "note"):
            options = [_option(internal, code, display) for code, display in _choices(choices)]
            if said in ("yesno", "truefalse") and not options:
                options = [_option(internal, "1", "Yes"), _option(internal, "0", "No")]
            kind = "choice" if options else _WORDS.get(said, "text")
            if said in _ONE | _SEVERAL and not options:
                drafted.notes.append(f"{name}: a choice without options; should it be a free text?")
            item = _item(name, text or name, kind, options, internal, drafted, repeats=said in _SEVERAL)
            yield _of_screening(item, screening[name], drafted) if name in screening else item


# --- Items ----------------------------------------------------------------------------------------


def _choices(text: str) -> Iterator[tuple[str, str]]:
    """Yield code and words of each choice of `1, Never | 2, Always`."""
    for choice in text.split("|"):
        code, _, words = choice.partition(",")
        if code.strip() and words.strip():
            yield code.strip(), words.strip()


def _item(
    name: str,
    text: str,
    kind: str,
    options: list[dict[str, Any]],
    internal: str,
    drafted: DraftedQuestionnaire,
    repeats: bool = False,
) -> dict[str, Any]:
    loinc = _CODE.search(name)
    coding = {"system": LOINC, "code": loinc[1]} if loinc else {"system": internal, "code": _id(name)}
    if kind == "choice":
        listed = ", ".join(option["valueCoding"]["code"] for option in options)
        drafted.notes.append(f"{name}: drafted as a choice of {listed}; are these all options, or is it a free text?")
        return _choice(name, text, coding, options, repeats)
    drafted.notes.append(
        f"{name}: drafted as {'a number' if kind == 'decimal' else 'a free text'}; should it be a choice?"
    )
    return {"linkId": name, "code": [coding], "text": text, "type": kind}


def _choice(
    name: str, text: str, coding: dict[str, str], options: list[dict[str, Any]], repeats: bool
) -> dict[str, Any]:
    item = {"linkId": name, "code": [coding], "text": text, "type": "choice", "repeats": repeats}
    return {**item, "answerOption": options}


def _option(system: str, code: str, display: str) -> dict[str, Any]:
    return {"valueCoding": {"system": system, "code": code, "display": display}}


def _id(name: str) -> str:
    return re.sub(r"[^a-z0-9.-]+", "-", name.lower()).strip("-.")[:64] or "q"
