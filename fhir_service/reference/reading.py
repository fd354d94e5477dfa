"""Reading reference data: which files a load takes, and their records one after another, each with file and line.

NDJSON (also gzipped), or a single resource in a `.json` file. What cannot be read is a record that is refused.
"""

import gzip
import os
import re
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from fhir_service.interface.datatypes import CONTROLS, is_id
from fhir_service.interface.json_text import Malformed, parse_bounded
from fhir_service.interface.shape import printable
from fhir_service.paths import NDJSON, exists, is_file, is_folder

# Text in which a control character, half a character or a null can hide; only then is it looked for value by value.
_SUSPICIOUS = re.compile(rb"null|\\u00[01789]|\\u[dD][89a-fA-F]|\\[bf]|\x7F|\xC2[\x80-\x9F]")
_HALVES = re.compile(r"[\uD800-\uDFFF]")
_UNREADABLE = "the file cannot be read from here on"
_TRIED = 10


class ForeignFile(Exception):
    """A file without reference data. The message names the file, the line, and what is wrong there."""


class Flaw(NamedTuple):
    """One thing that is wrong with a record: its FHIRPath, and a text without a value."""

    expression: str
    text: str


@dataclass(slots=True)
class Record:
    """A record as it was read. One with flaws is refused. `line` counts from 1, `size` is in bytes."""

    file: str
    line: int
    body: dict[str, Any] = field(default_factory=dict)
    flaws: list[Flaw] = field(default_factory=list)
    size: int = 0

    @property
    def type(self) -> str | None:
        """The resource type, if it looks like one."""
        found = self.body.get("resourceType")
        return found if isinstance(found, str) and printable(found) == found else None

    @property
    def id(self) -> str | None:
        """The id, if it is valid."""
        found = self.body.get("id")
        return found if isinstance(found, str) and is_id(found) else None

    @property
    def reference(self) -> str:
        return f"{self.type}/{self.id}"


def files(paths: Iterable[Path]) -> list[Path]:
    """The files that a load takes: those named, and those of a folder that look like reference data, by name.

    Raises FileNotFoundError for a path that is not there, and ForeignFile for a folder that cannot be read.
    """
    found: list[Path] = []
    for path in paths:
        if is_folder(path):
            within = (Path(folder) / name for folder, _, names in os.walk(path, onerror=_unreadable) for name in names)
            found += sorted(file for file in within if file.name.endswith((*NDJSON, ".json")) and is_file(file))
        elif exists(path):
            found.append(path)
        else:
            raise FileNotFoundError(f"there is no file or folder {path}")
    return found


def _unreadable(error: OSError) -> None:
    raise ForeignFile(f"{error.filename} cannot be read; nothing is loaded") from None


def refuse_foreign(paths: Iterable[Path]) -> None:
    """Raise ForeignFile for a file without any reference data: none of its first texts is a JSON object."""
    for path in paths:
        if first := first_of_foreign(path):
            text = first.flaws[0].text
            if text == _UNREADABLE:
                raise ForeignFile(f"{path} cannot be read; nothing is loaded")
            raise ForeignFile(f"{path} is not NDJSON; nothing is loaded. Line {first.line}: {text}")


def first_of_foreign(path: Path) -> Record | None:
    """Return the first record, with its flaw, of a file without any reference data; None for any other file."""
    first = list(islice(records(path), _TRIED))
    foreign = first and all(record.flaws and not record.flaws[0].expression for record in first)
    return first[0] if foreign else None


def records(path: Path) -> Iterator[Record]:
    """The records of a file in its order. A file that breaks off ends with a record that is refused."""
    line = 0
    try:
        with gzip.open(path, "rb") if path.name.endswith(".gz") else path.open("rb") as stream:
            for line, raw in _texts(path, stream):
                yield _record(str(path), line, raw)
    except (OSError, EOFError, zlib.error):
        yield Record(str(path), line + 1, flaws=[Flaw("", _UNREADABLE)])


def _texts(path: Path, lines: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yield the JSON texts of a file, with the lines on which they begin."""
    if path.name.endswith(".json"):
        yield 1, b"".join(lines).removeprefix(b"\xef\xbb\xbf")
        return
    for number, line in enumerate(lines, 1):
        text = (line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line).strip()
        if text:
            yield number, text


def _record(file: str, line: int, raw: bytes) -> Record:
    try:
        body = parse_bounded(raw)
    except Malformed as error:
        return Record(file, line, flaws=[Flaw("", str(error))])
    except (ValueError, ArithmeticError):
        return Record(file, line, flaws=[Flaw("", "the text holds a number that cannot be read")])
    if not isinstance(body, dict):
        return Record(file, line, flaws=[Flaw("", "an object is expected")])
    record = Record(file, line, body, size=len(raw))
    if _SUSPICIOUS.search(raw):
        record.flaws += _unfit(body, record.type or "?")
    return record


def _unfit(value: Any, path: str) -> Iterator[Flaw]:
    """Yield flaws for text that cannot be stored, and for nulls that FHIR does not allow."""
    stack = [(value, path)]
    while stack:
        value, path = stack.pop()
        if isinstance(value, str):
            if CONTROLS.search(value):
                yield Flaw(path, "the text holds a control character")
            elif _HALVES.search(value):
                yield Flaw(path, "the text is not valid Unicode")
        elif isinstance(value, dict):
            parts = [(part, f"{path}.{printable(name)}") for name, part in value.items()]
            yield from (Flaw(at, "null is not allowed") for part, at in parts if part is None)
            stack += reversed(parts)
        elif isinstance(value, list):
            stack += reversed([(part, f"{path}[{index}]") for index, part in enumerate(value)])
