"""Rows that are no records, by `[skip]` of the feed: totals among the rows, what stands below a table."""

from pipelines.feeds.mapping.mapping import Mapper
from pipelines.feeds.reading.chunks import Chunk
from pipelines.validation.outcome import Validated


def leave_out(chunk: Chunk, mapper: Mapper, found: Validated) -> None:
    """Take them out of a chunk and count their lines as not taken; they may have too few fields or too many.

    A row that a quote has broken stays: there may be others in it.
    """
    if not mapper.feed.file.skip:
        return
    if chunk.rows:
        for place in reversed(mapper.left_out(mapper.rows(chunk.rows)).nonzero()[0].tolist()):
            found.not_taken += chunk.drop(place)
    ragged = [row for row in chunk.bad if row.is_ragged]
    if ragged:
        rows = mapper.rows([row.padded(mapper.width) for row in ragged])
        for row, is_left_out in zip(ragged, mapper.left_out(rows), strict=True):
            if is_left_out:
                found.not_taken += row.lines
                chunk.drop_bad(row)
