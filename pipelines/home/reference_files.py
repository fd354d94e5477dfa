"""The NDJSON files of reference data: those of a folder, and their lines."""

import gzip
import zlib
from collections.abc import Iterator
from errno import EIO
from pathlib import Path

from fhir_service.paths import NDJSON, is_file, matching


def reference_files(folder: Path) -> list[Path]:
    """Return the files of a folder by name; none without a folder. Names that begin with a dot are being written."""
    found = (path for path in matching(folder, "*") if path.name.endswith(NDJSON) and not path.name.startswith("."))
    return [path for path in found if is_file(path)]


def reference_lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of a file. Raises `OSError`, also if a compressed file is cut off or damaged."""
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
            yield from file
    except (EOFError, zlib.error):
        raise OSError(EIO, "the compressed file is cut off or damaged", str(path)) from None
