"""Parts of a batch: ranges of hashed lanes, so that all rows of a lane are in one part, in their order."""

from typing import NamedTuple
from zlib import crc32

import pyarrow as pa

from pipelines.home import arrow


class Part(NamedTuple):
    """One of `of` parts. since: when the load began (UTC text), of a part that a worker has begun before.

    A record of this very row that has an outcome from then on got it in this load.
    """

    number: int
    of: int
    since: str = ""

    def has(self, lane: str) -> bool:
        """True if the rows of a lane are in this part: the high bits of its hash decide."""
        return crc32(lane.encode()) * self.of >> 32 == self.number

    def only(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows of this part, which have a column `lane`."""
        lanes = rows.column("lane").dictionary_encode()
        here = [self.has(lane) for lane in lanes.dictionary.to_pylist()]
        return rows.filter(arrow.column(here, pa.bool_()).take(lanes.indices))
