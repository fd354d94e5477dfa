"""The identifiers by which a file names people."""

from collections.abc import Iterator
from typing import Any

from pipelines.feeds.files.catalog import Feed
from pipelines.feeds.mapping.mapping import Mapper
from pipelines.feeds.mapping.missing import ListeningCrosswalk
from pipelines.feeds.reading.chunks import Chunk
from pipelines.feeds.reading.readers import reader_of
from pipelines.feeds.terms.values import Crosswalk
from pipelines.home.batch import ReceivedFile


def people_named(received: ReceivedFile, feed: Feed) -> dict[Crosswalk, set[str]]:
    """Return by crosswalk the values to ask for, from a first reading of the file."""
    asked = {walk: ListeningCrosswalk({}) for walk in feed.by_identifier}
    with reader_of(received.path_in_batch, received.file_name, feed) as reader:
        mapper = Mapper(feed, reader.header, reader.name, first_lines=reader.first_lines, people=asked)
        for chunk in reader.chunks():
            rows = [*_rows(feed, chunk)]
            taken = mapper.taken(mapper.rows(rows))
            mapper.map(mapper.rows([rows[at] for at in taken.nonzero()[0]]))
    return {walk: table.missed for walk, table in asked.items()}


def _rows(feed: Feed, chunk: Chunk) -> Iterator[Any]:
    """Yield the rows that may be accepted. Others may be misread, and their values must not go into an address."""
    yield from (row.cells for row in chunk.good if not (feed.file.resources and "resourceType" in row.cells))
