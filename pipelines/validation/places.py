"""The places of lines in a batch of several files, kept in the folder of each of its runs."""

import json
from contextlib import suppress
from pathlib import Path

from pipelines.feeds.reading.chunks import Places
from pipelines.home.files import write_whole

PLACES = "places.json"


def write_places(folder: Path, places: Places) -> None:
    """Keep the last line of each file of an archive with several; of other files nothing is kept."""
    if places:
        write_whole(folder / PLACES, json.dumps(places.ends).encode())


def places_in(batch: Path) -> Places:
    """The places of a batch, to name its lines as a person finds them. batch: its folder."""
    for path in sorted(batch.glob(f"run-*/{PLACES}")):
        with suppress(OSError, ValueError, TypeError):
            return Places(tuple((str(name), int(end)) for name, end in json.loads(path.read_bytes())))
    return Places()
