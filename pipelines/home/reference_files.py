"""The NDJSON files of reference data: those of a folder, their lines, and the resources in them."""

import gzip
import zlib
from collections.abc import Collection, Iterator
from errno import EIO
from functools import partial
from pathlib import Path
from typing import Any

from fhir_service.interface.json_text import object_in
from fhir_service.paths import NDJSON, is_file, matching

LONGEST = 64 << 20
"""The longest line, in bytes: a few bytes of a compressed file may be a line that no memory holds."""


def reference_files(folder: Path) -> list[Path]:
    """Return the files of a folder by name; none without a folder. Names that begin with a dot are being written."""
    found = (path for path in matching(folder, "*") if path.name.endswith(NDJSON) and not path.name.startswith("."))
    return [path for path in found if is_file(path)]


def reference_lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of a file; parts of one that is longer than `LONGEST`, which are no resources.

    Raises `OSError`, also if a compressed file is cut off or damaged.
    """
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
            yield from iter(partial(file.readline, LONGEST), b"")
    except (EOFError, zlib.error):
        raise OSError(EIO, "the compressed file is cut off or damaged", str(path)) from None


def reference_bodies(folder: Path, types: Collection[str]) -> Iterator[dict[str, Any]]:
    """Yield the resources of some types in the files of a folder. Lines that are no resources are skipped."""
    named = [f'"{each}"'.encode() for each in types]
    for line in (line for path in reference_files(folder) for line in reference_lines(path)):
        if any(name in line for name in named):
            found = object_in(line.decode("utf-8", "replace"))
            if found and found.get("resourceType") in types:
                yield found
