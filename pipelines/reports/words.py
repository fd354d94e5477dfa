"""The words beside ids and codes: names of practitioners and groups, and the target's questionnaires as rows.

None of these are patient data. Questionnaires are read as the target shows them. Elements that do not have FHIR's shape
are left out.
"""

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa

from pipelines.client.shapes import as_text, objects_in
from pipelines.home import arrow
from pipelines.home.files import write_whole
from pipelines.reports.sweep import folder_of

NAMES = "names.json"
_FHIR = "http://hl7.org/fhir/StructureDefinition"
WEIGHTS = (f"{_FHIR}/ordinalValue", f"{_FHIR}/itemWeight")
"""The extensions by which an option declares its value in a score."""

_TEXTS = ("questionnaire_id", "name", "status", "description", "url", "code_system", "code")
QUESTIONNAIRES = pa.schema([(name, pa.string()) for name in _TEXTS])
QUESTIONS = pa.schema(
    [
        *((name, pa.string()) for name in ("questionnaire_id", "link_id", "parent_link_id")),
        ("position", pa.int64()),
        *((name, pa.string()) for name in ("text", "type", "code_system", "code")),
        ("repeats", pa.bool_()),
        ("is_conditional", pa.bool_()),
    ]
)
OPTIONS = pa.schema(
    [
        *((name, pa.string()) for name in ("questionnaire_id", "link_id")),
        ("position", pa.int64()),
        *((name, pa.string()) for name in ("system", "code", "display")),
        ("declared_value", pa.float64()),
    ]
)
ADDRESSES = pa.schema([("address", pa.string()), ("questionnaire_id", pa.string()), ("is_one", pa.bool_())])
"""A url with `|` at its end means unknown versions. is_one: True if only one questionnaire has the url."""
NAMED = pa.schema([(name, pa.string()) for name in ("resource_type", "id", "name")])


def keep_names(home: Path, target: str, names: Mapping[str, str]) -> None:
    """Keep the names of practitioners and groups by reference, in the sweep's folder."""
    write_whole(folder_of(home, target) / NAMES, orjson.dumps(dict(names)))


def named_in(folder: Path) -> pa.Table:
    """Return the kept names of a sweep's folder as rows."""
    try:
        kept = json.loads((folder / NAMES).read_bytes())
    except FileNotFoundError:
        kept = {}
    rows = [(*reference.split("/", 1), name) for reference, name in kept.items() if "/" in reference]
    return arrow.table_of_rows(rows, NAMED)


def rows_of(bodies: Iterable[tuple[str, str]]) -> tuple[pa.Table, pa.Table, pa.Table]:
    """Return the questionnaires, their items of every depth in order, and the items' options. bodies: id and JSON."""
    questionnaires, questions, options = [], [], []
    for questionnaire_id, body in bodies:
        read = orjson.loads(body)
        texts = (as_text(read.get(name)) for name in ("name", "status", "description", "url"))
        questionnaires.append((questionnaire_id, *texts, *_coding(_first(read.get("code")))))
        seen = set[str]()
        for parent, item in _items(read):
            link_id = as_text(item.get("linkId"))
            if link_id is None or link_id in seen:
                continue
            seen.add(link_id)
            questions.append((questionnaire_id, link_id, parent, len(seen), *_question(item)))
            options += [(questionnaire_id, link_id, place, *option) for place, option in enumerate(_options(item), 1)]
    return (
        arrow.table_of_rows(questionnaires, QUESTIONNAIRES),
        arrow.table_of_rows(questions, QUESTIONS),
        arrow.table_of_rows(options, OPTIONS),
    )


def addresses_of(bodies: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the canonical urls by which responses name questionnaires, alone and with a version, each with its id.

    bodies: id and JSON. If several questionnaires share a url, the bare url means the one without a version, else the
    first.
    """
    found: dict[str, str] = {}
    versioned: dict[str, str] = {}
    for questionnaire_id, body in bodies:
        url, version = canonical_of(body)
        if url and version:
            found.setdefault(f"{url}|{version}", questionnaire_id)
            versioned.setdefault(url, questionnaire_id)
        elif url:
            found.setdefault(url, questionnaire_id)
    return versioned | found


def canonical_of(body: str) -> tuple[str | None, str | None]:
    """Return the canonical url of a questionnaire, and its version."""
    read = orjson.loads(body)
    return as_text(read.get("url")), as_text(read.get("version"))


def _items(questionnaire: Mapping[str, Any]) -> Iterator[tuple[str | None, dict[str, Any]]]:
    """Yield every item in the order of the form, each with the linkId of the item around it."""
    waiting: list[tuple[str | None, dict[str, Any]]] = [(None, each) for each in objects_in(questionnaire.get("item"))]
    waiting.reverse()
    while waiting:
        parent, item = waiting.pop()
        yield parent, item
        waiting += [(as_text(item.get("linkId")), each) for each in reversed(objects_in(item.get("item")))]


def _question(item: Mapping[str, Any]) -> tuple[Any, ...]:
    system, code = _coding(_first(item.get("code")))
    conditional = bool(objects_in(item.get("enableWhen")))
    return as_text(item.get("text")), as_text(item.get("type")), system, code, item.get("repeats") is True, conditional


def _options(item: Mapping[str, Any]) -> Iterator[tuple[str | None, str | None, str | None, float | None]]:
    for option in objects_in(item.get("answerOption")):
        coding = option.get("valueCoding")
        if isinstance(coding, dict):
            yield *_coding(coding), as_text(coding.get("display")), _weight(option, coding)


def _weight(*places: Mapping[str, Any]) -> float | None:
    """Return the value that an extension of the option, or of its coding, declares."""
    extensions = (extension for place in places for extension in objects_in(place.get("extension")))
    values = (extension.get("valueDecimal") for extension in extensions if extension.get("url") in WEIGHTS)
    numbers = (float(value) for value in values if isinstance(value, int | float) and not isinstance(value, bool))
    return next((number for number in numbers if math.isfinite(number)), None)


def _coding(coding: Mapping[str, Any]) -> tuple[str | None, str | None]:
    return as_text(coding.get("system")), as_text(coding.get("code"))


def _first(value: Any) -> dict[str, Any]:
    return next(iter(objects_in(value)), {})
