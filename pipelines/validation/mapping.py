"""Read and map a file's rows to `MAPPED`, a chunk at a time: the content of each row under its key, or its faults."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from pipelines.feeds.files.catalog import Feed
from pipelines.feeds.mapping.mapping import NOBODY, Crosswalks, Mapper
from pipelines.feeds.reading.cut_rows import CutRows
from pipelines.feeds.reading.readers import reader_of
from pipelines.home import spill
from pipelines.home.batch import ReceivedFile
from pipelines.validation.chunk_mapping import ChunkMapper
from pipelines.validation.outcome import ValidationResult
from pipelines.validation.side_by_side import SideBySide
from pipelines.validation.sifting import Sifter
from pipelines.validation.tables import MAPPED


def map_file(
    received: ReceivedFile,
    feed: Feed,
    to: Path,
    found: ValidationResult,
    work: SideBySide,
    known_as: Mapping[str, str] = {},
    people: Crosswalks = NOBODY,
) -> tuple[Mapping[int, str], Callable[[ValidationResult], str | None]]:
    """Write the file's rows as `MAPPED`: the content of each under its key, or its faults.

    Returns:
        By line, the rejects that rows say they answer; and a function that tells, once all amounts are known, how the
            file differs from its trailer.
    """
    with (
        reader_of(received.path_in_batch, received.file_name, feed) as reader,
        spill.ParquetWriter(to, MAPPED) as writer,
    ):
        mapper = Mapper(
            feed, reader.header, reader.name, known_as=known_as, first_lines=reader.first_lines, people=people
        )
        sifter = Sifter(mapper, reader, received)
        around = (reader.header, received.file_name, mapper.tables, known_as)
        make = partial(ChunkMapper, replace(feed, environ={}), *around)
        for mapped in work.over(make, CutRows(reader, feed.file).among(sifter.sifted(reader.chunks(), found))):
            found.not_taken += mapped.not_taken
            writer.add_batch(mapped.rows)
    sifter.count(found)
    return reader.answers, sifter.trailers.mismatch
