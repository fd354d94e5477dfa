"""New entries of a crosswalk: put behind those that its CSV has, in one step. No message holds a value."""

import csv
import io
from collections.abc import Mapping
from pathlib import Path
from uuid import uuid4

from pipelines.feeds.files.crosswalks import BadCrosswalk, read_csv
from pipelines.feeds.terms.columns import MADE_A_NUMBER
from pipelines.feeds.terms.schema import Crosswalk
from pipelines.feeds.terms.texts import composed, folded
from pipelines.home.files import replace_whole


def add_entries(folder: Path, walk: Crosswalk, entries: Mapping[str, str]) -> int:
    """Write entries that the crosswalk lacks; return how many. Raises BadCrosswalk, and then nothing is written."""
    place = f"crosswalk {walk.name}"
    if walk.file is None:
        raise BadCrosswalk(f"{place}: its entries are in a database: add them there")
    if any(MADE_A_NUMBER.fullmatch(entry) for entry in entries.values()):
        raise BadCrosswalk(f"{place}: a spreadsheet has made a number of an id; enter it as text")
    known = read_csv(folder, walk)
    new = {value: entry for value, entry in entries.items() if folded(composed(value)) not in known}
    path = folder / walk.file
    text = path.read_bytes().decode(walk.encoding)
    rows = csv.reader(io.StringIO(text), delimiter=walk.delimiter)
    names = [composed(cell.strip().removeprefix("\ufeff")) for cell in next(rows, [])]
    filled = {name: next(iter(test.is_), "") for name, test in walk.where}
    out = io.StringIO()
    out.write(text if text.endswith(("\n", "\r")) or not text else text + "\n")
    write = csv.writer(out, delimiter=walk.delimiter, lineterminator="\r\n" if "\r\n" in text else "\n").writerow
    for value, entry in new.items():
        cells = {**filled, str(walk.from_): value, str(walk.to): entry}
        write([cells.get(name, "") for name in names])
    part = path.with_name(f".{path.name}-{uuid4().hex}")
    try:
        part.write_bytes(out.getvalue().encode(walk.encoding))
        part.chmod(path.stat().st_mode & 0o777)
        read_csv(folder, walk.model_copy(update={"file": part.name}))
        replace_whole(part, path)
    except (OSError, UnicodeError) as error:
        raise BadCrosswalk(f"{place}: cannot be written: {type(error).__name__}") from None
    finally:
        part.unlink(missing_ok=True)
    return len(new)
