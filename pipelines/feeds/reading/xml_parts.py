"""The XML parts of a workbook, read as a stream."""

import zipfile
from collections.abc import Callable
from xml.parsers import expat

BLOCK = 1 << 18
LONGEST_TAG = 4 << 20
"""The most bytes of a tag with its attributes. Spreadsheet programs write a few thousand; long tags are slow to read.
"""

Start = Callable[[str, dict[str, str]], None]


class NotTaken(ValueError):
    """A well-formed workbook is not read. The message is one clause with the reason, and what to do."""


def parse(
    archive: zipfile.ZipFile,
    part: str,
    start: Start,
    end: Start | None = None,
    text: Callable[[str], None] | None = None,
) -> None:
    """Call functions with the elements of a part, by their names without a namespace.

    Raises as `zipfile` and expat do. Raises `ValueError`, also as `NotTaken`, for XML that no spreadsheet writes.
    """
    parser = expat.ParserCreate(namespace_separator="}")
    parser.buffer_text = True
    names: dict[str, str] = {}

    def local(name: str) -> str:
        return names.get(name) or names.setdefault(name, name.rpartition("}")[2])

    def no_doctype(*_: object) -> None:
        raise ValueError

    parser.StartElementHandler = lambda name, given: start(local(name), given)
    if end:
        parser.EndElementHandler = lambda name: end(local(name), {})
    if text:
        parser.CharacterDataHandler = text
    parser.StartDoctypeDeclHandler = no_doctype
    taken = 0
    with archive.open(part) as file:
        while block := file.read(BLOCK):
            parser.Parse(block)
            taken += len(block)
            if taken - parser.CurrentByteIndex > LONGEST_TAG:
                raise NotTaken(
                    f"{part} has a tag of more than {LONGEST_TAG >> 20} MiB; save the workbook as .xlsx once more"
                )
        parser.Parse(b"", True)
